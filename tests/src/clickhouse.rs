//! ClickHouse: the real engine behind an HTTP interface of ours (`scripts/clickhouse`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;
use crate::{http, ports, workspace};

/// A ClickHouse server. Confirmed insertions survive a kill.
#[derive(Debug)]
pub struct ClickHouse {
    process: Option<Process>,
    directory: PathBuf,
    /// The port that it listens on, also when it is started again.
    pub port: u16,
}

impl ClickHouse {
    /// Starts a server with its data in `directory`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(directory: &Path) -> Self {
        let mut clickhouse = Self {
            process: None,
            directory: directory.join("clickhouse"),
            port: ports::free(),
        };
        clickhouse.start_again();
        clickhouse
    }

    /// The URL of its database for visits.
    pub fn url(&self) -> String {
        format!("clickhouse://127.0.0.1:{}/shortlink", self.port)
    }

    /// Starts the server again after [`ClickHouse::kill`].
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        let mut command = Command::new(workspace().join("scripts/clickhouse"));
        command.arg(&self.directory).arg(self.port.to_string());
        let log = self.directory.with_extension("log");
        let mut process = Process::start("clickhouse", &command, &log);
        let ping = http::request("GET", "/ping", &[], b"");
        process.wait_ready(|| http::try_send(self.port, "GET", &ping).is_ok());
        self.process = Some(process);
    }

    /// Kills the server.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        self.process.take().expect("a running ClickHouse").kill();
    }

    /// Lets its disk be full, or have space again.
    ///
    /// # Panics
    /// When the file that says so can't be changed.
    pub fn fill(&self, is_full: bool) {
        let file = self.directory.join("full");
        let done = match is_full {
            true => std::fs::write(file, ""),
            false => std::fs::remove_file(file),
        };
        done.expect("a directory");
    }
}
