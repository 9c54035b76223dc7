//! Settings of webhooks.

use std::time::Duration;

use shortlink_core::webhook::EndpointPolicy;

use super::{Settings, fault};

/// The settings of webhooks.
#[derive(Debug)]
pub struct Webhooks {
    /// The endpoints that are allowed.
    pub policy: EndpointPolicy,
    /// The time limit of an attempt.
    pub timeout: Duration,
}

impl Settings {
    pub(super) fn webhooks(&self) -> anyhow::Result<Webhooks> {
        let key = "webhooks.allowed_networks";
        let networks = self.get::<Vec<String>>(key).into_iter().map(|text| {
            let allowed = "a list of networks like 10.1.0.0/16 or fd00::/8";
            text.parse().map_err(|_error| fault(key, &text, allowed))
        });
        Ok(Webhooks {
            policy: EndpointPolicy {
                plain_http: self.get("webhooks.plain_http"),
                networks: networks.collect::<anyhow::Result<_>>()?,
            },
            timeout: Duration::from_secs(self.number("webhooks.timeout_s", 1, 60)?),
        })
    }
}
