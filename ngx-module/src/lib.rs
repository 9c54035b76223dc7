//! The nginx module: a thin adapter between nginx and `resolver`.
//!
//! Its floors, each above those that it uses; `tests/tests/all/tidy.rs` holds them:
//!
//! - [`directives`]: the table of directives, their functions, and the handlers that nginx calls.
//! - [`driver`]: carries out what the edge decides, in the event loop.
//! - [`handler`], [`fallback`], [`status`], [`visits`], [`misses`], [`answers`], [`foresight`], [`variables`]: the
//!   functions that nginx calls with a request.
//! - [`respond`], [`settled`], [`state`], [`headers`]: answers, and what is known of a request.
//! - [`worker`]: the state of a worker: the edge, connections, addresses, visits, the lines of the log.
//! - [`settings`]: the types of the configuration.
//! - [`nginx`]: nginx in safe types.
//!
//! [`layout`] refuses to run where the bindings are wrong about nginx' headers, [`nginx::selftest`] where they are wrong
//! about the nginx that runs.

mod answers;
mod directives;
mod driver;
mod fallback;
mod foresight;
mod handler;
mod headers;
mod host;
mod layout;
mod misses;
mod nginx;
mod respond;
mod settings;
mod settled;
mod state;
mod status;
mod variables;
mod visitor;
mod visits;
mod worker;

use std::ptr::addr_of_mut;

use ngx::ffi::{ngx_http_module_t, ngx_module_t};

use crate::directives::{COMMANDS, Shortlink};
use crate::nginx::module::{self, worker_functions};

static CONTEXT: ngx_http_module_t = module::context::<Shortlink>();

/// The module, which nginx finds by name in the dynamic module.
// SAFETY: the name is this module's own.
#[unsafe(no_mangle)]
pub static mut ngx_http_shortlink_module: ngx_module_t = {
    let (start, stop) = worker_functions!(driver::start, worker::stop);
    module::module(
        &raw const CONTEXT,
        addr_of_mut!(COMMANDS).cast(),
        start,
        stop,
    )
};

#[cfg(feature = "export-modules")]
mod export {
    //! The list of modules that nginx looks for in a dynamic module, and the place in its own that it gives them.

    use std::ffi::c_char;
    use std::ptr::null;

    use ngx::ffi::ngx_module_t;

    const NAME: *const c_char = c"ngx_http_shortlink_module".as_ptr();

    // SAFETY: nginx looks for these names in the module, and only reads them.
    #[unsafe(no_mangle)]
    static mut ngx_modules: [*const ngx_module_t; 2] =
        [&raw const super::ngx_http_shortlink_module, null()];

    // SAFETY: as above.
    #[unsafe(no_mangle)]
    static mut ngx_module_names: [*const c_char; 2] = [NAME, null()];

    /// Before the module of `add_header`: its own filter of headers is to be called after that.
    // SAFETY: as above.
    #[unsafe(no_mangle)]
    static mut ngx_module_order: [*const c_char; 3] =
        [NAME, c"ngx_http_headers_filter_module".as_ptr(), null()];
}
