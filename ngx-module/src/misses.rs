//! Addresses with too many requests for links that do not exist.
//!
//! The end of a request decides: an answer 404 that this module gave, or the fallback for it, is a
//! miss of the client's address. So a link that only SQL knows is none.

use std::slice;

use ngx::ffi::{
    AF_INET, AF_INET6, NGX_HTTP_NOT_FOUND, NGX_OK, ngx_http_request_t, ngx_int_t, ngx_uint_t,
    sockaddr_in, sockaddr_in6,
};
use ngx::http::{HttpModuleMainConf, Request};
use resolver::Outcome;
use resolver::limit::AddressKey;

use crate::Shortlink;
use crate::conf::MissLimitConf;
use crate::state::RequestState;
use crate::worker::now;

/// Returns whether the client's address has requested too many links that do not exist.
///
/// # Safety
/// `request` must be valid.
#[inline]
pub(crate) unsafe fn is_limited(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: as this function's own; the zone was made before there were requests.
    unsafe {
        match (conf(request), address(request)) {
            (Some(conf), Some(key)) => conf.zone.misses(conf.limit).is_limited(key, now().ms),
            _ => false,
        }
    }
}

/// Returns whether an address over its limit gets only answers from the cache.
///
/// # Safety
/// `request` must be valid.
#[inline]
pub(crate) unsafe fn is_strict(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: as this function's own.
    unsafe { conf(request) }.is_some_and(|conf| conf.is_strict)
}

/// The log phase: charges the client's address if what it asked for does not exist.
pub(crate) unsafe extern "C" fn on_log(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request that was answered.
    unsafe {
        if (*request).headers_out.status == NGX_HTTP_NOT_FOUND as ngx_uint_t
            && let Some(conf) = conf(request)
            && let Some(state) = RequestState::find(request)
            && let Some(Outcome::Unknown | Outcome::WrongCheck | Outcome::Miss) =
                state.as_ref().outcome
            && let Some(key) = address(request)
        {
            conf.zone.misses(conf.limit).charge(key, now().ms);
        }
    }
    NGX_OK as ngx_int_t
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
