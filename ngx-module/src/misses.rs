//! Addresses with too many requests for links that do not exist.
//!
//! A miss is charged as soon as Redis, or the check character, says that there is no link: a client
//! that closes its connection before the fallback answers has learned as much. When the fallback
//! finds the link, which then only SQL knows, the log phase takes the charge back.

use resolver::Outcome;
use resolver::counters::Counter;
use resolver::limit::{AddressKey, MissTable, Scope};

use crate::nginx::request::Request;
use crate::nginx::status::Status;
use crate::settings::Settings;
use crate::settings::zones::MissLimitConf;
use crate::state::RequestState;
use crate::worker;
use crate::worker::edge::now;

/// The answers that a request gets with regard to the misses of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everything.
    Free,
    /// Only what is cached.
    Limited,
    /// Nothing.
    Shut,
}

/// Returns the standing of a request's address. While no address is limited this reads one word.
#[inline]
pub(crate) fn standing(request: &Request) -> Standing {
    match conf(request) {
        Some(conf) if is_anyone_limited(conf) => standing_in(request, conf),
        _ => Standing::Free,
    }
}

#[inline]
fn is_anyone_limited(conf: &MissLimitConf) -> bool {
    let alarm = conf.zone.alarm();
    alarm.is_some_and(|alarm| MissTable::is_anyone_limited(alarm, now().ms))
}

/// The same while an address is limited.
#[cold]
fn standing_in(request: &Request, conf: &MissLimitConf) -> Standing {
    let (Some((key, limited)), Some(misses)) =
        (limited(request, conf), conf.zone.misses(conf.limits))
    else {
        return Standing::Free;
    };
    if conf.is_strict {
        charge_in(&misses, key);
        return Standing::Shut;
    }
    match misses.admits(key, limited, now().ms) {
        true => Standing::Limited,
        false => Standing::Shut,
    }
}

/// Returns whether the client's address is limited now.
#[inline]
pub(crate) fn is_limited(request: &Request) -> bool {
    conf(request).is_some_and(|conf| limited(request, conf).is_some())
}

/// The key of the client's address, and what limits it; `None` if it is not limited.
fn limited(request: &Request, conf: &MissLimitConf) -> Option<(AddressKey, Scope)> {
    let key = address(request)?;
    let limited = conf.zone.misses(conf.limits)?.limited(key, now().ms)?;
    (!is_exempt(request, conf)).then_some((key, limited))
}

/// Charges the client's address for a miss.
pub(crate) fn charge(request: &Request) {
    if let Some(conf) = conf(request)
        && let Some(key) = address(request)
        && !is_exempt(request, conf)
        && let Some(misses) = conf.zone.misses(conf.limits)
    {
        worker::count(Counter::MissCharged);
        charge_in(&misses, key);
    }
}

fn charge_in(misses: &MissTable<'_>, key: AddressKey) {
    let charged = misses.charge(key, now().ms);
    if charged.address {
        worker::count(Counter::LimitedAddress);
    }
    if charged.network {
        worker::count(Counter::LimitedNetwork);
    }
}

/// The log phase: charges what only the fallback has decided, and takes back the charge for a
/// link that it found.
pub(crate) fn on_log(request: &Request) -> Status {
    if let Some(state) = RequestState::find(request)
        && let Some(Outcome::Miss | Outcome::Unavailable) = state.outcome.get()
        && let Some(conf) = conf(request)
    {
        match (state.is_charged.get(), fallback_status(request, conf)) {
            (false, 404) if !state.is_free.get() => charge(request),
            (true, 301..=303 | 307 | 308 | 410) => {
                if let Some(key) = address(request)
                    && !is_exempt(request, conf)
                    && let Some(misses) = conf.zone.misses(conf.limits)
                {
                    misses.refund(key, now().ms);
                }
            }
            _ => {}
        }
    }
    Status::OK
}

/// The status of the fallback's answer: of the server it asked, since `error_page` may have made a
/// redirect of its 404, else of the answer.
fn fallback_status(request: &Request, conf: &MissLimitConf) -> usize {
    let asked = request.variable(conf.upstream_status).unwrap_or_default();
    match asked.ends_with(b"404") {
        true => 404,
        false => request.status(),
    }
}

/// Returns whether the variable of `exempt=` has a value other than the empty text and `0`.
fn is_exempt(request: &Request, conf: &MissLimitConf) -> bool {
    conf.exempt.is_some_and(|index| request.is_true(index))
}

#[inline]
fn conf(request: &Request) -> Option<&MissLimitConf> {
    request.main_settings::<Settings>()?.miss_limit.as_ref()
}

/// The client's address, after nginx' own modules have put the right one in its place.
fn address(request: &Request) -> Option<AddressKey> {
    AddressKey::of(request.client_ip()?)
}
