//! `shortlink_duplex`: requests that are still being sent while they are answered.
//!
//! nginx' proxy sends no more of a request once its answer has begun and the server behind it takes
//! nothing for a moment: it no longer waits for that server to take more. A batch, whose results
//! come while its rows are sent, would stop there for good. nginx does continue to send to gRPC
//! servers; the same switch (`preserve_output`) does it for others.

use crate::directives::words::Set;
use crate::nginx::conf::Conf;

/// `shortlink_duplex`
pub(crate) fn set(conf: &mut Conf) -> Set {
    match conf.preserve_output() {
        Some(true) => Ok(()),
        Some(false) => Err("\"shortlink_duplex\" is given twice in this location".to_owned()),
        None => Err("\"shortlink_duplex\" needs nginx' module for proxy_pass".to_owned()),
    }
}
