//! Addresses of the configuration.

use std::ffi::CStr;
use std::{mem, slice};

use ngx::ffi::{NGX_OK, ngx_addr_t, ngx_int_t, ngx_parse_url, ngx_url_t};

use crate::nginx::address::SocketAddress;
use crate::nginx::conf::Conf;
use crate::nginx::pool::lent;

/// An address of the configuration, and what was found of it.
#[derive(Debug)]
pub(crate) struct ParsedAddress {
    /// The name or IP address; empty for a unix socket.
    pub(crate) host: Vec<u8>,
    pub(crate) port: u16,
    /// The addresses that were found of it, none if there are none yet.
    pub(crate) found: Vec<SocketAddress>,
}

impl Conf {
    /// Reads an address, and looks a name up as nginx does for every server in its configuration.
    ///
    /// # Errors
    /// The reason that it is none.
    pub(crate) fn parse_address(
        &self,
        text: &[u8],
        default_port: u16,
    ) -> Result<ParsedAddress, String> {
        let parse = |no_resolve: u32| {
            // SAFETY: all zeros is how nginx' own modules begin a URL.
            let mut url: ngx_url_t = unsafe { mem::zeroed() };
            url.url = lent(text);
            url.default_port = default_port;
            url.set_no_resolve(no_resolve);
            // SAFETY: the pool is valid; nginx puts what it finds there.
            let result = unsafe { ngx_parse_url(self.pool().as_ptr(), &mut url) };
            (result == NGX_OK as ngx_int_t, url)
        };
        // A resolver may later find a name that has no address now.
        let (is_sound, unresolved) = parse(1);
        if !is_sound {
            return Err(if unresolved.err.is_null() {
                "no address".to_owned()
            } else {
                // SAFETY: nginx' reason is a static text.
                let reason = unsafe { CStr::from_ptr(unresolved.err) };
                reason.to_string_lossy().into_owned()
            });
        }
        let (is_resolved, resolved) = parse(0);
        let url = if is_resolved { resolved } else { unresolved };
        Ok(ParsedAddress {
            host: url.host.as_bytes().to_vec(),
            port: url.port,
            // SAFETY: the URL was read without an error.
            found: unsafe { addresses_of(&url) },
        })
    }
}

/// The addresses that nginx has found.
///
/// # Safety
/// nginx must have read the URL without an error, with a pool that lives.
unsafe fn addresses_of(url: &ngx_url_t) -> Vec<SocketAddress> {
    if url.naddrs == 0 {
        return Vec::new();
    }
    // SAFETY: as this function's own: this is an array in that pool.
    let found: &[ngx_addr_t] = unsafe { slice::from_raw_parts(url.addrs, url.naddrs) };
    let copy = |address: &ngx_addr_t| {
        let text = address.name.to_string();
        // SAFETY: nginx' addresses are valid.
        unsafe { SocketAddress::copy(address.sockaddr.cast(), address.socklen as usize, text) }
    };
    found.iter().map(copy).collect()
}
