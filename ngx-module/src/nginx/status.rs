//! The results of handlers.

use ngx::ffi::{NGX_DECLINED, NGX_DONE, NGX_ERROR, NGX_OK, ngx_int_t};

/// The result of a handler of a request, for nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(ngx_int_t);

impl Status {
    /// It is done.
    pub(crate) const OK: Self = Self(NGX_OK as ngx_int_t);
    /// The request can't be answered.
    pub(crate) const ERROR: Self = Self(NGX_ERROR as ngx_int_t);
    /// The next handler of the phase is called.
    pub(crate) const DECLINED: Self = Self(NGX_DECLINED as ngx_int_t);
    /// The request is answered later.
    pub(crate) const DONE: Self = Self(NGX_DONE as ngx_int_t);
    /// The client has left.
    pub(crate) const CLIENT_LEFT: Self = Self::page(499);
    /// nginx' page for an error of the server, or the configured one.
    pub(crate) const INTERNAL_SERVER_ERROR: Self = Self::page(500);

    /// nginx' page for this status of HTTP, or the configured one.
    pub(crate) const fn page(status: u16) -> Self {
        Self(status as ngx_int_t)
    }

    /// The status as nginx returned it.
    #[inline]
    pub(super) fn of(result: ngx_int_t) -> Self {
        Self(result)
    }

    /// The status as nginx takes it.
    #[inline]
    pub(super) fn raw(self) -> ngx_int_t {
        self.0
    }
}
