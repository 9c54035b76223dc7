//! Serves requests on a listener until it is told to stop.

use std::io;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::app::App;
use super::router::router;

/// Answers requests until `shutdown`; then takes no more, and returns when those that were begun
/// are answered.
///
/// # Errors
/// When accepting connections fails for good.
pub async fn serve(listener: TcpListener, app: App, shutdown: CancellationToken) -> io::Result<()> {
    // Small answers must not wait for the acknowledgement of earlier ones.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "a connection is served with delays");
        }
    });
    axum::serve(listener, router(app))
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
}
