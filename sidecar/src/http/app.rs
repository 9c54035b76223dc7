//! The state of the HTTP service, which every handler gets.

use std::sync::Arc;

use vocabulary::RedirectStatus;

use super::answers::{AnswerCounters, Requests};
use crate::clock::Clock;
use crate::core::codes::strategy::CodePolicy;
use crate::core::ports::{Publisher, VisitQueue};
use crate::core::target::TargetPolicy;
use crate::core::target::domains::TargetDomains;
use crate::service::access::{Access, Attempts};
use crate::service::campaigns::Campaigns;
use crate::service::codespace::Codespace;
use crate::service::domains::Domains;
use crate::service::explain::Explainer;
use crate::service::keys::Keys;
use crate::service::links::Links;
use crate::service::live::LiveVisits;
use crate::service::resolve::Resolver;
use crate::service::sessions::Sessions;
use crate::service::visits::VisitCounters;
use crate::store::Store;
use crate::trace::Sampling;

/// Holds the services that handlers call.
pub struct App {
    /// Makes, changes, revokes and finds links.
    pub links: Links,
    /// Makes, changes, revokes and finds campaigns.
    pub campaigns: Campaigns,
    /// Says why codes answer what they answer.
    pub explainer: Explainer,
    /// Follows links.
    pub resolver: Resolver,
    /// Recognises API keys.
    pub access: Arc<Access>,
    /// Knows who has signed in at the console.
    pub sessions: Sessions,
    /// Counts who tries to.
    pub sign_ins: Attempts,
    /// Makes, changes, rotates and revokes API keys.
    pub keys: Keys,
    /// Knows how full the space of codes is.
    pub codespace: Codespace,
    /// Where the audit log is read, and asked how the database is.
    pub store: Arc<Store>,
    /// Hears of the short domains, and tells of them.
    pub domains: Domains,
    /// How requests were answered.
    pub answers: AnswerCounters,
    /// What is measured of requests.
    pub requests: Requests,
    /// Which requests are sampled when their callers say nothing of it.
    pub sampling: Sampling,
    /// What has been done with visits.
    pub visit_counters: Arc<VisitCounters>,
    /// Where visits come from, if this process stores them.
    pub visit_queue: Option<Arc<dyn VisitQueue>>,
    /// Tells of visits while they happen, unless that is switched off.
    pub live: Option<Arc<LiveVisits>>,
    /// Asked how Redis is.
    pub publisher: Arc<dyn Publisher>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Which targets are good.
    pub policy: TargetPolicy,
    /// Which domains they may lead to.
    pub target_domains: TargetDomains,
    /// How a link redirects when nobody says otherwise.
    pub default_redirect_status: RedirectStatus,
    /// How codes are come up with when nobody says otherwise.
    pub default_policy: CodePolicy,
    /// The most bytes in the body of a request.
    pub body_limit_bytes: usize,
}

/// The state as extractors and handlers get it.
pub(super) type SharedApp = Arc<App>;
