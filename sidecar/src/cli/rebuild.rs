//! `shortlink rebuild`

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::display::Display;
use super::print;
use super::workbench::{Workbench, thousands};
use crate::config::Config;
use crate::service::rebuild::{Outcome, Progress, Rebuild, RebuildError};

/// The number of pages that are in flight to Redis at once.
const LANES: usize = 3;

/// The longest wait for the claim of a killed run.
const PATIENCE: Duration = Duration::from_secs(15);

/// Writes the records of all links into Redis.
pub(super) async fn run(config: &Config, restart: bool, json: bool) -> anyhow::Result<()> {
    let bench = Workbench::open(config).await?;
    let done = rebuild(&bench, restart, json).await;
    bench.close().await;
    done
}

async fn rebuild(bench: &Workbench, restart: bool, json: bool) -> anyhow::Result<()> {
    let rebuild = Rebuild {
        store: Arc::clone(&bench.store),
        index: Arc::clone(&bench.index),
        clock: Arc::clone(&bench.clock),
        holder: bench.holder.clone(),
        lanes: LANES,
    };
    let shutdown = CancellationToken::new();
    crate::lifecycle::cancel_on_signal(shutdown.clone())?;
    let begun = Instant::now();
    let display = Display::new("links");
    let report = |progress: Progress| {
        display.show(progress.done, progress.total, progress.resumed);
    };
    let mut is_waiting = false;
    let (outcome, progress) = loop {
        match rebuild.run(restart, &shutdown, &report).await {
            Err(RebuildError::Claimed)
                if begun.elapsed() < PATIENCE && !shutdown.is_cancelled() =>
            {
                if !is_waiting {
                    eprintln!("shortlink: another process does this or was killed; waiting");
                    is_waiting = true;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            done => break done?,
        }
    };
    display.finish();
    let seconds = begun.elapsed().as_secs_f64().max(1e-9);
    let Progress {
        filled, resumed, ..
    } = progress;
    let rate = filled.total() as f64 / seconds;
    if resumed > 0 {
        eprintln!("shortlink: {} links were done before", thousands(resumed));
    }
    print(&if json {
        let told = json!({
            "isDone": outcome == Outcome::Done,
            "links": filled.total(),
            "added": filled.added,
            "replaced": filled.replaced,
            "same": filled.same,
            "newer": filled.newer,
            "doneBefore": resumed,
            "seconds": seconds,
        });
        format!("{told}\n")
    } else {
        format!(
            "{} links in {seconds:.1} s ({} links/s): {} added, {} replaced, {} right already, \
             {} newer in Redis\n",
            thousands(filled.total()),
            thousands(rate as u64),
            thousands(filled.added),
            thousands(filled.replaced),
            thousands(filled.same),
            thousands(filled.newer),
        )
    })?;
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Stopped => anyhow::bail!("interrupted; the next run goes on here"),
    }
}
