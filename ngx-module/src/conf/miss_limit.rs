//! `shortlink_miss_limit`: how often an address may ask for what does not exist.

use std::ffi::{c_char, c_void};

use ngx::ffi::{ngx_command_t, ngx_conf_t, ngx_http_get_variable_index, ngx_str_t};
use resolver::limit::{Limits, MissLimit, Rate};
use resolver::vocabulary::number::parse_decimal;

use super::MainConf;
use super::words::{Set, finish, read_size, shown, words};
use crate::shared::Zone;

/// The name of the shared memory.
const ZONE: &str = "shortlink_misses";

/// The least and most bytes that it takes.
const LEAST_BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 1 << 30;

/// The defaults of the parameters; a network has so many times the rate and the burst of an
/// address.
const DEFAULT_BYTES: usize = 1 << 20;
const DEFAULT_BURST: u32 = 30;
const NETWORK_FACTOR: u32 = 20;

/// `shortlink_miss_limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissLimitConf {
    pub(crate) limits: Limits,
    /// True if an address over the limit gets nothing at all.
    pub(crate) is_strict: bool,
    pub(crate) zone: Zone,
    /// The index of the variable of `exempt=`.
    pub(crate) exempt: Option<usize>,
    /// The index of `$upstream_status`.
    pub(crate) upstream_status: usize,
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
    let (mut network_rate, mut network_burst) = (None, None);
    let (mut is_strict, mut exempt) = (false, None);
    for word in &words[1..] {
        if let Some(value) = word.strip_prefix(b"rate=") {
            rate = Some(read_rate("rate", value)?);
        } else if let Some(value) = word.strip_prefix(b"burst=") {
            burst = read_burst("burst", value)?;
        } else if let Some(value) = word.strip_prefix(b"network_rate=") {
            network_rate = Some(read_rate("network_rate", value)?);
        } else if let Some(value) = word.strip_prefix(b"network_burst=") {
            network_burst = Some(read_burst("network_burst", value)?);
        } else if let Some(value) = word.strip_prefix(b"size=") {
            bytes = read_size("size", value, LEAST_BYTES, MOST_BYTES)?;
        } else if let Some(value) = word.strip_prefix(b"exempt=") {
            let name = value.strip_prefix(b"$").filter(|name| is_name(name));
            let name = name.ok_or_else(|| {
                format!(
                    "\"{}\" is not one variable, such as exempt=$trusted",
                    shown(word)
                )
            })?;
            // SAFETY: the caller's configuration is valid.
            exempt = Some(unsafe { index_of(cf, name) }?);
        } else if *word == b"strict" {
            is_strict = true;
        } else {
            return Err(format!(
                "unknown parameter \"{}\" of \"shortlink_miss_limit\": allowed are off, rate=, \
                 burst=, network_rate=, network_burst=, size=, exempt= and strict",
                shown(word)
            ));
        }
    }
    let rate = rate.ok_or("\"shortlink_miss_limit\" needs rate=, such as rate=60r/m")?;
    let network_rate = network_rate.unwrap_or(rate.times(NETWORK_FACTOR.into()));
    let network_burst = network_burst.unwrap_or_else(|| {
        let burst = burst.saturating_mul(NETWORK_FACTOR);
        burst.min(network_rate.most_burst())
    });
    let limits = Limits {
        address: limit("burst", rate, burst)?,
        network: limit("network_burst", network_rate, network_burst)?,
    };
    if !limits.are_ordered() {
        return Err(format!(
            "a network needs at least the rate and the burst of one address: network_rate= at \
             least rate=, and network_burst= (here {network_burst}) at least burst= (here {burst})"
        ));
    }
    // SAFETY: the caller's configuration is valid.
    unsafe {
        main.miss_limit = Some(MissLimitConf {
            limits,
            is_strict,
            zone: Zone::add(cf, ZONE, bytes / size_of::<u64>())?,
            exempt,
            upstream_status: index_of(cf, b"upstream_status")?,
        });
    }
    Ok(())
}

fn read_rate(name: &str, value: &[u8]) -> Result<Rate, String> {
    Rate::parse(value).ok_or_else(|| {
        format!(
            "{name} \"{}\" is not a rate from 1r/m to {most}r/s, such as {name}=60r/m or {name}=1r/s",
            shown(value),
            most = Rate::MOST_PER_SECOND
        )
    })
}

fn read_burst(name: &str, value: &[u8]) -> Result<u32, String> {
    parse_decimal(value)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|&burst| burst > 0)
        .ok_or_else(|| {
            format!(
                "{name} \"{}\" is not a number from 1 to {}",
                shown(value),
                u32::MAX
            )
        })
}

fn limit(name: &str, rate: Rate, burst: u32) -> Result<MissLimit, String> {
    MissLimit::new(rate, burst).ok_or_else(|| {
        format!(
            "{name}={burst} takes longer than {} hours to be forgotten at this rate: at most {} \
             is allowed",
            MissLimit::LONGEST_WINDOW / 3_600_000,
            rate.most_burst()
        )
    })
}

/// Returns whether a text can be the name of a variable.
fn is_name(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !text.is_empty() && text.iter().all(is_part)
}

/// The index of a variable; nginx refuses the configuration when there is none of that name.
unsafe fn index_of(cf: *mut ngx_conf_t, name: &[u8]) -> Result<usize, String> {
    let mut text = ngx_str_t {
        len: name.len(),
        data: name.as_ptr().cast_mut(),
    };
    // SAFETY: the caller's configuration is valid; nginx copies the name.
    let index = unsafe { ngx_http_get_variable_index(cf, &mut text) };
    usize::try_from(index).map_err(|_| format!("the variable \"${}\" can't be used", shown(name)))
}
