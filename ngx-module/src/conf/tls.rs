//! The lines of `shortlink_redis` that are about TLS.

use std::ffi::{CString, c_void};
use std::ptr;

use ngx::ffi::{
    NGX_OK, NGX_SSL_TLSv1_2, NGX_SSL_TLSv1_3, ngx_conf_t, ngx_int_t, ngx_pcalloc,
    ngx_pool_cleanup_add, ngx_ssl_certificate, ngx_ssl_cleanup_ctx, ngx_ssl_create, ngx_ssl_t,
    ngx_ssl_trusted_certificate, ngx_str_t,
};

use super::words::{Set, config_path, shown};
use crate::tls::Tls;

/// The most certificates between a server's and a trusted one.
const CHAIN_DEPTH: ngx_int_t = 10;

/// The lines, as they are read.
#[derive(Default)]
pub(super) struct TlsLines {
    on: Option<bool>,
    verify: Option<bool>,
    name: Option<Vec<u8>>,
    trusted_certificate: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    certificate_key: Option<Vec<u8>>,
}

impl TlsLines {
    /// Reads a line whose key is one of those about TLS.
    pub(super) fn read(&mut self, key: &[u8], value: &[u8]) -> Set {
        let place = match key {
            b"tls" => {
                self.on = Some(read_switch(key, value)?);
                return Ok(());
            }
            b"tls_verify" => {
                self.verify = Some(read_switch(key, value)?);
                return Ok(());
            }
            b"tls_name" => &mut self.name,
            b"tls_trusted_certificate" => &mut self.trusted_certificate,
            b"tls_certificate" => &mut self.certificate,
            _ => &mut self.certificate_key,
        };
        *place = Some(value.to_vec());
        Ok(())
    }

    /// Puts together what was read; `default_name` is the name that servers must prove to have
    /// unless a line sets another one.
    ///
    /// # Safety
    /// The configuration must be valid.
    pub(super) unsafe fn finish(
        self,
        cf: *mut ngx_conf_t,
        default_name: CString,
    ) -> Result<Option<Tls>, String> {
        if self.on != Some(true) {
            let is_said = self.verify.is_some()
                || self.name.is_some()
                || self.trusted_certificate.is_some()
                || self.certificate.is_some()
                || self.certificate_key.is_some();
            return if is_said {
                Err("the \"tls_…\" lines need \"tls on;\"".to_owned())
            } else {
                Ok(None)
            };
        }
        let verifies = self.verify.unwrap_or(true);
        if verifies && self.trusted_certificate.is_none() {
            return Err(
                "\"tls on\" needs \"tls_trusted_certificate\", the certificate of who has signed \
                 Redis', or \"tls_verify off\""
                    .to_owned(),
            );
        }
        let name = match self.name {
            Some(name) => {
                CString::new(name).map_err(|_| "\"tls_name\" has a zero byte".to_owned())?
            }
            None => default_name,
        };
        // SAFETY: as this function's own; the context is new.
        unsafe {
            let context = new_context(cf)?;
            if let Some(file) = &self.trusted_certificate {
                let path = config_path(cf, file)?;
                let mut text = text_of(cf, &path)?;
                let set = ngx_ssl_trusted_certificate(cf, context, &mut text, CHAIN_DEPTH);
                if set != NGX_OK as ngx_int_t {
                    return Err(unusable("tls_trusted_certificate", &path));
                }
            }
            match (&self.certificate, &self.certificate_key) {
                (None, None) => {}
                (Some(certificate), Some(key)) => {
                    let certificate = config_path(cf, certificate)?;
                    let mut certificate_text = text_of(cf, &certificate)?;
                    let mut key_text = text_of(cf, &config_path(cf, key)?)?;
                    let set = ngx_ssl_certificate(
                        cf,
                        context,
                        &mut certificate_text,
                        &mut key_text,
                        ptr::null_mut(),
                    );
                    if set != NGX_OK as ngx_int_t {
                        return Err(unusable("tls_certificate", &certificate));
                    }
                }
                _ => {
                    return Err(
                        "\"tls_certificate\" and \"tls_certificate_key\" need each other"
                            .to_owned(),
                    );
                }
            }
            Ok(Some(Tls {
                context,
                name,
                verifies,
            }))
        }
    }
}

fn unusable(key: &str, path: &str) -> String {
    format!("{key} \"{path}\" can't be used (the line before says why)")
}

fn read_switch(key: &[u8], value: &[u8]) -> Result<bool, String> {
    match value {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(format!(
            "{} \"{}\" is not one of on, off",
            shown(key),
            shown(value)
        )),
    }
}

/// A context for TLS that lives as long as the configuration.
///
/// # Safety
/// `cf` must be valid.
pub(super) unsafe fn new_context(cf: *mut ngx_conf_t) -> Result<*mut ngx_ssl_t, String> {
    // SAFETY: the configuration's pool is valid; the context is zeroed as nginx' own modules
    // do it, and freed with the pool by nginx' own function.
    unsafe {
        let pool = (*cf).pool;
        let context = ngx_pcalloc(pool, size_of::<ngx_ssl_t>()).cast::<ngx_ssl_t>();
        let cleanup = ngx_pool_cleanup_add(pool, 0);
        if context.is_null() || cleanup.is_null() {
            return Err("there is no memory for TLS".to_owned());
        }
        (*context).log = (*cf).log;
        let protocols = (NGX_SSL_TLSv1_2 | NGX_SSL_TLSv1_3) as usize;
        if ngx_ssl_create(context, protocols, ptr::null_mut()) != NGX_OK as ngx_int_t {
            return Err("TLS can't be set up".to_owned());
        }
        (*cleanup).handler = Some(ngx_ssl_cleanup_ctx);
        (*cleanup).data = context.cast::<c_void>();
        Ok(context)
    }
}

/// A text as nginx holds it, in the configuration's pool and with a zero behind it.
///
/// # Safety
/// `cf` must be valid.
pub(super) unsafe fn text_of(cf: *mut ngx_conf_t, text: &str) -> Result<ngx_str_t, String> {
    // SAFETY: the allocation is zeroed and one longer than the text.
    unsafe {
        let data = ngx_pcalloc((*cf).pool, text.len() + 1).cast::<u8>();
        if data.is_null() {
            return Err("there is no memory for TLS".to_owned());
        }
        data.copy_from_nonoverlapping(text.as_ptr(), text.len());
        Ok(ngx_str_t {
            len: text.len(),
            data,
        })
    }
}
