//! `shortlink_check`: what issued codes look like.

use std::ffi::{c_char, c_void};
use std::fs;

use ngx::ffi::{ngx_command_t, ngx_conf_t};
use resolver::vocabulary::{Alphabet, BodyLengths, Check, CheckKeys, CodeRules};

use super::MainConf;
use super::words::{config_path, finish, shown, words};

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        let set = if main.rules_given {
            Err("\"shortlink_check\" is given twice".to_owned())
        } else {
            read(cf).map(|rules| {
                main.rules = rules;
                main.rules_given = true;
            })
        };
        finish(cf, set)
    }
}

unsafe fn read(cf: *mut ngx_conf_t) -> Result<CodeRules, String> {
    // SAFETY: the caller's configuration is valid.
    let words = unsafe { words(cf) };
    let (method, parameters) = words[1..].split_first().ok_or("a method is missing")?;
    let mut rules = CodeRules::default();
    let mut keys = None;
    for parameter in parameters {
        if let Some(value) = parameter.strip_prefix(b"body=") {
            rules.bodies = BodyLengths::parse(value).ok_or_else(|| {
                format!(
                    "\"{}\" is not a length such as body=7 or a range such as body=7-9, within 1 \
                     to {}",
                    shown(parameter),
                    BodyLengths::LONGEST
                )
            })?;
        } else if let Some(value) = parameter.strip_prefix(b"alphabet=") {
            rules.alphabet = Alphabet::by_name(value).ok_or_else(|| {
                format!(
                    "unknown alphabet \"{}\": it is one of {}",
                    shown(value),
                    Alphabet::NAMES
                )
            })?;
        } else if let Some(value) = parameter.strip_prefix(b"keys=") {
            // SAFETY: as above.
            keys = Some(unsafe { read_keys(cf, value) }?);
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_check\": allowed are body=, alphabet= \
                 and keys=",
                shown(parameter)
            ));
        }
    }
    rules.check = match (*method, keys) {
        (b"none", None) => Check::None,
        (b"luhn", None) => Check::Luhn,
        (b"keyed", Some(keys)) => Check::Keyed(keys),
        (b"keyed", None) => {
            return Err("\"shortlink_check keyed\" needs keys=<file>".to_owned());
        }
        (b"none" | b"luhn", Some(_)) => {
            return Err("keys= is for \"shortlink_check keyed\" only".to_owned());
        }
        _ => {
            return Err(format!(
                "unknown check \"{}\": it is one of {}",
                shown(method),
                Check::NAMES
            ));
        }
    };
    Ok(rules)
}

/// Reads a key file; a relative name stands beside the configuration.
unsafe fn read_keys(cf: *mut ngx_conf_t, name: &[u8]) -> Result<CheckKeys, String> {
    // SAFETY: the caller's configuration is valid.
    let path = unsafe { config_path(cf, name) }?;
    let text = fs::read(&path).map_err(|error| format!("check keys \"{path}\": {error}"))?;
    CheckKeys::parse(&text).map_err(|error| format!("check keys \"{path}\": {error}"))
}
