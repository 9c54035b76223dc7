//! The real sidecar.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::http::{self, Response};
use crate::process::Process;
use crate::wait::SOON;

/// The sidecar with its database, and an API key for links.
#[derive(Debug)]
pub struct Sidecar {
    process: Option<Process>,
    directory: PathBuf,
    /// Its file of settings.
    pub config: PathBuf,
    /// Variables of its environment, from its next start on, and of its commands.
    pub environment: Vec<(String, String)>,
    /// The port that it listens on, also when it is started again.
    pub port: u16,
    /// An API key that may read and write links.
    pub key: String,
}

impl Sidecar {
    /// Prepares a database in `directory` and starts the sidecar on it. `extra` is added to its
    /// configuration.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(directory: &Path, port: u16, redis_port: u16, extra: &str) -> Self {
        let database = format!("sqlite:{}", directory.join("links.db").display());
        Self::start_on(&database, directory, port, redis_port, extra)
    }

    /// The same on the database that a URL names; others may use it too.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_on(
        database: &str,
        directory: &Path,
        port: u16,
        redis_port: u16,
        extra: &str,
    ) -> Self {
        fs::create_dir_all(directory).expect("a directory");
        let config = directory.join("shortlink.toml");
        // Background jobs would repair the faults that most tests cause on purpose.
        let upkeep = if extra.contains("[upkeep]") {
            ""
        } else {
            "[upkeep]\nreconcile_per_s = 0\nrebuild = false\nsweep_every_s = 0\n"
        };
        // Long, so that what is acknowledged is published too, and a database is waited for, when the
        // machine stalls: tests of what happens after such a time set their own.
        let waits_for_redis = if extra.contains("timeout_ms") {
            ""
        } else {
            "timeout_ms = 5000\n"
        };
        let text = format!(
            "[http]\nlisten = \"127.0.0.1:{port}\"\n\
             [database]\nurl = \"{database}\"\nacquire_timeout_ms = 3000\n\
             statement_timeout_ms = 20000\nlock_timeout_ms = 20000\n\
             [redis]\n{waits_for_redis}url = \"redis://127.0.0.1:{redis_port}/0\"\n{extra}\n{upkeep}"
        );
        fs::write(&config, text).expect("a configuration");
        let mut sidecar = Self {
            process: None,
            directory: directory.to_owned(),
            config,
            environment: Vec::new(),
            port,
            key: String::new(),
        };
        sidecar.run_ok(&["migrate"]);
        let scopes = [
            "links:write",
            "links:read",
            "campaigns:write",
            "campaigns:read",
            "stats:read",
        ];
        sidecar.key = sidecar.make_key(&scopes);
        sidecar.start_again();
        sidecar
    }

    /// The id of its process.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running sidecar").pid()
    }

    /// Starts another process on the same database, which listens on another port.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_beside(&self, port: u16) -> Self {
        let text = fs::read_to_string(&self.config).expect("a configuration");
        let (own, other) = (
            format!("127.0.0.1:{}", self.port),
            format!("127.0.0.1:{port}"),
        );
        let config = self.directory.join(format!("shortlink-{port}.toml"));
        fs::write(&config, text.replace(&own, &other)).expect("a configuration");
        let mut sidecar = Self {
            process: None,
            directory: self.directory.clone(),
            config,
            environment: Vec::new(),
            port,
            key: self.key.clone(),
        };
        sidecar.start_again();
        sidecar
    }

    /// Starts it again after it was killed or stopped.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.launch();
        let port = self.port;
        let process = self.process.as_mut().expect("a running sidecar");
        process.wait_ready(|| {
            let request = http::request("GET", "/readyz", &[], b"");
            http::try_send(port, "GET", &request).is_ok_and(|answer| answer.status == 200)
        });
    }

    /// Starts it without waiting for it.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn launch(&mut self) {
        let program = self.program();
        // With this signal ignored a write beyond the limit on files ([`Sidecar::limit_files`])
        // fails, as it does on a full disk, instead of ending the process.
        let mut command = Command::new("env");
        command
            .arg("--ignore-signal=XFSZ")
            .arg(program.get_program())
            .arg("serve");
        for (variable, value) in program.get_envs() {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        let log = self.log_path();
        self.process = Some(Process::start("shortlink serve", &command, &log));
    }

    /// Makes it hang: it keeps its connections, but answers nothing.
    ///
    /// # Panics
    /// When it does not run.
    pub fn hang(&self) {
        let process = self.process.as_ref().expect("a running sidecar");
        process.signal(Signal::SIGSTOP);
    }

    /// Ends [`Sidecar::hang`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn go_on(&self) {
        let process = self.process.as_ref().expect("a running sidecar");
        process.signal(Signal::SIGCONT);
    }

    /// Replaces a text of its configuration, for its next start.
    ///
    /// # Panics
    /// When the text does not occur.
    pub fn edit_config(&self, from: &str, to: &str) {
        let text = fs::read_to_string(&self.config).expect("a configuration");
        assert!(text.contains(from), "the configuration has no {from:?}");
        fs::write(&self.config, text.replace(from, to)).expect("a configuration");
    }

    /// Starts it again with a replica of its database.
    ///
    /// # Panics
    /// When it does not start.
    pub fn read_from(&mut self, url: &str, max_lag: Duration) {
        let seconds = max_lag.as_secs();
        let settings = format!("replica_url = \"{url}\"\nreplica_max_lag_s = {seconds}\n[redis]");
        self.edit_config("[redis]", &settings);
        self.stop();
        self.start_again();
    }

    /// Lets it write no file further than `bytes`, as a disk that is full would; `None` ends that.
    ///
    /// # Panics
    /// When it does not run, or the limit can't be set.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let pid = self.process.as_ref().expect("a running sidecar").pid();
        let bytes = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        let done = Command::new("prlimit")
            .arg(format!("--pid={pid}"))
            // The effective limit, and not the one up to which it may be raised again.
            .arg(format!("--fsize={bytes}:"))
            .status();
        assert!(done.expect("prlimit").success(), "the limit can't be set");
    }

    /// The length of its longest file.
    ///
    /// # Panics
    /// When its directory can't be read.
    pub fn longest_file(&self) -> u64 {
        let files = fs::read_dir(&self.directory).expect("its directory");
        let lengths =
            files.map(|file| file.and_then(|file| file.metadata()).expect("a file").len());
        lengths.max().unwrap_or_default()
    }

    /// Returns whether it was started and has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::has_ended)
    }

    /// Kills it.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        self.process.take().expect("a running sidecar").kill();
    }

    /// Asks it to end, and returns its exit code.
    ///
    /// # Panics
    /// When it does not run, or does not end.
    pub fn stop(&mut self) -> Option<i32> {
        let mut process = self.process.take().expect("a running sidecar");
        process.signal(Signal::SIGTERM);
        process.wait(SOON).code()
    }

    /// Makes an API key.
    pub fn make_key(&self, scopes: &[&str]) -> String {
        let mut arguments = vec!["keys", "create", "--name", "test"];
        for scope in scopes {
            arguments.extend(["--scope", scope]);
        }
        self.run_ok(&arguments).trim().to_owned()
    }

    /// Runs a subcommand.
    ///
    /// # Panics
    /// When it can't be run.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.program()
            .args(arguments)
            .output()
            .expect("the sidecar can be run")
    }

    /// Starts a subcommand that goes on by itself; what it says goes to `log`.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn spawn(&self, arguments: &[&str], log: &Path) -> Process {
        let mut command = self.program();
        command.args(arguments);
        Process::start("shortlink", &command, log)
    }

    /// Runs a subcommand that must succeed, and returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn run_ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "shortlink {arguments:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join(format!("sidecar-{}.log", self.port))
    }

    /// Creates links only in the database, as if Redis had lost them, and returns their codes.
    /// `arguments` are added to the command.
    pub fn sample(&self, count: usize, arguments: &[&str]) -> Vec<String> {
        let count = count.to_string();
        let words = ["make-sample-links", "--print-codes", "--count", &count];
        let codes = self.run_ok(&[&words, arguments].concat());
        codes.lines().map(str::to_owned).collect()
    }

    /// Starts a subcommand; what it says goes to `log`.
    pub fn begin(&self, arguments: &[&str], log: &Path) -> Process {
        let mut command = self.program();
        command.args(arguments);
        Process::start(&format!("shortlink {arguments:?}"), &command, log)
    }

    fn program(&self) -> Command {
        let mut command = program();
        command.env("SHORTLINK_CONFIG", &self.config);
        for (variable, value) in &self.environment {
            command.env(variable, value);
        }
        command
    }
}

/// The program, without a configuration.
///
/// # Panics
/// When it was not built.
pub fn program() -> Command {
    let program = crate::artefact("SHORTLINK_BIN", "target/programs/shortlink");
    let mut command = Command::new(program);
    command.env_remove("DATABASE_URL");
    command
}

/// Sends a request with a JSON body to the API at `port`.
///
/// # Panics
/// When there is no answer.
pub fn api(port: u16, key: &str, method: &str, path: &str, body: Option<&Value>) -> Response {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut headers = vec![("X-Api-Key", key)];
    if !body.is_empty() {
        headers.push(("Content-Type", "application/json"));
    }
    let request = http::request(method, path, &headers, body.as_bytes());
    http::try_send(port, method, &request)
        .unwrap_or_else(|error| panic!("{method} {path} on port {port}: {error}"))
}
