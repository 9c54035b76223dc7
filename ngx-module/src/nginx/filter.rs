//! A filter of headers, after nginx' own that `add_header` belongs to.
//!
//! The module's `Cache-Control` yields to that of the configuration. `add_header` adds a second one, so that only a
//! filter behind it knows whether there is one. nginx calls filters in the reverse order of its list of
//! modules, in which this module stands before that of `add_header` for this reason.

use ngx::ffi::{
    NGX_ERROR, ngx_http_output_body_filter_pt, ngx_http_output_header_filter_pt,
    ngx_http_request_body_filter_pt, ngx_http_request_t, ngx_http_top_body_filter,
    ngx_http_top_header_filter, ngx_http_top_request_body_filter, ngx_int_t,
};

use crate::nginx::conf::Conf;
use crate::nginx::request::Request;

/// The filter behind this one.
static mut NEXT: ngx_http_output_header_filter_pt = None;

impl Conf {
    /// Puts the filter before those that there are. nginx begins a new chain for each configuration.
    pub(crate) fn add_header_filter(&mut self) {
        // SAFETY: configurations are read by the only thread, and nothing is sent meanwhile.
        unsafe {
            NEXT = ngx_http_top_header_filter;
            ngx_http_top_header_filter = Some(filter);
        }
    }
}

/// nginx' chains of filters, as they were before a configuration was read.
///
/// nginx begins new chains before it asks the modules of the filters whether they agree with the configuration, in their
/// order. If a module refuses it, the old configuration stays, and so do the chains as far as they have come: a worker
/// that is started later would have those.
#[derive(Clone, Copy)]
pub(crate) struct Chains {
    headers: ngx_http_output_header_filter_pt,
    bodies: ngx_http_output_body_filter_pt,
    request_bodies: ngx_http_request_body_filter_pt,
}

/// The chains of the configuration that is in use.
static mut IN_USE: Option<Chains> = None;

impl Chains {
    /// The present ones.
    pub(super) fn present() -> Self {
        // SAFETY: configurations are read by the only thread.
        unsafe {
            Self {
                headers: ngx_http_top_header_filter,
                bodies: ngx_http_top_body_filter,
                request_bodies: ngx_http_top_request_body_filter,
            }
        }
    }

    /// Has nginx use them.
    pub(super) fn put_back(self) {
        // SAFETY: as above, and nothing is sent meanwhile.
        unsafe {
            ngx_http_top_header_filter = self.headers;
            ngx_http_top_body_filter = self.bodies;
            ngx_http_top_request_body_filter = self.request_bodies;
        }
    }

    /// Remembers the present ones, before a configuration is read.
    pub(crate) fn remember() {
        // SAFETY: configurations are read by the only thread.
        unsafe { IN_USE = Some(Self::present()) };
    }

    /// Restores them, when the configuration is refused. Of the first one there are none, and nginx ends.
    pub(crate) fn restore() {
        // SAFETY: as above.
        if let Some(chains) = unsafe { IN_USE } {
            chains.put_back();
        }
    }
}

unsafe extern "C" fn filter(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request, and passes it on to the filter behind.
    unsafe {
        Request::of(request).yield_caching();
        NEXT.map_or(NGX_ERROR as ngx_int_t, |next| next(request))
    }
}
