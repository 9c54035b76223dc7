//! `shortlink_redis`: where link records are read.

use std::ffi::{CStr, c_char, c_void};
use std::{mem, slice};

use ngx::core::{NGX_CONF_ERROR, NGX_CONF_OK};
use ngx::ffi::{NGX_OK, ngx_command_t, ngx_conf_t, ngx_int_t, ngx_parse_url, ngx_str_t, ngx_url_t};
use resolver::ClientSettings;
use resolver::vocabulary::KeyPrefix;
use resolver::vocabulary::number::parse_decimal;

use super::{MainConf, RedisConf, Set, finish, read_block, shown, words};

/// The port of a server that is given without one.
const DEFAULT_PORT: u16 = 6379;

/// What a block may hold, for messages.
const KEYS: &str = "server, prefix, database, budget";

/// A block that is being read.
#[derive(Default)]
struct Block {
    conf: RedisConf,
    /// The keys that were given.
    given: Vec<Vec<u8>>,
}

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with this module's main configuration.
    unsafe {
        let main = &mut *conf.cast::<MainConf>();
        if main.redis.is_some() {
            return finish(cf, Err("\"shortlink_redis\" is given twice".to_owned()));
        }
        let mut block = Block::default();
        if read_block(cf, set_line, (&raw mut block).cast()) != NGX_CONF_OK {
            return NGX_CONF_ERROR;
        }
        if block.conf.addresses.is_empty() {
            let reason = "\"shortlink_redis\" needs a line \"server <address>;\"";
            return finish(cf, Err(reason.to_owned()));
        }
        main.redis = Some(block.conf);
        NGX_CONF_OK
    }
}

unsafe extern "C" fn set_line(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    block: *mut c_void,
) -> *mut c_char {
    // SAFETY: `set` hands its block to the parser, which calls this while `set` waits.
    unsafe {
        let block = &mut *block.cast::<Block>();
        let set = read_line(cf, block);
        finish(cf, set)
    }
}

unsafe fn read_line(cf: *mut ngx_conf_t, block: &mut Block) -> Set {
    // SAFETY: the caller's configuration is valid.
    let words = unsafe { words(cf) };
    let [key, value] = words[..] else {
        let key = shown(words.first().copied().unwrap_or_default());
        return Err(format!("\"{key}\" in \"shortlink_redis\" takes one value"));
    };
    if block.given.iter().any(|given| given == key) {
        return Err(format!(
            "\"{}\" is given twice in \"shortlink_redis\"",
            shown(key)
        ));
    }
    let client = &mut block.conf.client;
    match key {
        // SAFETY: as above.
        b"server" => block.conf.addresses = unsafe { read_server(cf, value) }?,
        b"prefix" => {
            client.prefix = KeyPrefix::new(value)
                .map_err(|error| format!("prefix \"{}\": {error}", shown(value)))?;
        }
        b"database" => {
            client.database = parse_decimal(value)
                .and_then(|number| u16::try_from(number).ok())
                .ok_or_else(|| {
                    format!(
                        "database \"{}\" is not a number from 0 to 65535",
                        shown(value)
                    )
                })?;
        }
        b"budget" => client.budget = read_budget(value)?,
        _ => {
            return Err(format!(
                "unknown \"{}\" in \"shortlink_redis\": allowed are {KEYS}",
                shown(key)
            ));
        }
    }
    block.given.push(key.to_vec());
    Ok(())
}

/// Reads a time such as `50ms` or `1s`.
fn read_budget(value: &[u8]) -> Result<u64, String> {
    let (digits, unit) = match value {
        [digits @ .., b'm', b's'] => (digits, 1),
        [digits @ .., b's'] => (digits, 1000),
        digits => (digits, 1000),
    };
    parse_decimal(digits)
        .and_then(|number| number.checked_mul(unit))
        .filter(|budget| (1..=ClientSettings::LONGEST_BUDGET).contains(budget))
        .ok_or_else(|| {
            format!(
                "budget \"{}\" is not a time from 1ms to {}s",
                shown(value),
                ClientSettings::LONGEST_BUDGET / 1000
            )
        })
}

/// Finds the addresses of a server. A name is looked up now, as for every server in nginx'
/// configuration.
unsafe fn read_server(
    cf: *mut ngx_conf_t,
    value: &[u8],
) -> Result<Vec<ngx::ffi::ngx_addr_t>, String> {
    // SAFETY: all zeros is how nginx' own modules begin a URL. The value is a word of the
    // configuration, which lives as long as it; on success the addresses are an array in the
    // configuration's pool, and on failure `err` is a static text or null.
    unsafe {
        let mut url: ngx_url_t = mem::zeroed();
        url.url = ngx_str_t {
            len: value.len(),
            data: value.as_ptr().cast_mut(),
        };
        url.default_port = DEFAULT_PORT;
        if ngx_parse_url((*cf).pool, &mut url) != NGX_OK as ngx_int_t || url.naddrs == 0 {
            let reason = if url.err.is_null() {
                "no address".to_owned()
            } else {
                CStr::from_ptr(url.err).to_string_lossy().into_owned()
            };
            return Err(format!(
                "server \"{}\" is neither host:port nor unix:/path: {reason}",
                shown(value)
            ));
        }
        Ok(slice::from_raw_parts(url.addrs, url.naddrs).to_vec())
    }
}
