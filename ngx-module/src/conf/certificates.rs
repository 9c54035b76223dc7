//! Reading the certificates of the short domains, and `shortlink_certificates`.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::{io, ptr};

use ngx::ffi::{
    NGX_LOG_WARN, NGX_OK, ngx_array_create, ngx_array_push, ngx_array_t, ngx_command_t, ngx_conf_t,
    ngx_http_conf_ctx_t, ngx_http_ssl_module, ngx_http_ssl_srv_conf_t, ngx_int_t,
    ngx_ssl_certificate, ngx_str_t,
};
use ngx::ngx_conf_log_error;
use resolver::vocabulary::domains::{DomainState, Domains};

use super::MainConf;
use super::tls::{new_context, text_of};
use super::words::{Set, finish};
use crate::Shortlink;
use crate::certificates::Certificates;
use ngx::http::HttpModuleMainConf;

/// The certificates of all domains that have one, and what a server shows to who asks for none.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) certificates: Box<Certificates>,
    /// The files of the first domain's certificate and key, active ones first; `None` while no
    /// domain has one.
    pub(super) first: Option<(ngx_str_t, ngx_str_t)>,
}

/// Reads the certificates of the domains if the table names their files. A missing one is logged
/// and left out: a new domain gets its first certificate only once it is served.
///
/// # Errors
/// When one is there and can't be used.
///
/// # Safety
/// `cf` must be valid.
pub(super) unsafe fn read(cf: *mut ngx_conf_t, domains: &Domains) -> Result<Option<Read>, String> {
    let Some((pattern, key_pattern)) = domains.certificates().map_err(|it| it.to_string())? else {
        return Ok(None);
    };
    let mut contexts = HashMap::new();
    let (mut first, mut first_state) = (None, None);
    for domain in domains.entries().iter().filter(|it| it.is_public()) {
        let name = domain.certificate_name();
        let (path, key_path) = (pattern.of(name), key_pattern.of(name));
        // SAFETY: as this function's own.
        unsafe {
            if !contexts.contains_key(name) {
                if let Some(missing) = missing([&path, &key_path]) {
                    ngx_conf_log_error!(
                        NGX_LOG_WARN,
                        cf,
                        "domain \"{}\" can't be served by TLS yet: there is no {missing}",
                        domain.name()
                    );
                    continue;
                }
                let (mut file, mut key_file) = (text_of(cf, &path)?, text_of(cf, &key_path)?);
                let context = new_context(cf)?;
                let set =
                    ngx_ssl_certificate(cf, context, &mut file, &mut key_file, ptr::null_mut());
                if set != NGX_OK as ngx_int_t {
                    return Err(format!(
                        "the certificate of domain \"{}\", {path} with the key {key_path}, can't be \
                         used (the line before says why)",
                        domain.name()
                    ));
                }
                contexts.insert(name.to_owned(), context);
            }
            let is_active = domain.state() == DomainState::Active;
            if first.is_none() || (is_active && first_state != Some(DomainState::Active)) {
                first = Some((text_of(cf, &path)?, text_of(cf, &key_path)?));
                first_state = Some(domain.state());
            }
        }
    }
    let certificates = Box::new(Certificates::new(domains.clone(), contexts));
    Ok(Some(Read {
        certificates,
        first,
    }))
}

/// The first of the files that is not there.
fn missing(paths: [&str; 2]) -> Option<&str> {
    let is_missing = |path: &&str| {
        let error = std::fs::metadata(path).err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    paths.into_iter().find(is_missing)
}

/// `shortlink_certificates`: a server that shows each client the certificate of the domain it asks
/// for.
pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    _conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with a valid configuration, within a server.
    unsafe { finish(cf, add_server(cf)) }
}

unsafe fn add_server(cf: *mut ngx_conf_t) -> Set {
    // SAFETY: within a server its context has the configurations of all modules; nginx' TLS module
    // has made its own, whose lists are unset or valid.
    unsafe {
        let Some(main) = Shortlink::main_conf_mut(&*cf) else {
            return Err("there is no http block".to_owned());
        };
        let Some(read) = &main.certificates else {
            return Err(
                "\"shortlink_certificates\" needs \"shortlink_domains\" before it, with the lines \
                 \"certificate\" and \"certificate_key\""
                    .to_owned(),
            );
        };
        let Some((file, key_file)) = read.first else {
            return Err(
                "no domain has a certificate: get the first one before TLS is switched on"
                    .to_owned(),
            );
        };
        let context = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        let place = (*context)
            .srv_conf
            .add((&raw const ngx_http_ssl_module).read().ctx_index);
        let server = (*place).cast::<ngx_http_ssl_srv_conf_t>();
        if main.secured.contains(&server) {
            return Err("\"shortlink_certificates\" is given twice in this server".to_owned());
        }
        // A configured certificate for clients that send no name takes precedence.
        if is_unset((*server).certificates) {
            push(cf, &mut (*server).certificates, file)?;
            push(cf, &mut (*server).certificate_keys, key_file)?;
        }
        main.secured.push(server);
        Ok(())
    }
}

/// Returns whether a list was not configured.
fn is_unset(list: *mut ngx_array_t) -> bool {
    // NGX_CONF_UNSET_PTR.
    list.is_null() || list.addr() == usize::MAX
}

/// Makes a list of one text.
unsafe fn push(cf: *mut ngx_conf_t, list: &mut *mut ngx_array_t, text: ngx_str_t) -> Set {
    let no_memory = || "there is no memory for certificates".to_owned();
    // SAFETY: the configuration's pool is valid; a new list has space for a text.
    unsafe {
        if is_unset(*list) {
            *list = ngx_array_create((*cf).pool, 4, size_of::<ngx_str_t>());
            if list.is_null() {
                return Err(no_memory());
            }
        }
        let place = ngx_array_push(*list).cast::<ngx_str_t>();
        if place.is_null() {
            return Err(no_memory());
        }
        place.write(text);
    }
    Ok(())
}

/// Has all servers with `shortlink_certificates` choose, once their contexts are there.
///
/// # Safety
/// nginx' TLS module must have merged its configurations.
pub(super) unsafe fn serve(main: &MainConf) {
    let Some(read) = &main.certificates else {
        return;
    };
    for &server in &main.secured {
        // SAFETY: as this function's own; the certificates are in the configuration as the server is.
        unsafe {
            let context = (*server).ssl.ctx;
            if !context.is_null() {
                read.certificates.serve(context.cast());
            }
        }
    }
}
