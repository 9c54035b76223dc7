//! The lines of nginx' log: one per outage, the rest once in a while, each with the operator's next
//! step.

use std::fmt::Arguments;

use ngx::ffi::{NGX_LOG_ERR, NGX_LOG_NOTICE, NGX_LOG_WARN, ngx_log_t, ngx_uint_t};
use ngx::ngx_log_error;
use resolver::{Key, NodeId, Notice, Purpose};

use crate::worker::WorkerEdge;

/// The shortest time between two lines of one kind, in milliseconds.
const NOTICE_EVERY: u64 = 10_000;

/// Number of kinds of notices that are throttled.
const KINDS: usize = 11;

/// The lines that were logged.
pub(crate) struct Journal {
    /// The nodes whose outage was logged.
    outages: Vec<NodeId>,
    /// The time of the last line of each kind of notice, and the number left out since.
    last: [(Option<u64>, u64); KINDS],
    log: *mut ngx_log_t,
}

impl Journal {
    /// Begins one.
    ///
    /// # Safety
    /// The log must be valid as long as the process lives.
    pub(crate) unsafe fn new(log: *mut ngx_log_t) -> Self {
        Self {
            outages: Vec::new(),
            last: [(None, 0); KINDS],
            log,
        }
    }

    /// Says that a server is lost, once an outage.
    pub(crate) fn outage(&mut self, edge: &WorkerEdge, node: NodeId, reason: &str) {
        let Some(address) = edge.address(node) else {
            return;
        };
        if self.outages.contains(&node) {
            return;
        }
        self.outages.push(node);
        if edge.purpose(node) == Some(Purpose::Watch) {
            self.say(
                NGX_LOG_WARN,
                &format!(
                    "lost {address}, which reports the servers of links: {reason}; another one of \
                     its kind takes over, and links are read as before"
                ),
            );
        } else {
            self.say(
                NGX_LOG_ERR,
                &format!(
                    "lost Redis at {address}: {reason}; until it is back, links are served from \
                     the cache and through the fallback, and failed attempts are not logged"
                ),
            );
        }
    }

    /// Says that a server is back.
    pub(crate) fn recovery(&mut self, edge: &WorkerEdge, node: NodeId) {
        let Some(index) = self.outages.iter().position(|lost| *lost == node) else {
            return;
        };
        self.outages.swap_remove(index);
        if let Some(address) = edge.address(node) {
            self.say(NGX_LOG_NOTICE, &format!("Redis at {address} is back"));
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
            match kind {
                Some(kind) => self.say_now_and_then(kind, level, format_args!("{text}"), now),
                None => self.say(level, &text),
            }
        }
    }

    /// Says that visits are dropped.
    pub(crate) fn visits_dropped(&mut self, reason: &str, now: u64) {
        self.say_now_and_then(
            7,
            NGX_LOG_ERR,
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
        self.say_now_and_then(8, NGX_LOG_WARN, text, now);
    }

    /// Says that a file of visits can't be read.
    pub(crate) fn visits_unreadable(&mut self, reason: &str, now: u64) {
        let text = format_args!("visits can't be read back: {reason}");
        self.say_now_and_then(9, NGX_LOG_ERR, text, now);
    }

    /// Logs a line unless one of its kind was logged lately; the text is put together only then.
    fn say_now_and_then(&mut self, kind: usize, level: u32, text: Arguments<'_>, now: u64) {
        let mut more = String::new();
        if let Some((last, left_out)) = self.last.get_mut(kind) {
            if last.is_some_and(|last| now < last + NOTICE_EVERY) {
                *left_out += 1;
                return;
            }
            *last = Some(now);
            let count = std::mem::take(left_out);
            if count > 0 {
                more = format!(" ({count} more of this kind since the last such line)");
            }
        }
        self.say(level, &format!("{text}{more}"));
    }

    fn say(&self, level: u32, text: &str) {
        ngx_log_error!(level as ngx_uint_t, self.log, "shortlink: {text}");
    }
}

/// Returns a notice's kind, if it is throttled; its level; and its text.
fn worded(notice: &Notice, edge: &WorkerEdge) -> (Option<usize>, u32, String) {
    let shown = |node: &NodeId| match edge.address(*node) {
        Some(address) => address.to_string(),
        None => "a server".to_owned(),
    };
    match notice {
        Notice::TrackingRefused(node, text) => (
            Some(0),
            NGX_LOG_WARN,
            format!(
                "Redis at {} does not notify of changes, so every link is read from it: {text}; \
                 allow its user \"+client|tracking +client|caching\", or set \
                 \"shortlink_cache off\"",
                shown(node)
            ),
        ),
        Notice::Unreadable(Key::Link(code)) => (
            Some(1),
            NGX_LOG_WARN,
            format!(
                "what Redis holds for the code {code} is no record that may be served; it goes to \
                 the fallback"
            ),
        ),
        Notice::Unreadable(Key::Campaign(id)) => (
            Some(4),
            NGX_LOG_WARN,
            format!(
                "what Redis holds for the campaign {id} is no record whose template may be served; \
                 its links go to the fallback"
            ),
        ),
        Notice::Unexpandable(code) => (
            Some(5),
            NGX_LOG_WARN,
            format!(
                "the link {code} has not all parameters that its campaign's template names, or they \
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
            (Some(kind), NGX_LOG_ERR, text)
        }
        // Redis has just been started, and the state passes by itself: only a warning.
        Notice::VisitsRefused(node, text) if text.starts_with("LOADING") => (
            Some(10),
            NGX_LOG_WARN,
            format!(
                "Redis at {} is still loading its data; visits wait and are retried",
                shown(node)
            ),
        ),
        Notice::VisitsRefused(node, text) => (
            Some(6),
            NGX_LOG_ERR,
            format!(
                "Redis at {} takes no visits ({text}); they wait and are retried. Its user needs \
                 \"+xadd\", and Redis free memory",
                shown(node)
            ),
        ),
        Notice::Moved => (
            None,
            NGX_LOG_NOTICE,
            "links are read from other servers than before".to_owned(),
        ),
    }
}
