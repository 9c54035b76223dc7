//! The links with the most clicks.

use std::cmp::Reverse;
use std::collections::HashMap;

use shortlink_clickhouse::{ClickHouse, TopLink};
use shortlink_core::boxed;
use shortlink_core::link::Link;
use shortlink_core::ports::{
    LinkClicks, MAX_TOGETHER, MOST_CLICKED, MostClicked, Recipient, StoreError,
};
use vocabulary::{CampaignId, Code};

use super::counts::{LINK, number};
use super::recipients::of_sink;
use super::sink::asked;
use super::{ALL, LinkKey};
use crate::Store;
use crate::db::Db;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::value::{Row, Value, args};

const OPERATION: &str = "find the links with the most clicks";

/// The most clicked links that are compared.
const MOST_COMPARED: u32 = 1_000_000;

/// The links of a campaign with the most clicks among some.
const TOP: Sql = sql!(
    "SELECT compared.",
    LINK,
    " AS link, first_at, last_at, visits FROM \
     (SELECT * FROM link_clicks WHERE campaign_id = $1 LIMIT $2) AS compared \
     ORDER BY visits DESC, last_at DESC, compared.",
    LINK,
    " LIMIT $3"
);

/// Finds a clicked link behind so many others.
const MORE: Sql =
    sql!("SELECT 1 AS more FROM link_clicks WHERE campaign_id = $1 LIMIT 1 OFFSET $2");

/// A clicked link by the value of its key.
struct Top {
    link: Clicked,
    clicks: LinkClicks,
}

/// The key of a clicked link.
pub(super) enum Clicked {
    Id(i64),
    Code(String),
}

impl Clicked {
    /// Reads the column `link`.
    pub(super) fn read(row: &Row) -> Result<Self, sqlx::Error> {
        match row {
            Row::Sqlite(_) => row.get("link").map(Self::Id),
            Row::Postgres(_) => row.get("link").map(Self::Code),
        }
    }

    pub(super) fn key(&self) -> LinkKey<'_> {
        match self {
            Self::Id(id) => LinkKey::Id(*id),
            Self::Code(code) => LinkKey::Code(code),
        }
    }
}

impl Store {
    /// Returns the links of a campaign, or of none, with the most clicks, at most [`MOST_CLICKED`].
    #[boxed]
    pub async fn most_clicked(
        &self,
        campaign: Option<CampaignId>,
        most: u32,
    ) -> Result<MostClicked, StoreError> {
        let most = most.min(MOST_CLICKED);
        if let Some(sink) = &self.sink {
            return self.most_clicked_elsewhere(sink, campaign, most).await;
        }
        let args = (campaign, most);
        self.read(OPERATION, args, |db, args| {
            Box::pin(most_clicked(db, *args))
        })
        .await
    }

    /// The same in ClickHouse, which also has links that were deleted: further ones take their place.
    async fn most_clicked_elsewhere(
        &self,
        sink: &ClickHouse,
        campaign: Option<CampaignId>,
        most: u32,
    ) -> Result<MostClicked, StoreError> {
        let id = campaign.map_or(ALL, |id| id.get().cast_signed());
        let mut limit = most.saturating_mul(2);
        loop {
            let top = sink.most_clicked(id, MOST_COMPARED, limit).await;
            let (top, is_complete) = asked(OPERATION, top)?;
            let is_all = top.len() < limit as usize;
            let mut links = Vec::new();
            for part in top.chunks(MAX_TOGETHER) {
                links.extend(self.existing_of(campaign, part).await?);
            }
            if links.len() >= most as usize || is_all || limit >= MOST_COMPARED {
                links.truncate(most as usize);
                return Ok(MostClicked {
                    links,
                    is_complete: is_complete && (is_all || limit < MOST_COMPARED),
                });
            }
            limit = limit.saturating_mul(8).min(MOST_COMPARED);
        }
    }

    /// Those of some links that exist, in their order; at most [`MAX_TOGETHER`].
    pub(super) async fn existing_of(
        &self,
        campaign: Option<CampaignId>,
        top: &[TopLink],
    ) -> Result<Vec<Recipient>, StoreError> {
        let codes: Vec<Code> = top.iter().filter_map(|it| it.code.parse().ok()).collect();
        let found = self.find_links(&codes).await?;
        let found: HashMap<&str, &Link> = found.iter().map(|it| (it.code.as_str(), it)).collect();
        let links = top.iter().filter_map(|top| {
            let link = *found.get(&*top.code)?;
            let is_same = link.created_at.as_millisecond() == top.created
                && link.destination.campaign() == campaign;
            is_same.then(|| Recipient {
                code: link.code,
                created_at: link.created_at,
                created_by: link.created_by.clone(),
                external_id: link.external_id.clone(),
                clicks: Some(of_sink(top.clicks)),
            })
        });
        Ok(links.collect())
    }
}

async fn most_clicked(
    db: &mut Db<'_>,
    (campaign, most): (Option<CampaignId>, u32),
) -> Result<MostClicked, sqlx::Error> {
    let campaign = campaign.map_or(Value::from(ALL), Value::from);
    let values = [campaign.clone(), MOST_COMPARED.into(), most.into()];
    let top: Vec<Top> = db.all(TOP, &values, read).await?;
    let values = [campaign, MOST_COMPARED.into()];
    let more: Option<()> = db.one(MORE, &values, |_row| Ok(())).await?;
    let by_id = LinkKey::ids(db, top.iter().map(|it| it.link.key())).await?;
    let clicks: HashMap<LinkKey<'_>, LinkClicks> =
        top.iter().map(|it| (it.link.key(), it.clicks)).collect();
    let sql = sql!(
        "SELECT id, code, created_at, created_by, external_id FROM links WHERE id",
        IN_NUMBERS
    );
    let ids: Vec<i64> = by_id.keys().copied().collect();
    let mut links: Vec<Recipient> = db
        .all(sql, args![ids], |row| {
            Ok(Recipient {
                code: row.get::<Code>("code")?,
                created_at: row.get("created_at")?,
                created_by: row.get("created_by")?,
                external_id: row.find("external_id")?,
                clicks: by_id
                    .get(&row.get("id")?)
                    .and_then(|key| clicks.get(key).copied()),
            })
        })
        .await?;
    let order = |it: &Recipient| it.clicks.map(|it| (it.visits, it.last_at));
    links.sort_by_key(|it| (Reverse(order(it)), it.code.to_string()));
    Ok(MostClicked {
        links,
        is_complete: more.is_none(),
    })
}

fn read(row: &Row) -> Result<Top, sqlx::Error> {
    Ok(Top {
        link: Clicked::read(row)?,
        clicks: LinkClicks {
            first_at: row.get("first_at")?,
            last_at: row.get("last_at")?,
            visits: number(row, "visits")?,
        },
    })
}
