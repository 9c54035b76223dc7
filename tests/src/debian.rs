//! A throw-away Debian, in which packages are installed as an operator does it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::process::Process;
use crate::stack;
use crate::{artefact, workspace};

/// The first process of the system: it only takes in orphans, as any init does.
const INIT: &str = "sleep infinity & wait";

/// A small Debian in a directory, with namespaces of its own for mounts and processes: when the first
/// process ends, the kernel ends all others and takes the mounts away. The network is that of the machine.
#[derive(Debug)]
pub struct Debian {
    init: Pid,
    /// Ends when the first process does, and ends it.
    _process: Process,
    directory: TempDir,
}

impl Debian {
    /// Unpacks one and starts its first process.
    ///
    /// # Panics
    /// When this is not root, or there is none to unpack and none can be made.
    pub fn start() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "only root can make and enter a throw-away Debian: run the tests of the packages as root"
        );
        let directory = stack::directory();
        let root = directory.path().join("root");
        fs::create_dir(&root).expect("a directory");
        let archive = said(&mut Command::new(workspace().join("scripts/test-root")));
        said(
            Command::new("tar")
                .args(["--extract", "--file", archive.trim(), "--directory"])
                .arg(&root),
        );
        // Without an init that it knows, Debian starts no services unless a policy allows it.
        let policy = root.join("usr/sbin/policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 0\n").expect("a policy");
        fs::set_permissions(&policy, Permissions::from_mode(0o755)).expect("a policy");
        let mut init = Command::new("unshare");
        init.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"])
            .arg(format!(
                "mount -t proc proc \"$0/proc\"; mount --rbind /dev \"$0/dev\"; \
                 exec chroot \"$0\" /bin/bash -c '{INIT}'"
            ))
            .arg(&root);
        let mut process = Process::start("Debian", &init, &directory.path().join("init.log"));
        let unshare = process.pid();
        let mut found = None;
        process.wait_ready(|| {
            found = child_of(unshare).filter(|child| root_of(*child).as_deref() == Some(&root));
            found.is_some()
        });
        Self {
            init: found.expect("it was waited for"),
            _process: process,
            directory,
        }
    }

    /// Returns the path outside of the system of a path inside.
    ///
    /// # Panics
    /// When the path is relative.
    pub fn outside(&self, path: &str) -> PathBuf {
        let inside = path.strip_prefix('/').expect("an absolute path");
        self.directory.path().join("root").join(inside)
    }

    /// The text of a file.
    ///
    /// # Panics
    /// When there is none.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.outside(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Replaces texts in a file, as an editor would; each must occur.
    ///
    /// # Panics
    /// When one does not.
    pub fn edit(&self, path: &str, replace: &[(&str, &str)]) {
        let mut text = self.read(path);
        for (from, to) in replace {
            assert!(text.contains(from), "{path} has no {from:?}:\n{text}");
            text = text.replace(from, to);
        }
        fs::write(self.outside(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Makes a symbolic link.
    ///
    /// # Panics
    /// When that fails.
    pub fn link(&self, to: &str, path: &str) {
        symlink(to, self.outside(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// A command that is run in the system.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init.to_string()])
            .args(["--mount", "--pid", "--root", "--wd", "env", "-i"])
            .args(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
            .args(["LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"])
            .arg(program)
            .args(arguments);
        command
    }

    /// Runs a command and returns what came of it.
    ///
    /// # Panics
    /// When it can't be run.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(program, arguments);
        command.output().expect("nsenter can be run")
    }

    /// Runs a command, which must succeed, and returns all that it says.
    ///
    /// # Panics
    /// When it fails.
    pub fn said(&self, program: &str, arguments: &[&str]) -> String {
        said(&mut self.command(program, arguments))
    }

    /// The command that a unit of systemd starts: `ExecStart=` as its user and group, in its directory,
    /// with its umask and the variables of its file.
    ///
    /// # Panics
    /// When the unit is not as simple as that.
    pub fn command_of_unit(&self, unit: &str) -> Command {
        let text = self.read(&format!("/lib/systemd/system/{unit}"));
        let value = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_else(|| panic!("{unit} has no {name}"))
        };
        let script = "cd \"$0\"; umask \"$1\"; shift; exec \"$@\"";
        let mut arguments = Vec::new();
        let variables = value("EnvironmentFile").trim_start_matches('-');
        let variables = self.read(variables);
        for line in variables.lines().filter(|line| !line.starts_with('#')) {
            arguments.push(line.replace('"', ""));
        }
        let mut add =
            |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
        add(&[
            "setpriv",
            "--reuid",
            value("User"),
            "--regid",
            value("Group"),
        ]);
        add(&[
            "--init-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
        ]);
        add(&[
            "sh",
            "-c",
            script,
            value("WorkingDirectory"),
            value("UMask"),
        ]);
        add(&value("ExecStart").split(' ').collect::<Vec<_>>());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.command("env", &arguments)
    }

    /// Starts a server in the system, which ends with this at the latest. `name` is its log's.
    pub fn start_server(&self, name: &str, command: &Command) -> Process {
        let log = self.directory.path().join(name).with_extension("log");
        Process::start(name, command, &log)
    }

    /// The ids, outside of the system, of all processes that run in it.
    pub fn processes(&self) -> Vec<Pid> {
        let root = self.directory.path().join("root");
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        pids.map(Pid::from_raw)
            .filter(|pid| root_of(*pid).as_ref() == Some(&root))
            .collect()
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        // The kernel ends all others with it. A polite signal would do nothing: the first process of
        // a system ignores it.
        let _ = signal::kill(self.init, Signal::SIGKILL);
    }
}

/// The packages that `make deb` leaves: of the sidecar and of the module.
///
/// # Panics
/// When they are not there.
pub fn packages() -> [PathBuf; 2] {
    packages_in(&artefact("SHORTLINK_DEB", "target/deb"))
}

/// The packages in a directory: of the sidecar and of the module.
///
/// # Panics
/// When they are not there.
pub fn packages_in(directory: &Path) -> [PathBuf; 2] {
    ["shortlink_", "libnginx-mod-http-shortlink_"].map(|name| {
        let entries = fs::read_dir(directory).expect("a directory").flatten();
        let mut found = entries.map(|entry| entry.path()).filter(|path| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(name) && file.ends_with(".deb")
        });
        let package = found.next();
        package.unwrap_or_else(|| panic!("{name}*.deb is missing: `make deb` makes it"))
    })
}

/// Runs a command, which must succeed, and returns all that it says.
///
/// # Panics
/// When it fails.
pub fn said(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}:\n{text}");
    text
}

fn child_of(pid: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Some(Pid::from_raw(children.split(' ').next()?.parse().ok()?))
}

/// Returns the directory that a process sees as `/`.
fn root_of(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/root")).ok()
}
