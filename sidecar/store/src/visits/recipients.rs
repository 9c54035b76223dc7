//! Clicks as they are read: of links, of campaigns, and of all recipients of a campaign.

use jiff::Timestamp;
use shortlink_core::ports::{FirstClicks, LinkClicks, Position, Recipient, StoreError};
use vocabulary::{CampaignId, Code};

use super::HOUR_MS;
use super::clicks::OF_LINK;
use super::counts::{moment, number};
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
const RECIPIENTS: Sql = sql!(
    "SELECT page.code AS code, created_at, created_by, external_id, first_at, last_at, visits FROM \
     (SELECT id, code, created_at, created_by, external_id FROM links {INDEXED BY links_by_campaign }\
     WHERE campaign_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4) AS page \
     LEFT JOIN link_clicks ON link_clicks.campaign_id = $1 AND link_clicks.{link_id = page.id|code = page.code} \
     ORDER BY created_at DESC, id DESC"
);

impl Store {
    /// Reports whether clicks are counted: not in ClickHouse.
    pub fn counts_clicks(&self) -> bool {
        self.sink.is_none()
    }

    /// Returns the clicks of those of some links that have any, in no order; `None` if they are not counted, since
    /// visits are in ClickHouse.
    pub async fn link_clicks(
        &self,
        codes: &[Code],
    ) -> Result<Option<Vec<(Code, LinkClicks)>>, StoreError> {
        if !self.counts_clicks() {
            return Ok(None);
        }
        let read = |row: &Row| Ok((row.get("code")?, clicks(row)?));
        let args = (codes, read);
        let found = self.read("read the clicks of links", args, |db, (codes, read)| {
            Box::pin(async move {
                let ids = known_ids(db, codes).await?;
                let ids: Vec<i64> = ids.into_iter().flatten().collect();
                db.all(OF_LINKS, args![ids], read).await
            })
        });
        found.await.map(Some)
    }

    /// Counts the links of a campaign with clicks by the hour of their first one, in the order of time, also those that
    /// were deleted; `None` as [`Store::link_clicks`].
    pub async fn first_clicks(
        &self,
        id: CampaignId,
    ) -> Result<Option<Vec<FirstClicks>>, StoreError> {
        if !self.counts_clicks() {
            return Ok(None);
        }
        let sql =
            sql!("SELECT hour, links FROM campaign_clicks WHERE campaign_id = $1 ORDER BY hour");
        let read = |row: &Row| {
            Ok(FirstClicks {
                hour: moment(row, "hour", HOUR_MS)?,
                links: number(row, "links")?,
            })
        };
        self.all("read the clicks of a campaign", sql, args![id], read)
            .await
            .map(Some)
    }

    /// Returns the time at which the first link of a campaign was created, of those that are not deleted.
    pub async fn first_link_at(&self, id: CampaignId) -> Result<Option<Timestamp>, StoreError> {
        let sql = sql!("SELECT min(created_at) AS created_at FROM links WHERE campaign_id = $1");
        let read = |row: &Row| row.find("created_at");
        let operation = "find the first link of a campaign";
        Ok(self.one(operation, sql, args![id], read).await?.flatten())
    }

    /// Reads links of a campaign with their clicks, the latest first, those behind a position; `None` as
    /// [`Store::link_clicks`].
    pub async fn recipients(
        &self,
        id: CampaignId,
        after: Option<&Position>,
        limit: u32,
    ) -> Result<Option<Vec<Recipient>>, StoreError> {
        if !self.counts_clicks() {
            return Ok(None);
        }
        let args = (id, after, limit);
        let found = self.read("read the recipients of a campaign", args, |db, args| {
            let (id, after, limit) = *args;
            Box::pin(async move {
                let (created_at, place) = place(db, after).await?;
                let values = args![id, created_at, place, limit];
                db.all(RECIPIENTS, values, |row| {
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
        found.await.map(Some)
    }
}

fn clicks(row: &Row) -> Result<LinkClicks, sqlx::Error> {
    Ok(LinkClicks {
        first_at: row.get("first_at")?,
        last_at: row.get("last_at")?,
        visits: number(row, "visits")?,
    })
}
