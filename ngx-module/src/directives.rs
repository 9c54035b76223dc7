//! The directives: their names, contexts and settings.

pub(crate) mod cache;
pub(crate) mod certificates;
pub(crate) mod check;
pub(crate) mod country;
pub(crate) mod domains;
pub(crate) mod duplex;
pub(crate) mod fallback;
pub(crate) mod languages;
pub(crate) mod miss_limit;
pub(crate) mod named;
pub(crate) mod redis;
pub(crate) mod tls;
pub(crate) mod visit_address;
pub(crate) mod visits;
pub(crate) mod words;

use crate::directives::words::Set;
use crate::nginx::conf::{
    Conf, Directive, NGX_CONF_1MORE, NGX_CONF_BLOCK, NGX_CONF_NOARGS, NGX_CONF_TAKE1,
    NGX_CONF_TAKE12, NGX_HTTP_LIF_CONF, NGX_HTTP_LOC_CONF, NGX_HTTP_MAIN_CONF, NGX_HTTP_SRV_CONF,
    Phase, Refused, directives,
};
use crate::nginx::filter::Chains;
use crate::nginx::module::Module;
use crate::nginx::request::{RequestHandler, request_handler};
use crate::nginx::selftest;
use crate::nginx::selftest::padded::Unfit;
use crate::nginx::variable::variable_getter;
use crate::settings::redis::RedisNumber;
use crate::settings::{ContentConf, LocationConf, MainConf, Recording, Settings, UsedLocation};
use crate::{
    answers, fallback as unavailable, foresight, handler, layout, misses, status, variables,
    visits as log,
};

/// The module's directives.
pub(crate) static mut COMMANDS: [Directive; 16] = directives! {
    "shortlink_redis": NGX_HTTP_MAIN_CONF | NGX_CONF_BLOCK | NGX_CONF_NOARGS | NGX_CONF_TAKE1 => redis::set;
    "shortlink_cache": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF
        | NGX_CONF_1MORE => cache::set;
    "shortlink_miss_limit": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF
        | NGX_CONF_1MORE => miss_limit::set;
    "shortlink_visits": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF
        | NGX_CONF_1MORE => visits::set;
    "shortlink_visit_address": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF
        | NGX_CONF_1MORE => visit_address::set;
    "shortlink_status": NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS => set_status;
    "shortlink_check": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF
        | NGX_CONF_1MORE => check::set;
    "shortlink_domains": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_CONF_BLOCK | NGX_CONF_NOARGS => domains::set;
    "shortlink_languages": NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE => languages::set;
    "shortlink_country": NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE12 => country::set;
    "shortlink_certificates": NGX_HTTP_SRV_CONF | NGX_CONF_NOARGS => certificates::set;
    "shortlink": NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1 => set_shortlink;
    "shortlink_fallback": NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_HTTP_LIF_CONF
        | NGX_CONF_1MORE => fallback::set;
    "shortlink_unavailable": NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS => set_unavailable;
    "shortlink_duplex": NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS => duplex::set;
};

fn set_shortlink(conf: &mut Conf) -> Set {
    answer_with(conf, "shortlink", request_handler!(handler::handle))?;
    let number = named::use_named(conf)?;
    if let Some(location) = conf.location_mut::<Settings>() {
        location.is_enabled = true;
        location.redis = number;
    }
    Ok(())
}

fn set_status(conf: &mut Conf) -> Set {
    if let Some(main) = conf.main_mut::<Settings>() {
        main.has_status = true;
    }
    answer_with(conf, "shortlink_status", request_handler!(status::handle))
}

fn set_unavailable(conf: &mut Conf) -> Set {
    let handler = request_handler!(unavailable::handle);
    answer_with(conf, "shortlink_unavailable", handler)
}

/// Has a handler answer a location, which nothing else may answer.
fn answer_with(conf: &mut Conf, directive: &'static str, handler: RequestHandler) -> Set {
    let location = conf.location::<Settings>().ok_or("there is no location")?;
    if let Some(other) = &location.content {
        return Err(if other.directive == directive {
            format!("\"{directive}\" is given twice in this location")
        } else {
            format!("\"{directive}\" does not go with \"{}\"", other.directive)
        });
    }
    if conf.has_handler() {
        return Err(format!(
            "\"{directive}\" does not go with the directive before it that answers this location, \
             such as proxy_pass"
        ));
    }
    conf.set_handler(handler);
    let (file, line) = conf.place();
    if let Some(location) = conf.location_mut::<Settings>() {
        location.content = Some(ContentConf {
            directive,
            handler,
            file,
            line,
        });
    }
    Ok(())
}

/// Checks that no directive after that of this module answers the location too.
fn check_content(conf: &Conf) -> Set {
    let content = conf
        .location::<Settings>()
        .and_then(|it| it.content.as_ref());
    match content {
        Some(content) if !conf.has_this_handler(content.handler) => Err(format!(
            "\"{}\" in {}:{} does not go with another directive that answers the same location, \
             such as proxy_pass",
            content.directive, content.file, content.line
        )),
        _ => Ok(()),
    }
}

/// The module's part in a configuration.
pub(crate) struct Shortlink;

impl Module for Shortlink {
    type Settings = Settings;

    fn before(conf: &mut Conf) -> Result<(), Refused> {
        if let Err(differences) = layout::verify() {
            return Err(Refused::from(format!(
                "the shortlink module was built with bindings that are wrong about this nginx \
                 and would corrupt its memory; fields that differ:{differences}"
            )));
        }
        match selftest::verify(conf) {
            Ok(()) => {}
            Err(Unfit::Differs(fields)) => {
                return Err(Refused::from(format!(
                    "the shortlink module was built for another nginx than this one, and would corrupt its memory: \
                     {fields} differ; build the module from the source of this nginx, with the patches of its \
                     distributor (OpenResty has patches) and the options that \"nginx -V\" prints: \
                     make build NGINX=<source>"
                )));
            }
            Err(Unfit::NoMemory) => {
                let reason = "there is no memory for the shortlink module's test of this nginx";
                return Err(Refused::from(reason.to_owned()));
            }
        }
        Chains::remember();
        Ok(add_variables(conf)?)
    }

    fn after(conf: &mut Conf) -> Result<(), Refused> {
        check_whole(conf).inspect_err(|_| Chains::restore())?;
        Ok(())
    }

    fn merge(conf: &mut Conf, outer: &LocationConf) -> Result<(), Refused> {
        check_content(conf)?;
        let Some(inner) = conf.location_mut::<Settings>() else {
            return Ok(());
        };
        if inner.fallback.is_none() {
            inner.fallback.clone_from(&outer.fallback);
        }
        if inner.rules == 0 {
            inner.rules = outer.rules;
        }
        inner.miss_limit = inner.miss_limit.or(outer.miss_limit);
        inner.recording = inner.recording.or(outer.recording);
        inner.uses_cache = inner.uses_cache.or(outer.uses_cache);
        inner.visit_address = inner.visit_address.or(outer.visit_address);
        inner.table = inner.table.or(outer.table);
        // `limit_except` is a level of its own and does not take over the handler; an `if` keeps that of the location
        // around it.
        let takes_handler = conf.is_limit_except() && !conf.has_handler() && outer.is_enabled;
        if takes_handler {
            conf.set_handler(request_handler!(handler::handle));
        }
        let is_outer = takes_handler || (conf.has_no_name() && outer.is_enabled);
        use_location(conf, is_outer.then_some(outer.redis));
        Ok(())
    }
}

/// Notes a location with `shortlink`; `outer` is the Redis of the one around it, if it has that.
fn use_location(conf: &mut Conf, outer: Option<RedisNumber>) {
    let server = conf.server();
    let Some(location) = conf.location_mut::<Settings>() else {
        return;
    };
    if let (false, Some(redis)) = (location.is_enabled, outer) {
        location.is_enabled = true;
        location.redis = redis;
    }
    let limiting = location.miss_limit.unwrap_or_default();
    let records = matches!(location.recording, Some(Recording::All | Recording::If(_)));
    let (redis, mut fallback) = (location.redis, location.fallback.clone());
    let (true, Some(server), Some(main)) =
        (location.is_enabled, server, conf.main_mut::<Settings>())
    else {
        return;
    };
    if records {
        main.visits.get_or_insert_default();
    }
    if let Some(redis) = main.redis_mut(redis) {
        redis.use_limit(limiting);
        if let Some(fallback) = &mut fallback {
            fallback.index = redis.index_of(&fallback.name, fallback.limits);
        }
    }
    main.locations.push(UsedLocation {
        server,
        redis,
        fallback: fallback.clone(),
    });
    if let Some(location) = conf.location_mut::<Settings>() {
        location.fallback = fallback;
    }
}

/// Makes the variables known.
fn add_variables(conf: &mut Conf) -> Set {
    let refused = || "a variable can't be added".to_owned();
    for (name, is_settable, number) in variables::all() {
        let getter = variable_getter!(variables::get);
        let added = conf.add_variable(name, is_settable, getter, number);
        added.ok_or_else(refused)?;
    }
    let index = |name: &str| conf.variable_index(name.as_bytes()).ok_or_else(refused);
    let (code, click) = (index(variables::CODE)?, index(variables::CLICK)?);
    let (followed, variant) = (index(variables::FOLLOWED)?, index(variables::VARIANT)?);
    let (preview, unknown) = (index(variables::PREVIEW)?, index(variables::UNKNOWN)?);
    let status = index(variables::UPSTREAM_STATUS)?;
    if let Some(main) = conf.main_mut::<Settings>() {
        main.code_variable = Some(code);
        main.click_variable = Some(click);
        main.code_header = Some(followed);
        main.variant_header = Some(variant);
        main.preview_header = Some(preview);
        main.unknown_header = Some(unknown);
        main.upstream_status = Some(status);
    }
    Ok(())
}

/// Checks what can only be seen of the whole configuration, and takes part in the phases that it needs.
fn check_whole(conf: &mut Conf) -> Set {
    let main = conf
        .main_mut::<Settings>()
        .ok_or("there is no http block")?;
    let locations = std::mem::take(&mut main.locations);
    named::check(conf)?;
    named::prepare(conf)?;
    if let Some(main) = conf.main::<Settings>() {
        certificates::serve(main);
    }
    for (phase, handler) in phases(conf, !locations.is_empty()) {
        if !conf.add_handler(phase, handler) {
            return Err("there is no memory for the phases of requests".to_owned());
        }
    }
    for UsedLocation {
        server,
        redis,
        fallback,
    } in &locations
    {
        // A request's server is known before its location.
        if let Some(settings) = conf.server_location_mut::<Settings>(*server) {
            settings.redis = *redis;
        }
        if let Some(fallback) = fallback
            && !conf.has_named_location(*server, &fallback.name)
        {
            return Err(format!(
                "\"shortlink_fallback {}\" in {}:{} names a location that its server does not \
                 have",
                words::shown(&fallback.name),
                fallback.file,
                fallback.line
            ));
        }
    }
    // Last: a configuration that is refused leaves no filter.
    if !locations.is_empty() {
        conf.add_header_filter();
    }
    Ok(())
}

/// The handlers of phases; `is_used` if a location has `shortlink`.
fn phases(conf: &Conf, is_used: bool) -> Vec<(Phase, RequestHandler)> {
    let has = |of: fn(&MainConf) -> bool| conf.main::<Settings>().is_some_and(of);
    let mut handlers = Vec::new();
    if is_used {
        handlers.push((Phase::Log, request_handler!(answers::on_log)));
    }
    if has(|main| !main.miss_limits.is_empty()) {
        handlers.push((Phase::Log, request_handler!(misses::on_log)));
    }
    if is_used && has(|main| main.visits.is_some()) {
        handlers.push((Phase::Log, request_handler!(log::on_log)));
    }
    if is_used && has(|main| main.cache.is_some()) {
        let (early, late) = (
            request_handler!(foresight::on_post_read),
            request_handler!(foresight::on_precontent),
        );
        handlers.extend([(Phase::PostRead, early), (Phase::PreContent, late)]);
    }
    handlers
}
