//! From the first request to the last: builds the parts, serves, and stops in order.

mod background;
mod front;
mod parts;

use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use shortlink_http as http;

use front::Front;
use parts::Parts;

/// The time for background work to finish once all requests have ended.
const LAST_GRACE: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Fails when something that serving needs is missing.
pub async fn serve(config: Config) -> anyhow::Result<()> {
    let shutdown = cancelled_by_signal()?;

    let (listen, grace) = (config.http.listen, config.http.shutdown_grace);
    let cannot_listen = || format!("cannot listen on {listen} (http.listen)");
    let front = Front::open().context("cannot start threads")?;
    let (parts, worker) = Parts::build(config, shutdown.clone(), &front).await?;
    let listener = front.run(TcpListener::bind(listen)).await?;
    let listener = listener.with_context(cannot_listen)?;
    let address = listener.local_addr().with_context(cannot_listen)?;
    let app = parts.app()?;
    let stop = CancellationToken::new();
    let worker = tokio::spawn(worker.run(stop.clone()));
    background::start(&parts, &stop)?;
    let Parts {
        store,
        visitors_store,
        listings_store,
        replica_store,
        leases,
        tasks,
        ..
    } = parts;
    tracing::info!(%address, "serving");

    let serving = http::serve(listener, app, Handle::current(), shutdown.clone(), grace);
    tokio::select! {
        served = front.run(serving) => served?,
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
        leases.give_back().await;
        for on_replica in [listings_store, replica_store].into_iter().flatten() {
            on_replica.close().await;
        }
        visitors_store.close().await;
        store.close().await;
    };
    if tokio::time::timeout(LAST_GRACE, last).await.is_err() {
        tracing::warn!("the latest publications may be repeated after the next start");
    }
    tracing::info!("stopped");
    Ok(())
}

/// A token that is cancelled on SIGTERM and SIGINT.
pub(crate) fn cancelled_by_signal() -> anyhow::Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    let cancelled = shutdown.clone();
    let caught = |kind| signal(kind).context("cannot catch signals");
    let mut terminate = caught(SignalKind::terminate())?;
    let mut interrupt = caught(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping (SIGTERM)"),
            _ = interrupt.recv() => tracing::info!("stopping (SIGINT)"),
        }
        shutdown.cancel();
    });
    Ok(cancelled)
}

/// Ends when the grace that follows the signal to stop has passed.
async fn after(shutdown: CancellationToken, grace: Duration) {
    shutdown.cancelled().await;
    tokio::time::sleep(grace).await;
}
