//! A clock of a process that a test sets, with libfaketime.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};

/// The clock of processes that start with its [environment](Self::environment). Their monotonic clock stays right.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// Makes a clock that goes right, in a directory.
    ///
    /// # Panics
    /// When its file can't be written.
    pub fn new(directory: &Path) -> Self {
        let clock = Self {
            file: directory.join("clock"),
        };
        clock.set(0);
        clock
    }

    /// Sets it so many seconds ahead of the machine's.
    ///
    /// # Panics
    /// When its file can't be written.
    pub fn set(&self, seconds: i64) {
        // The process reads the file again and again, and must never see it empty.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}s\n")).expect("a file for the clock");
        fs::rename(&next, &self.file).expect("a file for the clock");
    }

    /// The variables of a process that has this clock.
    ///
    /// # Panics
    /// When libfaketime is not installed.
    pub fn environment(&self) -> Vec<(String, String)> {
        let library = format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketime.so.1");
        assert!(
            fs::exists(&library).unwrap_or_default(),
            "{library} is missing: `scripts/setup test` installs libfaketime"
        );
        let variables = [
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DONT_RESET", "1".to_owned()),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }
}
