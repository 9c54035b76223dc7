//! Delivery receipts: the last status of each link's message, and how many messages of a campaign have which.
//!
//! Both change in one transaction. A status replaces the stored one if it is from a later time, so that the order in
//! which receipts arrive, and repetitions, make no difference. One without a time replaces only statuses that come before
//! it in [`ReceiptStatus`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shortlink_core::ports::StoreError;
use shortlink_core::receipt::{
    DeliveryReceipt, ReceiptCount, ReceiptOf, ReceiptOutcome, ReceiptStatus,
};
use vocabulary::{CampaignId, Code};

use crate::Store;
use crate::db::Db;
use crate::external_ids::{self, Wanted};
use crate::rows::known_ids;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::value::{Row, Value, args, invalid};

/// Lock of the transaction with receipts: "shorrece". Transactions of the same campaign would wait for each other
/// anyway, at its counts.
const LOCK: i64 = 0x7368_6f72_7265_6365;

/// The most counts of a campaign that are read.
const MAX_COUNTS: u32 = 10_000;

/// Finds links, and keeps them from being deleted.
const LINKS: Sql = sql!(
    "SELECT id, coalesce(campaign_id, 0) AS campaign_id, created_by FROM links WHERE id",
    IN_NUMBERS,
    " ORDER BY id{| FOR KEY SHARE}"
);

const STORED: Sql = sql!(
    "SELECT link_id, at, status, network FROM receipts WHERE link_id",
    IN_NUMBERS
);

/// Deletes the receipts of deleted links; their campaigns still count them.
pub(crate) const REMOVE: Sql = sql!("DELETE FROM receipts WHERE link_id", IN_NUMBERS);

/// The status of a message; the greater of two counts.
type Status = (i64, ReceiptStatus, String);

impl Store {
    /// Stores receipts, all or, after an error, none; returns the outcome of each. With `own`, only links that were
    /// created with one of these API keys are known.
    pub async fn keep_receipts(
        &self,
        receipts: Vec<DeliveryReceipt>,
        own: Option<Vec<String>>,
    ) -> Result<Vec<ReceiptOutcome>, StoreError> {
        self.run_tx("store receipts", (receipts, own), |db, (receipts, own)| {
            Box::pin(keep(db, receipts, own.as_deref()))
        })
        .await
    }

    /// Counts the messages of a campaign by status, without their networks.
    pub async fn count_messages(&self, id: CampaignId) -> Result<Vec<ReceiptCount>, StoreError> {
        let sql = sql!(
            "SELECT '' AS network, status, CAST(sum(messages) AS bigint) AS messages FROM receipt_counts \
             WHERE campaign_id = $1 GROUP BY status"
        );
        self.all("count messages", sql, args![id], count).await
    }

    /// Counts the messages of a campaign by network and status, the largest count first, at most 10,000.
    pub async fn count_receipts(&self, id: CampaignId) -> Result<Vec<ReceiptCount>, StoreError> {
        let sql = sql!(
            "SELECT network, status, messages FROM receipt_counts WHERE campaign_id = $1 \
             ORDER BY messages DESC LIMIT $2"
        );
        let values = args![id, MAX_COUNTS];
        self.all("count receipts", sql, values, count).await
    }
}

async fn keep(
    db: &mut Db<'_>,
    receipts: &[DeliveryReceipt],
    own: Option<&[String]>,
) -> Result<Vec<ReceiptOutcome>, sqlx::Error> {
    db.lock(LOCK).await?;
    let ids = find(db, receipts, own).await?;
    let wanted: BTreeSet<i64> = ids.iter().flatten().copied().collect();
    let wanted: Vec<i64> = wanted.into_iter().collect();
    let read = |row: &Row| {
        let created_by: String = row.get("created_by")?;
        Ok((row.get("id")?, (row.get("campaign_id")?, created_by)))
    };
    let wanted = [Value::from(wanted)];
    let mut links: HashMap<i64, (i64, String)> = db.all(LINKS, &wanted, read).await?;
    links.retain(|_, (_, created_by)| own.is_none_or(|own| own.contains(created_by)));
    let read = |row: &Row| {
        let stored = (row.get("at")?, status(row)?, row.get("network")?);
        Ok((row.get("link_id")?, stored))
    };
    let stored: HashMap<i64, Status> = db.all(STORED, &wanted, read).await?;

    let mut latest: BTreeMap<i64, Status> = BTreeMap::new();
    let mut outcomes = Vec::with_capacity(receipts.len());
    for (receipt, id) in receipts.iter().zip(ids) {
        let Some(id) = id.filter(|id| links.contains_key(id)) else {
            outcomes.push(ReceiptOutcome::Unknown);
            continue;
        };
        let at = receipt.at.as_millisecond();
        let new = (at, receipt.status, receipt.network.clone());
        let before = latest.get(&id).or_else(|| stored.get(&id));
        let is_older =
            |before: &Status| *before >= new || !receipt.is_timed && before.1 >= receipt.status;
        if before.is_some_and(is_older) {
            outcomes.push(ReceiptOutcome::Unchanged);
        } else {
            latest.insert(id, new);
            outcomes.push(ReceiptOutcome::Stored);
        }
    }
    write(db, &links, &stored, &latest).await?;
    Ok(outcomes)
}

/// The ids of the links of receipts, each in its receipt's place.
async fn find(
    db: &mut Db<'_>,
    receipts: &[DeliveryReceipt],
    own: Option<&[String]>,
) -> Result<Vec<Option<i64>>, sqlx::Error> {
    let mut ids = vec![None; receipts.len()];
    let (mut codes, mut places): (Vec<Code>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut recipients = Vec::new();
    for (place, receipt) in receipts.iter().enumerate() {
        match &receipt.of {
            ReceiptOf::Code(code) => {
                codes.push(*code);
                places.push(place);
            }
            ReceiptOf::Recipient(campaign, id) => recipients.push(Wanted {
                place,
                id,
                campaign: campaign.get().cast_signed(),
            }),
        }
    }
    for (place, id) in places.into_iter().zip(known_ids(db, &codes).await?) {
        ids[place] = id;
    }
    for (place, found) in external_ids::find(db, &recipients, own).await? {
        ids[place] = found.first().copied();
    }
    Ok(ids)
}

/// Writes the statuses that changed, and moves their messages from count to count.
async fn write(
    db: &mut Db<'_>,
    links: &HashMap<i64, (i64, String)>,
    stored: &HashMap<i64, Status>,
    latest: &BTreeMap<i64, Status>,
) -> Result<(), sqlx::Error> {
    let mut counts: BTreeMap<(i64, &str, &'static str), i64> = BTreeMap::new();
    for (id, (_, status, network)) in latest {
        let campaign = links.get(id).map_or(0, |(campaign, _)| *campaign);
        *counts
            .entry((campaign, network, status.name()))
            .or_default() += 1;
        if let Some((_, status, network)) = stored.get(id) {
            *counts
                .entry((campaign, network, status.name()))
                .or_default() -= 1;
        }
    }
    counts.retain(|_, by| *by != 0);
    let rows = latest.iter().map(|(id, (at, status, network))| {
        let [id, at] = [*id, *at].map(Value::from);
        [id, at, status.name().into(), network.into()]
    });
    let into = sql!("INSERT INTO receipts (link_id, at, status, network)");
    let types = ["bigint", "bigint", "text", "text"];
    let end = sql!(
        " ON CONFLICT (link_id) DO UPDATE SET at = excluded.at, status = excluded.status, network = excluded.network"
    );
    db.insert(into, types, end, rows).await?;
    let rows = counts.iter().map(|((campaign, network, status), by)| {
        let campaign = Value::from(*campaign);
        [campaign, (*network).into(), (*status).into(), (*by).into()]
    });
    let into = sql!("INSERT INTO receipt_counts AS kept (campaign_id, network, status, messages)");
    let types = ["bigint", "text", "text", "bigint"];
    let end = sql!(
        " ON CONFLICT (campaign_id, network, status) DO UPDATE SET messages = kept.messages + excluded.messages"
    );
    db.insert(into, types, end, rows).await?;
    let less = counts.iter().filter(|(_, by)| **by < 0);
    let less = less.map(|((campaign, network, status), _)| {
        [(*campaign).into(), (*network).into(), (*status).into()]
    });
    let less: Vec<[Value<'_>; 3]> = less.collect();
    let from = sql!("DELETE FROM receipt_counts");
    let key = [
        (sql!("campaign_id"), "bigint"),
        (sql!("network"), "text"),
        (sql!("status"), "text"),
    ];
    let end = sql!(" AND messages <= 0");
    db.delete(from, key, less.into_iter(), end, |_row| Ok(()))
        .await?;
    Ok(())
}

fn count(row: &Row) -> Result<ReceiptCount, sqlx::Error> {
    Ok(ReceiptCount {
        network: row.get("network")?,
        status: status(row)?,
        messages: row.get("messages")?,
    })
}

fn status(row: &Row) -> Result<ReceiptStatus, sqlx::Error> {
    ReceiptStatus::by_name(row.get("status")?).ok_or_else(|| invalid("status"))
}
