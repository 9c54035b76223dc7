//! The numbers as Prometheus' text.
//!
//! The format is that of
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>, version
//! 0.0.4. No help and no label here holds a character that would have to be escaped.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use super::names::{Counter, Gauge};
use super::requests::{Outcome, Source, can_happen, index};
use super::{BOUNDS, BUCKETS, COUNTERS, GAUGES, Header, REQUESTS, SLOTS, SUM, Slot, held_visits};

/// Placeholder in the labels of numbers that are shown per worker.
const PROCESS: &str = "<pid>";

/// The numbers of a Redis, as they are shown.
pub(super) struct Numbers {
    /// The label of each of them; empty for none.
    label: String,
    slots: Vec<Slot>,
    /// The owners of the slots, where they live.
    live: Vec<(u32, usize)>,
}

impl Numbers {
    /// Copies them.
    pub(super) fn copy(name: &str, slots: &[Slot; SLOTS], is_alive: impl Fn(u32) -> bool) -> Self {
        let slots = copied(slots);
        let owners = slots.iter().map(|slot| Header::of(slot).owner());
        let live = owners
            .zip(0..)
            .filter(|&(owner, _)| owner != 0 && is_alive(owner))
            .collect();
        let label = match name {
            "" => String::new(),
            _ => format!(r#"redis="{name}""#),
        };
        Self { label, slots, live }
    }

    fn live(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.live
            .iter()
            .map(|&(owner, index)| (owner, &self.slots[index]))
    }

    /// The sum over all slots, also those of dead workers.
    fn total(&self, place: usize) -> u64 {
        sum(&self.slots, place)
    }

    /// The visits that living workers hold.
    fn held(&self) -> u64 {
        self.live().map(|(_, slot)| held_visits(slot)).sum()
    }

    fn counter(&self, counter: Counter) -> u64 {
        let total = self.total(COUNTERS + counter as usize);
        if counter != Counter::VisitLost {
            return total;
        }
        let left_over: u64 = self.slots.iter().map(held_visits).sum();
        total.wrapping_add(left_over.saturating_sub(self.held()))
    }

    fn gauge(&self, gauge: Gauge) -> u64 {
        let place = GAUGES + gauge as usize;
        let live = self.live().map(|(_, slot)| slot);
        match gauge {
            Gauge::VisitsHeld => self.held(),
            _ if gauge.is_common() => most(live, place),
            _ => sum(live, place),
        }
    }

    /// Appends a number with its labels, in braces unless there are none.
    fn sample(&self, name: &str, labels: &str, value: impl Display, out: &mut String) {
        let inner = labels.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let all = match (self.label.as_str(), inner) {
            ("", _) => labels.to_owned(),
            (label, None) => format!("{{{label}}}"),
            (label, Some(inner)) => format!("{{{inner},{label}}}"),
        };
        sample(name, &all, value, out);
    }
}

/// Appends the text.
pub(super) fn render(all: &[Numbers], unix: u64, out: &mut String) {
    requests(all, out);
    for metric in Counter::METRICS {
        head(metric.name, metric.help, "counter", out);
        for numbers in all {
            for &(counter, labels) in metric.samples {
                numbers.sample(metric.name, labels, numbers.counter(counter), out);
            }
        }
    }
    for metric in Gauge::METRICS {
        head(metric.name, metric.help, "gauge", out);
        for numbers in all {
            for &(gauge, labels) in metric.samples {
                if !labels.contains(PROCESS) {
                    numbers.sample(metric.name, labels, numbers.gauge(gauge), out);
                    continue;
                }
                for (owner, slot) in numbers.live() {
                    let labels = labels.replace(PROCESS, &owner.to_string());
                    let value = slot[GAUGES + gauge as usize].load(Ordering::Relaxed);
                    numbers.sample(metric.name, &labels, value, out);
                }
            }
        }
    }
    let workers: BTreeSet<u32> = all
        .iter()
        .flat_map(|numbers| numbers.live.iter().map(|&(owner, _)| owner))
        .collect();
    let name = "shortlink_workers";
    head(
        name,
        "Worker processes included in these metrics.",
        "gauge",
        out,
    );
    sample(name, "", workers.len(), out);
    let name = "shortlink_edge_info";
    head(
        name,
        "Version of the nginx module; the value is 1.",
        "gauge",
        out,
    );
    let labels = concat!(r#"{version=""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    sample(name, labels, 1, out);
    let name = "shortlink_clock_seconds";
    head(
        name,
        "Clock of this machine, in seconds since 1970.",
        "gauge",
        out,
    );
    sample(name, "", unix, out);
    round_trips(all, out);
}

/// Copies the slots backwards: a visit is counted on arrival before it is counted on departure, so
/// the copy never has more departures than arrivals, and the numbers add up.
fn copied(slots: &[Slot; SLOTS]) -> Vec<Slot> {
    let copied = slots.iter().map(|slot| {
        let copy: Slot = std::array::from_fn(|_| AtomicU64::new(0));
        for (place, number) in slot.iter().enumerate().rev() {
            copy[place].store(number.load(Ordering::Acquire), Ordering::Relaxed);
        }
        copy
    });
    copied.collect()
}

fn requests(all: &[Numbers], out: &mut String) {
    let name = "shortlink_requests_total";
    let help = "Requests, by outcome and by source of the response.";
    head(name, help, "counter", out);
    for numbers in all {
        for &outcome in Outcome::ALL {
            for &source in Source::ALL {
                let value = numbers.total(REQUESTS + index(outcome, source));
                if value != 0 || can_happen(outcome, source) {
                    let (outcome, source) = (outcome.name(), source.name());
                    let labels = format!(r#"{{outcome="{outcome}",source="{source}"}}"#);
                    numbers.sample(name, &labels, value, out);
                }
            }
        }
    }
}

fn round_trips(all: &[Numbers], out: &mut String) {
    let name = "shortlink_redis_round_trip_seconds";
    let help = "Time from a lookup of a record in Redis to its reply, in seconds.";
    head(name, help, "histogram", out);
    for numbers in all {
        let bounds = BOUNDS.iter().map(|&(_, bound)| bound).chain(["+Inf"]);
        let mut count = 0u64;
        for (bucket, bound) in bounds.enumerate() {
            count = count.wrapping_add(numbers.total(BUCKETS + bucket));
            let labels = format!(r#"{{le="{bound}"}}"#);
            numbers.sample(&format!("{name}_bucket"), &labels, count, out);
        }
        let micros = numbers.total(SUM);
        let seconds = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        numbers.sample(&format!("{name}_sum"), "", seconds, out);
        // That of the buckets, so that the two agree whatever is counted meanwhile.
        numbers.sample(&format!("{name}_count"), "", count, out);
    }
}

/// The largest of what slots hold at one place.
fn most<'s>(slots: impl IntoIterator<Item = &'s Slot>, place: usize) -> u64 {
    let numbers = slots.into_iter();
    let numbers = numbers.map(|slot| slot[place].load(Ordering::Relaxed));
    numbers.max().unwrap_or_default()
}

/// The sum of what slots hold at one place.
fn sum<'s>(slots: impl IntoIterator<Item = &'s Slot>, place: usize) -> u64 {
    slots
        .into_iter()
        .map(|slot| slot[place].load(Ordering::Relaxed))
        .fold(0, u64::wrapping_add)
}

fn head(name: &str, help: &str, kind: &str, out: &mut String) {
    out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
}

fn sample(name: &str, labels: &str, value: impl Display, out: &mut String) {
    out.push_str(&format!("{name}{labels} {value}\n"));
}
