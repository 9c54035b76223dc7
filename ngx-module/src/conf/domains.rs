//! `shortlink_domains`: the short domains and their states.

use std::ffi::{c_char, c_void};

use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::ffi::{ngx_command_t, ngx_conf_t};
use resolver::domains::Domains;

use super::MainConf;
use super::words::{finish, read_block, shown, words};

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        if main.domains.is_some() {
            return finish(cf, Err("\"shortlink_domains\" is given twice".to_owned()));
        }
        let mut domains = Domains::default();
        if read_block(cf, set_line, (&raw mut domains).cast()) != NGX_CONF_OK {
            return NGX_CONF_ERROR;
        }
        let whole = domains.finish().map_err(|error| error.to_string());
        main.domains = Some(domains);
        finish(cf, whole)
    }
}

unsafe extern "C" fn set_line(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    domains: *mut c_void,
) -> *mut c_char {
    // SAFETY: `set` hands its table to the parser, which calls this while `set` waits.
    unsafe {
        let domains = &mut *domains.cast::<Domains>();
        let set = match &words(cf)[..] {
            [name, state, parameters @ ..] => domains
                .add(name, state, parameters)
                .map_err(|error| error.to_string()),
            [name] => Err(format!("domain \"{}\" has no state", shown(name))),
            [] => Ok(()),
        };
        finish(cf, set)
    }
}
