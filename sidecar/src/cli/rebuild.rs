//! `shortlink rebuild`

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use shortlink_client::output::{print, thousands};
use shortlink_client::progress;
use shortlink_service::jobs::{Outcome, Run};
use shortlink_service::rebuild::{Progress, Rebuild, RebuildJob};

use super::workbench::Workbench;
use crate::config::Config;
use crate::lifecycle::cancelled_by_signal;

/// The number of pages that are in flight to Redis at once.
const LANES: usize = 3;

/// The longest wait for the claim of a killed run.
const PATIENCE: Duration = Duration::from_secs(15);

/// Writes the records of all links into Redis.
pub(super) async fn run(config: &Config, restart: bool, json: bool) -> anyhow::Result<()> {
    Workbench::with(config, async |bench| rebuild(bench, restart, json).await).await
}

async fn rebuild(bench: &Workbench, restart: bool, json: bool) -> anyhow::Result<()> {
    let rebuild = Rebuild {
        store: Arc::clone(&bench.store),
        index: Arc::clone(&bench.index),
        clock: Arc::clone(&bench.clock),
        lanes: LANES,
        restart,
    };
    let shutdown = cancelled_by_signal()?;
    let begun = Instant::now();
    let display = progress::Progress::of_items("links");
    let mut report = |job: Option<&RebuildJob>| match job {
        Some(RebuildJob { progress, .. }) => {
            display.show_items("links", progress.done, progress.total, progress.resumed);
        }
        None => eprintln!("shortlink: another process does this or was killed; waiting"),
    };
    let mut run = Run::new(rebuild.job(), &bench.claims);
    let outcome = run.finish(PATIENCE, &shutdown, &mut report).await?;
    if outcome == Outcome::Claimed {
        anyhow::bail!("another process is writing the records of all links");
    }
    display.finish();
    let seconds = begun.elapsed().as_secs_f64().max(1e-9);
    let Progress {
        filled, resumed, ..
    } = run.job.progress;
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
    if outcome != Outcome::Done {
        anyhow::bail!("interrupted; the next run continues here");
    }
    Ok(())
}
