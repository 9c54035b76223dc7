//! The latest announcement of each nginx about the short domains, so that every sidecar can show all; and the domains
//! that are suspected to be blocked, so that each suspicion is reported once.

use jiff::{SignedDuration, Timestamp};
use shortlink_core::announcement::{Announcement, Heard};
use shortlink_core::blocks::{Block, Blocks};
use shortlink_core::boxed;
use shortlink_core::ports::{MAX_NODES, StoreError};
use shortlink_core::webhook::EventType;

use super::Store;
use super::claims::{note_of, write_note};
use super::db::Db;
use super::sql::sql;
use super::value::{Row, args};
use super::webhooks::events::{self, NewEvent};

/// Time without announcements after which a node makes way for another. Each confirms its own every minute.
const SILENT: SignedDuration = SignedDuration::from_mins(5);

/// The name of the note with the suspected blocks.
const BLOCKS: &str = "suspected blocks";

impl Store {
    /// Deletes the announcements of nodes that were last heard before `forget_before`, and stores a node's announcement in
    /// place of the one before, unless that was received later. `false` if there are [`MAX_NODES`] others
    /// that are not silent.
    #[boxed]
    pub async fn note_domains(
        &self,
        announcement: &Announcement,
        now: Timestamp,
        forget_before: Timestamp,
    ) -> Result<bool, StoreError> {
        let args = (announcement.clone(), now, forget_before);
        self.run_tx("store the short domains of nginx", args, |db, args| {
            Box::pin(async move {
                let (said, now, forget_before) = args;
                let forget = sql!("DELETE FROM domain_nodes WHERE heard_at < $1");
                db.run(forget, args![*forget_before]).await?;
                let insert = sql!(
                    "INSERT INTO domain_nodes AS kept \
                     (node, bases, names, states, brands, more, changed_at, heard_at) \
                     SELECT $1, $2, $3, $4, $5, $6, $7, $7 WHERE $8 > \
                     (SELECT count(*) FROM domain_nodes WHERE node <> $1) \
                     ON CONFLICT (node) DO UPDATE SET \
                     changed_at = CASE WHEN (kept.bases, kept.names, kept.states, kept.brands, kept.more) \
                     = (excluded.bases, excluded.names, excluded.states, excluded.brands, excluded.more) \
                     THEN kept.changed_at ELSE excluded.changed_at END, \
                     bases = excluded.bases, names = excluded.names, states = excluded.states, \
                     brands = excluded.brands, more = excluded.more, heard_at = excluded.heard_at \
                     WHERE kept.heard_at <= excluded.heard_at"
                );
                let Announcement {
                    node,
                    bases,
                    names,
                    states,
                    brands,
                    more,
                } = said;
                let values = args![node, bases, names, states, brands, *more, *now, MAX_NODES];
                if db.run(insert, values).await? > 0 {
                    return Ok(true);
                }
                let sql = sql!("SELECT node FROM domain_nodes WHERE node = $1");
                let known: Vec<String> = db.all(sql, args![node], |row| row.get("node")).await?;
                if !known.is_empty() {
                    return Ok(true);
                }
                // A container has a new name each time it is made: the one that has been silent for longest makes way.
                let replace = sql!(
                    "DELETE FROM domain_nodes WHERE node = (SELECT node FROM domain_nodes \
                     WHERE heard_at < $1 ORDER BY heard_at, node LIMIT 1)"
                );
                let silent_before = now.checked_sub(SILENT).unwrap_or(*now);
                db.run(replace, args![silent_before]).await?;
                Ok(db.run(insert, values).await? > 0)
            })
        })
        .await
    }

    /// Takes the suspected blocks of an evaluation, and reports new ones to webhooks.
    #[boxed]
    pub async fn note_blocks(&self, found: Vec<Block>, now: Timestamp) -> Result<(), StoreError> {
        self.run_tx("note suspected blocks", (found, now), |db, (found, now)| {
            Box::pin(note_blocks(db, found, *now))
        })
        .await
    }

    /// The suspected blocks of the last evaluations, by any process.
    #[boxed]
    pub async fn blocks(&self) -> Result<Blocks, StoreError> {
        Ok(read_blocks(self.note(BLOCKS).await?.as_deref()))
    }

    /// Lists all nodes' announcements, by the nodes' names.
    #[boxed]
    pub async fn list_domains(&self) -> Result<Vec<Heard>, StoreError> {
        // There are as many rows as nodes: an index has nothing to say.
        let sql = sql!(
            "SELECT node, bases, names, states, brands, more, changed_at, heard_at \
             FROM domain_nodes ORDER BY node"
        );
        self.all("read what nginx says of domains", sql, args![], read)
            .await
    }
}

fn read_blocks(note: Option<&str>) -> Blocks {
    let blocks = note.and_then(|text| serde_json::from_str(text).ok());
    blocks.unwrap_or_default()
}

async fn note_blocks(db: &mut Db<'_>, found: &[Block], now: Timestamp) -> Result<(), sqlx::Error> {
    let mut blocks = read_blocks(note_of(db, BLOCKS).await?.as_deref());
    let new = blocks.update(found.to_vec(), now);
    let text = serde_json::to_string(&blocks).unwrap_or_default();
    write_note(db, BLOCKS, &text).await?;
    let events = new.into_iter().map(|block| NewEvent {
        event: EventType::DomainSuspectedBlocked,
        campaign: None,
        subject: format!("domain:{}", block.domain),
        visit: None,
        data: serde_json::to_string(&block).ok(),
    });
    let events: Vec<NewEvent> = events.collect();
    events::report(db, &events, now).await
}

fn read(row: &Row) -> Result<Heard, sqlx::Error> {
    Ok(Heard {
        announcement: Announcement {
            node: row.get("node")?,
            bases: row.get("bases")?,
            names: row.get("names")?,
            states: row.get("states")?,
            brands: row.get("brands")?,
            more: row.get("more")?,
        },
        changed_at: row.get("changed_at")?,
        heard_at: row.get("heard_at")?,
    })
}
