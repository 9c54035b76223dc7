//! The numbers as Prometheus' text.
//!
//! The format is that of
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>, version
//! 0.0.4. No help and no label here holds a character that would have to be escaped.

use std::sync::atomic::{AtomicU64, Ordering};

use super::names::{Counter, Gauge};
use super::requests::{Outcome, Source, can_happen, index};
use super::{BOUNDS, BUCKETS, COUNTERS, GAUGES, Header, REQUESTS, SLOTS, SUM, Slot, held_visits};

/// Placeholder in the labels of numbers that are shown per worker.
const PROCESS: &str = "<pid>";

/// Appends the text.
pub(super) fn render(
    slots: &[Slot; SLOTS],
    is_alive: impl Fn(u32) -> bool,
    unix: u64,
    out: &mut String,
) {
    let slots = copied(slots);
    let slots = &slots[..];
    let live: Vec<(u32, &Slot)> = slots
        .iter()
        .map(|slot| (Header::of(slot).owner(), slot))
        .filter(|&(owner, _)| owner != 0 && is_alive(owner))
        .collect();
    let held: u64 = live.iter().map(|&(_, slot)| held_visits(slot)).sum();
    let left_over: u64 = slots.iter().map(held_visits).sum();
    // Sums over all slots, also those of dead workers.
    let total = |place: usize| sum(slots, place);

    requests(&total, out);
    for metric in Counter::METRICS {
        head(metric.name, metric.help, "counter", out);
        for &(counter, labels) in metric.samples {
            let mut value = total(COUNTERS + counter as usize);
            if counter == Counter::VisitLost {
                value = value.wrapping_add(left_over.saturating_sub(held));
            }
            sample(metric.name, labels, &value.to_string(), out);
        }
    }
    for metric in Gauge::METRICS {
        head(metric.name, metric.help, "gauge", out);
        for &(gauge, labels) in metric.samples {
            let place = GAUGES + gauge as usize;
            if !labels.contains(PROCESS) {
                let value = match gauge {
                    Gauge::VisitsHeld => held,
                    _ if gauge.is_common() => most(live.iter().map(|&(_, slot)| slot), place),
                    _ => sum(live.iter().map(|&(_, slot)| slot), place),
                };
                sample(metric.name, labels, &value.to_string(), out);
                continue;
            }
            for (owner, slot) in &live {
                let labels = labels.replace(PROCESS, &owner.to_string());
                let value = slot[place].load(Ordering::Relaxed);
                sample(metric.name, &labels, &value.to_string(), out);
            }
        }
    }
    let name = "shortlink_workers";
    head(
        name,
        "Worker processes included in these metrics.",
        "gauge",
        out,
    );
    sample(name, "", &live.len().to_string(), out);
    let name = "shortlink_edge_info";
    head(
        name,
        "Version of the nginx module; the value is 1.",
        "gauge",
        out,
    );
    let labels = concat!(r#"{version=""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    sample(name, labels, "1", out);
    let name = "shortlink_clock_seconds";
    head(
        name,
        "Clock of this machine, in seconds since 1970.",
        "gauge",
        out,
    );
    sample(name, "", &unix.to_string(), out);
    round_trips(&total, out);
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

fn requests(total: &impl Fn(usize) -> u64, out: &mut String) {
    let name = "shortlink_requests_total";
    let help = "Requests, by outcome and by source of the response.";
    head(name, help, "counter", out);
    for &outcome in Outcome::ALL {
        for &source in Source::ALL {
            let value = total(REQUESTS + index(outcome, source));
            if value != 0 || can_happen(outcome, source) {
                let (outcome, source) = (outcome.name(), source.name());
                let labels = format!(r#"{{outcome="{outcome}",source="{source}"}}"#);
                sample(name, &labels, &value.to_string(), out);
            }
        }
    }
}

fn round_trips(total: &impl Fn(usize) -> u64, out: &mut String) {
    let name = "shortlink_redis_round_trip_seconds";
    let help = "Time from a lookup of a record in Redis to its reply, in seconds.";
    head(name, help, "histogram", out);
    let bounds = BOUNDS.iter().map(|&(_, bound)| bound).chain(["+Inf"]);
    let mut count = 0u64;
    for (bucket, bound) in bounds.enumerate() {
        count = count.wrapping_add(total(BUCKETS + bucket));
        let labels = format!(r#"{{le="{bound}"}}"#);
        sample(&format!("{name}_bucket"), &labels, &count.to_string(), out);
    }
    let micros = total(SUM);
    let seconds = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    sample(&format!("{name}_sum"), "", &seconds, out);
    // That of the buckets, so that the two agree whatever is counted meanwhile.
    sample(&format!("{name}_count"), "", &count.to_string(), out);
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

fn sample(name: &str, labels: &str, value: &str, out: &mut String) {
    out.push_str(&format!("{name}{labels} {value}\n"));
}
