//! TLS to Redis, with nginx' own OpenSSL.

use std::ffi::{CString, c_void};
use std::ptr;

use ngx::ffi::{
    NGX_AGAIN, NGX_OK, NGX_SSL_CLIENT, SSL_CTRL_MODE, SSL_CTRL_SET_TLSEXT_HOSTNAME,
    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER, SSL_ctrl, SSL_get_verify_result,
    TLSEXT_NAMETYPE_host_name, ngx_connection_t, ngx_create_pool, ngx_destroy_pool, ngx_int_t,
    ngx_ssl_check_host, ngx_ssl_create_connection, ngx_ssl_handshake, ngx_ssl_shutdown, ngx_ssl_t,
    ngx_str_t,
};

use crate::link::on_secured;

/// The bytes that a connection's pool takes from the system at once.
const POOL_BYTES: usize = 512;

/// The TLS settings of connections.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    /// Lives as long as the configuration.
    pub(crate) context: *mut ngx_ssl_t,
    /// The name that servers must prove to have.
    pub(crate) name: CString,
    /// True if they must prove it.
    pub(crate) verifies: bool,
}

impl Tls {
    /// Prepares a connection that is open.
    ///
    /// # Errors
    /// When there is no memory.
    ///
    /// # Safety
    /// The connection must be open and not secured.
    pub(crate) unsafe fn begin(&self, connection: *mut ngx_connection_t) -> Result<(), String> {
        let no_memory = || "there is no memory for TLS".to_owned();
        // SAFETY: the connection is valid; nginx takes what it needs for TLS from the
        // connection's pool, which connections to others do not have of their own.
        unsafe {
            if (*connection).pool.is_null() {
                (*connection).pool = ngx_create_pool(POOL_BYTES, (*connection).log);
                if (*connection).pool.is_null() {
                    return Err(no_memory());
                }
            }
            let flags = NGX_SSL_CLIENT as usize;
            if ngx_ssl_create_connection(self.context, connection, flags) != NGX_OK as ngx_int_t {
                return Err(no_memory());
            }
            // Bytes that could not be written whole may have moved by the next attempt, if more
            // commands were appended to them.
            SSL_ctrl(
                (*(*connection).ssl).connection,
                SSL_CTRL_MODE as i32,
                i64::from(SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER),
                ptr::null_mut(),
            );
            if !self.name.is_empty() {
                let set = SSL_ctrl(
                    (*(*connection).ssl).connection,
                    SSL_CTRL_SET_TLSEXT_HOSTNAME as i32,
                    i64::from(TLSEXT_NAMETYPE_host_name),
                    self.name.as_ptr().cast_mut().cast::<c_void>(),
                );
                if set == 0 {
                    return Err(no_memory());
                }
            }
        }
        Ok(())
    }

    /// Checks what was negotiated.
    ///
    /// # Errors
    /// When nothing was, or the server is not who it should be.
    ///
    /// # Safety
    /// The connection must be one that [`Tls::begin`] has prepared.
    pub(crate) unsafe fn check(&self, connection: *mut ngx_connection_t) -> Result<(), String> {
        // SAFETY: as this function's own.
        unsafe {
            let ssl = (*connection).ssl;
            if ssl.is_null() || (*ssl).handshaked() == 0 {
                return Err("TLS can't be negotiated (the log's lines before say why)".to_owned());
            }
            if !self.verifies {
                return Ok(());
            }
            let result = SSL_get_verify_result((*ssl).connection);
            if result != 0 {
                return Err(format!("its certificate is not trusted (error {result})"));
            }
            let mut name = ngx_str_t {
                len: self.name.as_bytes().len(),
                data: self.name.as_ptr().cast_mut().cast(),
            };
            if ngx_ssl_check_host(connection, &mut name) != NGX_OK as ngx_int_t {
                return Err(format!(
                    "its certificate is not for {}",
                    self.name.to_string_lossy()
                ));
            }
        }
        Ok(())
    }
}

/// Negotiates; the link's function is called when that has ended.
///
/// # Safety
/// The connection must be one that [`Tls::begin`] has prepared. May finish requests.
pub(crate) unsafe fn negotiate(connection: *mut ngx_connection_t) {
    // SAFETY: as this function's own.
    unsafe {
        if ngx_ssl_handshake(connection) == NGX_AGAIN as ngx_int_t {
            (*(*connection).ssl).handler = Some(on_secured);
        } else {
            on_secured(connection);
        }
    }
}

/// Frees what TLS holds of a connection that is about to be closed.
///
/// # Safety
/// The connection must be open.
pub(crate) unsafe fn forget(connection: *mut ngx_connection_t) {
    // SAFETY: the connection is open; with these flags nginx neither sends a farewell nor waits
    // for one, and frees at once.
    unsafe {
        let ssl = (*connection).ssl;
        if !ssl.is_null() {
            (*ssl).set_no_wait_shutdown(1);
            (*ssl).set_no_send_shutdown(1);
            ngx_ssl_shutdown(connection);
        }
        let pool = (*connection).pool;
        if !pool.is_null() {
            (*connection).pool = ptr::null_mut();
            ngx_destroy_pool(pool);
        }
    }
}
