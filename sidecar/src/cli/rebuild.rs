//! `shortlink rebuild`

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::workbench::{Workbench, thousands};
use crate::config::Config;
use crate::domain::service::rebuild::{Outcome, Progress, Rebuild, RebuildError};

/// How many pages are on their way to Redis at once.
const LANES: usize = 3;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How long the claim of a run that was killed is waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// Writes the records of all links into Redis.
pub(super) async fn run(config: &Config, restart: bool) -> anyhow::Result<()> {
    let bench = Workbench::open(config).await?;
    let done = rebuild(&bench, restart).await;
    bench.close().await;
    done
}

async fn rebuild(bench: &Workbench, restart: bool) -> anyhow::Result<()> {
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
    let display = Display::new();
    let report = |progress| display.show(progress);
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
    println!(
        "{} links in {seconds:.1} s ({} links/s): {} added, {} replaced, {} right already, \
         {} newer in Redis",
        thousands(filled.total()),
        thousands(rate as u64),
        thousands(filled.added),
        thousands(filled.replaced),
        thousands(filled.same),
        thousands(filled.newer),
    );
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Stopped => anyhow::bail!("interrupted; the next run goes on here"),
    }
}

/// Shows the progress: as a bar on a terminal, as lines elsewhere.
struct Display {
    bar: Option<ProgressBar>,
    next_line: Mutex<Instant>,
}

impl Display {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{bar:40} {human_pos}/{human_len} links, {per_sec}, {eta} left",
            );
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            bar,
            next_line: Mutex::new(Instant::now() + LINE_EVERY),
        }
    }

    fn show(&self, progress: Progress) {
        if let Some(bar) = &self.bar {
            if bar.position() == 0 && progress.resumed > 0 {
                // What was done before says nothing of how fast this is.
                bar.set_position(progress.resumed);
                bar.reset_eta();
            }
            bar.set_length(progress.total.max(progress.done));
            bar.set_position(progress.done);
            return;
        }
        let mut next_line = self
            .next_line
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if Instant::now() >= *next_line {
            *next_line = Instant::now() + LINE_EVERY;
            eprintln!(
                "shortlink: {} of {} links",
                thousands(progress.done),
                thousands(progress.total)
            );
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
