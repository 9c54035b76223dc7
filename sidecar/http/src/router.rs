//! Serves requests on a listener, and routes them to their handlers.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::problem::{self, Problem};
use super::{console, domains, observe, openapi, resolve};

/// Serves requests until `shutdown`; then accepts no more, and returns when those in progress are
/// answered.
///
/// # Errors
/// Fails if connections can no longer be accepted.
pub async fn serve(listener: TcpListener, app: App, shutdown: CancellationToken) -> io::Result<()> {
    // Small answers must not wait for the acknowledgement of earlier packets.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "a connection is served with delays");
        }
    });
    axum::serve(listener, router(app))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}

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
