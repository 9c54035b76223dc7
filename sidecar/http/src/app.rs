//! The state of the HTTP service, which every handler gets.

use std::sync::Arc;

use shortlink_core::clock::Clock;
use shortlink_core::codes::strategy::CodePolicy;
use shortlink_core::ports::{Publisher, VisitQueue};
use shortlink_core::sign_in::{Provider, RoleRules};
use shortlink_core::target::domains::{DomainError, TargetDomains};
use shortlink_core::target::{Target, TargetPolicy};
use shortlink_core::trace::Sampling;
use shortlink_service::access::{Access, Attempts, Caller};
use shortlink_service::campaigns::Campaigns;
use shortlink_service::clicks::ClickIdMaker;
use shortlink_service::codespace::Codespace;
use shortlink_service::domains::Domains;
use shortlink_service::explain::Explainer;
use shortlink_service::feed::VisitFeed;
use shortlink_service::keys::Keys;
use shortlink_service::links::Links;
use shortlink_service::live::LiveVisits;
use shortlink_service::resolve::Resolver;
use shortlink_service::sessions::Sessions;
use shortlink_service::uploads::Uploads;
use shortlink_service::visits::VisitCounters;
use shortlink_service::webhooks::Webhooks;
use shortlink_store::{ReplicaState, Store};
use url::Url;
use vocabulary::RedirectStatus;

use super::batch::conversions::ConversionCounters;
use super::console::SignInCounters;
use super::proxy::ProxySecret;
use super::requests::{AnswerCounters, Requests};

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
    /// Counts of sign-ins.
    pub sign_in_counters: SignInCounters,
    /// The provider at which people sign in, if there is one.
    pub openid: Option<OpenId>,
    /// Creates, changes, rotates and revokes API keys.
    pub keys: Keys,
    /// Measures the use of the code space.
    pub codespace: Codespace,
    /// Makes the ids of clicks.
    pub click_ids: ClickIdMaker,
    /// Draws the ids of uploads.
    pub uploads: Uploads,
    /// The SQL store, for the audit log and health checks.
    pub store: Arc<Store>,
    /// The same store for listings, exports and statistics, which a replica may answer.
    pub listings: Arc<Store>,
    /// Knowledge of the replica, if the database has one.
    pub replica: Option<ReplicaState>,
    /// The short domains that nginx announces.
    pub domains: Arc<Domains>,
    /// Counts of answers.
    pub answers: AnswerCounters,
    /// Counts of rows of conversions.
    pub conversions: ConversionCounters,
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
    /// The feed of stored visits.
    pub feed: Arc<VisitFeed>,
    /// Creates, changes and tests webhooks.
    pub webhooks: Webhooks,
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
    /// The secret by which the API recognises nginx; without one, it believes all callers that are authorised.
    pub proxy_secret: Option<ProxySecret>,
}

/// The sign-in of people at a provider of OpenID Connect.
pub struct OpenId {
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// The roles that the provider's claims give.
    pub rules: RoleRules,
    /// The provider's name on the sign-in page.
    pub name: String,
    /// The address of the console's server, without a path.
    pub console_url: Url,
    /// False if the sign-in page hides the form for API keys.
    pub shows_api_key: bool,
}

impl OpenId {
    /// The address of a path of the console.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.console_url.origin().ascii_serialization())
    }
}

impl App {
    /// Checks that a target has a domain that all callers may use, and this one.
    pub(super) fn check_domain(&self, target: &Target, caller: &Caller) -> Result<(), DomainError> {
        let of_key = caller.key().policy.allowed_domains.as_ref();
        self.target_domains.check(target, of_key)
    }
}

/// The state as extractors and handlers get it.
pub(super) type SharedApp = Arc<App>;
