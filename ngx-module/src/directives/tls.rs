//! The lines of `shortlink_redis` that are about TLS.

use std::ffi::CString;

use crate::directives::words::{Set, shown};
use crate::nginx::conf::Conf;
use crate::settings::redis::Tls;

/// The lines, as they are read.
#[derive(Default)]
pub(crate) struct TlsLines {
    on: Option<bool>,
    verify: Option<bool>,
    name: Option<Vec<u8>>,
    trusted_certificate: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    certificate_key: Option<Vec<u8>>,
}

impl TlsLines {
    /// Reads a line whose key is one of those about TLS.
    pub(crate) fn read(&mut self, key: &[u8], value: &[u8]) -> Set {
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
    /// # Errors
    /// What does not go together, or can't be used.
    pub(crate) fn finish(self, conf: &Conf, default_name: CString) -> Result<Option<Tls>, String> {
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
                "\"tls on\" needs \"tls_trusted_certificate\", the certificate of the authority \
                 that signed those of Redis, or \"tls_verify off\""
                    .to_owned(),
            );
        }
        let name = match self.name {
            Some(name) => {
                CString::new(name).map_err(|_| "\"tls_name\" has a zero byte".to_owned())?
            }
            None => default_name,
        };
        let context = conf.new_ssl()?;
        if let Some(file) = &self.trusted_certificate {
            let path = conf.config_path(file)?;
            if !context.trust(conf, &path)? {
                return Err(unusable("tls_trusted_certificate", &path));
            }
        }
        match (&self.certificate, &self.certificate_key) {
            (None, None) => {}
            (Some(certificate), Some(key)) => {
                let certificate = conf.config_path(certificate)?;
                if !context.certify(conf, &certificate, &conf.config_path(key)?)? {
                    return Err(unusable("tls_certificate", &certificate));
                }
            }
            _ => {
                return Err(
                    "\"tls_certificate\" and \"tls_certificate_key\" need each other".to_owned(),
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

fn unusable(key: &str, path: &str) -> String {
    format!("{key} \"{path}\" can't be used (the line before has the reason)")
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
