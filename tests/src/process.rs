//! A process that never outlives the test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::wait::{SOON, pass, until, within};

/// A running server. When it is dropped, it and its children are ended.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `command` in a session of its own, so that all its children can be ended with it,
    /// and has the kernel end it should the test be killed; that happens too when the thread
    /// that called this ends, so it is called from the test's own. Its output goes to `log`.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(name: &str, command: &Command, log: &Path) -> Self {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let mut whole = Command::new("setsid");
        // Ctrl-C works, also where the tests run behind a shell's `&`, which has it ignored.
        whole
            .args(["env", "--default-signal=INT"])
            .args(["setpriv", "--pdeathsig", "TERM"])
            .arg(command.get_program());
        whole.args(command.get_args());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => whole.env(variable, value),
                None => whole.env_remove(variable),
            };
        }
        whole.stdin(Stdio::null());
        whole.stdout(file.try_clone().expect("a log")).stderr(file);
        let child = whole
            .spawn()
            .unwrap_or_else(|error| panic!("{name} can't start: {error}"));
        Self {
            child,
            name: name.to_owned(),
            log: log.to_owned(),
        }
    }

    /// The process' id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) {
        signal::kill(self.nix_pid(), signal).expect("the process runs");
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it does not within `limit`.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let ended = within(limit, || {
            self.child.try_wait().expect("a child of this process")
        });
        ended.unwrap_or_else(|| {
            let (name, log) = (&self.name, self.log());
            panic!("{name} does not end within {limit:?}:\n{log}")
        })
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        self.end(Signal::SIGKILL);
    }

    /// Waits until `ready` says yes, as long as the process runs.
    ///
    /// # Panics
    /// When the process ends first, or it takes too long.
    pub fn wait_ready(&mut self, mut ready: impl FnMut() -> bool) {
        let what = format!("{} is ready", self.name);
        until(&what, SOON, || {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                panic!("{} has ended ({status}):\n{}", self.name, self.log());
            }
            ready()
        });
    }

    /// Returns its output.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    /// Returns whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !self.is_running()
    }

    fn is_running(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child of this process")
            .is_none()
    }

    fn end(&mut self, first: Signal) {
        if self.is_running() {
            let _ = signal::kill(self.nix_pid(), first);
            // A stopped process takes no other signal.
            let _ = signal::kill(self.nix_pid(), Signal::SIGCONT);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.is_running() && Instant::now() < deadline {
            pass(Duration::from_millis(2));
        }
        // The session's group, so that no child is left either.
        let _ = signal::killpg(self.nix_pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(Signal::SIGTERM);
    }
}

/// Sends a signal to a process that a test has only the id of.
///
/// # Panics
/// When it does not run.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    signal::kill(pid, signal).expect("a running process");
}
