//! Clicks as they are read: of links, of campaigns, and of all recipients of a campaign.

use jiff::Timestamp;
use shortlink_clickhouse::{ClickedLink, Clicks};
use shortlink_core::boxed;
use shortlink_core::ports::{FirstClicks, LinkClicks, Position, Recipient, StoreError};
use vocabulary::{CampaignId, Code};

use super::HOUR_MS;
use super::clicks::OF_LINK;
use super::counts::{moment, number};
use super::sink::asked;
use crate::Store;
use crate::links::place;
use crate::rows::known_ids;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::value::{Row, args};

/// The clicks of links by their ids.
const OF_LINKS: Sql = sql!(
    "SELECT links.code AS code, first_at, last_at, visits FROM links {CROSS }JOIN link_clicks ON ",
    OF_LINK,
    " WHERE links.id",
    IN_NUMBERS
);

/// The links of a campaign behind a place, the latest first.
const PAGE: &str = "(SELECT id, code, created_at, created_by, external_id FROM links {INDEXED BY links_by_campaign }\
     WHERE campaign_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4) AS page ";

/// Those links with their clicks.
const RECIPIENTS: Sql = sql!(
    "SELECT page.code AS code, created_at, created_by, external_id, first_at, last_at, visits FROM ",
    PAGE,
    "LEFT JOIN link_clicks ON link_clicks.campaign_id = $1 AND link_clicks.{link_id = page.id|code = page.code} \
     ORDER BY created_at DESC, id DESC"
);

/// Those links where ClickHouse has the clicks.
const LINKS: Sql = sql!(
    "SELECT code, created_at, created_by, external_id, NULL AS first_at FROM ",
    PAGE,
    "ORDER BY created_at DESC, id DESC"
);

impl Store {
    /// Reports whether clicks are in ClickHouse.
    pub(crate) fn has_clicks_elsewhere(&self) -> bool {
        self.sink.is_some()
    }

    /// Returns the clicks of those of some links that have any, in no order.
    #[boxed]
    pub async fn link_clicks(&self, codes: &[Code]) -> Result<Vec<(Code, LinkClicks)>, StoreError> {
        if let Some(sink) = &self.sink {
            let found = self.sunk_clicks(sink, codes).await?.into_iter();
            return Ok(found.map(|(code, it)| (code, of_sink(it))).collect());
        }
        let read = |row: &Row| Ok((row.get("code")?, clicks(row)?));
        let args = (codes, read);
        self.read("read the clicks of links", args, |db, (codes, read)| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?;
                let ids: Vec<i64> = ids.into_iter().flatten().collect();
                db.all(OF_LINKS, args![ids], read).await
            })
        })
        .await
    }

    /// Counts the links of a campaign with clicks by the hour of their first one, in the order of time, also those that
    /// were deleted.
    #[boxed]
    pub async fn first_clicks(&self, id: CampaignId) -> Result<Vec<FirstClicks>, StoreError> {
        let operation = "read the clicks of a campaign";
        if let Some(sink) = &self.sink {
            return asked(operation, sink.first_clicks(id).await);
        }
        let sql =
            sql!("SELECT hour, links FROM campaign_clicks WHERE campaign_id = $1 ORDER BY hour");
        let read = |row: &Row| {
            Ok(FirstClicks {
                hour: moment(row, "hour", HOUR_MS)?,
                links: number(row, "links")?,
            })
        };
        self.all(operation, sql, args![id], read).await
    }

    /// Returns the time at which the first link of a campaign was created, of those that are not deleted.
    #[boxed]
    pub async fn first_link_at(&self, id: CampaignId) -> Result<Option<Timestamp>, StoreError> {
        let sql = sql!("SELECT min(created_at) AS created_at FROM links WHERE campaign_id = $1");
        let read = |row: &Row| row.find("created_at");
        let operation = "find the first link of a campaign";
        Ok(self.one(operation, sql, args![id], read).await?.flatten())
    }

    /// Reads links of a campaign with their clicks, the latest first, those behind a position. Clicks in ClickHouse are
    /// read after the links, and can be later than these.
    #[boxed]
    pub async fn recipients(
        &self,
        id: CampaignId,
        after: Option<&Position>,
        limit: u32,
    ) -> Result<Vec<Recipient>, StoreError> {
        let operation = "read the recipients of a campaign";
        let sql = match &self.sink {
            Some(_) => LINKS,
            None => RECIPIENTS,
        };
        let args = (id, after, limit, sql);
        let found = self.read(operation, args, |db, (id, after, limit, sql)| {
            Box::pin(async move {
                let (created_at, place) = place(db, *after).await?;
                let values = args![*id, created_at, place, *limit];
                db.all(*sql, values, |row| {
                    let first_at: Option<Timestamp> = row.find("first_at")?;
                    Ok(Recipient {
                        code: row.get("code")?,
                        created_at: row.get("created_at")?,
                        created_by: row.get("created_by")?,
                        external_id: row.find("external_id")?,
                        clicks: first_at.map(|_| clicks(row)).transpose()?,
                    })
                })
                .await
            })
        });
        let mut found: Vec<Recipient> = found.await?;
        if let Some(sink) = &self.sink {
            let links = found.iter().map(|it| ClickedLink {
                campaign: id.get().cast_signed(),
                created: it.created_at.as_millisecond(),
                code: it.code.as_str(),
            });
            let links: Vec<ClickedLink<'_>> = links.collect();
            let clicks = asked(operation, sink.clicks_of(&links, i64::MAX).await)?;
            for (place, clicks) in clicks {
                found[place].clicks = Some(of_sink(clicks));
            }
        }
        Ok(found)
    }
}

/// Clicks that ClickHouse has.
pub(super) fn of_sink(clicks: Clicks) -> LinkClicks {
    // Its columns hold no moment that this type can't.
    let moment = |ms| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    LinkClicks {
        first_at: moment(clicks.first_at),
        last_at: moment(clicks.last_at),
        visits: clicks.visits.unsigned_abs(),
    }
}

fn clicks(row: &Row) -> Result<LinkClicks, sqlx::Error> {
    Ok(LinkClicks {
        first_at: row.get("first_at")?,
        last_at: row.get("last_at")?,
        visits: number(row, "visits")?,
    })
}
