//! Visits that wait for their second judgement.
//!
//! The transaction that stores visits notes them as a stretch, because no number shows which visits were judged: in
//! PostgreSQL, transactions commit in another order than that of their numbers.

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{StoreError, Stretch};
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::DeviceKind;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::class::behaviour::{self, Watched};
use shortlink_core::visit::class::networks::Network;
use shortlink_core::visit::class::pretence::is_pretended;
use shortlink_core::visit::stored::StoredVisit;

use super::reclassify::{STORED, stored_visit};
use super::sink::asked;
use super::{asn, evidence, visitor_id};
use crate::Store;
use crate::db::Db;
use crate::sql::{IN_NUMBERS, sql};
use crate::value::{Row, args};

impl Store {
    /// Lists the stretches in the order in which they were stored, at most `limit`.
    #[boxed]
    pub async fn stretches(&self, limit: u32) -> Result<Vec<Stretch>, StoreError> {
        let sql = sql!(
            "SELECT id, first_id, last_id, first_at, last_at, visits, stored_at \
             FROM visit_stretches ORDER BY id LIMIT $1"
        );
        self.all("find visits to judge", sql, args![limit], |row| {
            Ok(Stretch {
                id: row.get("id")?,
                numbers: (row.get("first_id")?, row.get("last_id")?),
                times: (row.get("first_at")?, row.get("last_at")?),
                visits: row.get::<i64>("visits")?.unsigned_abs(),
                stored_ms: row.get("stored_at")?,
            })
        })
        .await
    }

    /// Removes stretches that were judged.
    #[boxed]
    pub async fn remove_stretches(&self, ids: Vec<i64>) -> Result<(), StoreError> {
        let sql = sql!("DELETE FROM visit_stretches WHERE id", IN_NUMBERS);
        let operation = "note visits as judged";
        self.run(operation, sql, args![ids]).await?;
        Ok(())
    }

    /// Reads the visits behind the number `after` whose numbers and times are those of a stretch,
    /// at most `limit`: those of persons by the first rules, and those that were judged by behaviour. Also
    /// returns the number of the last visit that was read; `None` after the last one.
    #[boxed]
    pub async fn watched_visits(
        &self,
        after: i64,
        stretch: Stretch,
        limit: u32,
    ) -> Result<(Vec<Watched>, Option<i64>), StoreError> {
        if let Some(sink) = &self.sink {
            let read = sink.watched(after, stretch, limit).await;
            return asked("read visits to judge", read);
        }
        let sql = sql!(
            "SELECT visits.id, at, code, visitor, client, agent_id, user_agent, isp, asn, evidence, \
             class, reason, device FROM \
             {visits CROSS|(SELECT * FROM visits WHERE id > $1 AND id <= $2 AND at >= $3 AND at <= $4 \
             ORDER BY id LIMIT $5) AS visits} JOIN visit_agents ON visit_agents.id = agent_id \
             {WHERE visits.id > $1 AND visits.id <= $2 AND at >= $3 AND at <= $4 }\
             ORDER BY visits.id{ LIMIT $5}"
        );
        let (first_at, last_at) = stretch.times;
        let values = args![after, stretch.numbers.1, first_at, last_at, limit];
        let read = |row: &Row| Ok((row.get("id")?, watched(row)?));
        let rows: Vec<(i64, _)> = self.all("read visits to judge", sql, values, read).await?;
        let last = rows.last().map(|(id, _)| *id);
        Ok((rows.into_iter().filter_map(|(_, it)| it).collect(), last))
    }

    /// Reads visits by their numbers, and the time of the first and the last of them in
    /// milliseconds since 1970; those that are gone are left out.
    #[boxed]
    pub async fn stored_visits(
        &self,
        numbers: &[i64],
        times: (i64, i64),
    ) -> Result<Vec<StoredVisit>, StoreError> {
        if let Some(sink) = &self.sink {
            return asked("read visits", sink.stored(numbers, times).await);
        }
        let sql = sql!(
            STORED,
            "visits JOIN visit_agents ON visit_agents.id = agent_id \
             WHERE at >= $2 AND at <= $3 AND visits.id",
            IN_NUMBERS
        );
        let values = args![numbers.to_vec(), times.0, times.1];
        let visits: Vec<Option<StoredVisit>> =
            self.all("read visits", sql, values, stored_visit).await?;
        Ok(visits.into_iter().flatten().collect())
    }
}

fn watched(row: &Row) -> Result<Option<Watched>, sqlx::Error> {
    let reason = row.get("reason")?;
    let is_judged = behaviour::reason(reason).is_some();
    let class = Class::by_name(row.get("class")?);
    if !is_judged && !class.is_some_and(|class| class.is_of_person(reason)) {
        return Ok(None);
    }
    let client: Option<&str> = row.find("client")?;
    let network = Network {
        name: row.find("isp")?,
        asn: asn(row)?,
    };
    let observed = evidence(row)?;
    Ok(Some(Watched {
        number: row.get("id")?,
        at_ms: row.get("at")?,
        code: row.get::<&str>("code")?.into(),
        created_ms: None,
        visitor: visitor_id(row.find("visitor")?),
        is_truncated: observed.is_truncated(),
        client: client.map(Into::into),
        agent: row.get("agent_id")?,
        is_desktop: row.get::<&str>("device")? == DeviceKind::Desktop.name(),
        is_hosting: network.is_hosting(),
        is_pretended: is_pretended(observed, row.get("user_agent")?),
        is_judged,
    }))
}

/// Notes visits that were stored with ids in a range.
pub(super) async fn note_stretch(
    db: &mut Db<'_>,
    visits: &[&Visit],
    (first_id, last_id): (i64, i64),
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let times = || visits.iter().map(|visit| visit.at);
    let (Some(first_at), Some(last_at)) = (times().min(), times().max()) else {
        return Ok(());
    };
    let sql = sql!(
        "INSERT INTO visit_stretches (first_id, last_id, first_at, last_at, visits, stored_at) \
         VALUES ($1, $2, $3, $4, $5, $6)"
    );
    let count = visits.len() as i64;
    let values = args![first_id, last_id, first_at, last_at, count, now];
    db.run(sql, values).await?;
    Ok(())
}
