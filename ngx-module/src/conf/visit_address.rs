//! `shortlink_visit_address`: the part of a client's address that a visit has.

use std::ffi::{c_char, c_void};

use ngx::ffi::{ngx_command_t, ngx_conf_t};

use super::LocationConf;
use super::words::{Set, finish, shown, words};

/// The part of a client's address that a visit has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum VisitAddress {
    /// All of it.
    #[default]
    Full,
    /// The network.
    Truncated,
}

pub(super) unsafe extern "C" fn set(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    conf: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx calls this with the location's configuration of this module, and its words
    // live as long as that.
    unsafe {
        let conf = &mut *conf.cast::<LocationConf>();
        let set = read(conf, &words(cf)[1..]);
        finish(cf, set)
    }
}

fn read(conf: &mut LocationConf, words: &[&[u8]]) -> Set {
    if conf.visit_address.is_some() {
        return Err("\"shortlink_visit_address\" is given twice here".to_owned());
    }
    conf.visit_address = Some(match words {
        [b"full"] => VisitAddress::Full,
        [b"truncated"] => VisitAddress::Truncated,
        _ => {
            return Err(format!(
                "\"shortlink_visit_address\" is full or truncated, not \"{}\"",
                shown(&words.join(&b' '))
            ));
        }
    });
    Ok(())
}
