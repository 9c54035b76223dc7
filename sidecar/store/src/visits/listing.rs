//! Visits as they are listed, and their erasure.

use jiff::Timestamp;
use shortlink_core::audit::{Action, AuditEntry, Subject};
use shortlink_core::ports::{KeptVisit, StoreError, VisitListing};
use vocabulary::Code;

use super::counts::{LINK, link};
use super::{LinkKey, OF_LINKS, joined};
use crate::db::Statement;
use crate::sql::{Sql, sql};
use crate::value::{Row, Value, hex};
use crate::{Store, audit};

/// The columns that [`read`] reads.
const SELECT: Sql = sql!(
    "SELECT visits.id, at, code, host, client, visitor, user_agent, referrer, referrer_host, \
     language, method, status, purpose, country, province, city, isp, browser, browser_version, \
     os, os_version, device, app, class, reason, ruleset \
     FROM visits JOIN visit_agents ON visit_agents.id = agent_id WHERE "
);

const ERASE: Sql = sql!("DELETE FROM visits WHERE ", OF_LINKS);

impl Store {
    /// Lists visits, those that were stored last first.
    pub async fn list_visits(&self, listing: &VisitListing) -> Result<Vec<KeptVisit>, StoreError> {
        self.read("list visits", listing, |db, listing| {
            Box::pin(async move {
                let of = match &listing.code {
                    None => None,
                    Some(code) => match link(db, code).await? {
                        None => return Ok(Vec::new()),
                        of => of,
                    },
                };
                let mut statement = db.statement(SELECT);
                push_filters(&mut statement, listing, of);
                db.all(&statement, &statement.values, read).await
            })
        })
        .await
    }

    /// Deletes the visits of links, whose counts stay, and writes an entry for each link into the
    /// audit log; returns the number of visits.
    pub async fn erase_visits(
        &self,
        codes: &[Code],
        key_id: &str,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let args = (codes.to_vec(), key_id.to_owned(), now);
        self.run_tx("erase visits", args, |db, (codes, key_id, now)| {
            Box::pin(async move {
                for code in codes {
                    let entry = AuditEntry {
                        at: *now,
                        key_id: Some(key_id.clone()),
                        action: Action::VisitsErase,
                        subject: Subject::Link(*code),
                        detail: serde_json::Map::new(),
                    };
                    audit::append(db, &entry).await?;
                }
                let keys = LinkKey::known(db, codes).await?;
                let wanted = LinkKey::list(db, keys.keys());
                db.run(ERASE, &[wanted]).await
            })
        })
        .await
    }
}

/// Adds the conditions of a listing, of a link if it is given as [`LINK`].
fn push_filters<'a>(
    statement: &mut Statement<'a>,
    listing: &'a VisitListing,
    of: Option<Value<'a>>,
) {
    if let Some(of) = of {
        statement.push(sql!(LINK, " = ")).bind(of);
        statement.push(sql!(" AND "));
    }
    let before = listing.before.unwrap_or(i64::MAX);
    statement.push(sql!("visits.id < ")).bind(before);
    if let Some(class) = listing.class {
        statement.push(sql!(" AND class = ")).bind(class.name());
    }
    if let Some(since) = listing.since {
        statement.push(sql!(" AND at >= ")).bind(since);
    }
    if let Some(until) = listing.until {
        statement.push(sql!(" AND at < ")).bind(until);
    }
    let end = sql!(" ORDER BY visits.id DESC LIMIT ");
    statement.push(end).bind(listing.limit);
}

fn read(row: &Row) -> Result<KeptVisit, sqlx::Error> {
    let with_version = |name, version| -> Result<Option<String>, sqlx::Error> {
        Ok(joined(row.find(name)?, row.find(version)?))
    };
    let visitor_id: Option<&[u8]> = row.find("visitor")?;
    Ok(KeptVisit {
        number: row.get("id")?,
        at: row.get("at")?,
        code: row.get("code")?,
        host: row.get("host")?,
        client: row.find("client")?,
        visitor: visitor_id.map(hex),
        user_agent: row.get("user_agent")?,
        referrer: row.find("referrer")?.unwrap_or_default(),
        referrer_host: row.find("referrer_host")?,
        language: row.find("language")?,
        method: row.get("method")?,
        status: row.get("status")?,
        purpose: row.find("purpose")?.unwrap_or_default(),
        country: row.find("country")?,
        province: row.find("province")?,
        city: row.find("city")?,
        isp: row.find("isp")?,
        browser: with_version("browser", "browser_version")?,
        os: with_version("os", "os_version")?,
        device: row.get("device")?,
        app: row.find("app")?,
        class: row.get("class")?,
        reason: row.get("reason")?,
        ruleset: row.get("ruleset")?,
    })
}

#[cfg(test)]
mod tests;
