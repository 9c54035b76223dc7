//! From the first request to the last: builds the parts, serves, and stops in order.

mod background;
mod error;
mod parts;

use std::io;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
pub use error::ServeError;
use shortlink_http as http;

use parts::Parts;

/// The time for background work to finish once all requests have ended.
const LAST_GRACE: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Fails when something that serving needs is missing, or accepting connections fails.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone()).map_err(|source| ServeError::Signals { source })?;

    let (listen, grace) = (config.http.listen, config.http.shutdown_grace);
    let listen_failed = |source| ServeError::Listen {
        address: listen,
        source,
    };
    let (parts, worker) = Parts::build(config, shutdown.clone()).await?;
    let listener = TcpListener::bind(listen).await.map_err(listen_failed)?;
    let address = listener.local_addr().map_err(listen_failed)?;
    let app = parts.app()?;
    let stop = CancellationToken::new();
    let worker = tokio::spawn(worker.run(stop.clone()));
    background::start(&parts, &stop)?;
    let Parts { store, tasks, .. } = parts;
    tracing::info!(%address, "serving");

    tokio::select! {
        served = http::serve(listener, app, shutdown.clone()) => {
            served.map_err(|source| ServeError::Serve { source })?;
        }
        () = after(shutdown, grace) => {
            let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(grace_ms, "requests were cut off: they did not finish in time");
        }
    }

    // Requests have ended, so the background gets no new work from them.
    stop.cancel();
    tasks.close();
    let last = async {
        tasks.wait().await;
        if let Err(error) = worker.await {
            tracing::error!(%error, "the outbox worker has panicked");
        }
        store.close().await;
    };
    if tokio::time::timeout(LAST_GRACE, last).await.is_err() {
        tracing::warn!("what was published last may be published again after the next start");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Cancels a token on SIGTERM and SIGINT.
pub(crate) fn cancel_on_signal(shutdown: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping (SIGTERM)"),
            _ = interrupt.recv() => tracing::info!("stopping (SIGINT)"),
        }
        shutdown.cancel();
    });
    Ok(())
}

/// Ends when the grace that follows the signal to stop has passed.
async fn after(shutdown: CancellationToken, grace: Duration) {
    shutdown.cancelled().await;
    tokio::time::sleep(grace).await;
}
