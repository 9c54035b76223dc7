//! Progress of a command on standard error.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::thousands;

/// The interval of lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A bar in a form of its own, which is hidden without a terminal. `length` is that of the work, if
/// it is known.
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A bar on a terminal, lines at intervals elsewhere.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    next_line: Mutex<Instant>,
}

impl Progress {
    /// Begins with a [`bar`].
    pub fn new(length: Option<u64>, template: &str) -> Self {
        Self {
            bar: bar(length, template),
            next_line: Mutex::new(Instant::now() + LINE_EVERY),
        }
    }

    /// Shows a bar of counted items.
    pub fn of_items(noun: &str) -> Self {
        let template =
            format!("{{bar:40}} {{human_pos}}/{{human_len}} {noun}, {{per_sec}}, {{eta}} left");
        Self::new(Some(0), &template)
    }

    /// Shows a position, and a text beside it or in a line.
    pub fn show(&self, position: u64, text: impl FnOnce() -> String) {
        if self.bar.is_hidden() {
            self.line(text);
        } else {
            self.bar.set_message(text());
            self.bar.set_position(position);
        }
    }

    /// Shows the number of items that are done, of all, and of those that an earlier run did.
    pub fn show_items(&self, noun: &str, done: u64, total: u64, resumed: u64) {
        if self.bar.position() == 0 && resumed > 0 {
            // Work of an earlier run must not count for the speed of this one.
            self.bar.set_position(resumed);
            self.bar.reset_eta();
        }
        self.bar.set_length(total.max(done));
        self.bar.set_position(done);
        if self.bar.is_hidden() {
            self.line(|| format!("{} of {} {noun}", thousands(done), thousands(total)));
        }
    }

    fn line(&self, text: impl FnOnce() -> String) {
        let mut next_line = self
            .next_line
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if Instant::now() >= *next_line {
            *next_line = Instant::now() + LINE_EVERY;
            eprintln!("shortlink: {}", text());
        }
    }

    /// Prints a line that stays above the bar.
    pub fn print(&self, line: &str) {
        self.bar.suspend(|| eprintln!("shortlink: {line}"));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
