//! The state of a request, for its whole life.
//!
//! A request's state lives in its pool. A redirect to a named location clears the module's context but not the pool,
//! so that the log and the variables still find the state; and the request is taken out of the waiting queue when its
//! client goes away.

use std::cell::Cell;

use resolver::fallback::Ending;
use resolver::vocabulary::{BadNews, CLICK_ID_LENGTH, ClickId, Code, CodeRules, Verdict};
use resolver::{MissReason, Outcome, PathCode, Source, Ticket};

use crate::nginx::pool::PoolText;
use crate::nginx::request::{Request, State};
use crate::nginx::variable::VariableIndex;
use crate::settings::redis::RedisNumber;
use crate::settings::zones::MissLimiting;
use crate::settings::{MainConf, Recording, Settings, VisitAddress};
use crate::worker::{self, Wait};

/// The status that nginx logs when a client has left.
const CLIENT_LEFT: usize = 499;

/// The state of a request. It never moves and lives as long as the request's pool.
pub(crate) struct RequestState {
    /// Its outcome; `None` while Redis has not answered yet.
    pub(crate) outcome: Cell<Option<Outcome>>,
    pub(crate) source: Cell<Source>,
    /// The Redis of the location with `shortlink`.
    pub(crate) redis: RedisNumber,
    /// The limit of misses of the location with `shortlink`: the fallback that answers may have another.
    pub(crate) miss_limit: MissLimiting,
    /// The code that the path names; `None` when it names none.
    pub(crate) named: Option<Code>,
    /// The place among the candidates of that code of the one that is looked up
    /// ([`CodeRules::candidates`]), and the rules that have them.
    candidate: Cell<u8>,
    rules: usize,
    /// The reason for which an earlier candidate may have a link that only the fallback knows.
    pub(crate) missed: Cell<Option<MissReason>>,
    /// The target that was answered, in the request's pool.
    target: Cell<PoolText>,
    /// The place of the click id in it; 0 without one.
    click_at: Cell<u16>,
    /// The variant of the plan that was followed, in the request's pool; empty without one.
    variant: Cell<PoolText>,
    /// The page of the link's preview for a preview agent, in the request's pool; empty without one.
    page: Cell<PoolText>,
    /// True if this worker knows that there is no link.
    pub(crate) is_unknown: Cell<bool>,
    /// The place in the waiting queue, while there is one.
    pub(crate) ticket: Cell<Option<Ticket>>,
    /// True if the client's address was over its limit of misses when the request came.
    pub(crate) is_limited: Cell<bool>,
    /// True if the request was charged as a miss before the fallback was asked.
    pub(crate) is_charged: Cell<bool>,
    /// True if the request is no miss, even if the fallback knows no link.
    pub(crate) is_free: Cell<bool>,
    /// The wait for the fallback.
    pub(crate) fallback: Cell<Option<Wait>>,
    /// The bad news that the fallback is to confirm.
    pub(crate) doubtful: Cell<Option<BadNews>>,
    /// The recording of the visit, and the part of the client's address for it, as the location with `shortlink` has
    /// them: the fallback that answers may have others.
    pub(crate) recording: Recording,
    pub(crate) visit_address: VisitAddress,
    /// True if the fallback gave no answer, as `shortlink_unavailable` found.
    pub(crate) is_unavailable: Cell<bool>,
}

impl RequestState {
    /// Makes the state of a request; `None` when there is no memory.
    #[inline]
    pub(crate) fn create(request: &Request, path_code: Option<PathCode>) -> Option<&Self> {
        let conf = request.location_settings::<Settings>();
        request.attach(Self {
            outcome: Cell::new(None),
            source: Cell::new(Source::None),
            redis: conf.map(|conf| conf.redis).unwrap_or_default(),
            miss_limit: conf.and_then(|conf| conf.miss_limit).unwrap_or_default(),
            named: path_code.map(|found| found.code),
            candidate: Cell::new(0),
            rules: conf.map(|conf| conf.rules).unwrap_or_default(),
            missed: Cell::new(None),
            target: Cell::new(PoolText::EMPTY),
            click_at: Cell::new(0),
            variant: Cell::new(PoolText::EMPTY),
            page: Cell::new(PoolText::EMPTY),
            is_unknown: Cell::new(false),
            ticket: Cell::new(None),
            is_limited: Cell::new(false),
            is_charged: Cell::new(false),
            is_free: Cell::new(false),
            fallback: Cell::new(None),
            doubtful: Cell::new(None),
            recording: conf.and_then(|conf| conf.recording).unwrap_or_default(),
            visit_address: conf.and_then(|conf| conf.visit_address).unwrap_or_default(),
            is_unavailable: Cell::new(false),
        })
    }

    /// Finds the state of a request, also after a redirect to a named location.
    #[inline]
    pub(crate) fn find(request: &Request) -> Option<&Self> {
        request.attached()
    }

    /// The code that is looked up: one that the path may stand for.
    pub(crate) fn code(&self, request: &Request) -> Option<Code> {
        match self.candidate.get() {
            0 => self.named,
            place => {
                let rules = self.rules(request)?;
                rules.candidates(self.named.as_ref()?).nth(place.into())
            }
        }
    }

    /// Goes on to the next code that the path may stand for, if there is one; to the next that can have been issued, if
    /// `is_issued`.
    pub(crate) fn next_code(&self, request: &Request, is_issued: bool) -> Option<Code> {
        let rules = self.rules(request)?;
        let next = self.candidate.get() + 1;
        let further = rules.candidates(self.named.as_ref()?).skip(next.into());
        let (place, code) = (next..)
            .zip(further)
            .find(|(_, code)| !is_issued || rules.judge(code) == Verdict::Issued)?;
        self.candidate.set(place);
        Some(code)
    }

    /// Goes back to the code that the path names.
    pub(crate) fn reset_code(&self) {
        self.candidate.set(0);
    }

    fn rules<'a>(&self, request: &'a Request) -> Option<&'a CodeRules> {
        request.main_settings::<Settings>()?.rules.get(self.rules)
    }

    /// The target that was answered; empty without one.
    pub(crate) fn target(&self) -> &[u8] {
        // SAFETY: `set_target` has promised that the text is in the pool that this state lives in.
        unsafe { self.target.get().bytes() }
    }

    /// The click id in the target that was answered.
    pub(crate) fn click_id(&self) -> Option<ClickId> {
        let at = usize::from(self.click_at.get());
        let text = self.target().get(at..at + CLICK_ID_LENGTH);
        text.filter(|_| at > 0).and_then(ClickId::parse)
    }

    /// Keeps the target that is answered, with the place of the click id in it, 0 without one.
    ///
    /// # Safety
    /// The text must be in the pool of this state's request.
    #[inline]
    pub(crate) unsafe fn set_target(&self, target: PoolText, click_at: u16) {
        self.target.set(target);
        self.click_at.set(click_at);
    }

    /// The variant of the plan that was followed; empty without one.
    pub(crate) fn variant(&self) -> &[u8] {
        // SAFETY: `set_variant` has promised that the text is in the pool that this state lives in.
        unsafe { self.variant.get().bytes() }
    }

    /// Keeps the variant of the plan that is followed.
    ///
    /// # Safety
    /// The text must be in the pool of this state's request.
    pub(crate) unsafe fn set_variant(&self, variant: PoolText) {
        self.variant.set(variant);
    }

    /// The page of the link's preview for a preview agent; empty without one.
    pub(crate) fn page(&self) -> &[u8] {
        // SAFETY: `set_page` has promised that the text is in the pool that this state lives in.
        unsafe { self.page.get().bytes() }
    }

    /// Keeps the page of the link's preview.
    ///
    /// # Safety
    /// The text must be in the pool of this state's request.
    pub(crate) unsafe fn set_page(&self, page: PoolText) {
        self.page.set(page);
    }

    /// Returns whether the answer is the page of a preview: that of this worker, or of the fallback.
    pub(crate) fn is_preview(&self, request: &Request) -> bool {
        let is_page = match self.source.get() {
            Source::Fallback => says(request, |conf| conf.preview_header),
            _ => !self.page().is_empty(),
        };
        is_page && request.status() == 200
    }

    /// Returns whether it is certain that there is no link, now or later: to this worker, or to the fallback.
    pub(crate) fn is_unknown(&self, request: &Request) -> bool {
        match self.source.get() {
            Source::Fallback => {
                self.status(request) == 404 && says(request, |conf| conf.unknown_header)
            }
            _ => self.is_unknown.get(),
        }
    }

    /// The status of the answer; of the fallback's 404 that of the server that it asked, since `error_page` may have made
    /// a redirect of it.
    pub(crate) fn status(&self, request: &Request) -> usize {
        let asked = || {
            let conf = request.main_settings::<Settings>()?;
            request.variable(conf.upstream_status?)
        };
        match self.source.get() {
            Source::Fallback if asked().is_some_and(|asked| asked.ends_with(b"404")) => 404,
            _ => request.status(),
        }
    }

    /// Notes that the request does not wait for the fallback any more, if it did; `status` is that of the answer.
    pub(crate) fn leave_fallback(&self, status: usize) {
        let Some(wait) = self.fallback.take() else {
            return;
        };
        let ending = match status {
            _ if self.is_unavailable.get() => Ending::Failed,
            500..=599 => Ending::Failed,
            // Nothing was sent.
            0 | CLIENT_LEFT => Ending::Left,
            _ => Ending::Answered,
        };
        worker::leave_fallback(wait, ending);
    }

    /// Takes the request back from the edge, if it waits.
    pub(crate) fn stop_waiting(&self) {
        if let Some(ticket) = self.ticket.take() {
            worker::cancel(self.redis, ticket);
        }
    }
}

/// Returns whether a header of the fallback's answer is there, by its variable.
fn says(request: &Request, header: fn(&MainConf) -> Option<VariableIndex>) -> bool {
    let index = request.main_settings::<Settings>().and_then(header);
    index.is_some_and(|index| request.is_true(index))
}

impl State for RequestState {
    fn terminated(&self) {
        self.stop_waiting();
    }

    fn released(&self, status: usize) {
        self.stop_waiting();
        self.leave_fallback(status);
    }
}
