//! The lines of nginx' log: one per outage, the rest once in a while, each with the operator's next
//! step. No cause fills the log: further lines of a kind are counted, and their number is logged.

use std::fmt::Arguments;

use resolver::{Key, NodeId, Notice, Purpose};

use crate::nginx::log::{Level, Log};
use crate::worker::edge::WorkerEdge;

/// Number of kinds of lines. Each has a limit of its own.
const KINDS: usize = 18;

/// The kinds that come once an outage: ten lines a second. Of the others there is one in ten seconds.
const LOST: usize = 15;
const BACK: usize = 16;
const MOVED: usize = 17;

/// The most lines of a kind in a span of time, in milliseconds.
fn limit(kind: usize) -> (u64, u64) {
    match kind {
        LOST | BACK | MOVED => (10, 1000),
        _ => (1, 10_000),
    }
}

/// The lines of one kind since the beginning of a span.
#[derive(Clone, Default)]
struct Span {
    begin: u64,
    logged: u64,
    left_out: u64,
    /// The first line that was left out, and its level.
    first: Option<(Level, String)>,
}

/// The lines that were logged.
pub(crate) struct Journal {
    /// The nodes whose outage was logged.
    outages: Vec<NodeId>,
    /// The lines of each kind.
    spans: [Span; KINDS],
    /// The beginning of each line.
    beginning: String,
    log: Log,
}

impl Journal {
    /// Begins one, for the Redis of a name.
    pub(crate) fn new(name: &str, log: Log) -> Self {
        let beginning = match name {
            "" => "shortlink: ".to_owned(),
            _ => format!("shortlink \"{name}\": "),
        };
        Self {
            outages: Vec::new(),
            spans: Default::default(),
            beginning,
            log,
        }
    }

    /// Says that a server is lost, once an outage.
    pub(crate) fn outage(&mut self, edge: &WorkerEdge, node: NodeId, reason: &str, now: u64) {
        let Some(address) = edge.address(node) else {
            return;
        };
        if self.outages.contains(&node) {
            return;
        }
        self.outages.push(node);
        if edge.purpose(node) == Some(Purpose::Watch) {
            self.say_now_and_then(
                LOST,
                Level::Warn,
                format_args!(
                    "lost {address}, which reports the servers of links: {reason}; another one of \
                     its kind takes over, and links are read as before"
                ),
                now,
            );
        } else {
            self.say_now_and_then(
                LOST,
                Level::Err,
                format_args!(
                    "lost Redis at {address}: {reason}; until it is back, links are served from \
                     the cache and through the fallback, and failed attempts are not logged"
                ),
                now,
            );
        }
    }

    /// Says that a server is back.
    pub(crate) fn recovery(&mut self, edge: &WorkerEdge, node: NodeId, now: u64) {
        let Some(index) = self.outages.iter().position(|lost| *lost == node) else {
            return;
        };
        self.outages.swap_remove(index);
        if let Some(address) = edge.address(node) {
            let text = format_args!("Redis at {address} is back");
            self.say_now_and_then(BACK, Level::Notice, text, now);
        }
    }

    /// Forgets a server that is asked no more.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.outages.retain(|lost| *lost != node);
    }

    /// Says what the edge finds worth it, each kind once in a while.
    pub(crate) fn notices(&mut self, edge: &mut WorkerEdge, now: u64) {
        while let Some(notice) = edge.next_notice() {
            let (kind, level, text) = worded(&notice, edge);
            self.say_now_and_then(kind, level, format_args!("{text}"), now);
        }
        for kind in 0..KINDS {
            self.sum_up(kind, now);
        }
    }

    /// Says that visits are dropped.
    pub(crate) fn visits_dropped(&mut self, reason: &str, now: u64) {
        self.say_now_and_then(
            7,
            Level::Err,
            format_args!("visits are dropped: {reason}"),
            now,
        );
    }

    /// Says that visits are written to files.
    pub(crate) fn visits_spooled(&mut self, now: u64) {
        let text = format_args!(
            "visits are written to files: Redis takes none and buffer= is full; they are sent when \
             it is back"
        );
        self.say_now_and_then(8, Level::Warn, text, now);
    }

    /// Says that a file of visits can't be read.
    pub(crate) fn visits_unreadable(&mut self, reason: &str, now: u64) {
        let text = format_args!("visits can't be read back: {reason}");
        self.say_now_and_then(9, Level::Err, text, now);
    }

    /// Says that Redis' bad news is not passed on.
    pub(crate) fn unproved(&mut self, now: u64) {
        let text = format_args!(
            "the sidecar does not prove that the data in Redis are current, so 404 and 410 come from \
             the fallback; see that the sidecar runs, reaches Redis and is no older than this module"
        );
        self.say_now_and_then(11, Level::Warn, text, now);
    }

    /// Says that no more requests may wait for the fallback.
    pub(crate) fn fallback_full(&mut self, now: u64) {
        let text = format_args!(
            "as many requests wait for the fallback as max_waiting= allows; further ones are answered \
             at once: 410 if the link is known to be gone, else 503. See the log of the sidecar"
        );
        self.say_now_and_then(12, Level::Err, text, now);
    }

    /// Says that the fallback gets no requests.
    pub(crate) fn fallback_failing(&mut self, now: u64) {
        let text = format_args!(
            "the fallback failed as often in a row as max_fails= allows; it gets one request a second \
             until one is answered, and all others are answered at once: 410 if the link is known to be \
             gone, else 503. See the log of the sidecar"
        );
        self.say_now_and_then(13, Level::Err, text, now);
    }

    /// Logs a line unless there were enough of its kind lately; the text is put together only where
    /// it is needed.
    fn say_now_and_then(&mut self, kind: usize, level: Level, text: Arguments<'_>, now: u64) {
        self.sum_up(kind, now);
        let (most, _) = limit(kind);
        let Some(span) = self.spans.get_mut(kind) else {
            return;
        };
        if span.logged == 0 {
            span.begin = now;
        }
        if span.logged < most {
            span.logged += 1;
            self.say(level, &text.to_string());
        } else {
            span.left_out += 1;
            span.first.get_or_insert_with(|| (level, text.to_string()));
        }
    }

    /// Ends the span of a kind in time, and logs how many lines of it were left out.
    fn sum_up(&mut self, kind: usize, now: u64) {
        let (_, lasts) = limit(kind);
        let Some(span) = self.spans.get_mut(kind) else {
            return;
        };
        if span.logged == 0 || now < span.begin + lasts {
            return;
        }
        let span = std::mem::take(span);
        if let Some((level, text)) = span.first {
            self.say(
                level,
                &format!("{text} ({} lines of this kind)", span.left_out),
            );
        }
    }

    fn say(&self, level: Level, text: &str) {
        self.log.write(level, &format!("{}{text}", self.beginning));
    }
}

/// Returns a notice's kind, its level and its text.
fn worded(notice: &Notice, edge: &WorkerEdge) -> (usize, Level, String) {
    let shown = |node: &NodeId| match edge.address(*node) {
        Some(address) => address.to_string(),
        None => "a server".to_owned(),
    };
    match notice {
        Notice::TrackingRefused(node, text) => (
            0,
            Level::Warn,
            format!(
                "Redis at {} does not notify of changes, so every link is read from it: {text}; \
                 allow its user \"+client|tracking +client|caching\", or set \
                 \"shortlink_cache off\"",
                shown(node)
            ),
        ),
        Notice::GenerationRefused(node, text) => (
            14,
            Level::Err,
            format!(
                "Redis at {} does not report the generation of its data ({text}), so 404 and 410 come \
                 from the fallback; allow its user to read the keys that begin with the prefix and \
                 \"gen\"",
                shown(node)
            ),
        ),
        Notice::Unreadable(Key::Link(code)) => (
            1,
            Level::Warn,
            format!(
                "the value in Redis for the code {code} is not a record that can be served; it goes to \
                 the fallback"
            ),
        ),
        Notice::Unreadable(Key::Campaign(id)) => (
            4,
            Level::Warn,
            format!(
                "the value in Redis for the campaign {id} is not a record whose template can be served; \
                 its links go to the fallback"
            ),
        ),
        Notice::Unexpandable(code) => (
            5,
            Level::Warn,
            format!(
                "the link {code} lacks parameters that its campaign's template names, or they \
                 make its target too long; it goes to the fallback"
            ),
        ),
        Notice::BreakerOpened(node, text) => {
            let (kind, how) = match text {
                Some(text) => (2, format!("answers with errors ({text})")),
                None => (3, "answers too late".to_owned()),
            };
            let text = format!(
                "Redis at {} {how} and gets no requests for a moment; see its load and its slow log",
                shown(node)
            );
            (kind, Level::Err, text)
        }
        // Redis has just been started, and the state passes by itself: only a warning.
        Notice::VisitsRefused(node, text) if text.starts_with("LOADING") => (
            10,
            Level::Warn,
            format!(
                "Redis at {} is still loading its data; visits wait and are retried",
                shown(node)
            ),
        ),
        Notice::VisitsRefused(node, text) => (
            6,
            Level::Err,
            format!(
                "Redis at {} takes no visits ({text}); they wait and are retried. Its user needs \
                 \"+xadd\", and Redis free memory",
                shown(node)
            ),
        ),
        Notice::Moved => (
            MOVED,
            Level::Notice,
            "links are read from other servers than before".to_owned(),
        ),
    }
}
