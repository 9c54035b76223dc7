//! Signatures of messages.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;

use crate::codes::numbering::CodeKey;

/// The secret that an endpoint checks signatures with. It is derived from the secret of the database, so that no table
/// has it.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Derives a version of the secret of a webhook.
    pub fn derive(key: &CodeKey, webhook: &str, version: u32) -> Self {
        Self(key.derive(&format!("webhook {webhook} {version}")))
    }

    /// Its text, `whsec_…`.
    pub fn to_text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for Secret {
    /// Never shows the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Signs a message: `v1,` and the base64 of the HMAC-SHA256 of its id, time and body.
pub fn sign(secret: &Secret, id: &str, at: Timestamp, body: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(&secret.0);
    let Ok(mut mac) = mac else {
        unreachable!("a key of any length is allowed");
    };
    mac.update(format!("{id}.{}.", at.as_second()).as_bytes());
    mac.update(body.as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // Of Python's hmac with the secret whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=.
        let secret = Secret(std::array::from_fn(|place| place as u8));
        assert_eq!(
            secret.to_text(),
            "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
        );
        let at = Timestamp::from_second(1_614_265_330).expect("a time");
        let signature = sign(
            &secret,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            at,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,O4Gjv1HqPqsMrjmczoggs/sWA8gZD0VyHG+fLh4+ktI=");
    }

    #[test]
    fn each_webhook_and_version_has_a_secret_of_its_own() {
        let key = CodeKey::new([7; 32]);
        let text = |id: &str, version| Secret::derive(&key, id, version).to_text();
        assert_eq!(text("a", 1), text("a", 1));
        assert_ne!(text("a", 1), text("a", 2));
        assert_ne!(text("a", 1), text("b", 1));
        assert!(!format!("{:?}", Secret::derive(&key, "a", 1)).contains("whsec"));
    }
}
