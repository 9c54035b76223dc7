//! The clicked messages of a campaign by the networks of their delivery receipts.
//!
//! They are counted when they are asked for, in pages: counts that follow each click and each receipt would cost all
//! ingestion. So the caller bounds the number of clicked links.

use std::collections::BTreeMap;

use shortlink_core::ports::{MAX_TOGETHER, StoreError};
use shortlink_core::receipt::ReceiptStatus;
use vocabulary::{CampaignId, Code};

use super::LinkKey;
use super::counts::{LINK, number};
use super::sink::asked;
use super::top::Clicked;
use crate::Store;
use crate::db::Db;
use crate::rows::known_ids;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::value::{Row, Value, args};

const OPERATION: &str = "count clicked messages";

/// The most clicked links of a campaign for [`Store::clicked_messages`].
pub const MOST_CLICKED_MESSAGES: u32 = 200_000;

/// The number of links that are read at a time.
const PAGE: u32 = 10_000;

/// The clicked links of a campaign behind one.
const CLICKED: Sql = sql!(
    "SELECT ",
    LINK,
    " AS link FROM link_clicks WHERE campaign_id = $1 AND ",
    LINK,
    " > $2 ORDER BY ",
    LINK,
    " LIMIT $3"
);

/// Counts the messages with a status among those of some links.
const BY_NETWORK: Sql = sql!(
    "SELECT network, count(*) AS messages FROM receipts WHERE link_id",
    IN_NUMBERS,
    " AND status = $2 GROUP BY network"
);

/// Numbers of messages by network.
type Networks = Vec<(String, u64)>;

impl Store {
    /// Counts the delivered messages of a campaign whose links were clicked, by network; those of at most about
    /// [`MOST_CLICKED_MESSAGES`] links with visits in ClickHouse. Links that were deleted have none.
    pub async fn clicked_messages(
        &self,
        id: CampaignId,
    ) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut networks = BTreeMap::new();
        let mut add = |found: Networks| {
            for (network, messages) in found {
                *networks.entry(network).or_default() += messages;
            }
        };
        if let Some(sink) = &self.sink {
            let most = MOST_CLICKED_MESSAGES;
            let clicked = sink.most_clicked(id.get().cast_signed(), most, most).await;
            let (clicked, _) = asked(OPERATION, clicked)?;
            for part in clicked.chunks(MAX_TOGETHER) {
                let links = self.existing_of(Some(id), part).await?;
                let codes: Vec<Code> = links.iter().map(|link| link.code).collect();
                let found = self.read(OPERATION, codes, |db, codes| {
                    Box::pin(async move {
                        let ids = known_ids(db, codes).await?;
                        of_links(db, ids.into_iter().flatten().collect()).await
                    })
                });
                add(found.await?);
            }
            return Ok(networks);
        }
        let mut after = None;
        loop {
            let found = self.read(OPERATION, (id, &after), |db, (id, after)| {
                Box::pin(page(db, *id, after.as_ref()))
            });
            let (found, last) = found.await?;
            add(found);
            after = last;
            if after.is_none() {
                return Ok(networks);
            }
        }
    }
}

/// The messages of some clicked links, and the last of these if there may be more.
async fn page(
    db: &mut Db<'_>,
    campaign: CampaignId,
    after: Option<&Clicked>,
) -> Result<(Networks, Option<Clicked>), sqlx::Error> {
    let first = match db.scheme() {
        crate::Scheme::Sqlite => Value::from(i64::MIN),
        crate::Scheme::Postgres => Value::from(""),
    };
    let after = after.map_or(first, |after| after.key().into());
    let mut links: Vec<Clicked> = db
        .all(
            CLICKED,
            &[campaign.into(), after, PAGE.into()],
            Clicked::read,
        )
        .await?;
    let by_id = LinkKey::ids(db, links.iter().map(Clicked::key)).await?;
    let ids: Vec<i64> = by_id.keys().copied().collect();
    let found = of_links(db, ids).await?;
    let is_full = links.len() >= PAGE as usize;
    Ok((found, links.pop().filter(|_| is_full)))
}

async fn of_links(db: &mut Db<'_>, mut ids: Vec<i64>) -> Result<Networks, sqlx::Error> {
    // In the order in which the rows lie.
    ids.sort_unstable();
    let read = |row: &Row| Ok((row.get("network")?, number(row, "messages")?));
    db.all(
        BY_NETWORK,
        args![ids, ReceiptStatus::Delivered.name()],
        read,
    )
    .await
}
