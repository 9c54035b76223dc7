//! The audit log: the author, the time and the content of every change.
//!
//! An entry is stored in the transaction of the change that it records, so neither exists without
//! the other. Entries are never changed. They hold no secrets, and of targets and recipients no
//! more than the change concerned.

use std::collections::HashMap;
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use vocabulary::{CampaignId, Code, Instead};

use crate::campaign::Campaign;
use crate::link::Link;
use crate::named;
use crate::plan::{INSTEAD_NAMES, Plan};

named! {
    /// An audited action. Its name is the kind of its subject, then the verb.
    pub enum Action: "action" {
        /// An API key was created.
        KeyCreate = "key.create",
        /// An API key's name, scopes, expiry, limit or policy were changed.
        KeyChange = "key.change",
        /// An API key was rotated to a successor.
        KeyRotate = "key.rotate",
        /// An API key was revoked.
        KeyRevoke = "key.revoke",
        /// A person has signed in for the first time.
        PersonCreate = "person.create",
        /// A person's name, address or role at the provider had changed when they signed in.
        PersonChange = "person.change",
        /// A person was blocked.
        PersonBlock = "person.block",
        /// A person's block was ended.
        PersonUnblock = "person.unblock",
        /// All sessions of a person were ended.
        PersonEndSessions = "person.end-sessions",
        /// A link was changed. Its creation is recorded by the link itself.
        LinkChange = "link.change",
        /// A link was paused.
        LinkPause = "link.pause",
        /// A link's pause was ended.
        LinkResume = "link.resume",
        /// A link was revoked.
        LinkRevoke = "link.revoke",
        /// A link was ended since it had been visited as often as it was to be.
        LinkEnd = "link.end",
        /// A link expired for want of visits.
        LinkExpire = "link.expire",
        /// The visits of a link were erased.
        VisitsErase = "visits.erase",
        /// Visits were exported one by one.
        VisitsExport = "visits.export",
        /// A user has signed in at the console.
        SessionBegin = "session.begin",
        /// A user has signed out of the console.
        SessionEnd = "session.end",
        /// A campaign was created.
        CampaignCreate = "campaign.create",
        /// A campaign was changed.
        CampaignChange = "campaign.change",
        /// A campaign was paused.
        CampaignPause = "campaign.pause",
        /// A campaign's pause was ended.
        CampaignResume = "campaign.resume",
        /// A campaign was revoked.
        CampaignRevoke = "campaign.revoke",
        /// The recipients of a campaign were exported, with their clicks.
        RecipientsExport = "recipients.export",
        /// A bulk job was created.
        JobCreate = "job.create",
        /// A bulk job was cancelled.
        JobCancel = "job.cancel",
        /// A bulk job has ended.
        JobFinish = "job.finish",
        /// A webhook was created.
        WebhookCreate = "webhook.create",
        /// A webhook's settings were changed.
        WebhookChange = "webhook.change",
        /// A webhook was paused by its user.
        WebhookPause = "webhook.pause",
        /// A webhook's pause was ended.
        WebhookResume = "webhook.resume",
        /// A webhook got a new secret.
        WebhookRotate = "webhook.rotate",
        /// The events of a webhook since a time are delivered again.
        WebhookReplay = "webhook.replay",
        /// A webhook was deleted.
        WebhookDelete = "webhook.delete",
        /// A template of UTM parameters was stored.
        TemplateStore = "utm-template.store",
        /// A template of UTM parameters was deleted.
        TemplateDelete = "utm-template.delete",
    }
}

/// Subject of an action. Written with its kind, since a key's id might be some link's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An API key, by its id.
    Key(String),
    /// A person, by the id of their key.
    Person(String),
    /// A link.
    Link(Code),
    /// A campaign.
    Campaign(CampaignId),
    /// A bulk job, by its id.
    Job(u64),
    /// A webhook, by its id.
    Webhook(String),
    /// A template of UTM parameters, by its name.
    Template(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Person(id) => write!(f, "person:{id}"),
            Self::Link(code) => write!(f, "link:{code}"),
            Self::Campaign(id) => write!(f, "campaign:{id}"),
            Self::Job(id) => write!(f, "job:{id}"),
            Self::Webhook(id) => write!(f, "webhook:{id}"),
            Self::Template(name) => write!(f, "utm-template:{name}"),
        }
    }
}

/// An entry that is yet to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Time of the action.
    pub at: Timestamp,
    /// The id of the API key that it was done with; `None` for the command line.
    pub key_id: Option<String>,
    /// Action that was performed.
    pub action: Action,
    /// Subject of the action.
    pub subject: Subject,
    /// Further details: as a rule the changed members with their new values.
    pub detail: Map<String, Value>,
}

/// The author of a change of a link or campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedBy {
    /// The id of the API key; `None` for a change without one.
    pub key_id: Option<String>,
    /// Action that is performed.
    pub action: Action,
}

impl ChangedBy {
    /// Returns the entry for a changed link. It only names the changed members: the link's history
    /// has their former values.
    pub fn of_link(&self, link: &Link, before: &Link) -> AuditEntry {
        let changed = link.differences(before);
        let mut detail = Map::new();
        detail.insert("revision".to_owned(), json!(link.revision));
        if !changed.is_empty() {
            detail.insert("changed".to_owned(), json!(changed));
        }
        self.entry(link.updated_at, Subject::Link(link.code), detail)
    }

    /// The entry for a campaign that was created or changed: the differences, with their new
    /// values.
    pub fn of_campaign(&self, campaign: &Campaign, before: Option<&Campaign>) -> AuditEntry {
        let present = members(campaign);
        let before = before.map(members).unwrap_or_default();
        let mut detail: Map<String, Value> = present
            .into_iter()
            .filter(|(name, value)| before.get(name) != Some(value))
            .collect();
        detail.insert("revision".to_owned(), json!(campaign.revision));
        self.entry(campaign.updated_at, Subject::Campaign(campaign.id), detail)
    }

    fn entry(&self, at: Timestamp, subject: Subject, detail: Map<String, Value>) -> AuditEntry {
        AuditEntry {
            at,
            key_id: self.key_id.clone(),
            action: self.action,
            subject,
            detail,
        }
    }
}

/// Members of a campaign by the API's names. Its pause and its end are actions.
fn members(campaign: &Campaign) -> Map<String, Value> {
    let defaults = &campaign.defaults;
    let plan = campaign.plan.as_deref();
    let shown = |target: &str| campaign.target.named(target);
    let rules: Vec<_> = plan.map(Plan::rules).unwrap_or_default();
    let rules: Vec<_> = rules.iter().map(|rule| rule.members(shown)).collect();
    let preview = plan.and_then(Plan::preview).map(|it| {
        let parts = [
            ("title", it.title),
            ("description", it.description),
            ("image", it.image),
        ];
        let parts = parts.into_iter().filter(|(_, text)| !text.is_empty());
        parts.collect::<HashMap<_, _>>()
    });
    let instead = Instead::ALL.map(|of| json!(plan.and_then(|it| it.instead(of)).map(shown)));
    let members = [
        ("name", json!(campaign.name)),
        ("longUrl", json!(campaign.target.with_names())),
        ("redirectStatus", json!(campaign.redirect_status.code())),
        ("forwardQuery", json!(campaign.forward_query)),
        ("validSince", json!(campaign.validity.since())),
        ("validUntil", json!(campaign.validity.until())),
        ("note", json!(campaign.note)),
        ("defaults", defaults.members()),
        ("maxLinks", json!(campaign.max_links)),
        (
            "clickId",
            json!(campaign.click_id.as_ref().map(|it| it.name())),
        ),
        ("rules", json!(rules)),
        ("preview", json!(preview)),
    ];
    let members = members
        .into_iter()
        .chain(INSTEAD_NAMES.into_iter().zip(instead));
    members
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A stored entry. Its texts are as they were written, possibly by a later version of this program
/// with actions that this one does not know.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAuditEntry {
    /// Later entries have greater numbers.
    pub id: i64,
    /// Time of the action.
    pub at: Timestamp,
    /// The id of the API key that it was done with; `None` for the command line.
    pub key_id: Option<String>,
    /// Name of the [`Action`].
    pub action: String,
    /// Text of the [`Subject`].
    pub subject: String,
    /// Further details.
    pub detail: Map<String, Value>,
}
