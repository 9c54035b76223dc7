//! Addresses with too many requests for links that do not exist.
//!
//! A miss is charged as soon as Redis or the check character shows that no link exists: a client that closes its
//! connection before the fallback answers has learned the same. If the fallback finds the link, which then only SQL
//! knows, the log phase takes the charge back.

use resolver::Outcome;
use resolver::counters::Counter;
use resolver::limit::{AddressKey, MissTable, Scope};

use crate::nginx::request::Request;
use crate::nginx::status::Status;
use crate::settings::redis::RedisNumber;
use crate::settings::zones::{MissLimitConf, MissLimiting, MissZone};
use crate::settings::{LocationConf, Settings};
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

/// The limit of a request: that of the location with `shortlink`, and the Redis whose codes it protects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limiting {
    pub(crate) redis: RedisNumber,
    pub(crate) limit: MissLimiting,
}

impl Limiting {
    /// That of a location.
    pub(crate) fn of_location(location: &LocationConf) -> Self {
        Self {
            redis: location.redis,
            limit: location.miss_limit.unwrap_or_default(),
        }
    }

    /// That of a request with a state.
    #[inline]
    pub(crate) fn of(state: &RequestState) -> Self {
        Self {
            redis: state.redis,
            limit: state.miss_limit,
        }
    }
}

/// Returns the standing of a request's address. While no address is limited this reads one word.
#[inline]
pub(crate) fn standing(request: &Request, limiting: Limiting) -> Standing {
    match limit(request, limiting) {
        Some(limit) if is_anyone_limited(&limit) => standing_in(request, limiting.redis, &limit),
        _ => Standing::Free,
    }
}

#[inline]
fn is_anyone_limited(limit: &Limit<'_>) -> bool {
    let alarm = limit.zone.alarm();
    alarm.is_some_and(|alarm| MissTable::is_anyone_limited(alarm, now().ms))
}

/// The same while an address is limited.
#[cold]
fn standing_in(request: &Request, redis: RedisNumber, limit: &Limit<'_>) -> Standing {
    let (Some((key, limited)), Some(misses)) = (limited(request, limit), limit.misses()) else {
        return Standing::Free;
    };
    if limit.conf.is_strict {
        charge_in(redis, &misses, key);
        return Standing::Shut;
    }
    match misses.admits(key, limited, now().ms) {
        true => Standing::Limited,
        false => Standing::Shut,
    }
}

/// Returns whether the client's address is limited now.
#[inline]
pub(crate) fn is_limited(request: &Request, limiting: Limiting) -> bool {
    limit(request, limiting).is_some_and(|limit| limited(request, &limit).is_some())
}

/// The key of the client's address, and what limits it; `None` if it is not limited.
fn limited(request: &Request, limit: &Limit<'_>) -> Option<(AddressKey, Scope)> {
    let key = address(request)?;
    let limited = limit.misses()?.limited(key, now().ms)?;
    (!is_exempt(request, limit.conf)).then_some((key, limited))
}

/// Charges the client's address for a miss.
pub(crate) fn charge(request: &Request, limiting: Limiting) {
    let redis = limiting.redis;
    if let Some(limit) = limit(request, limiting)
        && let Some(key) = address(request)
        && !is_exempt(request, limit.conf)
        && let Some(misses) = limit.misses()
    {
        worker::count(redis, Counter::MissCharged);
        charge_in(redis, &misses, key);
    }
}

fn charge_in(redis: RedisNumber, misses: &MissTable<'_>, key: AddressKey) {
    let charged = misses.charge(key, now().ms);
    if charged.address {
        worker::count(redis, Counter::LimitedAddress);
    }
    if charged.network {
        worker::count(redis, Counter::LimitedNetwork);
    }
}

/// The log phase: charges what only the fallback has decided, and takes back the charge for a
/// link that it found.
pub(crate) fn on_log(request: &Request) -> Status {
    if let Some(state) = RequestState::find(request)
        && let Some(Outcome::Miss | Outcome::Unavailable) = state.outcome.get()
        && let Some(limit) = limit(request, Limiting::of(state))
    {
        let status = state.status(request);
        let is_link = matches!(status, 301..=303 | 307 | 308 | 410) || state.is_preview(request);
        match (state.is_charged.get(), status) {
            (false, 404) if !state.is_free.get() => charge(request, Limiting::of(state)),
            (true, _) if is_link => {
                if let Some(key) = address(request)
                    && !is_exempt(request, limit.conf)
                    && let Some(misses) = limit.misses()
                {
                    misses.refund(key, now().ms);
                }
            }
            _ => {}
        }
    }
    Status::OK
}

/// Returns whether the variable of `exempt=` has a value other than the empty text and `0`.
fn is_exempt(request: &Request, conf: &MissLimitConf) -> bool {
    conf.exempt.is_some_and(|index| request.is_true(index))
}

/// The limit for the codes of a Redis: each Redis has misses of its own.
struct Limit<'r> {
    conf: &'r MissLimitConf,
    zone: MissZone,
}

impl Limit<'_> {
    fn misses(&self) -> Option<MissTable<'static>> {
        self.zone.misses(self.conf.limits)
    }
}

#[inline]
fn limit(request: &Request, limiting: Limiting) -> Option<Limit<'_>> {
    let MissLimiting::By(number) = limiting.limit else {
        return None;
    };
    let main = request.main_settings::<Settings>()?;
    let conf = main.miss_limits.get(number)?;
    let zone = main.redis.get(limiting.redis.index())?.misses_of(number)?;
    Some(Limit { conf, zone })
}

/// The client's address, after nginx' own modules have put the right one in its place.
fn address(request: &Request) -> Option<AddressKey> {
    AddressKey::of(request.client_ip()?)
}
