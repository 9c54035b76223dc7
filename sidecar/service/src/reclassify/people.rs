//! Counts the unique visitors of stale days again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::ports::{StaleDay, StoreError};
use shortlink_core::visit::sketch::Sketch;
use shortlink_store::Store;

use super::again;
use crate::jobs::{Job, Next};

/// Days per round, each of a campaign or of all. A sketch takes 4 KB.
const TOGETHER: u32 = 1024;

/// Sketches per transaction.
const WRITTEN_TOGETHER: usize = 32;

/// Visits per page.
const PAGE: u32 = 5000;

/// The interval at which stale days are counted again in the background.
pub const EVERY: Duration = Duration::from_secs(600);

/// Counts the unique visitors of all stale days again, whichever run marked them. Only one process
/// does so: others would restart it.
pub struct People {
    store: Arc<Store>,
    /// Number of days that were counted, separately for each campaign and for all.
    pub(super) days: u64,
    count: Option<Count>,
}

/// Days whose visitors are being counted.
struct Count {
    days: Vec<StaleDay>,
    /// Sketches by campaign and day.
    sketches: HashMap<(i64, i64), Sketch>,
    /// Number of the visit that was read last.
    after: i64,
    /// Number of the last visit of these days; not known before the first page.
    last: Option<i64>,
    /// The sketches were replaced, and the visits are read once more.
    is_second: bool,
}

#[async_trait]
impl Job for People {
    type Error = StoreError;
    const NAME: &'static str = "people";
    const FAILURE: &'static str = "the unique visitors of days can't be counted again";
    /// The claim only saves work; the generation of each day ensures correctness.
    const LEASE: Option<Duration> = Some(Duration::from_secs(10));

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.count = None;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        let Some(mut count) = self.count.take() else {
            let days = again(|| self.store.stale_days(TOGETHER)).await?;
            let Some(count) = Count::of(days, false) else {
                return Ok(Next::Idle);
            };
            tracing::info!(
                days = count.days.len(),
                "the unique visitors of days are counted again"
            );
            self.count = Some(count);
            return Ok(Next::Now);
        };
        let span = count.span();
        if count.last.is_none() {
            let numbers = again(|| self.store.numbers_of_days(span)).await?;
            let (first, last) = numbers.unwrap_or((i64::MAX, i64::MAX));
            count.after = first.saturating_sub(1);
            count.last = Some(last);
        }
        let page = again(|| self.store.people_after(count.after, span, PAGE)).await?;
        let is_within = count.last.is_none_or(|last| count.after < last);
        let Some(reached) = page.last.filter(|_| is_within) else {
            self.count = self.write(count).await?;
            return Ok(Next::Now);
        };
        count.after = reached;
        for (campaign, day, visitor) in page.people {
            // Visitors of a campaign are also visitors of all links.
            for of in [0, campaign] {
                if let Some(sketch) = count.sketches.get_mut(&(of, day)) {
                    sketch.add(visitor);
                }
            }
        }
        self.count = Some(count);
        Ok(Next::Rest)
    }
}

impl People {
    /// Counts the visitors of the stale days in a store.
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            days: 0,
            count: None,
        }
    }

    /// Writes the sketches; returns the days to read once more.
    async fn write(&mut self, count: Count) -> Result<Option<Count>, StoreError> {
        let is_second = count.is_second;
        let found: Vec<(StaleDay, Sketch)> = count.found().collect();
        let mut replaced = Vec::new();
        for some in found.chunks(WRITTEN_TOGETHER) {
            if is_second {
                self.days += again(|| self.store.settle_people(some.to_vec())).await?;
            } else {
                replaced.extend(again(|| self.store.replace_people(some.to_vec())).await?);
            }
        }
        Ok(Count::of(replaced, true))
    }
}

impl Count {
    fn of(days: Vec<StaleDay>, is_second: bool) -> Option<Self> {
        let sketches = days.iter();
        let sketches = sketches.map(|day| ((day.campaign, day.day), Sketch::default()));
        let sketches: HashMap<_, _> = sketches.collect();
        (!days.is_empty()).then_some(Self {
            days,
            sketches,
            after: i64::MIN,
            last: None,
            is_second,
        })
    }

    /// Returns the first and the last day.
    fn span(&self) -> (i64, i64) {
        let each = || self.days.iter().map(|day| day.day);
        (
            each().min().unwrap_or_default(),
            each().max().unwrap_or_default(),
        )
    }

    fn found(mut self) -> impl Iterator<Item = (StaleDay, Sketch)> {
        self.days.into_iter().filter_map(move |day| {
            let sketch = self.sketches.remove(&(day.campaign, day.day))?;
            Some((day, sketch))
        })
    }
}
