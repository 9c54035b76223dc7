//! Counts the unique visitors of stale days again.
//!
//! A pass reads all visits of the stale days twice, however few of them were corrected. In the background, the job
//! therefore pauses after a pass for nine times its length, and counts a day that has not ended at most once an hour.
//! The note of the job has both times, so that this holds for all processes together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{StaleDay, StoreError};
use shortlink_core::visit::sketch::Sketch;
use shortlink_store::Store;

use super::again;
use crate::jobs::{Job, Next};

/// Days per round, each of a campaign or of all. A sketch takes 32 KB at most.
const TOGETHER: u32 = 1024;

/// Sketches per transaction.
const WRITTEN_TOGETHER: usize = 32;

/// Visits per page.
const PAGE: u32 = 5000;

/// The interval at which stale days are counted again in the background.
pub const EVERY: Duration = Duration::from_secs(600);

/// The pause after a pass, as a multiple of its length, and the longest one.
const PAUSE: u32 = 9;
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// The interval at which days are counted that have not ended.
const EVERY_OPEN: Duration = Duration::from_secs(3600);

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Counts the unique visitors of all stale days again, whichever run marked them. Only one process
/// does so: others would restart it.
pub struct People {
    store: Arc<Store>,
    /// Number of days that were counted, separately for each campaign and for all.
    pub(super) days: u64,
    /// The clock by which passes are apart; `None` for commands, which wait for nothing.
    clock: Option<Arc<dyn Clock>>,
    pass: Option<Pass>,
    count: Option<Count>,
}

/// A walk through the stale days.
struct Pass {
    /// Only days before this one.
    before: i64,
    /// The campaign and the day that were counted last.
    after: (i64, i64),
    /// The time since the origin of the clock at its beginning.
    begun: Duration,
    /// The day of its beginning.
    today: i64,
    has_days: bool,
    /// Some of them had not ended.
    has_open: bool,
}

/// The note of the job: the moments, in milliseconds since 1970, up to which nothing is counted, and up to which no
/// day is counted that has not ended.
#[derive(Clone, Copy, Default)]
struct Rests {
    all: i64,
    open: i64,
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
        self.pass = None;
        self.count = None;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        let Some(mut count) = self.count.take() else {
            let Some(pass) = &mut self.pass else {
                self.pass = self.due().await?;
                return Ok(self.pass.as_ref().map_or(Next::Idle, |_| Next::Now));
            };
            let (before, after) = (pass.before, pass.after);
            let days = again(|| self.store.stale_days(before, after, TOGETHER)).await?;
            pass.after = days.last().map_or(after, |day| (day.campaign, day.day));
            pass.has_days |= !days.is_empty();
            pass.has_open |= days.iter().any(|day| day.day >= pass.today);
            let Some(count) = Count::of(days, false) else {
                return self.end_pass().await;
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
    /// Counts the visitors of all stale days in a store, until there are none.
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            days: 0,
            clock: None,
            pass: None,
            count: None,
        }
    }

    /// Counts the visitors of stale days in a store now and then, for a bounded share of the time.
    pub fn in_background(store: Arc<Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock: Some(clock),
            ..Self::new(store)
        }
    }

    /// Begins a pass if one is due.
    async fn due(&self) -> Result<Option<Pass>, StoreError> {
        let (mut before, mut begun, mut today) = (i64::MAX, Duration::ZERO, i64::MAX);
        if let Some(clock) = &self.clock {
            let now = clock.now().as_millisecond();
            let rests = self.rests().await?.within(now);
            if now < rests.all {
                return Ok(None);
            }
            today = now.div_euclid(DAY_MS);
            if now < rests.open {
                before = today;
            }
            begun = clock.elapsed();
        }
        Ok(Some(Pass {
            before,
            after: (i64::MIN, i64::MIN),
            begun,
            today,
            has_days: false,
            has_open: false,
        }))
    }

    /// Ends a pass and notes when the next one is due.
    async fn end_pass(&mut self) -> Result<Next, StoreError> {
        let Some(pass) = self.pass.take().filter(|pass| pass.has_days) else {
            return Ok(Next::Idle);
        };
        let Some(clock) = &self.clock else {
            // Days that were corrected meanwhile are stale again.
            return Ok(Next::Now);
        };
        let now = clock.now().as_millisecond();
        let until = |pause: Duration| now + i64::try_from(pause.as_millis()).unwrap_or(0);
        let pause = clock.elapsed().saturating_sub(pass.begun) * PAUSE;
        let mut rests = self.rests().await?;
        rests.all = until(pause.min(LONGEST_PAUSE));
        if pass.has_open {
            rests.open = until(EVERY_OPEN);
        }
        let note = format!("{} {}", rests.all, rests.open);
        again(|| self.store.take_note(Self::NAME, Some(note.clone()))).await?;
        Ok(Next::Idle)
    }

    async fn rests(&self) -> Result<Rests, StoreError> {
        let note = again(|| self.store.note(Self::NAME)).await?;
        let numbers = note.as_deref().and_then(|note| note.split_once(' '));
        let number = |text: &str| text.parse().unwrap_or(0);
        let rests = numbers.map(|(all, open)| Rests {
            all: number(all),
            open: number(open),
        });
        Ok(rests.unwrap_or_default())
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

impl Rests {
    /// Ignores moments that are further away than a pause can be: the clock of the process that noted them was ahead.
    fn within(self, now: i64) -> Self {
        let latest = now + LONGEST_PAUSE.as_millis() as i64;
        let within = |moment: i64| if moment > latest { 0 } else { moment };
        Self {
            all: within(self.all),
            open: within(self.open),
        }
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
