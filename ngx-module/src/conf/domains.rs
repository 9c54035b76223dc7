//! `shortlink_domains`: the short domains and their states.

use std::ffi::{c_char, c_void};
use std::fs::File;

use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::ffi::{ngx_command_t, ngx_conf_t};
use resolver::vocabulary::domains::Domains;

use super::words::{Set, config_path, finish, read_block, words};
use super::{MainConf, certificates};

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
        let read = whole.and_then(|()| certificates::read(cf, &domains));
        main.domains = Some(domains);
        finish(cf, read.map(|read| main.certificates = read))
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
        finish(cf, add(cf, domains))
    }
}

/// Adds the line that is read; files have their whole paths.
unsafe fn add(cf: *mut ngx_conf_t, domains: &mut Domains) -> Set {
    // SAFETY: the caller's configuration is valid, and what is made a path is one of its words.
    unsafe {
        let words = words(cf);
        let mut line: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        if let ([b"certificate" | b"certificate_key", path], [_, whole]) =
            (&words[..], &mut line[..])
        {
            *whole = config_path(cf, path)?.into_bytes();
        }
        for (word, parameter) in words.iter().zip(&mut line).skip(2) {
            if let Some(page) = word.strip_prefix(b"page=").filter(|page| !page.is_empty()) {
                let path = config_path(cf, page)?;
                File::open(&path).map_err(|error| format!("page {path} can't be read: {error}"))?;
                *parameter = [b"page=", path.as_bytes()].concat();
            }
        }
        let line: Vec<&[u8]> = line.iter().map(|word| &word[..]).collect();
        let to_ascii = |name: &str| idna::domain_to_ascii(name).ok();
        let added = domains.add(&line, to_ascii);
        added.map_err(|error| error.to_string())
    }
}
