//! TLS, with nginx' own OpenSSL.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};

use ngx::ffi::{
    NGX_OK, NGX_SSL_TLSv1_2, NGX_SSL_TLSv1_3, SSL, SSL_CTRL_CHAIN, SSL_CTRL_GET_CHAIN_CERTS,
    SSL_CTX_ctrl, SSL_CTX_get0_certificate, SSL_CTX_get0_privatekey, SSL_CTX_set_cert_cb, SSL_ctrl,
    SSL_get_servername, SSL_use_PrivateKey, SSL_use_certificate, TLSEXT_NAMETYPE_host_name,
    ngx_array_create, ngx_array_push, ngx_array_t, ngx_http_conf_ctx_t, ngx_http_ssl_module,
    ngx_http_ssl_srv_conf_t, ngx_int_t, ngx_pool_cleanup_add, ngx_ssl_certificate,
    ngx_ssl_cleanup_ctx, ngx_ssl_create, ngx_ssl_t, ngx_ssl_trusted_certificate, ngx_str_t,
};

use crate::nginx::conf::Conf;

/// The most certificates between a server's and a trusted one.
const CHAIN_DEPTH: ngx_int_t = 10;

/// The return values of OpenSSL's callback.
const GO_ON: c_int = 1;
const REFUSE: c_int = 0;

/// The reason when there is no memory.
const NO_MEMORY: &str = "there is no memory for TLS";

/// Settings of TLS, which live as long as the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SslContext(NonNull<ngx_ssl_t>);

impl SslContext {
    pub(super) fn as_ptr(self) -> *mut ngx_ssl_t {
        self.0.as_ptr()
    }

    /// Trusts what a file of certificates has signed.
    ///
    /// # Errors
    /// When there is no memory. `Ok(false)` when nginx has logged why the file can't be used.
    pub(crate) fn trust(self, conf: &Conf, path: &str) -> Result<bool, String> {
        let mut text = text_of(conf, path)?;
        // SAFETY: the configuration and the context are valid, and the text ends with a zero.
        let set = unsafe {
            ngx_ssl_trusted_certificate(conf.raw(), self.as_ptr(), &mut text, CHAIN_DEPTH)
        };
        Ok(set == NGX_OK as ngx_int_t)
    }

    /// Has a certificate, with its chain, and its key.
    ///
    /// # Errors
    /// As [`SslContext::trust`].
    pub(crate) fn certify(self, conf: &Conf, path: &str, key: &str) -> Result<bool, String> {
        let (mut text, mut key) = (text_of(conf, path)?, text_of(conf, key)?);
        let none = ptr::null_mut();
        // SAFETY: as for `trust`.
        let set =
            unsafe { ngx_ssl_certificate(conf.raw(), self.as_ptr(), &mut text, &mut key, none) };
        Ok(set == NGX_OK as ngx_int_t)
    }
}

/// A text as nginx holds it, in the configuration's pool and with a zero behind it.
fn text_of(conf: &Conf, text: &str) -> Result<ngx_str_t, String> {
    let copy = conf.pool().copy_with_zero(text.as_bytes());
    copy.ok_or_else(|| NO_MEMORY.to_owned())
}

impl Conf {
    /// Makes settings of TLS.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn new_ssl(&self) -> Result<SslContext, String> {
        // SAFETY: the configuration's pool is valid; the context is zeroed as nginx' own modules do it, and freed with
        // the pool by nginx' own function.
        unsafe {
            let context = self.pool().zeroed::<ngx_ssl_t>();
            let cleanup = ngx_pool_cleanup_add(self.pool().as_ptr(), 0).as_mut();
            let (Some(context), Some(cleanup)) = (context, cleanup) else {
                return Err(NO_MEMORY.to_owned());
            };
            let raw = context.as_ptr();
            (*raw).log = (*self.raw()).log;
            let protocols = (NGX_SSL_TLSv1_2 | NGX_SSL_TLSv1_3) as usize;
            if ngx_ssl_create(raw, protocols, ptr::null_mut()) != NGX_OK as ngx_int_t {
                return Err("TLS can't be set up".to_owned());
            }
            cleanup.handler = Some(ngx_ssl_cleanup_ctx);
            cleanup.data = raw.cast::<c_void>();
            Ok(SslContext(context))
        }
    }

    /// The TLS of the server.
    pub(crate) fn ssl_server(&self) -> Option<SslServer> {
        // SAFETY: within a server its context has the configurations of all modules of HTTP, and nginx' TLS module is
        // one of them.
        unsafe {
            let context = (*self.raw()).ctx.cast::<ngx_http_conf_ctx_t>();
            let number = (&raw const ngx_http_ssl_module).read().ctx_index;
            NonNull::new((*(*context).srv_conf.add(number)).cast()).map(SslServer)
        }
    }
}

/// The TLS of a server of the configuration, and living as long as it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SslServer(NonNull<ngx_http_ssl_srv_conf_t>);

impl SslServer {
    /// Has a certificate for clients that send no name, unless one is configured.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn default_to(self, conf: &mut Conf, file: &str, key: &str) -> Result<(), String> {
        let (file, key) = (text_of(conf, file)?, text_of(conf, key)?);
        let server = self.0.as_ptr();
        // SAFETY: the server's configuration lives as long as the whole one; its lists are unset or valid.
        unsafe {
            if is_unset((*server).certificates) {
                push(conf, &raw mut (*server).certificates, file)?;
                push(conf, &raw mut (*server).certificate_keys, key)?;
            }
        }
        Ok(())
    }

    /// Has clients shown what `choice` finds for the name that they ask for. Called when nginx' TLS module has merged
    /// its configurations; a server without TLS stays so.
    ///
    /// # Safety
    /// The choice must live as long as the configuration.
    pub(crate) unsafe fn choose_by<C: ChooseCertificate>(self, choice: &C) {
        let data = ptr::from_ref(choice).cast_mut().cast::<c_void>();
        // SAFETY: as this function's own; the callback takes what is given here.
        unsafe {
            let context = (*self.0.as_ptr()).ssl.ctx;
            if !context.is_null() {
                SSL_CTX_set_cert_cb(context.cast(), Some(choose::<C>), data);
            }
        }
    }
}

/// Returns whether a list was not configured.
fn is_unset(list: *mut ngx_array_t) -> bool {
    // NGX_CONF_UNSET_PTR.
    list.is_null() || list.addr() == usize::MAX
}

/// Adds a text to a list.
///
/// # Safety
/// The list must be unset, or a valid one of texts.
unsafe fn push(conf: &Conf, list: *mut *mut ngx_array_t, text: ngx_str_t) -> Result<(), String> {
    let no_memory = || "there is no memory for certificates".to_owned();
    // SAFETY: as this function's own; a new list has space for a text.
    unsafe {
        if is_unset(*list) {
            *list = ngx_array_create(conf.pool().as_ptr(), 4, size_of::<ngx_str_t>());
            if (*list).is_null() {
                return Err(no_memory());
            }
        }
        let place = ngx_array_push(*list).cast::<ngx_str_t>();
        if place.is_null() {
            return Err(no_memory());
        }
        place.write(text);
    }
    Ok(())
}

/// Finds certificates.
pub(crate) trait ChooseCertificate {
    /// The certificate for a client that asks for this name, as a context has it; `None` refuses the client.
    fn choose(&self, name: &[u8]) -> Option<SslContext>;
}

/// Gives a connection the certificate of the name it asks for. One that asks for none gets what the server has.
unsafe extern "C" fn choose<C: ChooseCertificate>(ssl: *mut SSL, choice: *mut c_void) -> c_int {
    // SAFETY: OpenSSL calls this within a handshake, with what `choose_by` has given. The name ends with a zero and
    // lives as long as the handshake.
    let chosen = unsafe {
        let name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name as c_int);
        if name.is_null() {
            return GO_ON;
        }
        let choice = &*choice.cast_const().cast::<C>();
        choice.choose(CStr::from_ptr(name).to_bytes())
    };
    let Some(chosen) = chosen else {
        return REFUSE;
    };
    // SAFETY: the chosen context lives as long as the configuration. Certificates, keys and chains are counted: the
    // connection takes a part in them of its own.
    let is_given = unsafe {
        let context = (*chosen.as_ptr()).ctx.cast();
        let mut chain = ptr::null_mut::<c_void>();
        let place = (&raw mut chain).cast::<c_void>();
        SSL_CTX_ctrl(context, SSL_CTRL_GET_CHAIN_CERTS as c_int, 0, place);
        SSL_use_certificate(ssl, SSL_CTX_get0_certificate(context)) == 1
            // Not zero: the chain is counted too.
            && SSL_ctrl(ssl, SSL_CTRL_CHAIN as c_int, 1, chain) == 1
            && SSL_use_PrivateKey(ssl, SSL_CTX_get0_privatekey(context)) == 1
    };
    if is_given { GO_ON } else { REFUSE }
}
