//! Answers that were copied out of the edge for a request.

use resolver::vocabulary::target::{encoded_query, with_click_id, with_query};
use resolver::vocabulary::{BadNews, Code, Preview, RedirectStatus};
use resolver::{Answer, Completion, LookUp, MissReason, Source, Sources, Ticket};

use crate::host::short_url;
use crate::nginx::pool::PoolText;
use crate::nginx::request::{Request, Resumed, Token};
use crate::settings::Settings;
use crate::settings::redis::RedisNumber;
use crate::state::RequestState;
use crate::visitor;
use crate::worker;
use crate::worker::edge::now;

/// An answer whose target is in the request's pool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnedAnswer {
    Redirect {
        status: RedirectStatus,
        target: PoolText,
        /// The place of the click id in the target; 0 without one.
        click_at: u16,
    },
    /// As a redirect, but the visitor gets the page that the request's state has.
    Page {
        target: PoolText,
        click_at: u16,
    },
    Gone,
    Unknown,
    /// The link is live later.
    NotYet,
    Miss(MissReason),
    /// There was no memory for the copy.
    NoMemory,
}

impl OwnedAnswer {
    /// Copies an answer for a request.
    #[inline]
    fn copy(answer: Answer<'_>, request: &Request) -> Self {
        match answer {
            Answer::Gone => Self::Gone,
            Answer::NotYet => Self::NotYet,
            Answer::Unknown => Self::Unknown,
            Answer::Miss(reason) => Self::Miss(reason),
            Answer::Redirect {
                status,
                forwards_query,
                has_click_id,
                is_plan,
                target,
                ..
            } => {
                if is_plan {
                    return Self::of_plan(status, forwards_query, has_click_id, target, request);
                }
                Self::to(status, forwards_query, has_click_id, target, request)
            }
        }
    }

    #[inline]
    fn to(
        status: RedirectStatus,
        forwards_query: bool,
        has_click_id: bool,
        target: &[u8],
        request: &Request,
    ) -> Self {
        if has_click_id {
            return Self::with_click_id(status, forwards_query, target, request);
        }
        Self::redirect(status, forwards_query, target, 0, request)
    }

    /// Copies the redirect to the target that a plan has for the visitor, or makes the page for a preview agent.
    #[cold]
    fn of_plan(
        status: RedirectStatus,
        forwards_query: bool,
        has_click_id: bool,
        plan: &[u8],
        request: &Request,
    ) -> Self {
        let Some(choice) = visitor::choose(plan, request) else {
            return Self::Miss(MissReason::Unreadable);
        };
        let redirect = Self::to(status, forwards_query, has_click_id, choice.target, request);
        match choice.preview {
            None => redirect,
            Some(preview) => redirect.with_page(preview, request),
        }
    }

    /// Makes the page of a preview for a redirect.
    fn with_page(self, preview: Preview<'_>, request: &Request) -> Self {
        let Self::Redirect {
            target, click_at, ..
        } = self
        else {
            return self;
        };
        let url = short_url(request).unwrap_or_default();
        // SAFETY: the target was copied to the request's pool.
        let to = String::from_utf8_lossy(unsafe { target.bytes() });
        let page = preview.page(&String::from_utf8_lossy(&url), &to);
        let page = request.pool().copy(&[page.as_bytes()]);
        let (Some(page), Some(state)) = (page, RequestState::find(request)) else {
            return Self::NoMemory;
        };
        // SAFETY: it was copied to the request's pool.
        unsafe { state.set_page(page) };
        Self::Page { target, click_at }
    }

    /// Copies a redirect whose target gets an id that no other request gets.
    #[cold]
    fn with_click_id(
        status: RedirectStatus,
        forwards_query: bool,
        target: &[u8],
        request: &Request,
    ) -> Self {
        let made = worker::click_id().and_then(|id| with_click_id(target, id));
        match made {
            // A target has less than 64 KiB.
            Some((target, at)) => {
                Self::redirect(status, forwards_query, &target, at as u16, request)
            }
            // Without random numbers, the fallback makes the id.
            None => Self::Miss(MissReason::Unreadable),
        }
    }

    #[inline]
    fn redirect(
        status: RedirectStatus,
        forwards_query: bool,
        target: &[u8],
        click_at: u16,
        request: &Request,
    ) -> Self {
        let copied = if forwards_query && !request.query().is_empty() {
            let mut space = Vec::new();
            let query = encoded_query(request.query(), &mut space);
            // A target that can't be served with the query is served without it.
            let pieces = with_query(target, query).unwrap_or([target, b"", b"", b""]);
            request.pool().copy(&pieces)
        } else {
            request.pool().copy(&[target])
        };
        match copied {
            Some(target) => Self::Redirect {
                status,
                target,
                click_at,
            },
            None => Self::NoMemory,
        }
    }
}

/// An answer for one request, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    answer: OwnedAnswer,
    pub(crate) source: Source,
}

impl Settled {
    /// Copies an answer for a request.
    #[inline]
    fn copy(answer: Answer<'_>, source: Source, request: &Request) -> Self {
        let answer = OwnedAnswer::copy(answer, request);
        Self { answer, source }
    }

    /// Neither the cache nor Redis can answer.
    fn unavailable() -> Self {
        Self {
            answer: OwnedAnswer::Miss(MissReason::Unavailable),
            source: Source::None,
        }
    }

    /// Copies the answer of a request that has waited.
    ///
    /// # Safety
    /// The edge must have handed the completion out just now, and the request must be finished before anything is
    /// called that can end requests.
    pub(crate) unsafe fn resume(done: &Completion<'_, Token>) -> (Resumed, Self) {
        // SAFETY: as this function's own: a request that ends takes its token back from the edge before, whether nginx
        // terminates it or frees it.
        let resumed = unsafe { done.token.resume() };
        let settled = Self::copy(done.answer, done.source, resumed.request());
        (resumed, settled)
    }

    /// Without a fallback nothing else can be asked: doubtful bad news stands if Redis would have reported a change,
    /// and if a link was gone. A stale "unknown" says nothing.
    #[inline]
    pub(crate) fn confirmed(self, request: &Request) -> OwnedAnswer {
        let OwnedAnswer::Miss(MissReason::Doubtful(news)) = self.answer else {
            return self.answer;
        };
        let conf = request.location_settings::<Settings>();
        if conf.is_some_and(|conf| conf.fallback.is_some()) {
            return self.answer;
        }
        match news {
            BadNews::Gone => OwnedAnswer::Gone,
            BadNews::NotYet if self.source != Source::Stale => OwnedAnswer::NotYet,
            BadNews::Unknown if self.source != Source::Stale => OwnedAnswer::Unknown,
            BadNews::NotYet | BadNews::Unknown => self.answer,
        }
    }
}

/// The result of looking a request's code up.
pub(crate) enum LookedUp {
    /// It is answered.
    Settled(Settled),
    /// It waits.
    Waiting(Ticket),
    /// Redis would have to be asked, but was not to be.
    NotKept,
}

/// Looks a code up in a Redis on behalf of a request, which waits if that takes time.
#[inline]
pub(crate) fn look_up(
    redis: RedisNumber,
    sources: Sources,
    code: &Code,
    request: &Request,
) -> LookedUp {
    let looked_up = worker::with(redis, |backend| {
        let token = request.token();
        match backend.edge.look_up_in(sources, code, token, now()) {
            LookUp::Answered(answer, source) => {
                LookedUp::Settled(Settled::copy(answer, source, request))
            }
            LookUp::Waiting(ticket) => {
                backend.connections.post_flush();
                backend.connections.set_timer_for_waiting(&mut backend.edge);
                LookedUp::Waiting(ticket)
            }
            LookUp::NotKept => LookedUp::NotKept,
        }
    });
    looked_up.unwrap_or_else(|| LookedUp::Settled(Settled::unavailable()))
}
