//! The nginx module: a thin adapter between nginx and `resolver`.
//!
//! - [`conf`]: directives and what they set.
//! - [`handler`]: a request comes and is answered.
//! - [`foresight`]: what the request will need of the cache is fetched before.
//! - [`links`]: the worker's connections, in the worker's own event loop; [`link`] is one of them,
//!   [`addresses`] finds its address, [`tls`] secures it.
//! - [`worker`]: what a worker owns.
//! - [`journal`]: the lines of the log.
//! - [`misses`]: addresses with too many requests for links that do not exist; [`status`]: the
//!   counters; both in [`shared`] memory; [`answers`]: counts the fallback's answers.
//! - [`visits`]: what was answered is recorded; [`spool`]: and written to files while Redis is away.
//! - [`state`]: what is known of a request, for its whole life.
//! - [`respond`] sends answers.
//! - [`variables`]: what configuration and logs can see.
//! - [`layout`]: refuses to run where the bindings are wrong about nginx.
//!
//! All `unsafe` of the project lives here. The rules that every block relies on:
//!
//! - nginx is single-threaded in each worker, and calls a module's functions with pointers that
//!   are valid for the call.
//! - Memory from a request's pool lives until the request's pool is destroyed, after its cleanups
//!   ran.
//! - A call into nginx that finishes a request may call back into this module (log phase, named
//!   location, the next request of the same connection). No reference to the worker's state may
//!   be held across such a call.

mod addresses;
mod answers;
mod certificates;
mod conf;
mod fallback;
mod foresight;
mod handler;
mod headers;
mod journal;
mod layout;
mod link;
mod links;
mod misses;
mod respond;
mod shared;
mod spool;
mod state;
mod status;
mod tls;
mod variables;
mod visits;
mod worker;

use std::ffi::{c_char, c_void};
use std::ptr::{self, addr_of};

use ngx::core::Status;
use ngx::ffi::{
    NGX_HTTP_MODULE, NGX_LOG_EMERG, ngx_conf_t, ngx_http_module_t, ngx_int_t, ngx_module_t,
    ngx_uint_t,
};
use ngx::http::{HttpModule, HttpModuleLocationConf, HttpModuleMainConf};
use ngx::ngx_conf_log_error;

use crate::conf::{COMMANDS, LocationConf, MainConf};

/// The module, as nginx' module interface sees it.
pub(crate) struct Shortlink;

impl HttpModule for Shortlink {
    fn module() -> &'static ngx_module_t {
        // SAFETY: the static is written by nginx while it loads the module, before any request
        // or configuration reaches it, and only read afterwards.
        unsafe { &*addr_of!(ngx_http_shortlink_module) }
    }

    unsafe extern "C" fn preconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
        if let Err(differences) = layout::verify() {
            ngx_conf_log_error!(
                NGX_LOG_EMERG,
                cf,
                "the shortlink module was built with bindings that are wrong about this nginx \
                 and would corrupt its memory; fields that differ:{differences}"
            );
            return Status::NGX_ERROR.into();
        }
        // SAFETY: nginx calls this with a valid configuration.
        unsafe { variables::add(cf) }
    }

    unsafe extern "C" fn postconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
        // SAFETY: nginx calls this with a valid configuration, after all locations are known.
        unsafe { conf::check_whole(cf) }
    }
}

// SAFETY: `MainConf` is what `create_main_conf` of this module allocates.
unsafe impl HttpModuleMainConf for Shortlink {
    type MainConf = MainConf;
}

// SAFETY: `LocationConf` is what `create_loc_conf` of this module allocates.
unsafe impl HttpModuleLocationConf for Shortlink {
    type LocationConf = LocationConf;
}

static MODULE_CONTEXT: ngx_http_module_t = ngx_http_module_t {
    preconfiguration: Some(Shortlink::preconfiguration),
    postconfiguration: Some(Shortlink::postconfiguration),
    create_main_conf: Some(Shortlink::create_main_conf),
    init_main_conf: None,
    create_srv_conf: None,
    merge_srv_conf: None,
    create_loc_conf: Some(Shortlink::create_loc_conf),
    merge_loc_conf: Some(merge_location),
};

unsafe extern "C" fn merge_location(
    cf: *mut ngx_conf_t,
    outer: *mut c_void,
    inner: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with what `create_loc_conf` made for both levels.
    unsafe { conf::merge_location(cf, outer, inner) }
}

/// The list of modules that nginx finds by name in the dynamic module.
// SAFETY: the name is this module's own.
#[unsafe(no_mangle)]
pub static mut ngx_http_shortlink_module: ngx_module_t = ngx_module_t {
    ctx: addr_of!(MODULE_CONTEXT) as *mut c_void,
    commands: ptr::addr_of_mut!(COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    init_process: Some(worker::start),
    exit_process: Some(worker::stop),
    ..ngx_module_t::default()
};

#[cfg(feature = "export-modules")]
mod export {
    //! The list of modules that nginx looks for in a dynamic module.

    use super::ngx_http_shortlink_module;

    ngx::ngx_modules!(ngx_http_shortlink_module);
}
