//! `shortlink_fallback`: who answers when neither the cache nor Redis can, and its bounds.

use std::ffi::{c_char, c_void};

use ngx::ffi::{ngx_command_t, ngx_conf_t, ngx_str_t};
use ngx::http::HttpModuleMainConf;
use resolver::fallback::FallbackLimits;
use resolver::vocabulary::number::parse_decimal;

use super::words::{finish, shown};
use super::{LocationConf, MainConf};
use crate::Shortlink;

/// `shortlink_fallback`.
#[derive(Clone, Debug)]
pub(crate) struct Fallback {
    /// The named location, with the `@`.
    pub(crate) name: ngx_str_t,
    /// Its place among those of the configuration.
    pub(crate) index: usize,
    /// The file with the directive, and its line, for messages.
    pub(super) file: ngx_str_t,
    pub(super) line: usize,
}

/// A fallback of the configuration; directives with the same name and limits share it.
#[derive(Clone, Debug)]
pub(crate) struct BoundedFallback {
    /// The name of the location.
    pub(crate) name: ngx_str_t,
    /// Its bounds.
    pub(crate) limits: FallbackLimits,
}

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with the location's configuration of this module, whose main one
    // exists, and with one word at least behind the directive's name.
    unsafe {
        let conf = &mut *conf.cast::<LocationConf>();
        let words = &(*(*cf).args).as_slice::<ngx_str_t>()[1..];
        let set = match Shortlink::main_conf_mut(&*cf) {
            Some(main) => read(main, conf, words).map(|fallback| {
                let file = &*(*cf).conf_file;
                conf.fallback = Some(Fallback {
                    file: file.file.name,
                    line: file.line,
                    ..fallback
                });
            }),
            None => Err("there is no http block".to_owned()),
        };
        finish(cf, set)
    }
}

fn read(main: &mut MainConf, conf: &LocationConf, words: &[ngx_str_t]) -> Result<Fallback, String> {
    let name = words[0];
    if conf.fallback.is_some() {
        return Err("\"shortlink_fallback\" is given twice here".to_owned());
    }
    if name.as_bytes().first() != Some(&b'@') || name.len < 2 {
        return Err(format!(
            "\"shortlink_fallback\" takes a named location such as @sidecar, not \"{name}\""
        ));
    }
    let limits = read_limits(&words[1..])?;
    let known = main
        .fallbacks
        .iter()
        .position(|other| other.name.as_bytes() == name.as_bytes() && other.limits == limits);
    let index = known.unwrap_or_else(|| {
        main.fallbacks.push(BoundedFallback { name, limits });
        main.fallbacks.len() - 1
    });
    Ok(Fallback {
        name,
        index,
        file: name,
        line: 0,
    })
}

fn read_limits(words: &[ngx_str_t]) -> Result<FallbackLimits, String> {
    let mut limits = FallbackLimits::default();
    for word in words {
        let word = word.as_bytes();
        if let Some(value) = word.strip_prefix(b"max_waiting=") {
            let percent = value.strip_suffix(b"%").and_then(parse_decimal);
            limits.waiting_percent = in_range(percent, 1, FallbackLimits::MOST_PERCENT)
                .ok_or_else(|| {
                    format!(
                        "max_waiting \"{}\" is not a share of worker_connections from 1% to {}%",
                        shown(value),
                        FallbackLimits::MOST_PERCENT
                    )
                })?;
        } else if let Some(value) = word.strip_prefix(b"max_fails=") {
            limits.failures = in_range(parse_decimal(value), 0, FallbackLimits::MOST_FAILURES)
                .ok_or_else(|| {
                    format!(
                        "max_fails \"{}\" is not a number from 0 to {}",
                        shown(value),
                        FallbackLimits::MOST_FAILURES
                    )
                })?;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_fallback\": allowed are max_waiting= and \
                 max_fails=",
                shown(word)
            ));
        }
    }
    Ok(limits)
}

fn in_range(number: Option<u64>, least: u32, most: u32) -> Option<u32> {
    let number = u32::try_from(number?).ok()?;
    (least..=most).contains(&number).then_some(number)
}
