//! The requests of visitors, the answers that they must get, and those that they have seen.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use shortlink_tests::chance::Chance;
use shortlink_tests::made::Made;

use super::tables::{Course, State};

/// Number of faults that are recorded word for word.
const FAULTS: usize = 10;

/// A request of a visitor.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) host: String,
    pub(super) link: Made,
    /// The oldest table that may have been in force when it was asked.
    oldest: usize,
}

/// The outcomes of one visitor, by host and code.
pub(super) type Tally = HashMap<(String, String), Outcomes>;

/// The outcomes of each visitor, by its number.
pub(super) type Tallies = Vec<(usize, Tally)>;

/// The outcomes of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcomes {
    /// Redirects that came.
    pub(super) redirected: u64,
    /// Requests that got no answer, since their connection was closed.
    pub(super) unanswered: u64,
}

/// The state that all visitors of an nginx share.
pub(super) struct Scene {
    pub(super) http1_port: u16,
    pub(super) http2_port: u16,
    pub(super) links: RwLock<Vec<Made>>,
    /// The tables of domains; `None` where there are none, and all hosts redirect.
    pub(super) course: Option<Course>,
    pub(super) is_over: AtomicBool,
    pub(super) answered: AtomicU64,
    /// Requests on a connection that was closed before any byte of their answer: HTTP lets a server
    /// close an idle connection, and a client retries on another one.
    pub(super) closed: AtomicU64,
    /// Those of them over HTTP/2.
    pub(super) closed_over_http2: AtomicU64,
    faults: Mutex<(u64, Vec<String>)>,
}

impl Scene {
    pub(super) fn new(
        (http1_port, http2_port): (u16, u16),
        links: Vec<Made>,
        course: Option<Course>,
    ) -> Self {
        Self {
            http1_port,
            http2_port,
            links: RwLock::new(links),
            course,
            is_over: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            closed_over_http2: AtomicU64::new(0),
            faults: Mutex::default(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Something to ask for.
    pub(super) fn question(&self, chance: &mut Chance) -> Question {
        let mut pick = |count: usize| chance.below(count as u64) as usize;
        let (host, oldest) = match &self.course {
            None => ("localhost".to_owned(), 0),
            Some(course) => {
                let oldest = course.oldest();
                let names = course.visitable(oldest);
                (names[pick(names.len())].to_owned(), oldest)
            }
        };
        let links = self.links.read().expect("no holder panics");
        let link = links[pick(links.len())].clone();
        Question { host, link, oldest }
    }

    /// Notes an answer, and whether it is one that may be given.
    pub(super) fn answered(
        &self,
        question: &Question,
        (status, location): (u16, Option<&str>),
        tally: &mut Tally,
    ) {
        let Question { host, link, oldest } = question;
        let states = match &self.course {
            None => vec![State::Serving],
            Some(course) => course.possible(host, *oldest),
        };
        let may = |wanted: &[State]| states.iter().any(|state| wanted.contains(state));
        match status {
            302 if location == Some(&*link.target) && may(&[State::Active, State::Serving]) => {
                outcomes(tally, question).redirected += 1;
            }
            410 if may(&[State::Retired]) => {}
            _ => self.fault(format!(
                "{host}/{} was answered {status} {location:?}; it is {states:?}, leads to {}",
                link.code, link.target
            )),
        }
        self.answered.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes a request that was not answered, as it may happen.
    pub(super) fn closed(&self, question: &Question, tally: &mut Tally) {
        outcomes(tally, question).unanswered += 1;
        self.closed.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes what may not happen.
    pub(super) fn fault(&self, text: String) {
        let mut faults = self.faults.lock().expect("no holder panics");
        faults.0 += 1;
        if faults.1.len() < FAULTS {
            faults.1.push(text);
        }
    }

    /// Returns the number of faults, and the first ones.
    pub(super) fn faults(&self) -> (u64, Vec<String>) {
        self.faults.lock().expect("no holder panics").clone()
    }
}

fn outcomes<'a>(tally: &'a mut Tally, question: &Question) -> &'a mut Outcomes {
    let place = (question.host.clone(), question.link.code.clone());
    tally.entry(place).or_default()
}
