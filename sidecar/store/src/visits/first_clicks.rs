//! The first human visit of a link as an event of webhooks: in the transaction that gives the link its row of clicks.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use shortlink_core::webhook::EventType;

use super::{ALL, LinkKey};
use crate::db::Db;
use crate::sql::sql;
use crate::value::{Row, Value};
use crate::webhooks::events::{NewEvent, append};

/// A human visit that was stored: its number, code, time and campaign.
struct Human {
    number: i64,
    code: String,
    at: i64,
    campaign: Option<i64>,
}

/// Reports the first of the human visits of each link, which are in the order of their times and numbers.
async fn report(
    db: &mut Db<'_>,
    visits: impl IntoIterator<Item = Human>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let mut seen = HashSet::new();
    let events = visits.into_iter().filter_map(|visit| {
        let is_first = seen.insert(visit.code.clone());
        is_first.then_some(NewEvent {
            event: EventType::LinkClicked,
            campaign: visit.campaign.filter(|id| *id != ALL),
            subject: visit.code,
            visit: Some((visit.number, visit.at)),
            data: None,
        })
    });
    let events: Vec<NewEvent> = events.collect();
    append(db, &events, now).await
}

/// Reports the first human visits of links among visits that were just stored, with ids between two.
pub(super) async fn report_new(
    db: &mut Db<'_>,
    links: &[LinkKey<'_>],
    visits: &[&Visit],
    (first, last): (i64, i64),
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if links.is_empty() {
        return Ok(());
    }
    let times = visits.iter().map(|visit| visit.at.as_millisecond());
    let (earliest, latest) = (times.clone().min(), times.max());
    // PostgreSQL looks only into the parts of these days. SQLite reads the visits by their ids.
    let sql = sql!(
        "SELECT id, code, at, campaign_id FROM visits WHERE id >= $2 AND id <= $3 \
         AND {+link_id IN (SELECT value FROM json_each($1))|code = ANY($1::text[])} \
         AND class = 'human' AND at >= $4 AND at <= $5 ORDER BY at, id"
    );
    let values: [Value<'_>; 5] = [
        LinkKey::list(db, links.iter()),
        first.into(),
        last.into(),
        earliest.into(),
        latest.into(),
    ];
    let read = |row: &Row| {
        Ok(Human {
            number: row.get("id")?,
            code: row.get("code")?,
            at: row.get("at")?,
            campaign: row.find("campaign_id")?,
        })
    };
    let found: Vec<Human> = db.all(sql, &values, read).await?;
    report(db, found, now).await
}

/// Reports the first human visits of links that have none but those of visits that are judged to be human now.
pub(super) async fn report_corrected<'a>(
    db: &mut Db<'_>,
    links: &[LinkKey<'a>],
    visits: &[(&'a (StoredVisit, Verdict), LinkKey<'a>)],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let links: HashSet<&LinkKey<'_>> = links.iter().collect();
    let visits = visits.iter().filter(|((_, verdict), key)| {
        verdict.classification.class == Class::Human && links.contains(key)
    });
    let in_order: BTreeMap<(Timestamp, i64), &StoredVisit> = visits
        .map(|((visit, _), _)| ((visit.at, visit.number), visit))
        .collect();
    let visits = in_order.into_values().map(|visit| Human {
        number: visit.number,
        code: visit.code.clone(),
        at: visit.at.as_millisecond(),
        campaign: Some(visit.campaign),
    });
    report(db, visits, now).await
}
