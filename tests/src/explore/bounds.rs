//! The bounds that every answer is held to: this table is the only place that has them.

use std::time::Duration;

/// A bound with its name, as reports print it and the book lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The name.
    pub name: &'static str,
    /// The limit.
    pub limit: Duration,
}

const fn bound(name: &'static str, milliseconds: u64) -> Bound {
    Bound {
        name,
        limit: Duration::from_millis(milliseconds),
    }
}

/// From the acknowledgement of a change until no worker gives the previous answer, without a fault:
/// the time of a message, on a machine that is busy.
pub const SEEN: Bound = bound("seen", 1000);

/// The interval at which a worker checks a silent connection to Redis, in the worlds here.
pub const HEARTBEAT: Duration = Duration::from_millis(200);

/// The time that a visitor waits for Redis, in the worlds here.
pub const BUDGET: Duration = Duration::from_millis(250);

/// Until a worker notices that its connection to Redis died silently: a heartbeat and four budgets.
pub const NOTICED: Bound = bound("noticed", 1200);

/// From the end of a fault until workers reach Redis and the sidecar again: their back-off.
pub const REACHED: Bound = bound("reached", 3000);

/// From the moment that the sidecar reaches Redis and SQL again until Redis has every change. Also
/// from a failover, and from the start of a Redis with an old data set.
pub const PUBLISHED: Bound = bound("published", 5000);

/// From the end of a bad state, such as paused, until no 404 or 410 of a Redis that lacks the change is
/// answered.
pub const BAD_NEWS: Bound = bound("bad-news", 5000);

/// From a change until a replica nearby that does not get it is no longer asked.
pub const LAGGED: Bound = bound("lagged", 5000);

/// From the end of the last fault until every code is answered as SQL has it, `audit` reports no
/// drift and `/readyz` reports `ready`.
pub const CONVERGED: Bound = bound("converged", 10_000);

/// From the end of the last fault until every visit is stored. A sidecar takes over
/// what another one had read for up to 33 s if that one lives and cannot store it.
pub const COUNTED: Bound = bound("counted", 45_000);

/// All bounds.
pub const ALL: [Bound; 8] = [
    SEEN, NOTICED, REACHED, PUBLISHED, BAD_NEWS, LAGGED, CONVERGED, COUNTED,
];

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn the_book_lists_every_bound() {
        let page = crate::workspace().join("docs/src/internals/coherence.md");
        let page = std::fs::read_to_string(page).expect("the page");
        for bound in ALL {
            let row = format!("| `{}` | {} s |", bound.name, bound.limit.as_secs_f64());
            assert!(page.contains(&row), "the page has no row {row}");
        }
    }
}
