//! `shortlink_cache`: how much each worker keeps, and for how long.

use std::ffi::{c_char, c_void};

use ngx::ffi::{ngx_command_t, ngx_conf_t};
use resolver::CacheSettings;
use resolver::cache::Cache;

use super::MainConf;
use super::words::{Set, finish, read_size, read_time, shown, words};

/// The defaults of `shortlink_cache`.
pub(super) const DEFAULT: CacheSettings = CacheSettings {
    bytes: 32 << 20,
    stale_for: 60_000,
    longest_age: 600_000,
};

/// The longest times, in milliseconds: a day.
const LONGEST_TIME: u64 = 86_400_000;

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        let set = read(main, &words(cf)[1..]);
        finish(cf, set)
    }
}

fn read(main: &mut MainConf, words: &[&[u8]]) -> Set {
    if std::mem::replace(&mut main.cache_given, true) {
        return Err("\"shortlink_cache\" is given twice".to_owned());
    }
    let (&size, parameters) = words.split_first().ok_or("a size is missing")?;
    if size == b"off" {
        if !parameters.is_empty() {
            return Err("\"shortlink_cache off\" takes no parameters".to_owned());
        }
        main.cache = None;
        return Ok(());
    }
    let mut settings = CacheSettings {
        bytes: read_size(
            "the cache's size, unless it is \"off\",",
            size,
            Cache::LEAST_BYTES,
            Cache::MOST_BYTES,
        )?,
        ..DEFAULT
    };
    for parameter in parameters {
        if let Some(value) = parameter.strip_prefix(b"stale=") {
            settings.stale_for = read_time("stale", value, 0, LONGEST_TIME)?;
        } else if let Some(value) = parameter.strip_prefix(b"age=") {
            settings.longest_age = read_time("age", value, 1000, LONGEST_TIME)?;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_cache\": allowed are stale= and age=",
                shown(parameter)
            ));
        }
    }
    main.cache = Some(settings);
    Ok(())
}
