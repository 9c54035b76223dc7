//! Serves requests on a listener, and routes them to their handlers.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::serve::ListenerExt;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::problem::{self, Problem};
use super::{apart, console, observe, openapi, proxy, resolve};

/// Serves connections and visitors on the current runtime, and the API on `api`, until `shutdown`; then accepts no more
/// connections, and returns when the requests in progress are answered.
///
/// # Errors
/// Fails if connections can no longer be accepted.
pub fn serve(
    listener: TcpListener,
    app: App,
    api: Handle,
    shutdown: CancellationToken,
) -> BoxFuture<'static, io::Result<()>> {
    // Small answers must not wait for the acknowledgement of earlier packets.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "a connection is served with delays");
        }
    });
    // Boxed, so that it is compiled here, and not with what starts it.
    axum::serve(listener, router(app, api))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .into_future()
        .boxed()
}

/// Builds the router of visitors, which passes all other requests on to that of the API on another runtime.
pub(super) fn router(app: App, runtime: Handle) -> Router {
    let app = Arc::new(app);
    let api = api(&app);
    let observed = from_fn_with_state(Arc::clone(&app), observe::of_visitor);
    let visitors = resolve::operation();
    let handler = visitors.handler.fallback(resolve::not_allowed);
    Router::new()
        .route(visitors.path, handler)
        .layer(CatchPanicLayer::custom(resolve::panicked))
        .layer(observed)
        .with_state(app)
        .fallback(move |request| apart::answered(runtime.clone(), api.clone(), request))
}

/// Builds the router of the API from the operations that the description has, and the console's routes.
fn api(app: &Arc<App>) -> Router {
    let mut api = console::routes();
    for operation in openapi::all_operations() {
        api = api.route(operation.path, operation.handler);
    }
    api.fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(app.body_limit_bytes))
        .layer(CatchPanicLayer::custom(problem::of_panic))
        .layer(from_fn_with_state(Arc::clone(app), proxy::believe))
        .layer(from_fn_with_state(Arc::clone(app), observe::of_api))
        .with_state(Arc::clone(app))
}

async fn no_such_route() -> Problem {
    Problem::not_found("There is nothing at this path.")
}

async fn no_such_method() -> Problem {
    Problem::method_not_allowed()
}
