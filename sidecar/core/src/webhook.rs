//! Webhooks: events that are sent to endpoints, by the Standard Webhooks specification.
//!
//! Each event has an id of its own that never changes, however often it is sent and whatever it is sent together with. An
//! endpoint without batches gets one event per message, under its id. A batch has the hash of the ids of its events.

mod endpoint;
mod signing;

use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use sha2::{Digest, Sha256};
use vocabulary::CampaignId;

use crate::named;
use crate::visit::class::Class;
pub use endpoint::{EndpointError, EndpointPolicy, EndpointUrl, MAX_URL_LENGTH, Network};
pub use signing::{Secret, sign};

/// The most webhooks of a service.
pub const MAX_WEBHOOKS: u32 = 100;

/// The most characters of a webhook's name.
pub const MAX_NAME_CHARACTERS: usize = 100;

/// The most events of a message.
pub const MAX_BATCH: u32 = 1000;

/// The most campaigns, and the most tags, of a filter.
pub const MAX_FILTERS: usize = 100;

/// The number of queues of a webhook. All events of a link are in the same queue, which has one message under way at a
/// time: so many messages of a webhook are under way at once.
pub const QUEUES: usize = 32;

/// The time for which delivery of an event is attempted before its webhook is paused.
pub const PATIENCE: SignedDuration = SignedDuration::from_hours(72);

/// The longest time for which the secret before a rotation still signs.
pub const MAX_OVERLAP: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The time for which events are stored, besides visits.
pub const EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The pause after the first failed attempt, which doubles after every further one, and the longest pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(900);

named! {
    /// The type of an event.
    pub enum EventType: "event" {
        /// A link was visited.
        LinkClicked = "link.clicked",
        /// A link has expired: its time was over, it had as many visits as it was to have, or none for too long.
        LinkExpired = "link.expired",
        /// A campaign was created.
        CampaignCreated = "campaign.created",
        /// A campaign was changed.
        CampaignChanged = "campaign.changed",
        /// A campaign was paused.
        CampaignPaused = "campaign.paused",
        /// A campaign's pause was ended.
        CampaignResumed = "campaign.resumed",
        /// A campaign was revoked.
        CampaignRevoked = "campaign.revoked",
        /// All rows of a batch have been processed.
        UploadFinished = "upload.finished",
        /// A short domain is suspected to be blocked, by all networks or by one.
        DomainSuspectedBlocked = "domain.suspected_blocked",
    }
}

named! {
    /// The visits that are events.
    pub enum Clicks: "clicks" {
        /// The first visit of each link by a person.
        First = "first",
        /// Every visit.
        Each = "each",
    }
}

named! {
    /// The reason for which a webhook is paused.
    pub enum PauseReason: "reason" {
        /// A user has paused it.
        Requested = "requested",
        /// An event could not be delivered for three days.
        Failing = "failing",
        /// Its endpoint has answered 410: it wants no more messages.
        Gone = "gone",
    }
}

/// The settings of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Its name.
    pub name: String,
    /// Its endpoint.
    pub url: EndpointUrl,
    /// The types of its events; never an empty list.
    pub events: Vec<EventType>,
    /// The visits that are events.
    pub clicks: Clicks,
    /// The campaigns that links must belong to; `None` for all links.
    pub campaigns: Option<Vec<CampaignId>>,
    /// Tags of which links must have one; `None` for all links.
    pub tags: Option<Vec<String>>,
    /// The classes that visits must have; `None` for all visits.
    pub classes: Option<Vec<Class>>,
    /// The most events of a message. With 1, a message is an event, otherwise a list of events.
    pub max_batch: u32,
}

impl WebhookSettings {
    /// Reports whether first visits by a person are events.
    pub fn wants_first_clicks(&self) -> bool {
        self.clicks == Clicks::First && self.events.contains(&EventType::LinkClicked)
    }

    /// Reports whether events besides visits of the feed can be events of it.
    pub fn wants_events(&self) -> bool {
        let others = self.events.iter().any(|it| *it != EventType::LinkClicked);
        self.wants_first_clicks() || others
    }

    /// Reports whether the expiry of links is an event.
    pub fn wants_expiry(&self) -> bool {
        self.events.contains(&EventType::LinkExpired)
    }

    /// Reports whether every visit can be an event.
    pub fn wants_visits(&self) -> bool {
        self.clicks == Clicks::Each && self.events.contains(&EventType::LinkClicked)
    }
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its id.
    pub id: String,
    /// Its settings.
    pub settings: WebhookSettings,
    /// The version of its secret.
    pub secret_version: u32,
    /// The time until which the secret before signs, too.
    pub previous_until: Option<Timestamp>,
    /// The time of its creation.
    pub created_at: Timestamp,
    /// The API key that created it.
    pub created_by: String,
    /// The time of the last change by a user.
    pub updated_at: Timestamp,
    /// The number of changes by users, of pauses, and of erasures of visits: the delivery reads the webhook again.
    pub revision: u64,
    /// The reason and the time of a pause.
    pub paused: Option<(PauseReason, Timestamp)>,
    /// The time of the first failed attempt for an event that is undelivered.
    pub failing_since: Option<Timestamp>,
    /// The time of the oldest event that waits.
    pub waiting_since: Option<Timestamp>,
    /// Number of events delivered.
    pub delivered: u64,
    /// The number that progress is written with.
    pub fence: i64,
    /// The place up to which events are delivered.
    pub progress: Progress,
}

impl Webhook {
    /// The versions of its secret that sign at a time, the latest first.
    pub fn secret_versions(&self, now: Timestamp) -> impl Iterator<Item = u32> + use<> {
        let has_previous = self.previous_until.is_some_and(|until| now < until);
        let previous = has_previous.then(|| self.secret_version.saturating_sub(1));
        std::iter::once(self.secret_version).chain(previous)
    }
}

/// Numbers up to which visits and other events are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The number of a visit.
    pub visits: i64,
    /// The number of another event.
    pub events: i64,
}

/// The progress of each queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress(pub [Reached; QUEUES]);

impl Default for Progress {
    fn default() -> Self {
        Self::at(Reached::default())
    }
}

impl Progress {
    /// All queues at the same place.
    pub fn at(reached: Reached) -> Self {
        Self([reached; QUEUES])
    }

    /// The place up to which all queues have delivered everything.
    pub fn least(&self) -> Reached {
        let least = |number: fn(&Reached) -> i64| self.0.iter().map(number).min();
        Reached {
            visits: least(|it| it.visits).unwrap_or_default(),
            events: least(|it| it.events).unwrap_or_default(),
        }
    }
}

/// The queue of events with a subject: the code of a link, the id of a campaign, and the like.
pub fn queue_of(subject: &str) -> usize {
    let digest = Sha256::digest(subject.as_bytes());
    usize::from(digest[0]) % QUEUES
}

/// An event as it is sent.
#[derive(Debug, Serialize)]
pub struct EventBody<'a, T> {
    /// Its type.
    #[serde(rename = "type")]
    pub event: &'a str,
    /// Its id.
    pub id: &'a str,
    /// Its time.
    pub timestamp: Timestamp,
    /// Its data.
    pub data: T,
}

/// The id of a visit as an event. A database that was restored from a backup uses numbers of visits again, but not for a
/// visit of the same millisecond.
pub fn click_id(number: i64, at: Timestamp) -> String {
    format!("click_{number}_{:x}", at.as_millisecond())
}

/// The id of an event that is not a visit, by its number and time.
pub fn event_id(number: i64, at: Timestamp) -> String {
    format!("event_{number}_{:x}", at.as_millisecond())
}

/// The id of a batch of events.
pub fn batch_id<'a>(events: impl IntoIterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for id in events {
        digest.update(id.as_bytes());
        digest.update([0]);
    }
    let digest = digest.finalize();
    let mut id = String::from("batch_");
    for byte in &digest[..16] {
        id.push_str(&format!("{byte:02x}"));
    }
    id
}

/// Returns the pause after so many failed attempts, at least one: it doubles up to 15 minutes, and half of it is random.
/// `chance` is from 0 to 1.
pub fn back_off(failed: u32, chance: f64) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << failed.saturating_sub(1).min(16));
    pause
        .min(LONGEST_PAUSE)
        .mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

/// A message to an endpoint.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its endpoint.
    pub url: EndpointUrl,
    /// Its id, `webhook-id`.
    pub id: String,
    /// Its time, `webhook-timestamp`.
    pub at: Timestamp,
    /// Its signatures, `webhook-signature`.
    pub signatures: String,
    /// Its body: JSON.
    pub body: String,
}

impl Message {
    /// Signs a message with all of some secrets.
    pub fn new(
        url: EndpointUrl,
        id: String,
        at: Timestamp,
        body: String,
        secrets: &[Secret],
    ) -> Self {
        let signatures = secrets.iter().map(|secret| sign(secret, &id, at, &body));
        let signatures = signatures.collect::<Vec<_>>().join(" ");
        Self {
            url,
            id,
            at,
            signatures,
            body,
        }
    }
}

/// An answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// The time after which the endpoint asks for the next attempt.
    pub retry_after: Option<Duration>,
}

impl Answer {
    /// Reports whether the message was accepted.
    pub fn is_accepted(self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The reason for which a message has no answer, in words for the endpoint's operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SendError(pub String);

/// Sends messages to endpoints.
#[async_trait]
pub trait MessageSender: Send + Sync {
    /// Sends a message once; a redirect is an answer like any other and is not followed.
    async fn send(&self, message: Message) -> Result<Answer, SendError>;
}

/// An attempt to deliver a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Time of its end.
    pub at: Timestamp,
    /// Id of the message.
    pub message_id: String,
    /// Number of events of the message.
    pub events: u32,
    /// The number of the attempt for this message, from 1 on.
    pub attempt: u32,
    /// Status of the answer; `None` without an answer.
    pub status: Option<u16>,
    /// The reason for which there was no answer.
    pub error: Option<String>,
    /// Its duration.
    pub took: Duration,
}

impl Attempt {
    /// Reports whether the message was accepted.
    pub fn is_delivered(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_same_id_as_long_as_it_has_the_same_events() {
        let id = batch_id(["click_1_a", "click_2_b"]);
        assert_eq!(id, batch_id(["click_1_a", "click_2_b"]));
        for other in [
            &["click_1_a"][..],
            &["click_2_b", "click_1_a"],
            &["click_1_aclick_2_b"],
            &["click_1_a", "click_2_b", "click_3_c"],
        ] {
            assert_ne!(id, batch_id(other.iter().copied()), "{other:?}");
        }
        assert_eq!(id.len(), "batch_".len() + 32);
    }

    #[test]
    fn pauses_double_up_to_a_quarter_of_an_hour() {
        let seconds = |failed, chance| back_off(failed, chance).as_secs_f64();
        for (failed, most) in [
            (1, 1.0),
            (2, 2.0),
            (5, 16.0),
            (10, 512.0),
            (11, 900.0),
            (9999, 900.0),
        ] {
            assert_eq!(seconds(failed, 1.0), most);
            assert_eq!(seconds(failed, 0.0), most / 2.0);
        }
    }

    #[test]
    fn all_queues_are_used_and_a_subject_has_one() {
        let used: std::collections::BTreeSet<usize> =
            (0..10_000).map(|n| queue_of(&format!("code{n}"))).collect();
        assert_eq!(used.len(), QUEUES);
        assert_eq!(queue_of("a"), queue_of("a"));
    }
}
