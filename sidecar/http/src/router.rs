//! Serves requests on a listener, and routes them to their handlers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::http::header::CONNECTION;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::any;
use shortlink_core::boxed;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::connections::{self, Home, Homes, SILENCE};
use super::problem::{self, Problem};
use super::{apart, console, observe, openapi, proxy, resolve};

/// Serves visitors on the runtime that polls this, and the API on `api`, until `shutdown`; then accepts no more
/// connections, and returns when the requests in progress are answered. The caller drops it when `grace` has passed
/// since then.
#[boxed]
pub async fn serve(
    listener: TcpListener,
    app: App,
    api: Handle,
    shutdown: CancellationToken,
    grace: Duration,
) {
    let homes = homes(app, Handle::current(), api);
    connections::serve(listener, homes, SILENCE, shutdown, grace).await;
}

/// Builds the routers of visitors and of the API. Each passes the requests of the other kind on to the other's runtime.
pub(super) fn homes(app: App, of_visitors: Handle, of_api: Handle) -> Homes {
    let app = Arc::new(app);
    let (visitors, api) = (visitors(&app), api(&app));
    let (elsewhere, there) = (of_api.clone(), api.clone());
    let front = visitors.clone();
    let front = front.fallback(move |it| apart::answered(elsewhere.clone(), there.clone(), it));
    let elsewhere = of_visitors.clone();
    let handed_over = async move |mut request: Request| {
        // The other router would append its route to this one.
        request.extensions_mut().remove::<MatchedPath>();
        let answer = apart::answered(elsewhere.clone(), visitors.clone(), request).await;
        // Nginx has connections for both kinds: it must not send a visitor on this one again.
        ([(CONNECTION, "close")], answer).into_response()
    };
    Homes {
        visitors: Home {
            runtime: of_visitors,
            router: front,
        },
        api: Home {
            runtime: of_api,
            router: api.route(resolve::PATHS, any(handed_over)),
        },
        path: resolve::PATHS.split('{').next().unwrap_or_default(),
    }
}

/// Builds the router of visitors.
fn visitors(app: &Arc<App>) -> Router {
    let observed = from_fn_with_state(Arc::clone(app), observe::of_visitor);
    let visitors = resolve::operation();
    let handler = visitors.handler.fallback(resolve::not_allowed);
    Router::new()
        .route(visitors.path, handler)
        .layer(CatchPanicLayer::custom(resolve::panicked))
        .layer(observed)
        .with_state(Arc::clone(app))
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
