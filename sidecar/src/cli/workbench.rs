//! The connections and settings of commands that maintain Redis.

use std::sync::Arc;

use secrecy::ExposeSecret;

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::core::ports::RecordIndex;
use crate::jobs::Claims;
use crate::publisher::RedisIndex;
use crate::random;
use crate::store;
use crate::store::Store;

/// The store and Redis.
pub(super) struct Workbench {
    pub(super) store: Arc<Store>,
    pub(super) index: Arc<dyn RecordIndex>,
    pub(super) clock: Arc<dyn Clock>,
    /// The place where jobs are claimed.
    pub(super) claims: Claims,
}

impl Workbench {
    pub(super) async fn open(config: &Config) -> anyhow::Result<Self> {
        let store = store::open(&config.database).await?;
        let index = RedisIndex::new(
            config.redis.url.expose_secret(),
            &config.redis.topology,
            config.redis.prefix.clone(),
            config.redis.timeout,
        )?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let claims = Claims {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            holder: random::holder()?,
        };
        Ok(Self {
            store,
            index: Arc::new(index),
            clock,
            claims,
        })
    }

    pub(super) async fn close(&self) {
        self.store.close().await;
    }
}

/// A number with separators: 1,234,567.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn numbers_have_commas_between_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }
}
