//! Traces: link work to its request, from nginx' `$request_id` through the log to the comments of
//! statements in the database.
//!
//! Traces are named as W3C Trace Context does (<https://www.w3.org/TR/trace-context/>). nginx'
//! `$request_id` is 32 hexadecimal digits, as an id of a trace is, so it is one.

use std::fmt;

use rand::RngExt;
use tokio::task::JoinHandle;
use tracing::Instrument;

/// The only version of `traceparent`. Later ones begin with the same fields.
const VERSION: &str = "00";

/// The length of a `traceparent` of that version.
const TRACEPARENT_LENGTH: usize = 55;

/// The flag of a trace that is sampled.
const SAMPLED: u8 = 1;

/// The trace of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    id: u128,
    /// The caller's span. This process exports no spans, so it has none of its own.
    span: u64,
    /// Sampling decision: statements in the database carry the id of a sampled trace.
    is_sampled: bool,
}

/// Sampling of requests whose callers do not decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// One in so many; 0 for none.
    pub one_in: u64,
}

impl Sampling {
    /// Decides by the id only, so that all services agree on a trace.
    fn has(self, id: u128) -> bool {
        // The second half is random in whatever makes ids.
        (id as u64).checked_rem(self.one_in) == Some(0)
    }
}

impl Trace {
    /// The trace that a caller names with a `traceparent`.
    pub fn of_traceparent(text: &str) -> Option<Self> {
        let (version, rest) = text.split_at_checked(2)?;
        let is_later = version != VERSION;
        if version == "ff" || !is_hexadecimal(version) {
            return None;
        }
        if text.len() != TRACEPARENT_LENGTH
            && !(is_later && text.as_bytes().get(TRACEPARENT_LENGTH) == Some(&b'-'))
        {
            return None;
        }
        let mut parts = rest.strip_prefix('-')?.splitn(4, '-');
        let id = number(parts.next()?, 32)?;
        let span = number(parts.next()?, 16)?;
        let flags = number(parts.next()?, 2);
        Some(Self {
            id: Some(id).filter(|id| *id != 0)?,
            span: Some(span as u64).filter(|span| *span != 0)?,
            is_sampled: flags? as u8 & SAMPLED != 0,
        })
    }

    /// The trace whose id is an id of a request, if that can be one.
    pub fn of_request_id(text: &str, sampling: Sampling) -> Option<Self> {
        let id = number(text, 32).filter(|id| *id != 0)?;
        Some(Self::new(id, sampling))
    }

    /// A new trace, for a request that has none.
    pub fn random(sampling: Sampling) -> Self {
        Self::new(rand::rng().random_range(1..=u128::MAX), sampling)
    }

    fn new(id: u128, sampling: Sampling) -> Self {
        Self {
            id,
            // nginx has no ids of spans. The first half of the trace's id serves as well.
            span: ((id >> 64) as u64).max(1),
            is_sampled: sampling.has(id),
        }
    }

    /// Its id, as logs have it.
    pub fn id(&self) -> impl fmt::Display + use<> {
        let id = self.id;
        fmt::from_fn(move |f| write!(f, "{id:032x}"))
    }

    /// Reports whether the trace is sampled.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }
}

/// The `traceparent` for whatever is asked on behalf of the request.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(
            f,
            "{VERSION}-{:032x}-{:016x}-{flags:02x}",
            self.id, self.span
        )
    }
}

fn is_hexadecimal(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.bytes().all(is_digit)
}

fn number(text: &str, digits: usize) -> Option<u128> {
    let is_one = text.len() == digits && is_hexadecimal(text);
    is_one
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

tokio::task_local! {
    static CURRENT: Trace;
}

/// The trace of the request that this is done for, if it is done for one.
pub fn current() -> Option<Trace> {
    CURRENT.try_with(|trace| *trace).ok()
}

/// Does something for a request.
pub async fn within<T>(trace: Trace, work: impl Future<Output = T>) -> T {
    CURRENT.scope(trace, work).await
}

/// On whose behalf something is done, for work that is handed to another task.
#[derive(Clone, Debug)]
pub struct Origin {
    trace: Option<Trace>,
    span: tracing::Span,
}

impl Origin {
    /// The request that this is done for.
    pub fn current() -> Self {
        Self {
            trace: current(),
            span: tracing::Span::current(),
        }
    }

    /// Reports whether the current trace is sampled.
    pub fn is_sampled(&self) -> bool {
        self.trace.is_some_and(|trace| trace.is_sampled)
    }

    /// Does something on its behalf.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> T {
        let work = work.instrument(self.span);
        match self.trace {
            Some(trace) => within(trace, work).await,
            None => work.await,
        }
    }
}

/// Spawns a task that belongs to the current request's trace.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(Origin::current().run(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Sampling = Sampling { one_in: 1 };
    const NONE: Sampling = Sampling { one_in: 0 };

    #[test]
    fn a_traceparent_is_read_as_the_standard_says() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::of_traceparent(text).expect("a trace");
        assert_eq!(trace.to_string(), text);
        assert_eq!(trace.id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(trace.is_sampled());
        let unsampled = text.replace("-01", "-00");
        assert!(!Trace::of_traceparent(&unsampled).expect("one").is_sampled());
        // Other flags mean nothing here.
        let flags = text.replace("-01", "-03");
        assert_eq!(
            Trace::of_traceparent(&flags).expect("one").to_string(),
            text
        );
        let later = format!("cc{}-what-the-future-is", &text[2..]);
        assert_eq!(
            Trace::of_traceparent(&later).expect("one").to_string(),
            text
        );
        for wrong in [
            "",
            "0",
            "00",
            "é0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.",
            "00-4bf92f3577b34da6a3ce929d0e0e473-000f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7*/1",
        ] {
            assert_eq!(Trace::of_traceparent(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_request_id_of_nginx_is_a_trace() {
        let id = "0123456789abcdef0123456789abcdef";
        let trace = Trace::of_request_id(id, ALL).expect("a trace");
        assert_eq!(
            trace.to_string(),
            "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
        );
        for wrong in ["", "id-1", &id[1..], &id.to_uppercase(), &"0".repeat(32)] {
            assert_eq!(Trace::of_request_id(wrong, ALL), None, "{wrong}");
        }
    }

    #[test]
    fn one_in_so_many_is_sampled() {
        let count = |one_in: u64| {
            let traces = (0..10_000).map(|_| Trace::random(Sampling { one_in }));
            traces.filter(Trace::is_sampled).count()
        };
        assert_eq!(count(0), 0);
        assert_eq!(count(1), 10_000);
        // Ten standard deviations.
        assert!((1_600..=2_400).contains(&count(5)));
    }

    #[tokio::test]
    async fn a_trace_goes_along_to_other_tasks() {
        assert_eq!(current(), None);
        let trace = Trace::random(NONE);
        let found = within(trace, async {
            let direct = current();
            let spawned = spawn(async { current() }).await.expect("a task");
            let origin = Origin::current();
            let handed = tokio::spawn(origin.run(async { current() })).await;
            [direct, spawned, handed.expect("a task")]
        });
        assert_eq!(found.await, [Some(trace); 3]);
        assert_eq!(Origin::current().run(async { current() }).await, None);
    }
}
