//! A real PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;
use crate::wait::{SOON, until};
use crate::{ports, workspace};

/// A PostgreSQL server with a cluster of its own. Committed rows survive that it is killed.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    directory: PathBuf,
    /// The port that it listens on, also when it is started again.
    pub port: u16,
}

impl Postgres {
    /// Makes a cluster in `directory` and starts its server.
    ///
    /// # Panics
    /// When there is no PostgreSQL, or it does not start.
    pub fn start(directory: &Path) -> Self {
        Self::make(directory, script().arg("init").arg(directory))
    }

    /// Makes a replica of this server in `directory` and starts it.
    ///
    /// # Panics
    /// When it can't be made, or does not start.
    pub fn replica(&self, directory: &Path) -> Self {
        let mut command = script();
        command
            .arg("copy")
            .arg(directory)
            .arg(self.port.to_string());
        Self::make(directory, &mut command)
    }

    fn make(directory: &Path, command: &mut Command) -> Self {
        let output = command.output().expect("scripts/test-postgres can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let mut postgres = Self {
            process: None,
            directory: directory.to_owned(),
            port: ports::free(),
        };
        postgres.start_again();
        postgres
    }

    /// The URL of its database.
    pub fn url(&self) -> String {
        format!("postgres://shortlink@127.0.0.1:{}/postgres", self.port)
    }

    /// Starts the server again after [`Postgres::kill`].
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        let mut command = script();
        command.arg("run").arg(&self.directory);
        command.arg(self.port.to_string());
        // Its log begins anew, so that what is waited for is what this start says.
        let log = self.directory.join("server.log");
        let _ = std::fs::remove_file(&log);
        let mut process = Process::start("postgres", &command, &log);
        process.wait_ready(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let states = ["connections", "read-only connections"];
            let ready = |state| format!("database system is ready to accept {state}");
            states.map(ready).iter().any(|it| said.contains(it))
        });
        self.process = Some(process);
    }

    /// Kills the server and all its processes; what was committed stays.
    ///
    /// # Panics
    /// When it does not run, or its processes do not end.
    pub fn kill(&mut self) {
        self.process.take().expect("a running PostgreSQL").kill();
        // Sessions notice that they are orphans. The next server does not start before the last of
        // them is gone.
        let data = self.directory.join("data");
        until("the sessions of PostgreSQL end", SOON, || {
            let processes = std::fs::read_dir("/proc").expect("processes");
            !processes.flatten().any(|process| {
                std::fs::read_link(process.path().join("cwd")).is_ok_and(|at| at == data)
            })
        });
    }

    /// Has psql run a statement, and returns what it answers.
    ///
    /// # Panics
    /// When the server does not do it.
    pub fn query(&self, statement: &str) -> String {
        let output = Command::new("psql")
            .args(["-X", "-A", "-t", "-q", "-d", &self.url(), "-c", statement])
            .output()
            .expect("psql can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{statement}: {said}");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }
}

fn script() -> Command {
    Command::new(workspace().join("scripts/test-postgres"))
}
