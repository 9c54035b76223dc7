//! Serves requests on a listener until shutdown.

use std::io;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::app::App;
use super::router::router;

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
