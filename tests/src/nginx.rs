//! A real nginx with the module, on the project's own configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::Signal;

use crate::http;
use crate::ports;
use crate::process::{Process, signal};
use crate::wait::{SOON, eventually, until};

/// The levels of error logs for events that must not happen.
const BAD_LEVELS: [&str; 4] = ["[error]", "[crit]", "[alert]", "[emerg]"];

/// The time budget of the project's configuration.
pub const REAL_BUDGET: &str = "50ms";

/// The differences between a test's nginx and that of a user.
#[derive(Clone, Debug)]
pub struct NginxOptions {
    /// Texts of the configuration that are replaced; each must occur.
    pub replace: Vec<(&'static str, String)>,
    /// The lines of `shortlink_redis` that say where Redis is; `None` for one server.
    pub redis: Option<String>,
    /// The time that nginx waits for Redis. Longer than a user's unless the test is about it: on a
    /// machine that runs many tests, Redis may be late without being away.
    pub budget: &'static str,
}

impl Default for NginxOptions {
    fn default() -> Self {
        Self {
            replace: Vec::new(),
            redis: None,
            budget: "2s",
        }
    }
}

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    process: Option<Process>,
    /// The master, where it is not the process that was started here.
    successor: Option<u32>,
    prefix: PathBuf,
    /// The port of the public server.
    pub public_port: u16,
    /// The port of the internal server.
    pub internal_port: u16,
    /// The port of the public server for TLS, where public.conf includes tls.conf.
    pub tls_port: u16,
}

impl Nginx {
    /// Writes the configuration below `prefix` and starts nginx. `ports` are those of the public
    /// and of the internal server.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(
        prefix: &Path,
        ports: (u16, u16),
        redis_port: u16,
        sidecar_port: u16,
        options: &NginxOptions,
    ) -> Self {
        let mut nginx = Self::prepare(prefix, ports, redis_port, sidecar_port, options);
        nginx.start_again();
        nginx
    }

    /// Writes the configuration below `prefix` without starting anything.
    ///
    /// # Panics
    /// When the project's configuration does not have what is to be replaced.
    pub fn prepare(
        prefix: &Path,
        (public_port, internal_port): (u16, u16),
        redis_port: u16,
        sidecar_port: u16,
        options: &NginxOptions,
    ) -> Self {
        for directory in ["logs", "temp"] {
            fs::create_dir_all(prefix.join(directory)).expect("a directory");
        }
        let module = module();
        let tls_port = ports::free();
        let mut replace = vec![
            (
                "modules/ngx_http_shortlink_module.so",
                module.display().to_string(),
            ),
            ("worker_processes auto", "worker_processes 2".to_owned()),
            (
                "worker_shutdown_timeout 30s",
                "worker_shutdown_timeout 5s".to_owned(),
            ),
            // The log as it is written, not a second later.
            ("shortlink buffer=64k flush=1s", "shortlink".to_owned()),
            // The action of the edge, in each answer.
            (
                "add_header Referrer-Policy no-referrer always;",
                "add_header Referrer-Policy no-referrer always;\n\
                 add_header X-Edge \"$shortlink_outcome/$shortlink_source\" always;"
                    .to_owned(),
            ),
            ("budget   50ms", format!("budget   {}", options.budget)),
            ("listen 8080", format!("listen 127.0.0.1:{public_port}")),
            ("listen 443", format!("listen 127.0.0.1:{tls_port}")),
            ("h3=\":443\"", format!("h3=\":{tls_port}\"")),
            ("port=8080", format!("port={public_port}")),
            ("127.0.0.1:8081", format!("127.0.0.1:{internal_port}")),
            ("127.0.0.1:8090", format!("127.0.0.1:{sidecar_port}")),
            (
                "server   127.0.0.1:6379;",
                options
                    .redis
                    .clone()
                    // Redis is proved current soon.
                    .unwrap_or_else(|| {
                        format!("server   127.0.0.1:{redis_port};\nheartbeat 100ms;")
                    }),
            ),
        ];
        replace.extend(options.replace.iter().cloned());
        copy_pages(&prefix.join("pages"));
        let mut occurred = vec![false; replace.len()];
        for file in [
            "nginx.conf",
            "shortlink.conf",
            "domains.conf",
            "pages.conf",
            "public.conf",
            "internal.conf",
            "tls.conf",
            "http2.conf",
            "http2-old.conf",
            "http3.conf",
        ] {
            let source = crate::workspace().join("nginx").join(file);
            let text = fs::read_to_string(&source).expect("the project's configuration");
            // Only on IPv4: not every machine has IPv6.
            let lines = text.split_inclusive('\n');
            let mut text: String = lines
                .filter(|line| !line.trim_start().starts_with("listen [::]:"))
                .collect();
            for ((from, to), occurred) in replace.iter().zip(&mut occurred) {
                *occurred |= text.contains(from);
                text = text.replace(from, to);
            }
            if file == "nginx.conf" && nix::unistd::geteuid().is_root() {
                // Workers must reach the temporary directory, even below a private one.
                text.insert_str(0, "user root;\n");
            }
            fs::write(prefix.join(file), text).expect("a configuration");
        }
        for ((from, _), occurred) in replace.iter().zip(occurred) {
            assert!(
                occurred,
                "the project's configuration has no {from:?} to replace"
            );
        }
        let fitted = Command::new(crate::workspace().join("scripts/fit-nginx"))
            .arg(prefix)
            .arg(program())
            .output()
            .expect("bash");
        assert!(fitted.status.success(), "{fitted:?}");
        Self {
            process: None,
            successor: None,
            prefix: prefix.to_owned(),
            public_port,
            internal_port,
            tls_port,
        }
    }

    /// Starts it, again if it was stopped.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        let mut command = self.program();
        command.args(["-g", "daemon off;"]);
        self.process = Some(self.begin(&command));
        self.successor = None;
    }

    /// Starts a program that becomes nginx, and waits until all its servers listen: it writes its
    /// process id when they do.
    fn begin(&self, command: &Command) -> Process {
        let pid_file = self.file("nginx.pid");
        let _ = fs::remove_file(&pid_file);
        let log = self.prefix.join("logs/output.log");
        let mut process = Process::start("nginx", command, &log);
        process.wait_ready(|| {
            fs::metadata(&pid_file).is_ok_and(|file| file.len() > 0)
                && http::Connection::open(self.public_port).is_ok()
        });
        process
    }

    /// Starts it as a daemon: only a daemon can be upgraded. A shell that stays behind ends it with the
    /// test.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_daemon(&mut self) {
        const SCRIPT: &str = "\"$@\" || exit\n\
            until [ -s \"$PID_FILE\" ]; do sleep 0.01; done\n\
            session=$(cat \"$PID_FILE\")\n\
            trap 'kill -s KILL -- \"-$session\"; exit' TERM\n\
            while :; do sleep 1000 & wait; done";
        let nginx = self.program();
        let pid_file = self.file("nginx.pid");
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(nginx.get_program());
        command.args(nginx.get_args());
        command.env("PID_FILE", &pid_file);
        self.process = Some(self.begin(&command));
        self.successor = Some(eventually("nginx has its workers", SOON, || {
            let pid = fs::read_to_string(&pid_file).ok()?.trim().parse().ok()?;
            children(pid).filter(|them| them.len() >= 2).map(|_| pid)
        }));
    }

    /// The process ids of the workers that the master has now, those that end included.
    ///
    /// # Panics
    /// When it does not run.
    pub fn workers(&self) -> Vec<u32> {
        children(self.master()).expect("a running nginx")
    }

    /// The process ids of the workers once there are so many: an answer proves one.
    ///
    /// # Panics
    /// When they do not come.
    pub fn all_workers(&self, count: usize) -> Vec<u32> {
        eventually("the workers run", SOON, || {
            Some(self.workers()).filter(|workers| workers.len() == count)
        })
    }

    /// The process id of the master.
    ///
    /// # Panics
    /// When it does not run.
    pub fn master(&self) -> u32 {
        let started = || self.process.as_ref().expect("a running nginx").pid();
        self.successor.unwrap_or_else(started)
    }

    /// Starts the program that lies there now beside the one that runs, on the same sockets, and
    /// waits until both have workers; returns the new master.
    ///
    /// # Panics
    /// When it does not start.
    pub fn begin_upgrade(&self) -> u32 {
        let old = self.master();
        signal(old, Signal::SIGUSR2);
        eventually("the new nginx runs beside the old one", SOON, || {
            let text = fs::read_to_string(self.file("nginx.pid")).ok()?;
            let new = text.trim().parse().ok()?;
            let is_whole = new != old && children(new).is_some_and(|them| them.len() >= 2);
            is_whole.then_some(new)
        })
    }

    /// Has the old workers end, so that only those of the new master serve.
    ///
    /// # Panics
    /// When they do not end.
    pub fn retire_old_workers(&self, new: u32) {
        signal(self.master(), Signal::SIGWINCH);
        until("the old workers are gone", SOON, || {
            self.workers().iter().all(|&pid| pid == new)
        });
    }

    /// Ends the old master for good.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn finish_upgrade(&mut self, new: u32) {
        let old = self.master();
        signal(old, Signal::SIGQUIT);
        until("the old master is gone", SOON, || self.is_gone(old));
        self.successor = Some(new);
    }

    /// Goes back from what [`Nginx::begin_upgrade`] has started.
    ///
    /// # Panics
    /// When it can't.
    pub fn undo_upgrade(&mut self, new: u32) {
        signal(self.master(), Signal::SIGHUP);
        until("the old master has workers again", SOON, || {
            self.workers().iter().filter(|&&pid| pid != new).count() >= 2
        });
        signal(new, Signal::SIGQUIT);
        until("the new master is gone", SOON, || {
            self.is_gone(new) && self.workers().len() == 2
        });
    }

    /// Returns whether there is no such process, or only its entry in the process table.
    fn is_gone(&mut self, pid: u32) -> bool {
        if let Some(process) = &mut self.process
            && process.pid() == pid
        {
            return process.has_ended();
        }
        let state = fs::read_to_string(format!("/proc/{pid}/stat"));
        state.map_or(true, |state| state.contains(") Z "))
    }

    /// Kills workers, and waits until others are in their place.
    ///
    /// # Panics
    /// When they are not replaced.
    pub fn kill_workers(&self, killed: &[u32]) {
        let count = self.workers().len();
        for worker in killed {
            signal(*worker, Signal::SIGKILL);
        }
        until("the workers are replaced", SOON, || {
            let now = self.workers();
            now.len() == count && killed.iter().all(|worker| !now.contains(worker))
        });
    }

    /// Reloads the configuration and waits until new workers serve and old ones are gone.
    pub fn reload(&self) {
        self.reload_with(2);
    }

    /// The same where there is another number of workers than two.
    pub fn reload_with(&self, workers: usize) {
        let old = self.begin_reload_with(workers);
        self.wait_for_end_of(&old);
    }

    /// Reloads the configuration and waits until new workers run; returns the old ones.
    ///
    /// # Panics
    /// When it does not run.
    pub fn begin_reload(&self) -> Vec<u32> {
        self.begin_reload_with(2)
    }

    fn begin_reload_with(&self, workers: usize) -> Vec<u32> {
        // Connections are taken before there are workers: one that starts only now is an old one.
        let old = eventually("the old workers run", SOON, || {
            Some(self.workers()).filter(|old| old.len() >= workers)
        });
        signal(self.master(), Signal::SIGHUP);
        until("new workers run", SOON, || {
            self.workers()
                .iter()
                .filter(|pid| !old.contains(pid))
                .count()
                >= workers
        });
        old
    }

    /// Waits until workers are ending or gone: they take no new connections any more.
    pub fn wait_for_ending_of(&self, old: &[u32]) {
        until("the old workers are ending", SOON, || {
            old.iter().all(|pid| {
                let title = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                title.contains("shutting down") || title.is_empty()
            })
        });
    }

    /// Waits until workers are gone.
    pub fn wait_for_end_of(&self, old: &[u32]) {
        until("the old workers are gone", SOON, || {
            self.workers().iter().all(|pid| !old.contains(pid))
        });
    }

    /// Ends it at once: open requests are cut off.
    ///
    /// # Panics
    /// When it was not started here, or does not end.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("a running nginx");
        process.signal(Signal::SIGTERM);
        process.wait(SOON);
    }

    /// Ends it gracefully: open requests are finished.
    ///
    /// # Panics
    /// When it does not run, or does not end well.
    pub fn quit(&mut self) {
        if let Some(pid) = self.successor.take() {
            signal(pid, Signal::SIGQUIT);
            until("nginx ends", SOON, || self.is_gone(pid));
            self.process = None;
            return;
        }
        let mut process = self.process.take().expect("a running nginx");
        process.signal(Signal::SIGQUIT);
        let status = process.wait(SOON);
        assert!(status.success(), "nginx ended with {status}");
    }

    /// Checks the configuration as `nginx -t` does.
    ///
    /// # Panics
    /// When nginx can't be run.
    pub fn test_configuration(&self) -> Output {
        self.program().arg("-t").output().expect("nginx can be run")
    }

    /// The configuration file of this name.
    pub fn file(&self, name: &str) -> PathBuf {
        self.prefix.join(name)
    }

    /// Replaces a text of a configuration file.
    ///
    /// # Panics
    /// When the text does not occur.
    pub fn edit(&self, name: &str, from: &str, to: &str) {
        let path = self.file(name);
        let text = fs::read_to_string(&path).expect("a configuration");
        assert!(text.contains(from), "{name} has no {from:?}");
        fs::write(path, text.replace(from, to)).expect("a configuration");
    }

    /// The error log.
    pub fn error_log(&self) -> String {
        fs::read_to_string(self.prefix.join("logs/error.log")).unwrap_or_default()
    }

    /// The access log.
    pub fn access_log(&self) -> String {
        fs::read_to_string(self.prefix.join("logs/access.log")).unwrap_or_default()
    }

    /// The lines of the error log about events that must not happen, but for those with one of
    /// the texts in `expected`.
    pub fn complaints(&self, expected: &[&str]) -> Vec<String> {
        let log = self.error_log();
        log.lines()
            .filter(|line| BAD_LEVELS.iter().any(|level| line.contains(level)))
            .filter(|line| !expected.iter().any(|text| line.contains(text)))
            .map(str::to_owned)
            .collect()
    }

    /// Checks a configuration below `prefix` that only loads this module.
    ///
    /// # Panics
    /// When nginx can't be run.
    pub fn try_module(prefix: &Path, module: &Path) -> Output {
        let configuration = prefix.join("try.conf");
        let lines = [
            format!("load_module {};", module.display()),
            format!("pid {}/try.pid;", prefix.display()),
            "events {}\nhttp { access_log off; }\n".to_owned(),
        ];
        fs::write(&configuration, lines.join("\n")).expect("a configuration");
        fs::create_dir_all(prefix.join("logs")).expect("a directory");
        let mut command = Command::new(program());
        command.arg("-t").arg("-p").arg(prefix).arg("-c");
        command
            .arg(configuration)
            .output()
            .expect("nginx can be run")
    }

    fn program(&self) -> Command {
        let mut command = Command::new(program());
        command
            .arg("-p")
            .arg(&self.prefix)
            .arg("-c")
            .arg(self.file("nginx.conf"));
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command
    }
}

/// The nginx that is tested.
pub fn program() -> PathBuf {
    std::env::var_os("SHORTLINK_NGINX").map_or_else(installed, PathBuf::from)
}

/// The module that is tested.
///
/// # Panics
/// When it was not built.
pub fn module() -> PathBuf {
    crate::artefact(
        "SHORTLINK_MODULE",
        "target/modules/ngx_http_shortlink_module.so",
    )
}

/// Checks that the nginx that is tested has HTTP/3, which Debian's 1.22 has not.
///
/// # Panics
/// When it has none.
pub fn require_http3() {
    let program = program();
    let output = Command::new(&program).arg("-V").output().expect("nginx");
    let built = String::from_utf8_lossy(&output.stderr);
    assert!(
        built.contains("--with-http_v3_module"),
        "{} has no HTTP/3: run this test with an nginx that is built --with-http_v3_module, and the module for it, \
         in SHORTLINK_NGINX and SHORTLINK_MODULE",
        program.display()
    );
}

/// The nginx that is installed. With its whole path: it could not start its successor without.
fn installed() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let places = path.split(':').map(|place| Path::new(place).join("nginx"));
    let mut found = places.filter(|program| program.is_file());
    found.next().unwrap_or_else(|| "nginx".into())
}

/// The children of a process, if it runs.
fn children(pid: u32) -> Option<Vec<u32>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let pids = text.split_whitespace();
    Some(pids.filter_map(|pid| pid.parse().ok()).collect())
}

/// Copies the project's pages.
fn copy_pages(to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    let pages = fs::read_dir(crate::workspace().join("nginx/pages")).expect("the project's pages");
    for page in pages {
        let page = page.expect("a page");
        fs::copy(page.path(), to.join(page.file_name())).expect("a copy");
    }
}
