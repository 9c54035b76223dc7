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
    /// Creates, changes, revokes and finds links.
    pub links: Links,
    /// Creates, changes, revokes and finds campaigns.
    pub campaigns: Campaigns,
    /// Explains the answers to codes.
    pub explainer: Explainer,
    /// Resolves codes to targets.
    pub resolver: Resolver,
    /// Authenticates API keys.
    pub access: Arc<Access>,
    /// Issues and reads the console's sessions.
    pub sessions: Sessions,
    /// Limits attempts to sign in.
    pub sign_ins: Attempts,
    /// Creates, changes, rotates and revokes API keys.
    pub keys: Keys,
    /// Measures the use of the code space.
    pub codespace: Codespace,
    /// The SQL store, for the audit log and health checks.
    pub store: Arc<Store>,
    /// The short domains that nginx announces.
    pub domains: Domains,
    /// Counts of answers.
    pub answers: AnswerCounters,
    /// Measurements of requests.
    pub requests: Requests,
    /// The sampling of requests whose callers do not decide it.
    pub sampling: Sampling,
    /// Counts of processed visits.
    pub visit_counters: Arc<VisitCounters>,
    /// The queue of visits, if this process stores them.
    pub visit_queue: Option<Arc<dyn VisitQueue>>,
    /// The live feed of visits, unless it is disabled.
    pub live: Option<Arc<LiveVisits>>,
    /// The connection to Redis, for health checks.
    pub publisher: Arc<dyn Publisher>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The rules for targets.
    pub policy: TargetPolicy,
    /// The domains that targets may have.
    pub target_domains: TargetDomains,
    /// The default redirect status of a link.
    pub default_redirect_status: RedirectStatus,
    /// The default policy for issuing codes.
    pub default_policy: CodePolicy,
    /// The maximum size of a request's body in bytes.
    pub body_limit_bytes: usize,
}

/// The state as extractors and handlers get it.
pub(super) type SharedApp = Arc<App>;
