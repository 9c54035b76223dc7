//! Directives and what they set.

mod cache;
mod certificates;
mod check;
mod domains;
mod duplex;
mod fallback;
mod languages;
mod miss_limit;
mod redis;
mod tls;
mod visit_address;
mod visits;
mod words;

use std::ffi::{c_char, c_void};
use std::ptr;

use ngx::core::NGX_CONF_OK;
use ngx::ffi::{
    NGX_CONF_1MORE, NGX_CONF_BLOCK, NGX_CONF_NOARGS, NGX_ERROR, NGX_HTTP_LIF_CONF,
    NGX_HTTP_LOC_CONF, NGX_HTTP_LOC_CONF_OFFSET, NGX_HTTP_MAIN_CONF, NGX_HTTP_MAIN_CONF_OFFSET,
    NGX_HTTP_SRV_CONF, NGX_LOG_EMERG, NGX_OK, ngx_array_push, ngx_command_t, ngx_conf_t,
    ngx_http_core_srv_conf_t, ngx_http_handler_pt, ngx_http_phases,
    ngx_http_phases_NGX_HTTP_LOG_PHASE as NGX_HTTP_LOG_PHASE,
    ngx_http_phases_NGX_HTTP_POST_READ_PHASE as NGX_HTTP_POST_READ_PHASE,
    ngx_http_phases_NGX_HTTP_REWRITE_PHASE as NGX_HTTP_REWRITE_PHASE, ngx_http_request_t,
    ngx_http_ssl_srv_conf_t, ngx_int_t, ngx_uint_t,
};
use ngx::http::{
    HttpModuleLocationConf, HttpModuleMainConf, HttpModuleServerConf, NgxHttpCoreModule,
};
use ngx::{ngx_conf_log_error, ngx_string};
use resolver::CacheSettings;
use resolver::vocabulary::CodeRules;
use resolver::vocabulary::domains::Domains;

use crate::Shortlink;
use crate::handler::handle;
use crate::shared::{COUNTER_WORDS, Zone};
use crate::{answers, fallback as unavailable, foresight, misses, status, visits as log};

use words::finish;

pub(crate) use fallback::{BoundedFallback, Fallback};
pub(crate) use miss_limit::MissLimitConf;
pub(crate) use redis::RedisConf;
pub(crate) use visit_address::VisitAddress;
pub(crate) use visits::VisitsConf;

/// The name of the shared memory that workers count in.
const COUNTERS_ZONE: &str = "shortlink_counters";

/// The directives of the `http` block.
#[derive(Debug)]
pub(crate) struct MainConf {
    /// `shortlink_redis`.
    pub(crate) redis: Option<RedisConf>,
    /// `shortlink_check`, or its default.
    pub(crate) rules: CodeRules,
    /// True if `shortlink_check` was given.
    rules_given: bool,
    /// `shortlink_cache`, or its default; `None` when it is off.
    pub(crate) cache: Option<CacheSettings>,
    /// True if `shortlink_cache` was given.
    cache_given: bool,
    /// `shortlink_miss_limit`; `None` when it is off.
    pub(crate) miss_limit: Option<MissLimitConf>,
    /// True if `shortlink_miss_limit` was given.
    miss_limit_given: bool,
    /// `shortlink_visits`; `None` when it is off.
    pub(crate) visits: Option<VisitsConf>,
    /// True if `shortlink_visits` was given.
    visits_given: bool,
    /// The shared memory of the counters; `None` without `shortlink_redis`.
    pub(crate) counters: Option<Zone>,
    /// `shortlink_domains`.
    pub(crate) domains: Option<Domains>,
    /// The certificates that `shortlink_domains` names.
    certificates: Option<certificates::Read>,
    /// Each server with `shortlink_certificates`.
    secured: Vec<*mut ngx_http_ssl_srv_conf_t>,
    /// `shortlink_languages`; none unless it is given.
    pub(crate) languages: Vec<&'static [u8]>,
    /// The index of `$shortlink_code` among nginx' variables.
    pub(crate) code_variable: usize,
    /// The fallbacks of all `shortlink_fallback`.
    pub(crate) fallbacks: Vec<BoundedFallback>,
    /// True if a location has `shortlink_status`.
    has_status: bool,
    /// Each location with `shortlink`, for the check of the whole.
    locations: Vec<UsedLocation>,
}

impl Default for MainConf {
    fn default() -> Self {
        Self {
            redis: None,
            rules: CodeRules::default(),
            rules_given: false,
            cache: Some(cache::DEFAULT),
            cache_given: false,
            miss_limit: None,
            miss_limit_given: false,
            visits: None,
            visits_given: false,
            counters: None,
            domains: None,
            certificates: None,
            secured: Vec::new(),
            languages: Vec::new(),
            code_variable: 0,
            fallbacks: Vec::new(),
            has_status: false,
            locations: Vec::new(),
        }
    }
}

/// The directives of a location.
#[derive(Debug, Default)]
pub(crate) struct LocationConf {
    /// True if the location has `shortlink`.
    enabled: bool,
    /// `shortlink_fallback`.
    pub(crate) fallback: Option<Fallback>,
    /// `shortlink_visit_address`.
    pub(crate) visit_address: Option<VisitAddress>,
}

/// A location with `shortlink`, for the check of the whole.
#[derive(Debug)]
struct UsedLocation {
    server: *mut ngx_http_core_srv_conf_t,
    fallback: Option<Fallback>,
}

/// Directives as nginx has them: name, contexts and arguments, the function that reads one, and the configuration that the
/// function is given.
macro_rules! directives {
    ($($name:literal: $kind:expr => $set:expr, $conf:expr;)*) => {
        [
            $(ngx_command_t {
                name: ngx_string!($name),
                type_: ($kind) as ngx_uint_t,
                set: Some($set),
                conf: $conf,
                offset: 0,
                post: ptr::null_mut(),
            },)*
            ngx_command_t::empty(),
        ]
    };
}

/// The module's directives.
pub(crate) static mut COMMANDS: [ngx_command_t; 15] = directives! {
    "shortlink_redis": NGX_HTTP_MAIN_CONF | NGX_CONF_BLOCK | NGX_CONF_NOARGS => redis::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink_cache": NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE => cache::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink_miss_limit": NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE => miss_limit::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink_visits": NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE => visits::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink_visit_address": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF | NGX_CONF_1MORE
        => visit_address::set, NGX_HTTP_LOC_CONF_OFFSET;
    "shortlink_status": NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS => set_status, NGX_HTTP_LOC_CONF_OFFSET;
    "shortlink_check": NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE => check::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink_domains": NGX_HTTP_MAIN_CONF | NGX_CONF_BLOCK | NGX_CONF_NOARGS => domains::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink_languages": NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE => languages::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink_certificates": NGX_HTTP_SRV_CONF | NGX_CONF_NOARGS => certificates::set, NGX_HTTP_MAIN_CONF_OFFSET;
    "shortlink": NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF | NGX_CONF_NOARGS => set_shortlink, NGX_HTTP_LOC_CONF_OFFSET;
    "shortlink_fallback": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF | NGX_CONF_1MORE
        => fallback::set, NGX_HTTP_LOC_CONF_OFFSET;
    "shortlink_unavailable": NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS => set_unavailable, NGX_HTTP_LOC_CONF_OFFSET;
    "shortlink_duplex": NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS => duplex::set, NGX_HTTP_LOC_CONF_OFFSET;
};

unsafe extern "C" fn set_shortlink(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with the location's configuration of this module, within a
    // location, whose core configuration exists.
    unsafe {
        let conf = &mut *conf.cast::<LocationConf>();
        let set = match NgxHttpCoreModule::location_conf_mut(&*cf) {
            _ if conf.enabled => Err("\"shortlink\" is given twice in this location".to_owned()),
            None => Err("there is no location".to_owned()),
            Some(location) => {
                conf.enabled = true;
                location.handler = Some(handle);
                Ok(())
            }
        };
        finish(cf, set)
    }
}

unsafe extern "C" fn set_status(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with the location's configuration of this module, within a
    // location, whose core configuration exists.
    unsafe {
        if let Some(main) = Shortlink::main_conf_mut(&*cf) {
            main.has_status = true;
        }
        answer_with(cf, conf, "shortlink_status", status::handle)
    }
}

unsafe extern "C" fn set_unavailable(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: as in `set_status`.
    unsafe { answer_with(cf, conf, "shortlink_unavailable", unavailable::handle) }
}

/// Has a handler answer a location, which must not have short links too.
///
/// # Safety
/// `cf` and `conf` must be as nginx passes them to the setter of a directive of a location.
unsafe fn answer_with(
    cf: *mut ngx_conf_t,
    conf: *mut c_void,
    directive: &str,
    handler: unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t,
) -> *mut c_char {
    // SAFETY: as this function's own.
    unsafe {
        let set = match NgxHttpCoreModule::location_conf_mut(&*cf) {
            _ if (*conf.cast::<LocationConf>()).enabled => {
                Err(format!("\"{directive}\" does not go with \"shortlink\""))
            }
            None => Err("there is no location".to_owned()),
            Some(location) => {
                location.handler = Some(handler);
                Ok(())
            }
        };
        finish(cf, set)
    }
}

/// Takes over what a location does not say itself.
///
/// # Safety
/// As nginx calls it: both are what this module made for the two levels.
pub(crate) unsafe fn merge_location(
    cf: *mut ngx_conf_t,
    outer: *mut c_void,
    inner: *mut c_void,
) -> *mut c_char {
    // SAFETY: as this function's own. `cf` stands in the inner level, so its core configurations
    // are those of that location and its server.
    unsafe {
        let outer = &*outer.cast::<LocationConf>();
        let inner = &mut *inner.cast::<LocationConf>();
        if inner.fallback.is_none() {
            inner.fallback.clone_from(&outer.fallback);
        }
        inner.visit_address = inner.visit_address.or(outer.visit_address);
        if let Some(location) = NgxHttpCoreModule::location_conf_mut(&*cf) {
            // `limit_except` is a level of its own and does not take over the handler; an `if`
            // keeps that of the location around it.
            if location.lmt_excpt() != 0 && location.handler.is_none() && outer.enabled {
                location.handler = Some(handle);
                inner.enabled = true;
            }
            if location.noname() != 0 && outer.enabled {
                inner.enabled = true;
            }
        }
        if inner.enabled
            && let Some(main) = Shortlink::main_conf_mut(&*cf)
            && let Some(server) = NgxHttpCoreModule::server_conf_mut(&*cf)
        {
            let fallback = inner.fallback.clone();
            main.locations.push(UsedLocation { server, fallback });
        }
    }
    NGX_CONF_OK
}

/// Checks what can only be seen of the whole configuration.
///
/// # Safety
/// `cf` must be valid and all locations known.
pub(crate) unsafe fn check_whole(cf: *mut ngx_conf_t) -> ngx_int_t {
    // SAFETY: as this function's own.
    unsafe {
        let Some(main) = Shortlink::main_conf_mut(&*cf) else {
            return NGX_ERROR as ngx_int_t;
        };
        let locations = std::mem::take(&mut main.locations);
        if main.redis.is_none() && (!locations.is_empty() || main.has_status) {
            ngx_conf_log_error!(
                NGX_LOG_EMERG,
                cf,
                "a location has \"shortlink\" or \"shortlink_status\" but there is no \
                 \"shortlink_redis\" in the http block"
            );
            return NGX_ERROR as ngx_int_t;
        }
        if let Some(redis) = &main.redis
            && let Some((address, place)) = &redis.unresolved
            && !has_resolver(cf)
        {
            ngx_conf_log_error!(
                NGX_LOG_EMERG,
                cf,
                "no address is known of {address} in {place}, and the http block has no \
                 \"resolver\" that could find one later"
            );
            return NGX_ERROR as ngx_int_t;
        }
        if main.redis.is_some() {
            match Zone::add(cf, COUNTERS_ZONE, COUNTER_WORDS) {
                Ok(zone) => main.counters = Some(zone),
                Err(reason) => {
                    ngx_conf_log_error!(NGX_LOG_EMERG, cf, "{reason}");
                    return NGX_ERROR as ngx_int_t;
                }
            }
        }
        certificates::serve(main);
        if !locations.is_empty() && !add_handler(cf, NGX_HTTP_LOG_PHASE, answers::on_log) {
            return NGX_ERROR as ngx_int_t;
        }
        if main.miss_limit.is_some() && !add_handler(cf, NGX_HTTP_LOG_PHASE, misses::on_log) {
            return NGX_ERROR as ngx_int_t;
        }
        if main.visits.is_some()
            && !locations.is_empty()
            && !add_handler(cf, NGX_HTTP_LOG_PHASE, log::on_log)
        {
            return NGX_ERROR as ngx_int_t;
        }
        if main.cache.is_some()
            && !locations.is_empty()
            && !(add_handler(cf, NGX_HTTP_POST_READ_PHASE, foresight::on_post_read)
                && add_handler(cf, NGX_HTTP_REWRITE_PHASE, foresight::on_rewrite))
        {
            return NGX_ERROR as ngx_int_t;
        }
        for UsedLocation { server, fallback } in &locations {
            let Some(Fallback {
                name, file, line, ..
            }) = fallback
            else {
                continue;
            };
            if !has_named_location(*server, name.as_bytes()) {
                ngx_conf_log_error!(
                    NGX_LOG_EMERG,
                    cf,
                    "\"shortlink_fallback {name}\" in {file}:{line} names a location that its \
                     server does not have"
                );
                return NGX_ERROR as ngx_int_t;
            }
        }
    }
    NGX_OK as ngx_int_t
}

/// Returns whether the `http` block has a `resolver`.
unsafe fn has_resolver(cf: *mut ngx_conf_t) -> bool {
    // SAFETY: the caller's configuration is the `http` block's; nginx makes a resolver without
    // servers where there is no directive.
    unsafe {
        let core = NgxHttpCoreModule::location_conf(&*cf);
        core.and_then(|core| core.resolver.as_ref())
            .is_some_and(|resolver| resolver.connections.nelts > 0)
    }
}

/// Has nginx call this module in a phase of every request.
unsafe fn add_handler(
    cf: *mut ngx_conf_t,
    phase: ngx_http_phases,
    handler: unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t,
) -> bool {
    // SAFETY: the caller's configuration is valid, and nginx' own module has made the arrays of
    // handlers before it asks other modules to add theirs.
    unsafe {
        let Some(core) = NgxHttpCoreModule::main_conf_mut(&*cf) else {
            return false;
        };
        let handlers = &mut core.phases[phase as usize].handlers;
        let place = ngx_array_push(handlers).cast::<ngx_http_handler_pt>();
        if place.is_null() {
            return false;
        }
        place.write(Some(handler));
        true
    }
}

/// Returns whether a server has a named location.
unsafe fn has_named_location(server: *mut ngx_http_core_srv_conf_t, name: &[u8]) -> bool {
    // SAFETY: the caller's server is valid; its named locations are a list that ends with null,
    // or null when there are none.
    unsafe {
        let mut place = (*server).named_locations;
        if place.is_null() {
            return false;
        }
        while let Some(location) = (*place).as_ref() {
            if location.name.as_bytes() == name {
                return true;
            }
            place = place.add(1);
        }
    }
    false
}
