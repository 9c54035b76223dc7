//! Answers requests.
//!
//! The handler is a content handler: every phase before it (limits, access, rewrite) has run as in any location.
//! Either the answer is known at once, or the request waits for Redis and [`complete`] is called from the
//! connection's events.

use resolver::counters::Counter;
use resolver::path::{code_of_path, code_of_text};
use resolver::vocabulary::{BadNews, Code};
use resolver::{MissReason, Outcome, Refusal, Source, Sources};

use crate::misses::{Limiting, Standing};
use crate::nginx::request::{Method, Request, Resumed};
use crate::nginx::status::Status;
use crate::settings::Settings;
use crate::settled::{LookedUp, OwnedAnswer, Settled, look_up};
use crate::state::RequestState;
use crate::{fallback, misses, respond, worker};

/// The content handler of a location with `shortlink`.
pub(crate) fn handle(request: &Request) -> Status {
    if request.method() == Method::Other {
        return refuse(request, Outcome::Method);
    }
    if let Err(status) = request.discard_body() {
        return status;
    }
    let (Some(conf), Some(location)) = (
        request.main_settings::<Settings>(),
        request.location_settings::<Settings>(),
    ) else {
        return Status::INTERNAL_SERVER_ERROR;
    };
    let Some(rules) = conf.rules.get(location.rules) else {
        return Status::INTERNAL_SERVER_ERROR;
    };
    let set = conf
        .code_variable
        .and_then(|index| request.variable_set(index));
    let read = match set {
        Some(text) => code_of_text(text, rules),
        None => code_of_path(request.path(), rules),
    };
    let path_code = match read {
        Ok(path_code) => path_code,
        Err(Refusal::Malformed) => return refuse(request, Outcome::Malformed),
        Err(Refusal::WrongCheck) => {
            let limiting = Limiting::of_location(location);
            let outcome = match misses::standing(request, limiting) {
                Standing::Free => {
                    misses::charge(request, limiting);
                    Outcome::WrongCheck
                }
                _ => Outcome::Limited,
            };
            return refuse(request, outcome);
        }
    };
    let Some(state) = RequestState::create(request, Some(path_code)) else {
        return Status::INTERNAL_SERVER_ERROR;
    };
    if path_code.trimmed {
        worker::count(state.redis, Counter::Trimmed);
    }
    let standing = misses::standing(request, Limiting::of(state));
    state.is_limited.set(standing == Standing::Limited);
    let uses_cache = location.uses_cache.unwrap_or(true);
    // The link that the worker holds is no secret, but a location without the cache does not show it.
    if standing == Standing::Shut || (state.is_limited.get() && !uses_cache) {
        return limit(request, state);
    }
    look(request, state, &path_code.code, uses_cache)
}

/// Looks a code up that the path may stand for, and answers the request or has it wait.
#[inline]
fn look(request: &Request, state: &RequestState, code: &Code, uses_cache: bool) -> Status {
    let sources = match (state.is_limited.get(), uses_cache) {
        (true, _) => Sources::Cache,
        (false, true) => Sources::Both,
        (false, false) => Sources::Redis,
    };
    match look_up(state.redis, sources, code, request) {
        LookedUp::Settled(settled) => answer(request, state, settled),
        LookedUp::Waiting(ticket) => {
            state.ticket.set(Some(ticket));
            if request.is_broken() {
                // nginx terminates the request, or has terminated that of this subrequest: it must not wait.
                state.stop_waiting();
                return Status::CLIENT_LEFT;
            }
            if !request.watch::<RequestState>() {
                state.stop_waiting();
                return Status::ERROR;
            }
            request.wait()
        }
        LookedUp::NotKept => {
            let further = look_further(request, state, Some(MissReason::Absent));
            further.unwrap_or_else(|| limit(request, state))
        }
    }
}

/// Looks up the next code that the path may stand for; `None` if there is none.
///
/// An unknown code is followed by any other. One that Redis only lacks may have a link in SQL, which must not be hidden
/// by that of another code: it is followed by one that was issued, behind which only messengers put text.
#[cold]
fn look_further(
    request: &Request,
    state: &RequestState,
    missed: Option<MissReason>,
) -> Option<Status> {
    if state.missed.get().is_some() {
        return None;
    }
    state.missed.set(missed);
    let before = state.code(request)?.as_bytes().len();
    let code = state.next_code(request, missed.is_some())?;
    let whole = state.named?.as_bytes().len();
    if before == whole && code.as_bytes().len() < whole {
        worker::count(state.redis, Counter::Trimmed);
    }
    let location = request.location_settings::<Settings>();
    let uses_cache = location.and_then(|it| it.uses_cache).unwrap_or(true);
    Some(look(request, state, &code, uses_cache))
}

/// Answers a request that names no code that could be looked up.
fn refuse(request: &Request, outcome: Outcome) -> Status {
    let Some(state) = RequestState::create(request, None) else {
        return Status::INTERNAL_SERVER_ERROR;
    };
    settle(state, outcome, Source::None);
    match outcome {
        Outcome::Method => respond::method_not_allowed(request),
        Outcome::Limited => respond::too_many(request),
        _ => unknown(request, state),
    }
}

/// Answers a request for a link that certainly does not exist.
fn unknown(request: &Request, state: &RequestState) -> Status {
    state.is_unknown.set(true);
    respond::not_found(request)
}

/// Refuses a request whose address is over its limit of misses: the answer is the same whether the link exists or not.
fn limit(request: &Request, state: &RequestState) -> Status {
    settle(state, Outcome::Limited, Source::None);
    respond::too_many(request)
}

/// Notes what became of a request, and counts it.
#[inline]
fn settle(state: &RequestState, outcome: Outcome, source: Source) {
    state.outcome.set(Some(outcome));
    state.source.set(source);
    worker::count_request(state.redis, outcome, source);
}

/// Answers a request that waited. This may come back into the module: finishing a request can begin the next one.
pub(crate) fn complete(resumed: Resumed, settled: Settled) {
    resumed.finish(|request| {
        let Some(state) = RequestState::find(request) else {
            return Status::ERROR;
        };
        state.ticket.set(None);
        // Requests that came together, to learn of many codes before the first of them is charged, gain nothing: each
        // is charged when its reply comes, and those behind the limit are refused. One that was limited before asked
        // for no link that the worker did not hold.
        if !state.is_limited.get() && misses::is_limited(request, Limiting::of(state)) {
            limit(request, state)
        } else {
            answer(request, state, settled)
        }
    });
}

/// Answers a request, or hands it to the fallback.
fn answer(request: &Request, state: &RequestState, settled: Settled) -> Status {
    let source = settled.source;
    let answer = settled.confirmed(request);
    match answer {
        OwnedAnswer::Redirect {
            target, click_at, ..
        }
        | OwnedAnswer::Page { target, click_at } => {
            if state.is_limited.get() {
                worker::count(state.redis, Counter::LimitedRedirect);
            }
            settle(state, Outcome::Redirect, source);
            // SAFETY: the answer was copied for this request, to its pool.
            unsafe { state.set_target(target, click_at) };
            match answer {
                // SAFETY: as above.
                OwnedAnswer::Redirect { status, .. } => unsafe {
                    respond::redirect(request, status, target)
                },
                _ => respond::preview(request, state.page()),
            }
        }
        OwnedAnswer::Gone if state.missed.get().is_none() => {
            settle(state, Outcome::Gone, source);
            respond::gone(request)
        }
        OwnedAnswer::NoMemory => Status::ERROR,
        _ => no_link(request, state, answer, source),
    }
}

/// Answers a request without a link that can be followed: with that of another code that the path may stand for, if this
/// one has no link.
fn no_link(
    request: &Request,
    state: &RequestState,
    mut answer: OwnedAnswer,
    source: Source,
) -> Status {
    let further = match answer {
        OwnedAnswer::Unknown => look_further(request, state, None),
        OwnedAnswer::Miss(
            reason @ (MissReason::Absent | MissReason::Doubtful(BadNews::Unknown)),
        ) => look_further(request, state, Some(reason)),
        _ => None,
    };
    if let Some(status) = further {
        return status;
    }
    if let Some(reason) = state.missed.get() {
        answer = OwnedAnswer::Miss(reason);
    }
    match answer {
        // An address over its limit learns what is cached, and its request does not reach SQL.
        OwnedAnswer::Unknown
        | OwnedAnswer::NotYet
        | OwnedAnswer::Miss(
            MissReason::Absent | MissReason::Doubtful(BadNews::Unknown | BadNews::NotYet),
        ) if state.is_limited.get() => limit(request, state),
        OwnedAnswer::Unknown | OwnedAnswer::NotYet => {
            // A guesser asks for no code a second time: one that the cache knows as unknown stands in a message.
            if let (OwnedAnswer::Unknown, Source::Redis) = (answer, source) {
                misses::charge(request, Limiting::of(state));
            }
            settle(state, Outcome::Unknown, source);
            match answer {
                OwnedAnswer::Unknown => unknown(request, state),
                _ => respond::not_found(request),
            }
        }
        OwnedAnswer::Miss(reason) => {
            // The fallback is asked for all of them.
            state.reset_code();
            miss(request, state, reason, source)
        }
        _ => Status::ERROR,
    }
}

/// Answers a request that neither the cache nor Redis can answer for certain.
fn miss(request: &Request, state: &RequestState, reason: MissReason, source: Source) -> Status {
    let Some(conf) = request.location_settings::<Settings>() else {
        return Status::INTERNAL_SERVER_ERROR;
    };
    let doubtful = match reason {
        MissReason::Doubtful(news) => Some(news),
        _ => None,
    };
    let outcome = match reason {
        MissReason::Absent
        | MissReason::Unreadable
        | MissReason::Unexpandable(_)
        | MissReason::Doubtful(_) => Outcome::Miss,
        MissReason::Error | MissReason::Unavailable | MissReason::TimedOut => Outcome::Unavailable,
    };
    if let MissReason::Absent = reason {
        misses::charge(request, Limiting::of(state));
        state.is_charged.set(true);
    }
    let Some(fallback) = &conf.fallback else {
        // Only Redis decides: a link that it does not have does not exist. If it does not answer, the link is
        // uncertain.
        let source = match outcome {
            Outcome::Miss => source,
            _ => Source::None,
        };
        settle(state, outcome, source);
        return match reason {
            MissReason::Absent => unknown(request, state),
            _ => respond::unavailable(request),
        };
    };
    if let Some(news) = doubtful {
        // A code that the cache knows is no guess, as above.
        state.is_free.set(source == Source::Cache);
        worker::doubt(state.redis, news, source != Source::Stale);
    }
    if let Some(wait) = worker::enter_fallback(state.redis, fallback.index) {
        state.fallback.set(Some(wait));
        state.doubtful.set(doubtful);
        settle(state, outcome, Source::Fallback);
        return request.hand_to(&fallback.name);
    }
    match doubtful {
        Some(BadNews::Gone) => settle(state, Outcome::Gone, source),
        _ => settle(state, Outcome::Unavailable, Source::None),
    }
    fallback::unavailable(request, doubtful)
}
