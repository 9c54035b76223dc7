//! Reads the words and blocks that directives consist of.

use std::ffi::{c_char, c_void};
use std::ptr;

use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::ffi::{
    NGX_LOG_EMERG, NGX_OK, ngx_command_t, ngx_conf_full_name, ngx_conf_parse, ngx_conf_t,
    ngx_int_t, ngx_parse_size, ngx_str_t,
};
use ngx::ngx_conf_log_error;
use resolver::vocabulary::number::parse_decimal;

/// The result of a directive's function.
pub(super) type Set = Result<(), String>;

/// Refuses a directive: nginx adds the file and the line to the reason.
///
/// # Safety
/// `cf` must be valid.
pub(super) unsafe fn finish(cf: *mut ngx_conf_t, set: Set) -> *mut c_char {
    match set {
        Ok(()) => NGX_CONF_OK,
        Err(reason) => {
            ngx_conf_log_error!(NGX_LOG_EMERG, cf, "{reason}");
            NGX_CONF_ERROR
        }
    }
}

/// The words of the directive that is read, its name first.
///
/// # Safety
/// `cf` must be valid; the words live as long as the configuration.
pub(super) unsafe fn words<'a>(cf: *mut ngx_conf_t) -> Vec<&'a [u8]> {
    // SAFETY: nginx calls a directive's function with an array of texts, which live as long as
    // the configuration.
    unsafe {
        (*(*cf).args)
            .as_slice::<ngx_str_t>()
            .iter()
            .map(|word| word.as_bytes())
            .collect()
    }
}

/// Reads a block, each of whose lines is handed to `line` with `conf`.
///
/// # Safety
/// `cf` must be valid; `conf` must be what `line` takes.
pub(super) unsafe fn read_block(
    cf: *mut ngx_conf_t,
    line: unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_command_t, *mut c_void) -> *mut c_char,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: this is how nginx' own modules read a block: the parser calls the handler instead
    // of looking for directives, and what was changed is put back.
    unsafe {
        let saved = *cf;
        (*cf).handler = Some(line);
        (*cf).handler_conf = conf.cast();
        let result = ngx_conf_parse(cf, ptr::null_mut());
        *cf = saved;
        result
    }
}

/// Reads a time such as `50ms`, `10s`, `5m` or `1h`, in milliseconds; without a unit it is in
/// seconds, as everywhere in nginx' configuration.
pub(super) fn read_time(name: &str, value: &[u8], least: u64, most: u64) -> Result<u64, String> {
    let (digits, unit) = match value {
        [digits @ .., b'm', b's'] => (digits, 1),
        [digits @ .., b's'] => (digits, 1000),
        [digits @ .., b'm'] => (digits, 60_000),
        [digits @ .., b'h'] => (digits, 3_600_000),
        digits => (digits, 1000),
    };
    parse_decimal(digits)
        .and_then(|number| number.checked_mul(unit))
        .filter(|time| (least..=most).contains(time))
        .ok_or_else(|| {
            format!(
                "{name} \"{}\" is not a time from {least}ms to {}s",
                shown(value),
                most / 1000
            )
        })
}

/// Reads a size such as `64k` or `32m`.
pub(super) fn read_size(
    name: &str,
    value: &[u8],
    least: usize,
    most: usize,
) -> Result<usize, String> {
    let mut text = ngx_str_t {
        len: value.len(),
        data: value.as_ptr().cast_mut(),
    };
    // SAFETY: the text is a word of the configuration, which nginx only reads.
    let size = unsafe { ngx_parse_size(&mut text) };
    usize::try_from(size)
        .ok()
        .filter(|size| (least..=most).contains(size))
        .ok_or_else(|| {
            format!(
                "{name} \"{}\" is not a size from {}k to {}m",
                shown(value),
                least >> 10,
                most >> 20
            )
        })
}

/// The path of a file that the configuration names, which may be relative to its directory.
///
/// # Safety
/// `cf` must be valid and the value one of its words.
pub(super) unsafe fn config_path(cf: *mut ngx_conf_t, value: &[u8]) -> Result<String, String> {
    let mut path = ngx_str_t {
        len: value.len(),
        data: value.as_ptr().cast_mut(),
    };
    // SAFETY: the value is a word of the configuration, which lives as long as it and ends with a
    // zero; nginx points to a longer text in the configuration's pool where one is needed.
    let result = unsafe { ngx_conf_full_name((*cf).cycle, &mut path, 1) };
    if result != NGX_OK as ngx_int_t {
        return Err(format!("the path \"{}\" can't be used", shown(value)));
    }
    Ok(path.to_string())
}

/// The path of a directory that the configuration names, which may be relative to nginx' prefix.
///
/// # Safety
/// As for [`config_path`]; the path lives as long as the configuration.
pub(super) unsafe fn prefix_path(cf: *mut ngx_conf_t, value: &[u8]) -> Result<ngx_str_t, String> {
    let mut path = ngx_str_t {
        len: value.len(),
        data: value.as_ptr().cast_mut(),
    };
    // SAFETY: as for `config_path`.
    let result = unsafe { ngx_conf_full_name((*cf).cycle, &mut path, 0) };
    if result != NGX_OK as ngx_int_t {
        return Err(format!("the path \"{}\" can't be used", shown(value)));
    }
    Ok(path)
}

/// Shows a word in a message.
pub(super) fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}
