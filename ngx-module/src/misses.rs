//! Addresses with too many requests for links that do not exist.
//!
//! A miss is charged as soon as Redis, or the check character, says that there is no link: a client
//! that closes its connection before the fallback answers has learned as much. When the fallback
//! finds the link, which then only SQL knows, the log phase takes the charge back.

use std::slice;

use ngx::ffi::{
    AF_INET, AF_INET6, NGX_HTTP_NOT_FOUND, NGX_OK, ngx_http_get_flushed_variable,
    ngx_http_request_t, ngx_int_t, ngx_uint_t, sockaddr_in, sockaddr_in6,
};
use ngx::http::{HttpModuleMainConf, Request};
use resolver::Outcome;
use resolver::counters::Counter;
use resolver::limit::{AddressKey, MissTable, Scope};

use crate::Shortlink;
use crate::conf::MissLimitConf;
use crate::state::RequestState;
use crate::worker::{self, now};

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
///
/// # Safety
/// `request` must be valid; the worker's state may not be borrowed.
#[inline]
pub(crate) unsafe fn standing(request: *mut ngx_http_request_t) -> Standing {
    // SAFETY: as this function's own; the zone was made before there were requests.
    unsafe {
        match conf(request) {
            Some(conf) if MissTable::is_anyone_limited(conf.zone.alarm(), now().ms) => {
                standing_in(request, conf)
            }
            _ => Standing::Free,
        }
    }
}

/// The same while an address is limited.
#[cold]
unsafe fn standing_in(request: *mut ngx_http_request_t, conf: &MissLimitConf) -> Standing {
    // SAFETY: as for the caller.
    unsafe {
        let Some((key, limited)) = limited(request, conf) else {
            return Standing::Free;
        };
        let misses = conf.zone.misses(conf.limits);
        if conf.is_strict {
            charge_in(&misses, key);
            return Standing::Shut;
        }
        match misses.admits(key, limited, now().ms) {
            true => Standing::Limited,
            false => Standing::Shut,
        }
    }
}

/// Returns whether the client's address is limited now.
///
/// # Safety
/// As for [`standing`].
#[inline]
pub(crate) unsafe fn is_limited(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: as this function's own.
    unsafe { conf(request).is_some_and(|conf| limited(request, conf).is_some()) }
}

/// The key of the client's address, and what limits it; `None` if it is not limited.
unsafe fn limited(
    request: *mut ngx_http_request_t,
    conf: &MissLimitConf,
) -> Option<(AddressKey, Scope)> {
    // SAFETY: as for the callers.
    unsafe {
        let key = address(request)?;
        let limited = conf.zone.misses(conf.limits).limited(key, now().ms)?;
        (!is_exempt(request, conf)).then_some((key, limited))
    }
}

/// Charges the client's address for a miss.
///
/// # Safety
/// As for [`standing`].
pub(crate) unsafe fn charge(request: *mut ngx_http_request_t) {
    // SAFETY: as this function's own.
    unsafe {
        if let Some(conf) = conf(request)
            && let Some(key) = address(request)
            && !is_exempt(request, conf)
        {
            worker::count(Counter::MissCharged);
            charge_in(&conf.zone.misses(conf.limits), key);
        }
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
pub(crate) unsafe extern "C" fn on_log(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request that was answered.
    unsafe {
        if let Some(state) = RequestState::find(request)
            && let Some(Outcome::Miss | Outcome::Unavailable) = state.as_ref().outcome
            && let Some(conf) = conf(request)
        {
            match (state.as_ref().is_charged, fallback_status(request, conf)) {
                (false, 404) if !state.as_ref().is_free => charge(request),
                (true, 301..=303 | 307 | 308 | 410) => {
                    if let Some(key) = address(request)
                        && !is_exempt(request, conf)
                    {
                        conf.zone.misses(conf.limits).refund(key, now().ms);
                    }
                }
                _ => {}
            }
        }
    }
    NGX_OK as ngx_int_t
}

/// The status of the fallback's answer: of the server it asked, since `error_page` may have made a
/// redirect of its 404, else of the answer.
unsafe fn fallback_status(request: *mut ngx_http_request_t, conf: &MissLimitConf) -> ngx_uint_t {
    // SAFETY: as for the caller.
    unsafe {
        let asked = variable(request, conf.upstream_status).unwrap_or_default();
        match asked.ends_with(b"404") {
            true => NGX_HTTP_NOT_FOUND as ngx_uint_t,
            false => (*request).headers_out.status,
        }
    }
}

/// Returns whether the variable of `exempt=` has a value other than the empty text and `0`.
unsafe fn is_exempt(request: *mut ngx_http_request_t, conf: &MissLimitConf) -> bool {
    // SAFETY: as for the callers.
    let value = conf
        .exempt
        .and_then(|index| unsafe { variable(request, index) });
    value.is_some_and(|value| !value.is_empty() && value != b"0")
}

/// The value of a variable of nginx; it lives as long as the request.
unsafe fn variable<'a>(request: *mut ngx_http_request_t, index: usize) -> Option<&'a [u8]> {
    // SAFETY: the callers' request is valid, and the index is one that nginx has given.
    unsafe {
        let value = ngx_http_get_flushed_variable(request, index as ngx_uint_t).as_ref()?;
        if value.not_found() != 0 || value.len() == 0 {
            return None;
        }
        Some(slice::from_raw_parts(value.data, value.len() as usize))
    }
}

unsafe fn conf<'a>(request: *mut ngx_http_request_t) -> Option<&'a MissLimitConf> {
    // SAFETY: the caller's request is valid; the configuration outlives it.
    let main = unsafe { Shortlink::main_conf(Request::from_ngx_http_request(request)) };
    main?.miss_limit.as_ref()
}

/// The client's address, after nginx' own modules have put the right one in its place.
unsafe fn address(request: *mut ngx_http_request_t) -> Option<AddressKey> {
    // SAFETY: a connection of a client has an address, whose family says what it is.
    unsafe {
        let address = (*(*request).connection).sockaddr;
        let family = i32::from((*address).sa_family);
        let bytes = if family == AF_INET as i32 {
            let v4 = &raw const (*address.cast::<sockaddr_in>()).sin_addr;
            slice::from_raw_parts(v4.cast::<u8>(), 4)
        } else if family == AF_INET6 as i32 {
            let v6 = &raw const (*address.cast::<sockaddr_in6>()).sin6_addr;
            slice::from_raw_parts(v6.cast::<u8>(), 16)
        } else {
            return None;
        };
        AddressKey::of(bytes)
    }
}
