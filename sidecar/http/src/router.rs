//! Routes requests to their handlers.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::problem::{self, Problem};
use super::{console, domains, observe, openapi, resolve};

/// Builds the router from the operations that the description has, and the console's routes.
pub(super) fn router(app: App) -> Router {
    let app = Arc::new(app);
    let mut api = console::routes();
    for operation in openapi::all_operations() {
        api = api.route(operation.path, operation.handler);
    }
    let api = api
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(app.body_limit_bytes))
        .layer(CatchPanicLayer::custom(problem::of_panic))
        .layer(from_fn_with_state(Arc::clone(&app), domains::hear))
        .layer(from_fn_with_state(Arc::clone(&app), observe::of_api));
    let observed = from_fn_with_state(Arc::clone(&app), observe::of_visitor);
    let visitors = resolve::operation();
    let handler = visitors.handler.fallback(resolve::not_allowed);
    Router::new()
        .route(visitors.path, handler)
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
