//! The service over HTTP. Nothing outside of this module knows axum.

mod answers;
mod app;
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

pub use answers::{AnswerCounters, Requests};
pub use app::App;
use problem::Problem;
pub use serve::serve;

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
