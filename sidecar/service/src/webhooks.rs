//! Webhooks: creation, changes, secrets and tests. [`delivery`] sends their events; [`expiry`] finds those of expired
//! links.

pub mod delivery;
mod endpoint;
pub mod expiry;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::json;
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::ports::StoreError;
use shortlink_core::webhook::{
    Answer, Attempt, EndpointPolicy, EventBody, Message, MessageSender, Secret, SendError, Webhook,
    WebhookSettings,
};
use shortlink_store::{Store, WebhookChange, WebhookChanged};
use tokio::time::Instant;

/// Counts of this process.
#[derive(Debug, Default)]
pub struct WebhookCounters {
    /// Messages that were accepted.
    pub delivered: AtomicU64,
    /// Messages that were answered with another status.
    pub refused: AtomicU64,
    /// Messages without an answer.
    pub failed: AtomicU64,
    /// Events of accepted messages.
    pub events: AtomicU64,
}

impl WebhookCounters {
    fn count(&self, outcome: &Result<Answer, SendError>, events: usize) {
        let counter = match outcome {
            Ok(answer) if answer.is_accepted() => {
                self.events.fetch_add(events as u64, Ordering::Relaxed);
                &self.delivered
            }
            Ok(_) => &self.refused,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates, changes and tests webhooks.
pub struct Webhooks {
    /// The store of the webhooks.
    pub store: Arc<Store>,
    /// Sends tests.
    pub sender: Arc<dyn MessageSender>,
    /// The endpoints that are allowed.
    pub policy: EndpointPolicy,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Counts of this process.
    pub counters: Arc<WebhookCounters>,
    /// Draws ids.
    pub rng: Mutex<StdRng>,
}

impl Webhooks {
    /// Creates a webhook, whose events begin now.
    #[boxed]
    pub async fn create(
        &self,
        settings: WebhookSettings,
        key_id: &str,
    ) -> Result<WebhookChanged, StoreError> {
        let now = self.clock.now();
        let id = format!("wh_{:016x}", self.rng.lock().next_u64());
        let webhook = Webhook {
            id,
            settings,
            secret_version: 1,
            previous_until: None,
            created_at: now,
            created_by: key_id.to_owned(),
            updated_at: now,
            revision: 1,
            paused: None,
            failing_since: None,
            waiting_since: None,
            delivered: 0,
            fence: 0,
            progress: Default::default(),
        };
        self.store.create_webhook(webhook).await
    }

    /// Changes a webhook; `None` if there is none.
    #[boxed]
    pub async fn change(
        &self,
        id: &str,
        change: WebhookChange,
        key_id: &str,
    ) -> Result<Option<WebhookChanged>, StoreError> {
        let now = self.clock.now();
        self.store.change_webhook(id, change, key_id, now).await
    }

    /// Gives a webhook a new secret; the one before signs for `overlap`, too.
    #[boxed]
    pub async fn rotate(
        &self,
        id: &str,
        overlap: SignedDuration,
        key_id: &str,
    ) -> Result<Option<WebhookChanged>, StoreError> {
        let until = self.clock.now() + overlap;
        self.change(id, WebhookChange::Rotate(until), key_id).await
    }

    /// Returns the newest secret of a webhook.
    pub fn secret(&self, webhook: &Webhook) -> Secret {
        Secret::derive(&self.store.code_key(), &webhook.id, webhook.secret_version)
    }

    /// Sends a message of the type `webhook.test`, once. The log has the attempt.
    #[boxed]
    pub async fn test(&self, webhook: &Webhook) -> Result<Attempt, StoreError> {
        let now = self.clock.now();
        let id = format!("test_{:016x}", self.rng.lock().next_u64());
        let event = EventBody {
            event: "webhook.test",
            id: &id,
            timestamp: now,
            data: json!({ "webhookId": webhook.id }),
        };
        let body = json!(event).to_string();
        let message = sign(&self.store, webhook, id.clone(), now, body);
        let begun = Instant::now();
        let outcome = self.sender.send(message).await;
        self.counters.count(&outcome, 0);
        let attempt = attempt(self.clock.now(), id, 1, 1, &outcome, begun.elapsed());
        let noted = self.store.note_attempt(&webhook.id, attempt.clone());
        noted.await?;
        Ok(attempt)
    }
}

/// Signs a message of a webhook with all secrets that are valid at a time.
fn sign(store: &Store, webhook: &Webhook, id: String, now: Timestamp, body: String) -> Message {
    let key = store.code_key();
    let versions = webhook.secret_versions(now);
    let secrets = versions.map(|version| Secret::derive(&key, &webhook.id, version));
    let secrets: Vec<Secret> = secrets.collect();
    Message::new(webhook.settings.url.clone(), id, now, body, &secrets)
}

/// Describes an attempt.
fn attempt(
    at: Timestamp,
    message_id: String,
    events: usize,
    attempt: u32,
    outcome: &Result<Answer, SendError>,
    took: Duration,
) -> Attempt {
    Attempt {
        at,
        message_id,
        events: u32::try_from(events).unwrap_or(u32::MAX),
        attempt,
        status: outcome.as_ref().ok().map(|answer| answer.status),
        error: outcome.as_ref().err().map(ToString::to_string),
        took,
    }
}
