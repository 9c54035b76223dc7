//! The numbers among which the visits of a link are.
//!
//! Visits are sorted by their numbers, so that those of one link are anywhere. The filter by code is read as a whole for each
//! question, and grows with the table; the counts of a link are found at once, and name its batches.

use std::fmt::Write as _;

use clickhouse::Row;
use serde::Deserialize;
use shortlink_core::boxed;
use vocabulary::Code;

use crate::statistics::in_hours;
use crate::{ClickHouse, Fault};

/// Some numbers of visits, as ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(Vec<(i64, i64)>);

/// The most numbers that one thread reads: more threads take longer to begin than they save.
const OF_ONE_THREAD: i64 = 1_000_000;

impl Numbers {
    /// The numbers of ranges, each from one number on and before another.
    pub fn of(ranges: impl IntoIterator<Item = (i64, i64)>) -> Self {
        let mut sorted: Vec<(i64, i64)> = ranges.into_iter().collect();
        sorted.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(sorted.len());
        for (since, until) in sorted {
            match joined.last_mut() {
                Some((_, end)) if since <= *end => *end = until.max(*end),
                _ => joined.push((since, until)),
            }
        }
        Self(joined)
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The condition that `number` is one of them.
    pub(crate) fn condition(&self) -> String {
        let mut condition = String::from("(0");
        for &(since, until) in &self.0 {
            // ClickHouse's integers have no literal for the least one.
            let since = since.max(-i64::MAX);
            // Writing to a string does not fail.
            let _ = write!(condition, " OR number >= {since} AND number < {until}");
        }
        condition.push(')');
        condition
    }

    /// The settings behind a statement that reads them.
    pub(crate) fn settings(&self) -> &'static str {
        let lengths = self
            .0
            .iter()
            .map(|(since, until)| until.saturating_sub(*since));
        match lengths.fold(0, i64::saturating_add) {
            ..=OF_ONE_THREAD => " SETTINGS max_threads = 1, optimize_read_in_order = 0",
            _ => "",
        }
    }
}

#[derive(Row, Deserialize)]
struct OfLink {
    batch: i64,
}

impl ClickHouse {
    /// The latest batches, at most `limit`, that have visits of a link from one hour since 1970 on and before another, the
    /// last first. There may be others among them.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn batches(
        &self,
        code: &Code,
        hours: (i64, i64),
        limit: usize,
    ) -> Result<Vec<i64>, Fault> {
        // Of earlier hours, the times are not exact.
        let query = "SELECT DISTINCT batch FROM visit_counts WHERE code = ? AND (is_earlier = 1 OR \
             at >= fromUnixTimestamp64Milli(?, 'UTC') AND at < fromUnixTimestamp64Milli(?, 'UTC')) \
             ORDER BY batch DESC LIMIT ?";
        let query = self.database().await?.query(query).bind(code.as_str());
        let query = in_hours(query, hours).bind(limit as u64);
        let rows = self.rows::<OfLink>(query).await?.into_iter();
        Ok(rows.map(|row| row.batch).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let numbers = Numbers::of([(20, 30), (1, 5), (5, 9), (22, 25)]);
        assert_eq!(numbers, Numbers(vec![(1, 9), (20, 30)]));
        assert_eq!(
            numbers.condition(),
            "(0 OR number >= 1 AND number < 9 OR number >= 20 AND number < 30)"
        );
        assert!(Numbers::of([]).is_empty());
        assert_eq!(Numbers::default().condition(), "(0)");
    }

    #[test]
    fn few_numbers_are_read_by_one_thread() {
        assert!(!Numbers::of([(1, 9), (20, 30)]).settings().is_empty());
        for open in [(i64::MIN, 5), (7, i64::MAX), (i64::MIN, i64::MAX)] {
            assert_eq!(Numbers::of([open]).settings(), "");
        }
    }
}
