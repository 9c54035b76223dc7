//! A filter of headers, after nginx' own that `add_header` belongs to.
//!
//! The module's `Cache-Control` yields to that of the configuration. `add_header` adds a second one, so that only a
//! filter behind it knows whether there is one. nginx calls filters in the reverse order of its list of
//! modules, in which this module stands before that of `add_header` for this reason.

use ngx::ffi::{
    NGX_ERROR, ngx_http_output_header_filter_pt, ngx_http_request_t, ngx_http_top_header_filter,
    ngx_int_t,
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

unsafe extern "C" fn filter(request: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request, and passes it on to the filter behind.
    unsafe {
        Request::of(request).yield_caching();
        NEXT.map_or(NGX_ERROR as ngx_int_t, |next| next(request))
    }
}
