//! The certificates of the short domains: each client is shown that of the name it asks for.
//!
//! nginx can read a certificate's file at each handshake, which costs more than the handshake, and
//! needs workers that may read private keys. Here all are read when the configuration is, and a
//! handshake is given one that is in memory.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use ngx::ffi::{
    SSL, SSL_CTRL_CHAIN, SSL_CTRL_GET_CHAIN_CERTS, SSL_CTX, SSL_CTX_ctrl, SSL_CTX_get0_certificate,
    SSL_CTX_get0_privatekey, SSL_CTX_set_cert_cb, SSL_ctrl, SSL_get_servername, SSL_use_PrivateKey,
    SSL_use_certificate, TLSEXT_NAMETYPE_host_name, ngx_ssl_t,
};
use resolver::vocabulary::domains::Domains;

/// The most bytes of a host name.
const MAX_NAME: usize = 255;

/// The return values of OpenSSL's callback.
const GO_ON: c_int = 1;
const REFUSE: c_int = 0;

/// The certificates that were read, each in a context of its own.
#[derive(Debug)]
pub(crate) struct Certificates {
    domains: Domains,
    /// By the name that a domain's certificate is filed under. They live as long as the
    /// configuration.
    contexts: HashMap<String, *mut ngx_ssl_t>,
}

impl Certificates {
    pub(crate) fn new(domains: Domains, contexts: HashMap<String, *mut ngx_ssl_t>) -> Self {
        Self { domains, contexts }
    }

    /// Has the connections of a server choose among these.
    ///
    /// # Safety
    /// `context` must be a server's, and `self` must live as long as that.
    pub(crate) unsafe fn serve(&self, context: *mut SSL_CTX) {
        let this = ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: as this function's own; the callback takes what is given here.
        unsafe { SSL_CTX_set_cert_cb(context, Some(choose), this) }
    }

    /// The context with the certificate of a host.
    fn find(&self, host: &[u8]) -> Option<*mut SSL_CTX> {
        let mut room = [0; MAX_NAME];
        let host = host.strip_suffix(b".").unwrap_or(host);
        let lower = room.get_mut(..host.len())?;
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        let name = self.domains.find(lower)?.certificate_name();
        let context = *self.contexts.get(name)?;
        // SAFETY: contexts live as long as the configuration, and this is in it.
        Some(unsafe { (*context).ctx }.cast())
    }
}

/// Gives a connection the certificate of the name it asks for. One that asks for none gets what the
/// server has; one that asks for a name that is not in the table, or that has no certificate, is
/// refused.
unsafe extern "C" fn choose(ssl: *mut SSL, certificates: *mut c_void) -> c_int {
    // SAFETY: OpenSSL calls this within a handshake, with what `serve` has given. The name ends with
    // a zero and lives as long as the handshake. Certificates, keys and chains are counted: the
    // connection takes a part in them of its own.
    unsafe {
        let certificates = &*certificates.cast_const().cast::<Certificates>();
        let name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name as c_int);
        if name.is_null() {
            return GO_ON;
        }
        let Some(context) = certificates.find(CStr::from_ptr(name).to_bytes()) else {
            return REFUSE;
        };
        let mut chain = ptr::null_mut::<c_void>();
        let place = (&raw mut chain).cast::<c_void>();
        SSL_CTX_ctrl(context, SSL_CTRL_GET_CHAIN_CERTS as c_int, 0, place);
        let is_given = SSL_use_certificate(ssl, SSL_CTX_get0_certificate(context)) == 1
            // Not zero: the chain is counted too.
            && SSL_ctrl(ssl, SSL_CTRL_CHAIN as c_int, 1, chain) == 1
            && SSL_use_PrivateKey(ssl, SSL_CTX_get0_privatekey(context)) == 1;
        if is_given { GO_ON } else { REFUSE }
    }
}
