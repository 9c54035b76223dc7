//! The module as nginx sees it, and its configurations.

use std::ffi::{c_char, c_void};
use std::ptr;

use ngx::ffi::{
    NGX_ERROR, NGX_HTTP_MODULE, NGX_OK, ngx_command_t, ngx_conf_t, ngx_cycle_t,
    ngx_http_conf_ctx_t, ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_module_t,
    ngx_int_t, ngx_module_t, ngx_uint_t,
};

use crate::nginx::conf::{Conf, Refused};
use crate::nginx::identity::{Settings, number};
use crate::nginx::log::Log;
use crate::nginx::pool::Pool;
use crate::nginx::resolver::Resolver;

/// The functions that nginx calls while it reads a configuration.
pub(crate) trait Module {
    type Settings: Settings;

    /// Before the first directive is read.
    ///
    /// # Errors
    /// The reason for the log.
    fn before(conf: &mut Conf) -> Result<(), Refused>;

    /// After the last directive was read.
    ///
    /// # Errors
    /// The reason for the log.
    fn after(conf: &mut Conf) -> Result<(), Refused>;

    /// Takes over what the configuration's location does not say itself.
    ///
    /// # Errors
    /// The reason for the log.
    fn merge(
        conf: &mut Conf,
        outer: &<Self::Settings as Settings>::Location,
    ) -> Result<(), Refused>;
}

/// The module's functions for nginx' HTTP.
pub(crate) const fn context<M: Module>() -> ngx_http_module_t {
    ngx_http_module_t {
        preconfiguration: Some(before::<M>),
        postconfiguration: Some(after::<M>),
        create_main_conf: Some(create::<<M::Settings as Settings>::Main>),
        init_main_conf: None,
        create_srv_conf: None,
        merge_srv_conf: None,
        create_loc_conf: Some(create::<<M::Settings as Settings>::Location>),
        merge_loc_conf: Some(merge::<M>),
    }
}

/// The module itself, of its context and directives, and the functions of [`worker_functions`].
pub(crate) const fn module(
    context: *const ngx_http_module_t,
    commands: *mut ngx_command_t,
    start: unsafe extern "C" fn(*mut ngx_cycle_t) -> ngx_int_t,
    stop: unsafe extern "C" fn(*mut ngx_cycle_t),
) -> ngx_module_t {
    ngx_module_t {
        ctx: context.cast_mut().cast(),
        commands,
        type_: NGX_HTTP_MODULE as ngx_uint_t,
        init_process: Some(start),
        exit_process: Some(stop),
        ..ngx_module_t::default()
    }
}

unsafe extern "C" fn before<M: Module>(cf: *mut ngx_conf_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid configuration.
    unsafe { Conf::call(cf, |conf| M::before(conf), NGX_OK as _, NGX_ERROR as _) }
}

unsafe extern "C" fn after<M: Module>(cf: *mut ngx_conf_t) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid configuration.
    unsafe { Conf::call(cf, |conf| M::after(conf), NGX_OK as _, NGX_ERROR as _) }
}

unsafe extern "C" fn create<T: Default + 'static>(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: nginx calls this with a valid configuration.
    let pool = unsafe { Pool::of((*cf).pool) };
    // nginx refuses the configuration if this is null.
    let placed = pool.place(T::default());
    placed.map_or(ptr::null_mut(), |placed| placed.as_ptr().cast())
}

unsafe extern "C" fn merge<M: Module>(
    cf: *mut ngx_conf_t,
    outer: *mut c_void,
    _inner: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with a valid configuration, whose location is the inner one, and with what `create`
    // made for the outer one.
    unsafe { Conf::set(cf, |conf| M::merge(conf, &*outer.cast())) }
}

/// The functions that nginx calls in each worker before it handles events, and when its loop has ended:
/// `fn(&Cycle)` and `fn()`.
macro_rules! worker_functions {
    ($start:path, $stop:path) => {{
        unsafe extern "C" fn start(cycle: *mut ngx::ffi::ngx_cycle_t) -> ngx::ffi::ngx_int_t {
            // SAFETY: nginx calls this with the worker's cycle.
            $start(&unsafe { $crate::nginx::module::Cycle::of(cycle) });
            ngx::ffi::NGX_OK as ngx::ffi::ngx_int_t
        }
        unsafe extern "C" fn stop(_cycle: *mut ngx::ffi::ngx_cycle_t) {
            $stop();
        }
        (
            start as unsafe extern "C" fn(*mut ngx::ffi::ngx_cycle_t) -> ngx::ffi::ngx_int_t,
            stop as unsafe extern "C" fn(*mut ngx::ffi::ngx_cycle_t),
        )
    }};
}
pub(crate) use worker_functions;

/// The configuration, log and connections of a worker. They live as long as the worker.
pub(crate) struct Cycle(*const ngx_cycle_t);

impl Cycle {
    /// # Safety
    /// The cycle must be a worker's, and valid as long as that.
    pub(crate) unsafe fn of(raw: *const ngx_cycle_t) -> Self {
        Self(raw)
    }

    /// The context of the `http` block; `None` without one.
    fn http(&self) -> Option<&ngx_http_conf_ctx_t> {
        // SAFETY: the cycle is valid and has a place for each module.
        unsafe {
            let http = *(*self.0).conf_ctx.add(ngx::ffi::ngx_http_module.index);
            http.cast::<ngx_http_conf_ctx_t>().as_ref()
        }
    }

    /// The module's configuration of the `http` block; `None` without one.
    pub(crate) fn main<S: Settings>(&self) -> Option<&S::Main> {
        let context = self.http()?;
        // SAFETY: `create` has made the configuration, which is changed no more.
        unsafe {
            (*context.main_conf.add(number()))
                .cast::<S::Main>()
                .as_ref()
        }
    }

    /// The log.
    pub(crate) fn log(&self) -> Option<Log> {
        // SAFETY: the cycle's log lives as long as the worker.
        unsafe { Some(Log::of(ptr::NonNull::new((*self.0).log)?)) }
    }

    /// Number of connections of a worker.
    pub(crate) fn connections(&self) -> usize {
        // SAFETY: the cycle is valid.
        unsafe { (*self.0).connection_n }
    }

    /// The `resolver` of the `http` block.
    pub(crate) fn resolver(&self) -> Option<Resolver> {
        let context = self.http()?;
        // SAFETY: nginx' own module has made its configuration, which lives as long as the worker.
        unsafe {
            let core = *context.loc_conf.add(ngx_http_core_module.ctx_index);
            Resolver::of((*core.cast::<ngx_http_core_loc_conf_t>()).resolver)
        }
    }
}
