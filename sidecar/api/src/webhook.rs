//! A webhook.

use jiff::Timestamp;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use shortlink_core::visit::class::Class;
use shortlink_core::webhook::{
    self, Attempt, EventType, MAX_BATCH, MAX_NAME_CHARACTERS, MAX_OVERLAP, Webhook,
};

use super::faults::Faults;
use super::kinds::link::{EndpointUrl, Tags};
use super::kinds::{Kind, List, Moment, Name, Number, Shape};
use super::members::{Always, Optional, Required, members, request};
use super::schema::of;
use super::words;

members! {
    /// The members of a webhook, for new webhooks and for changes.
    pub struct WebhookSettings {
        /// Name of the webhook, such as its purpose: 1 to 100 characters.
        name: Required<Name<MAX_NAME_CHARACTERS>> = "name",
        /// Endpoint that messages are sent to with POST: an https URL. The service allows http, and addresses in private
        /// networks, only with settings of its own.
        url: Required<EndpointUrl> = "url",
        /// Types of events: link.clicked, link.expired, campaign.created, campaign.changed, campaign.paused,
        /// campaign.resumed, campaign.revoked, upload.finished or domain.suspected_blocked. Default: all types of this
        /// version.
        events: Always<List<EventType, words::EventType>> = "events" as "event",
        /// Visits that are events of the type link.clicked: `first`, only the first human visit of each link, or
        /// `each`. Default: first.
        clicks: Always<Clicks> = "clicks",
        /// Only events of these campaigns and of their links: at most 100. Default: of all links and campaigns.
        campaign_ids: Optional<List<vocabulary::CampaignId, words::CampaignId>> = "campaignIds" as "campaign",
        /// Only visits of links with one of these tags, at most 20. Default: of all links.
        tags: Optional<Tags> = "tags" as "tag",
        /// Only visits of these classes: human, preview, scanner, bot, unknown or refused. Default: of all classes.
        classes: Optional<List<Class, words::VisitClass>> = "classes" as "class",
        /// Maximum number of events of a message: 1 for a message per event, or up to 1000 for a message with a list of
        /// waiting events. Default: 1.
        max_batch: Always<Number<1, { MAX_BATCH }>> = "maxBatch",
    }
}

members! {
    /// The members of a rotation of a webhook's secret.
    pub struct SecretRotationMembers {
        /// Number of seconds for which the old secret signs messages too: at most 2592000 (30 days).
        overlap_seconds: Required<Number<0, { MAX_OVERLAP.as_secs() as u32 }>> = "overlapSeconds",
    }
}

members! {
    /// The members of a replay.
    pub struct ReplayMembers {
        /// Time since which events were stored that are to be delivered again.
        since: Required<Moment> = "since",
    }
}

request! {
    /// A new webhook.
    pub NewWebhook: New, required ["name", "url"], of WebhookSettings
}

request! {
    /// A change of a webhook. Absent members stay as they are.
    pub WebhookPatch: Patch, required [], of WebhookSettings
}

request! {
    /// A rotation of a webhook's secret.
    pub SecretRotation: New, required ["overlapSeconds"], of SecretRotationMembers
}

request! {
    /// A replay of events.
    pub Replay: New, required ["since"], of ReplayMembers
}

/// The visits that are events.
pub enum Clicks {}

impl Kind for Clicks {
    type Value = webhook::Clicks;
    const SHAPE: Shape = Shape::Text;

    fn check(value: Value, faults: &mut Faults<'_>) -> Option<webhook::Clicks> {
        let clicks = value.as_str().and_then(webhook::Clicks::by_name);
        if clicks.is_none() {
            faults.refuse(format!("must be one of {}", webhook::Clicks::NAMES));
        }
        clicks
    }

    fn schema(generator: &mut SchemaGenerator) -> Value {
        of::<words::Clicks>(generator)
    }
}

/// A webhook in an answer, without its secret.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Webhook")]
pub struct WebhookBody {
    id: String,
    /// Name of the webhook.
    name: String,
    /// Endpoint that messages are sent to.
    url: String,
    #[schemars(with = "Vec<words::EventType>")]
    events: Vec<EventType>,
    #[schemars(with = "words::Clicks")]
    clicks: webhook::Clicks,
    /// Campaigns that links must belong to; `null` for all links.
    #[schemars(with = "Option<Vec<words::CampaignId>>")]
    campaign_ids: Option<Vec<String>>,
    /// Tags of which links must have one; `null` for all links.
    tags: Option<Vec<String>>,
    /// Classes that visits must have; `null` for all visits.
    #[schemars(with = "Option<Vec<words::VisitClass>>")]
    classes: Option<Vec<&'static str>>,
    /// Number of events of a message.
    max_batch: u32,
    #[schemars(with = "words::WebhookState")]
    state: &'static str,
    #[schemars(with = "Option<words::PauseReason>")]
    paused_reason: Option<&'static str>,
    paused_at: Option<Timestamp>,
    /// Time of the first failed attempt for an event that is undelivered; the webhook is paused three days later.
    failing_since: Option<Timestamp>,
    /// Time of the oldest event that waits for delivery.
    waiting_since: Option<Timestamp>,
    /// Number of events delivered.
    delivered: u64,
    /// Time until which the secret before the last rotation signs messages too.
    previous_secret_until: Option<Timestamp>,
    created_at: Timestamp,
    /// Id of the API key that created it.
    created_by: String,
    updated_at: Timestamp,
}

impl WebhookBody {
    /// Describes a webhook at a moment.
    pub fn new(webhook: &Webhook, now: Timestamp) -> Self {
        let settings = &webhook.settings;
        let campaigns = settings.campaigns.as_ref();
        let classes = settings.classes.as_ref();
        let state = match (&webhook.paused, webhook.failing_since) {
            (Some(_), _) => "paused",
            (None, Some(_)) => "failing",
            (None, None) => "active",
        };
        Self {
            id: webhook.id.clone(),
            name: settings.name.clone(),
            url: settings.url.as_str().to_owned(),
            events: settings.events.clone(),
            clicks: settings.clicks,
            campaign_ids: campaigns.map(|ids| ids.iter().map(ToString::to_string).collect()),
            tags: settings.tags.clone(),
            classes: classes.map(|classes| classes.iter().map(|class| class.name()).collect()),
            max_batch: settings.max_batch,
            state,
            paused_reason: webhook.paused.map(|(reason, _)| reason.name()),
            paused_at: webhook.paused.map(|(_, at)| at),
            failing_since: webhook.failing_since,
            waiting_since: webhook.waiting_since,
            delivered: webhook.delivered,
            previous_secret_until: webhook.previous_until.filter(|until| now < *until),
            created_at: webhook.created_at,
            created_by: webhook.created_by.clone(),
            updated_at: webhook.updated_at,
        }
    }
}

/// An attempt to deliver a message.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "WebhookAttempt")]
pub struct AttemptBody {
    /// Time of its end.
    at: Timestamp,
    /// Id of the message, as its header `webhook-id` has it.
    message_id: String,
    /// Number of events of the message.
    events: u32,
    /// Number of the attempt for this message, from 1 on.
    attempt: u32,
    /// True if the endpoint has accepted the message, with a status from 200 to 299.
    delivered: bool,
    /// Status of the answer; `null` without an answer.
    status: Option<u16>,
    /// Reason why there was no answer.
    error: Option<String>,
    /// Duration of the attempt in milliseconds.
    duration_ms: u64,
}

impl From<Attempt> for AttemptBody {
    fn from(attempt: Attempt) -> Self {
        Self {
            at: attempt.at,
            events: attempt.events,
            attempt: attempt.attempt,
            delivered: attempt.is_delivered(),
            status: attempt.status,
            duration_ms: u64::try_from(attempt.took.as_millis()).unwrap_or(u64::MAX),
            message_id: attempt.message_id,
            error: attempt.error,
        }
    }
}
