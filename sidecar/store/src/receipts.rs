//! Delivery receipts: the last status of each link's message, how many messages of a campaign have which, and how many of
//! these were clicked.
//!
//! All change in one transaction. Clicks move the last number as well ([`crate::visits::messages`]). A status replaces the
//! stored one if it is from a later time, so that the order in which receipts arrive, and repetitions, make no difference.
//! One without a time replaces only statuses that come before it in [`ReceiptStatus`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shortlink_core::boxed;
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
use crate::visits::clicks::OF_LINK;

/// Lock of the transaction with receipts: "shorrece". Transactions of the same campaign would wait for each other
/// anyway, at its counts. Those that give links their first click, or take the last one away, share it: each reads what
/// the others have stored. Links are locked before it, rows of clicks and of counts behind it.
pub(crate) const LOCK: i64 = 0x7368_6f72_7265_6365;

/// The most counts of a campaign that are read.
const MAX_COUNTS: u32 = 10_000;

/// Finds links, and keeps them from being deleted.
const LINKS: Sql = sql!(
    "SELECT id, coalesce(campaign_id, 0) AS campaign_id, created_by FROM links WHERE id",
    IN_NUMBERS,
    " ORDER BY id{| FOR KEY SHARE}"
);

/// Finds the links with clicks among those of campaigns. The limit has PostgreSQL look up each link.
const CLICKED: Sql = sql!(
    "SELECT id FROM links WHERE id",
    IN_NUMBERS,
    " AND campaign_id IS NOT NULL AND (SELECT 1 FROM link_clicks WHERE ",
    OF_LINK,
    " LIMIT 1) IS NOT NULL"
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
    #[boxed]
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

    /// Counts the messages of a campaign by status.
    #[boxed]
    pub async fn count_messages(
        &self,
        id: CampaignId,
    ) -> Result<Vec<(ReceiptStatus, u64)>, StoreError> {
        let sql = sql!(
            "SELECT status, CAST(sum(messages) AS bigint) AS messages FROM receipt_counts \
             WHERE campaign_id = $1 GROUP BY status"
        );
        let read = |row: &Row| Ok((status(row)?, row.get("messages")?));
        self.all("count messages", sql, args![id], read).await
    }

    /// Counts the messages of a campaign by network and status, the largest count first, at most 10,000. With visits in
    /// ClickHouse, this finds the receipts of all links with clicks; of more than 200,000 it finds none.
    #[boxed]
    pub async fn count_receipts(&self, id: CampaignId) -> Result<Vec<ReceiptCount>, StoreError> {
        let sql = sql!(
            "SELECT network, status, messages, clicked FROM receipt_counts WHERE campaign_id = $1 \
             ORDER BY messages DESC LIMIT $2"
        );
        let values = args![id, MAX_COUNTS];
        let mut counts: Vec<ReceiptCount> = self.all("count receipts", sql, values, count).await?;
        if let Some(sink) = self.sink.as_ref().filter(|_| !counts.is_empty()) {
            let found = self.clicked_messages(sink, id).await?;
            for it in &mut counts {
                let key = (it.network.clone(), it.status);
                let found = found.as_ref();
                let found = found.map(|found| found.get(&key).copied().unwrap_or_default());
                it.clicked = it
                    .clicked
                    .zip(found)
                    .map(|(deleted, found)| deleted + found);
            }
        }
        Ok(counts)
    }
}

async fn keep(
    db: &mut Db<'_>,
    receipts: &[DeliveryReceipt],
    own: Option<&[String]>,
) -> Result<Vec<ReceiptOutcome>, sqlx::Error> {
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
    db.lock(LOCK).await?;
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
    let ids: Vec<i64> = latest.keys().copied().collect();
    let clicked: BTreeSet<i64> = db.all(CLICKED, args![ids], |row| row.get("id")).await?;
    let mut counts = Counts::default();
    for (id, (_, status, network)) in latest {
        let campaign = links.get(id).map_or(0, |(campaign, _)| *campaign);
        let clicked = i64::from(clicked.contains(id));
        counts.add((campaign, network, status.name()), [1, clicked]);
        if let Some((_, status, network)) = stored.get(id) {
            counts.add((campaign, network, status.name()), [-1, -clicked]);
        }
    }
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
    counts.store(db).await
}

/// Changes of the counts of a campaign, network and status: of messages, and of clicked ones among them.
#[derive(Debug, Default)]
pub(crate) struct Counts<'a>(BTreeMap<(i64, &'a str, &'static str), [i64; 2]>);

impl<'a> Counts<'a> {
    pub(crate) fn add(&mut self, key: (i64, &'a str, &'static str), by: [i64; 2]) {
        let of = self.0.entry(key).or_default();
        *of = [of[0] + by[0], of[1] + by[1]];
    }

    /// Changes the counts, in an order that all transactions have. They hold [`LOCK`], or share it.
    pub(crate) async fn store(mut self, db: &mut Db<'_>) -> Result<(), sqlx::Error> {
        self.0.retain(|_, by| *by != [0, 0]);
        let rows = self.0.iter();
        let rows = rows.map(|((campaign, network, status), [messages, clicked])| {
            let [campaign, messages, clicked] = [*campaign, *messages, *clicked].map(Value::from);
            [
                campaign,
                (*network).into(),
                (*status).into(),
                messages,
                clicked,
            ]
        });
        let into = sql!(
            "INSERT INTO receipt_counts AS kept (campaign_id, network, status, messages, clicked)"
        );
        let types = ["bigint", "text", "text", "bigint", "bigint"];
        let end = sql!(
            " ON CONFLICT (campaign_id, network, status) DO UPDATE \
             SET messages = kept.messages + excluded.messages, clicked = kept.clicked + excluded.clicked"
        );
        db.insert(into, types, end, rows).await?;
        let less = self.0.iter().filter(|(_, [messages, _])| *messages < 0);
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
        db.delete(from, key, less.into_iter(), end).await
    }
}

fn count(row: &Row) -> Result<ReceiptCount, sqlx::Error> {
    Ok(ReceiptCount {
        network: row.get("network")?,
        status: status(row)?,
        messages: row.get("messages")?,
        clicked: Some(row.get("clicked")?),
    })
}

pub(crate) fn status(row: &Row) -> Result<ReceiptStatus, sqlx::Error> {
    ReceiptStatus::by_name(row.get("status")?).ok_or_else(|| invalid("status"))
}
