//! The clicked messages of campaigns: part of the counts of delivery receipts.
//!
//! A message is clicked while its link has a row of clicks, and for good once the link was deleted with one. Two kinds of
//! transactions move the count: those that store or delete rows of clicks, and those with receipts. Each reads what the
//! other has stored, behind a lock ([`receipts::LOCK`]), so that exactly one of both counts a message. Most campaigns have
//! no receipts, and of the others only a link's first click counts: nothing else costs ingestion anything.
//!
//! With visits in ClickHouse, only those of deleted links are counted. The others are found when they are asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use shortlink_clickhouse::ClickHouse;
use shortlink_core::ports::{MAX_TOGETHER, StoreError};
use shortlink_core::receipt::ReceiptStatus;
use vocabulary::{CampaignId, Code};

use super::clicks::Place;
use super::sink::asked;
use super::{ALL, LinkKey};
use crate::Store;
use crate::db::Db;
use crate::receipts::{self, Counts};
use crate::rows::known_ids;
use crate::sql::{IN_NUMBERS, Sql, sql, table};
use crate::value::{Row, args};

/// The most clicked links of a campaign whose messages are found in ClickHouse.
const MOST_CLICKED: u32 = 200_000;

/// Finds the campaigns with receipts among some. The limit has PostgreSQL look up each.
const WITH_RECEIPTS: Sql = sql!(
    "SELECT id FROM campaigns WHERE id",
    IN_NUMBERS,
    " AND (SELECT 1 FROM receipt_counts WHERE receipt_counts.campaign_id = campaigns.id LIMIT 1) IS NOT NULL"
);

/// Adds numbers of links up by the receipts of these.
const BY_RECEIPT: Sql = sql!(
    "SELECT changed.campaign_id, network, status, CAST(sum(changed.links) AS bigint) AS messages FROM ",
    table!("changed": 1 "campaign_id" "bigint", 2 "id" "bigint", 3 "links" "bigint"),
    " CROSS JOIN {receipts WHERE link_id = changed.id\
     |LATERAL (SELECT network, status FROM receipts WHERE link_id = changed.id LIMIT 1) AS receipt} GROUP BY 1, 2, 3"
);

/// Numbers of messages of a campaign, by network and status.
pub(crate) type Messages = BTreeMap<(String, ReceiptStatus), u64>;

/// Changes of the clicked messages of campaigns by the rows of clicks of their links.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// The campaigns that have receipts.
    campaigns: BTreeSet<i64>,
    /// Those of links of these campaigns: 1 for a first click, -1 for a link without any now.
    links: Vec<(Place<'a>, i64)>,
}

impl<'a> Changes<'a> {
    /// Begins with some campaigns, [`ALL`] among them, before rows of clicks are locked or stored: a transaction with
    /// receipts can wait for this one from now on.
    pub(super) async fn of(
        db: &mut Db<'_>,
        campaigns: impl Iterator<Item = i64>,
    ) -> Result<Self, sqlx::Error> {
        let campaigns: BTreeSet<i64> = campaigns.filter(|id| *id != ALL).collect();
        if campaigns.is_empty() {
            return Ok(Self::default());
        }
        db.share_lock(receipts::LOCK).await?;
        let campaigns = Vec::from_iter(campaigns);
        Ok(Self {
            campaigns: db
                .all(WITH_RECEIPTS, args![campaigns], |row| row.get("id"))
                .await?,
            links: Vec::new(),
        })
    }

    /// The campaigns whose links have to be noted.
    pub(super) fn campaigns(&self) -> Vec<i64> {
        self.campaigns.iter().copied().collect()
    }

    /// Notes that a link has its first click, or with -1 none any more.
    pub(super) fn add(&mut self, place: Place<'a>, links: i64) {
        if self.campaigns.contains(&place.0) {
            self.links.push((place, links));
        }
    }

    /// Changes the counts.
    pub(super) async fn store(self, db: &mut Db<'_>) -> Result<(), sqlx::Error> {
        let keys = self.links.iter().map(|((_, key), _)| *key);
        let ids = LinkKey::ids(db, keys).await?;
        let ids: HashMap<LinkKey<'_>, i64> = ids.into_iter().map(|(id, key)| (key, id)).collect();
        let links = self.links.iter();
        let links =
            links.filter_map(|((campaign, key), by)| Some([*campaign, *ids.get(key)?, *by]));
        count(db, links.collect()).await
    }
}

/// Counts the messages of links with clicks that are being deleted, each with its campaign or [`ALL`]: with visits in
/// ClickHouse, they are not found any more afterwards.
pub(crate) async fn keep(
    db: &mut Db<'_>,
    links: impl Iterator<Item = (i64, i64)>,
) -> Result<(), sqlx::Error> {
    let links = links.filter(|(campaign, _)| *campaign != ALL);
    let links: Vec<[i64; 3]> = links.map(|(campaign, id)| [campaign, id, 1]).collect();
    if !links.is_empty() {
        db.share_lock(receipts::LOCK).await?;
    }
    count(db, links).await
}

/// Adds numbers of links, by campaign and id, to the counts of clicked messages.
async fn count(db: &mut Db<'_>, links: Vec<[i64; 3]>) -> Result<(), sqlx::Error> {
    let found = by_receipt(db, links).await?;
    let mut counts = Counts::default();
    for (campaign, network, status, messages) in &found {
        counts.add((*campaign, network, status.name()), [0, *messages]);
    }
    counts.store(db).await
}

/// Adds numbers of links, by campaign and id, up by the receipts of these.
async fn by_receipt(
    db: &mut Db<'_>,
    mut links: Vec<[i64; 3]>,
) -> Result<Vec<(i64, String, ReceiptStatus, i64)>, sqlx::Error> {
    if links.is_empty() {
        return Ok(Vec::new());
    }
    // In the order in which the rows lie.
    links.sort_unstable_by_key(|[_, id, _]| *id);
    let values = db.table(links.iter().map(|link| link.map(Into::into)));
    let read = |row: &Row| {
        let status = receipts::status(row)?;
        let of = (row.get("campaign_id")?, row.get("network")?);
        Ok((of.0, of.1, status, row.get("messages")?))
    };
    db.all(BY_RECEIPT, &values, read).await
}

/// Takes out of the counts what [`Store::clicked_messages`] finds once visits are in ClickHouse: the messages of links that
/// exist.
pub(super) async fn leave(db: &mut Db<'_>) -> Result<(), sqlx::Error> {
    db.lock(receipts::LOCK).await?;
    let sql = sql!(
        "UPDATE receipt_counts SET clicked = receipt_counts.clicked - found.messages FROM \
         (SELECT campaign_id, network, status, count(*) AS messages FROM ",
        CLICKED,
        " GROUP BY 1, 2, 3) AS found WHERE receipt_counts.campaign_id = found.campaign_id \
         AND receipt_counts.network = found.network AND receipt_counts.status = found.status"
    );
    db.run(sql, &[]).await?;
    Ok(())
}

/// The receipts of all links of campaigns with clicks.
const CLICKED: &str = "{link_clicks CROSS JOIN receipts ON receipts.link_id = link_clicks.link_id WHERE campaign_id > 0\
     |link_clicks JOIN links USING (campaign_id, code) JOIN receipts ON receipts.link_id = links.id}";

impl Store {
    /// The links with receipts and clicks in ClickHouse among some.
    pub(crate) async fn clicked_with_receipts(
        &self,
        codes: Vec<Code>,
    ) -> Result<HashSet<Code>, StoreError> {
        let Some(sink) = &self.sink else {
            return Ok(HashSet::new());
        };
        let found = self.read("find links with receipts", codes, |db, codes| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?.into_iter().zip(codes);
                let ids: HashMap<i64, Code> =
                    ids.filter_map(|(id, code)| Some((id?, *code))).collect();
                let sql = sql!("SELECT link_id FROM receipts WHERE link_id", IN_NUMBERS);
                let list: Vec<i64> = ids.keys().copied().collect();
                let read = |row: &Row| Ok(ids.get(&row.get("link_id")?).copied());
                let found: Vec<Option<Code>> = db.all(sql, args![list], read).await?;
                Ok(found.into_iter().flatten().collect::<Vec<Code>>())
            })
        });
        let found = found.await?;
        if found.is_empty() {
            return Ok(HashSet::new());
        }
        // Those of batches that ClickHouse does not have yet as well.
        self.flush_visits().await?;
        let clicked = self.sunk_clicks(sink, &found).await?.into_iter();
        Ok(clicked.map(|(code, _)| code).collect())
    }

    /// Counts the messages of a campaign whose links exist and have clicks in ClickHouse; `None` if more than
    /// [`MOST_CLICKED`] links have.
    pub(crate) async fn clicked_messages(
        &self,
        sink: &ClickHouse,
        id: CampaignId,
    ) -> Result<Option<Messages>, StoreError> {
        let operation = "count clicked messages";
        let clicked = self.first_clicks(id).await?;
        let clicked: u64 = clicked.iter().map(|it| it.links).sum();
        if clicked > MOST_CLICKED.into() {
            return Ok(None);
        }
        let id_number = id.get().cast_signed();
        let clicked = sink.most_clicked(id_number, MOST_CLICKED, MOST_CLICKED);
        let (clicked, _) = asked(operation, clicked.await)?;
        let mut messages = Messages::new();
        for part in clicked.chunks(MAX_TOGETHER) {
            let links = self.existing_of(Some(id), part).await?;
            let codes: Vec<Code> = links.iter().map(|link| link.code).collect();
            let found = self.read(operation, (codes, id_number), |db, (codes, campaign)| {
                Box::pin(async move {
                    let ids = known_ids(db, codes).await?.into_iter().flatten();
                    by_receipt(db, ids.map(|id| [*campaign, id, 1]).collect()).await
                })
            });
            for (_, network, status, more) in found.await? {
                *messages.entry((network, status)).or_default() += more.cast_unsigned();
            }
        }
        Ok(Some(messages))
    }
}
