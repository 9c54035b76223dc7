//! Progress of a command: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use shortlink_client::output::thousands;

/// The interval of progress lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows the progress of a job.
pub(super) struct Display {
    noun: &'static str,
    bar: Option<ProgressBar>,
    next_line: Mutex<Instant>,
}

impl Display {
    /// Begins; `noun` names the counted items.
    pub(super) fn new(noun: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let template =
                format!("{{bar:40}} {{human_pos}}/{{human_len}} {noun}, {{per_sec}}, {{eta}} left");
            let style = ProgressStyle::with_template(&template);
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            noun,
            bar,
            next_line: Mutex::new(Instant::now() + LINE_EVERY),
        }
    }

    /// Shows the number of items that are done, of all, and of those that an earlier run did.
    pub(super) fn show(&self, done: u64, total: u64, resumed: u64) {
        if let Some(bar) = &self.bar {
            if bar.position() == 0 && resumed > 0 {
                // Work of an earlier run must not count for the speed of this one.
                bar.set_position(resumed);
                bar.reset_eta();
            }
            bar.set_length(total.max(done));
            bar.set_position(done);
            return;
        }
        let mut next_line = self
            .next_line
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if Instant::now() >= *next_line {
            *next_line = Instant::now() + LINE_EVERY;
            eprintln!(
                "shortlink: {} of {} {}",
                thousands(done),
                thousands(total),
                self.noun
            );
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
