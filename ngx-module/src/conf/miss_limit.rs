//! `shortlink_miss_limit`: how often an address may ask for what does not exist.

use std::ffi::{c_char, c_void};

use ngx::ffi::{ngx_command_t, ngx_conf_t};
use resolver::limit::{MissLimit, Rate};
use resolver::vocabulary::number::parse_decimal;

use super::MainConf;
use super::words::{Set, finish, read_size, shown, words};
use crate::shared::Zone;

/// The name of the shared memory.
const ZONE: &str = "shortlink_misses";

/// The least and most bytes that it takes.
const LEAST_BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 1 << 30;

/// The defaults of the parameters.
const DEFAULT_BYTES: usize = 1 << 20;
const DEFAULT_BURST: u32 = 30;

/// `shortlink_miss_limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissLimitConf {
    pub(crate) limit: MissLimit,
    /// True if an address over the limit gets only answers from the cache.
    pub(crate) is_strict: bool,
    pub(crate) zone: Zone,
}

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        let set = read(cf, main);
        finish(cf, set)
    }
}

unsafe fn read(cf: *mut ngx_conf_t, main: &mut MainConf) -> Set {
    if std::mem::replace(&mut main.miss_limit_given, true) {
        return Err("\"shortlink_miss_limit\" is given twice".to_owned());
    }
    // SAFETY: the caller's configuration is valid.
    let words = unsafe { words(cf) };
    if words[1..] == [b"off"] {
        return Ok(());
    }
    let (mut rate, mut burst, mut bytes) = (None, DEFAULT_BURST, DEFAULT_BYTES);
    let mut is_strict = false;
    for word in &words[1..] {
        if let Some(value) = word.strip_prefix(b"rate=") {
            rate = Some(Rate::parse(value).ok_or_else(|| {
                format!(
                    "\"{}\" is not a rate such as rate=30r/m or rate=1r/s, up to {}r/s",
                    shown(word),
                    Rate::MOST_PER_SECOND
                )
            })?);
        } else if let Some(value) = word.strip_prefix(b"burst=") {
            burst = parse_decimal(value)
                .and_then(|number| u32::try_from(number).ok())
                .ok_or_else(|| format!("\"{}\" is not a number", shown(word)))?;
        } else if let Some(value) = word.strip_prefix(b"size=") {
            bytes = read_size("size", value, LEAST_BYTES, MOST_BYTES)?;
        } else if *word == b"strict" {
            is_strict = true;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_miss_limit\": allowed are off, rate=, \
                 burst=, size= and strict",
                shown(word)
            ));
        }
    }
    let rate = rate.ok_or("\"shortlink_miss_limit\" needs rate=, such as rate=30r/m")?;
    let limit = MissLimit::new(rate, burst).ok_or_else(|| {
        format!(
            "burst={burst} takes longer than {} hours to be forgotten at this rate",
            MissLimit::LONGEST_WINDOW / 3_600_000
        )
    })?;
    // SAFETY: the caller's configuration is valid.
    let zone = unsafe { Zone::add(cf, ZONE, bytes / size_of::<u64>()) }?;
    main.miss_limit = Some(MissLimitConf {
        limit,
        is_strict,
        zone,
    });
    Ok(())
}
