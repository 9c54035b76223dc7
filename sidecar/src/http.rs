//! The service over HTTP. Nothing outside of this module knows axum.

mod answers;
mod audit;
mod auth;
mod batch;
mod campaign_defaults;
mod campaign_links;
mod campaign_size;
mod campaigns;
mod code_members;
mod codespace;
mod console;
mod cursor;
mod docs;
mod domains;
mod explain;
mod extract;
mod fields;
mod health;
mod history;
mod idempotency;
mod keys;
mod link_members;
mod links;
mod listing;
mod live;
mod metrics;
mod new_link;
mod observe;
mod openapi;
mod precondition;
mod problem;
mod qr;
mod query;
mod resolve;
mod serve;
mod stats;
mod visits;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};
use tower_http::catch_panic::CatchPanicLayer;
use vocabulary::RedirectStatus;

use crate::clock::Clock;
use crate::core::ports::{Publisher, Store, VisitQueue};
use crate::core::target::TargetPolicy;
use crate::core::target::domains::TargetDomains;
use crate::service::access::{Access, Attempts};
use crate::service::campaigns::Campaigns;
use crate::service::codespace::Codespace;
use crate::service::domains::Domains;
use crate::service::explain::Explainer;
use crate::service::issue::CodePolicy;
use crate::service::keys::Keys;
use crate::service::links::Links;
use crate::service::live::LiveVisits;
use crate::service::resolve::Resolver;
use crate::service::sessions::Sessions;
use crate::service::visits::VisitCounters;
use crate::trace::Sampling;
pub use answers::AnswerCounters;
pub use observe::Requests;
use problem::Problem;
pub use serve::serve;

/// What the handlers work with.
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
    pub store: Arc<dyn Store>,
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

type SharedApp = Arc<App>;

/// Routes requests to their handlers.
fn router(app: App) -> Router {
    let app = Arc::new(app);
    let api = Router::new()
        .route("/v1/links", get(listing::list).post(links::create))
        .route("/v1/links/batch", post(batch::create))
        .route(
            "/v1/links/{code}",
            get(links::find).patch(links::change).delete(links::revoke),
        )
        .route(
            "/v1/campaigns",
            get(campaigns::list).post(campaigns::create),
        )
        .route(
            "/v1/campaigns/{id}",
            get(campaigns::find)
                .patch(campaigns::change)
                .delete(campaigns::revoke),
        )
        .route("/v1/campaigns/{id}/links", get(campaign_size::count))
        .route("/v1/campaigns/{id}/pause", post(campaigns::pause))
        .route("/v1/campaigns/{id}/resume", post(campaigns::resume))
        .route("/v1/keys", get(keys::list).post(keys::create))
        .route(
            "/v1/keys/{id}",
            get(keys::find).patch(keys::change).delete(keys::revoke),
        )
        .route("/v1/keys/{id}/rotate", post(keys::rotate))
        .route("/v1/audit", get(audit::list))
        .route("/v1/links/{code}/pause", post(links::pause))
        .route("/v1/links/{code}/resume", post(links::resume))
        .route("/v1/links/{code}/history", get(history::list))
        .route("/v1/links/{code}/explain", get(explain::explain))
        .route("/v1/links/{code}/qr", get(qr::draw))
        .route("/v1/links/{code}/stats", get(stats::of_link))
        .route(
            "/v1/links/{code}/visits",
            get(visits::of_link).delete(visits::erase_of_link),
        )
        .route("/v1/campaigns/{id}/stats", get(stats::of_campaign))
        .route("/v1/stats", get(stats::of_all))
        .route("/v1/domains", get(domains::list))
        .route("/v1/domains/stats", get(stats::of_domains))
        .route("/v1/visits/live", get(live::listen))
        .route("/v1/visits", get(visits::list).delete(visits::erase))
        .route("/v1/codespace", get(codespace::usage))
        .merge(console::routes())
        .route("/metrics", get(metrics::show))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/openapi.json", get(openapi::show))
        .route("/docs", get(docs::show))
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(app.body_limit_bytes))
        .layer(CatchPanicLayer::custom(problem::of_panic))
        .layer(from_fn_with_state(Arc::clone(&app), domains::hear))
        .layer(from_fn_with_state(Arc::clone(&app), observe::of_api));
    let observed = from_fn_with_state(Arc::clone(&app), observe::of_visitor);
    Router::new()
        // Any method: what a visitor may not do is answered as tersely as all else here.
        .route("/resolve/{*path}", any(resolve::resolve))
        .layer(CatchPanicLayer::custom(resolve::panicked))
        .layer(observed)
        .merge(api)
        .with_state(app)
}

async fn no_such_route() -> Problem {
    Problem::not_found("There is nothing at this path.")
}

async fn no_such_method() -> Problem {
    Problem::method_not_allowed()
}

#[cfg(test)]
mod tests;
