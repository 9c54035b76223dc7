//! API keys as JSON.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_api::key::KeyBody;
use shortlink_core::api_key::ApiKey;

/// A new key with its secret.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyWithSecret")]
pub(crate) struct SecretBody {
    #[serde(flatten)]
    key: KeyBody,
    /// Secret of the key, to be sent with requests. No other answer contains it.
    secret: String,
    /// The key that it replaces by a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "KeyBody")]
    predecessor: Option<KeyBody>,
}

impl SecretBody {
    /// Describes a new key.
    pub(super) fn new(key: &ApiKey, secret: String, now: Timestamp) -> Self {
        Self {
            key: KeyBody::new(key, now),
            secret,
            predecessor: None,
        }
    }

    /// Adds the key that it was rotated from.
    pub(super) fn with_predecessor(self, predecessor: &ApiKey, now: Timestamp) -> Self {
        Self {
            predecessor: Some(KeyBody::new(predecessor, now)),
            ..self
        }
    }
}

/// A page of the listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "KeyPage")]
pub(crate) struct PageBody {
    /// The keys.
    pub(super) keys: Vec<KeyBody>,
    /// Cursor of the next page; `null` on the last page.
    pub(super) next_cursor: Option<String>,
}
