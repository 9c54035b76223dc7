//! The module's place in nginx, and the types of its configurations.

use ngx::ffi::ngx_module_t;

unsafe extern "C" {
    /// The module, which the root of this crate defines and nginx finds by this name. nginx numbers it before
    /// it reads a configuration.
    static mut ngx_http_shortlink_module: ngx_module_t;
}

/// The address of the module.
pub(super) fn address() -> *mut ngx_module_t {
    &raw mut ngx_http_shortlink_module
}

/// The number of the module among those of HTTP.
#[inline]
pub(super) fn number() -> usize {
    // SAFETY: nginx has numbered the module before it calls any of its functions.
    unsafe { (*address()).ctx_index }
}

/// The types of the module's configurations.
///
/// # Safety
/// Only one type may implement it: the one that the module's context is made for.
pub(crate) unsafe trait Settings: 'static {
    /// Of the `http` block.
    type Main: Default + 'static;
    /// Of a location.
    type Location: Default + 'static;
}
