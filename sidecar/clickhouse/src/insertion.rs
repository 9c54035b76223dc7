//! Insertion of batches: changes of the tables that SQL has stored before.

use std::hash::{DefaultHasher, Hash, Hasher};

use clickhouse::insert_formatted::InsertFormatted;
use clickhouse::{Client, Row};
use serde::Deserialize;
use shortlink_core::boxed;

use crate::clicks::CLICKS;
use crate::columns::{Columns, VISITS, VISITS_BEFORE};
use crate::{ClickHouse, Fault, LinkClicks, PATIENCE};

/// Writes ClickHouse's format RowBinary.
#[derive(Debug, Default)]
pub(crate) struct RowBinary(Vec<u8>);

impl RowBinary {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    /// A value of a column that can be without one.
    pub(crate) fn some(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            Some(bytes) => self.bytes(&[0]).bytes(bytes),
            None => self.bytes(&[1]),
        }
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        let mut length = text.len();
        while length >= 0x80 {
            self.0.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.0.push(length as u8);
        self.bytes(text.as_bytes())
    }
}

/// A contribution of a batch to the counts of a link: visits of a class within an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCount<'a> {
    /// The link's code.
    pub code: &'a str,
    /// The class of the visits.
    pub class: &'a str,
    /// The number of visits; below 0 where visits leave a class.
    pub visits: i64,
    /// The time of the last of them, in milliseconds since 1970.
    pub last_at: i64,
    /// Their hour is not counted apart any more.
    pub is_earlier: bool,
}

/// Rows that are inserted together, in a form that can be stored meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Names the batch uniquely; those of later ones are greater.
    pub id: i64,
    /// Rows of visits, of counts and of clicks in RowBinary, behind the lengths of the first two parts.
    stored: Vec<u8>,
    /// The lengths of these parts.
    lengths: [usize; 2],
    /// The columns of the rows of visits.
    columns: &'static str,
}

/// The number of bytes that the lengths take.
const HEAD: usize = 16;

/// The bytes that are reserved for the rows of a visit: most take less.
const ROOM: usize = 400;

/// Marks the stored form of a batch that has clicks, and that of one whose visits have variants, in its first number.
const HAS_CLICKS: u64 = 1 << 63;
const HAS_VARIANTS: u64 = 1 << 62;

impl Batch {
    /// The batch of some visits, contributions to counts, which are in the order of their codes, and clicks, each link once.
    pub fn new<'a>(
        id: i64,
        visits: impl IntoIterator<Item = Columns<'a>>,
        counts: impl IntoIterator<Item = LinkCount<'a>>,
        clicks: impl IntoIterator<Item = LinkClicks<'a>>,
    ) -> Self {
        let visits = visits.into_iter();
        let mut rows = RowBinary(Vec::with_capacity(HEAD + ROOM * visits.size_hint().0));
        rows.bytes(&[0; HEAD]);
        for visit in visits {
            visit.write(&mut rows);
        }
        let of_visits = rows.0.len() - HEAD;
        // Nearly always 0, so that it takes no space.
        let (mut before, mut place) = ("", 0_u32);
        for count in counts {
            place = if count.code == before { place + 1 } else { 0 };
            before = count.code;
            let visits = i32::try_from(count.visits).unwrap_or(i32::MAX);
            rows.text(count.code).number(id);
            rows.bytes(&place.to_le_bytes()).number(count.last_at);
            rows.text(count.class).bytes(&visits.to_le_bytes());
            rows.bytes(&[u8::from(count.is_earlier)]);
        }
        let of_links = rows.0.len() - HEAD - of_visits;
        for of_link in clicks {
            of_link.write(id, &mut rows);
        }
        Self::of(id, rows.0, [of_visits, of_links], VISITS)
    }

    /// The batch of rows behind an empty head.
    fn of(id: i64, mut stored: Vec<u8>, lengths: [usize; 2], columns: &'static str) -> Self {
        let [mut visits, counts] = lengths.map(|length| length as u64);
        visits |= HAS_CLICKS;
        if columns == VISITS {
            visits |= HAS_VARIANTS;
        }
        stored[..8].copy_from_slice(&visits.to_le_bytes());
        stored[8..HEAD].copy_from_slice(&counts.to_le_bytes());
        Self {
            id,
            stored,
            lengths,
            columns,
        }
    }

    /// The rows of visits, of counts and of clicks.
    fn parts(&self) -> [&[u8]; 3] {
        let [visits, counts] = self.lengths;
        let (visits, rest) = self.stored[HEAD..].split_at(visits);
        let (counts, clicks) = rest.split_at(counts);
        [visits, counts, clicks]
    }

    /// The stored form of the rows.
    pub fn to_stored(&self) -> Vec<u8> {
        lz4_flex::compress_prepend_size(&self.stored)
    }

    /// Restores a batch, also one of a program that stored no clicks or no variants; `None` for anything that [`Batch::to_stored`] has
    /// not written.
    pub fn from_stored(id: i64, stored: &[u8]) -> Option<Self> {
        let stored = lz4_flex::decompress_size_prepended(stored).ok()?;
        let (first, mut rows) = number(&stored)?;
        let visits = usize::try_from(first & !(HAS_CLICKS | HAS_VARIANTS)).ok()?;
        let mut counts = rows.len().checked_sub(visits)?;
        if first & HAS_CLICKS != 0 {
            let (second, rest) = number(rows)?;
            (counts, rows) = (usize::try_from(second).ok()?, rest);
        }
        let is_whole = visits.checked_add(counts)? <= rows.len();
        let columns = match first & HAS_VARIANTS {
            0 => VISITS_BEFORE,
            _ => VISITS,
        };
        is_whole.then(|| Self::of(id, [&[0; HEAD], rows].concat(), [visits, counts], columns))
    }
}

/// Takes a number off the front.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

#[derive(Row, Deserialize)]
struct Last {
    batch: i64,
    number: i64,
}

/// Names the columns of the counts in the order in which a batch has them.
pub(crate) const COUNTS: &str = "code, batch, place, at, class, visits, is_earlier";

impl ClickHouse {
    /// Inserts the rows of a batch. A repetition changes nothing, also at the same time as the first one.
    ///
    /// # Errors
    /// When the rows are not known to be stored.
    #[boxed]
    pub async fn insert(&self, batch: &Batch) -> Result<(), Fault> {
        let client = self.database().await?;
        let tables = [
            ("visits", batch.columns),
            ("visit_counts", COUNTS),
            ("link_clicks", CLICKS),
        ];
        for ((table, columns), rows) in tables.into_iter().zip(batch.parts()) {
            if !rows.is_empty() {
                let sql = format!("INSERT INTO {table} ({columns}) FORMAT RowBinary");
                // A database that was restored draws the same ids for other rows.
                let mut hasher = DefaultHasher::new();
                rows.hash(&mut hasher);
                let token = format!("{}-{:x}", batch.id, hasher.finish());
                self.send(&client, sql, token, rows).await?;
            }
        }
        Ok(())
    }

    /// The greatest ids of batches and numbers of visits that were stored, 0 without any.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn last_ids(&self) -> Result<(i64, i64), Fault> {
        let client = self.database().await?;
        let query = "SELECT ifNull(greatest((SELECT max(batch) FROM visits), \
             (SELECT max(batch) FROM visit_counts), (SELECT max(batch) FROM link_clicks)), 0) AS batch, \
             ifNull((SELECT max(number) FROM visits), 0) AS number";
        let last = self.rows::<Last>(client.query(query)).await?;
        Ok(last
            .first()
            .map_or((0, 0), |last| (last.batch, last.number)))
    }

    async fn send(
        &self,
        client: &Client,
        sql: String,
        token: String,
        rows: &[u8],
    ) -> Result<(), Fault> {
        let sent = async {
            let mut insertion: InsertFormatted = client
                .insert_formatted_with(sql)
                .with_setting("insert_deduplication_token", token)
                // A late event opens the partition of its month.
                .with_setting("max_partitions_per_insert_block", "0")
                .with_setting("async_insert", "0");
            insertion.send(rows.to_vec().into()).await?;
            insertion.end().await
        };
        let sent = async { sent.await.map_err(|error| self.fault(&error)) };
        self.within(PATIENCE, sent).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_restored_as_they_were_stored() {
        let visit = crate::VisitRow {
            number: 7,
            code: "x".repeat(200),
            ..crate::VisitRow::default()
        };
        let count = |class| LinkCount {
            code: "abc",
            class,
            visits: -1,
            last_at: 5,
            is_earlier: true,
        };
        let clicks = |visits| crate::LinkClicks {
            link: crate::ClickedLink {
                campaign: 1,
                created: 2,
                code: "abc",
            },
            clicks: visits,
            since: 4,
        };
        let clicked = Some(crate::Clicks::at(5));
        let counts = [count("bot"), count("human")];
        let batch = Batch::new(
            9,
            [Columns::from(&visit)],
            counts.clone(),
            [clicks(clicked), clicks(None)],
        );
        assert_eq!(Batch::from_stored(9, &batch.to_stored()), Some(batch));
        // As programs before stored it.
        let batch = Batch::new(9, [Columns::from(&visit)], counts, []);
        let [visits, counts, _] = batch.parts();
        // The last byte is that of an empty variant.
        let visits = visits.split_last().expect("a row").1;
        let mut before = (visits.len() as u64).to_le_bytes().to_vec();
        before.extend_from_slice(&[visits, counts].concat());
        let before = lz4_flex::compress_prepend_size(&before);
        let restored = Batch::from_stored(9, &before).expect("a batch");
        assert_eq!(restored.parts(), [visits, counts, &[]]);
        assert_eq!((batch.columns, restored.columns), (VISITS, VISITS_BEFORE));
        assert!(VISITS_BEFORE.ends_with(" ruleset"));
        assert_eq!(Batch::from_stored(9, b"rubbish"), None);
    }

    #[test]
    fn lengths_of_texts_are_in_groups_of_seven_bits() {
        let mut rows = RowBinary::default();
        rows.text(&"x".repeat(300));
        assert_eq!(rows.0[..3], [0xac, 0x02, b'x']);
        assert_eq!(rows.0.len(), 302);
    }
}
