//! Only nginx and Redis, with a server that the test writes itself.

use std::fs;

use tempfile::TempDir;

use crate::http::{self, Response};
use crate::nginx::{Nginx, NginxOptions};
use crate::ports;
use crate::redis::{Beats, Redis};
use crate::stack;
use crate::wait::{SOON, eventually, until};

/// Target of the code `one`, with 302.
pub const ONE: &str = "https://example.com/one";

/// Target of the code `two`, with 301.
pub const TWO: &str = "https://example.com/two";

/// The test's part of the configuration. In each text `PUBLIC_PORT` and `INTERNAL_PORT`
/// stand for two free ports, of which the default server listens on the first.
#[derive(Clone, Copy, Debug)]
pub struct SiteOptions<'a> {
    /// Before everything else: `load_module`.
    pub top: &'a str,
    /// In the `http` block: zones, maps, formats of logs and further servers.
    pub http: &'a str,
    /// In the default server.
    pub server: &'a str,
    /// The time that nginx waits for Redis.
    pub budget: &'static str,
    /// The parameters of `shortlink_cache`.
    pub cache: &'a str,
    /// The parameters of `shortlink_visits`.
    pub visits: &'a str,
    /// Number of workers.
    pub workers: usize,
}

impl Default for SiteOptions<'_> {
    fn default() -> Self {
        Self {
            top: "",
            http: "",
            server: "",
            budget: "10s",
            cache: "off",
            visits: "off",
            workers: 1,
        }
    }
}

/// nginx, with one worker unless it is set, and Redis. They are ended in the order of the fields.
///
/// Redis knows the codes `one` and `two`, the revoked code `gone` and the unknown code `nolink`.
/// Workers cache nothing unless it is set, so that each request reads Redis. Locations without headers of their
/// own say in `X-Edge` what the edge did.
#[derive(Debug)]
pub struct Site {
    /// nginx with the module.
    pub nginx: Nginx,
    /// Redis.
    pub redis: Redis,
    workers: Vec<u32>,
    /// Redis is current, as with a sidecar.
    _beats: Beats,
    _directory: TempDir,
}

impl Site {
    /// Starts both with such a default server.
    pub fn start(server: &str) -> Self {
        Self::with(&SiteOptions {
            server,
            ..SiteOptions::default()
        })
    }

    /// Starts both.
    ///
    /// # Panics
    /// When they do not start.
    pub fn with(options: &SiteOptions<'_>) -> Self {
        let directory = stack::directory();
        let path = directory.path();
        let redis = Redis::start(&path.join("redis"), ports::free());
        redis.set_record("one", &format!("1 302 1 0 {ONE}"));
        redis.set_record("two", &format!("1 301 1 0 {TWO}"));
        redis.set_record("gone", "1 410 2");
        redis.set_record("nolink", "1 404 1");
        let settings = NginxOptions {
            replace: vec![
                (
                    "worker_processes 2",
                    format!("worker_processes {}", options.workers),
                ),
                (
                    "shortlink_visits on batch=100 interval=200ms buffer=8m;",
                    format!("shortlink_visits {};", options.visits),
                ),
                (
                    "shortlink_cache 32m stale=60s;",
                    format!("shortlink_cache {};", options.cache),
                ),
            ],
            budget: options.budget,
            ..NginxOptions::default()
        };
        let prefix = path.join("nginx");
        let ports = (ports::free(), ports::free());
        let mut nginx = Nginx::prepare(&prefix, ports, redis.port, 9, &settings);
        let filled = |text: &str| {
            text.replace("PUBLIC_PORT", &ports.0.to_string())
                .replace("INTERNAL_PORT", &ports.1.to_string())
        };
        let server = format!(
            "{}\nserver {{\nlisten 127.0.0.1:{} default_server;\nserver_name localhost;\n\
             add_header X-Edge \"$shortlink_outcome/$shortlink_source\" always;\n{}\n}}\n",
            filled(options.http),
            ports.0,
            filled(options.server),
        );
        fs::write(prefix.join("public.conf"), server).expect("a configuration");
        fs::write(prefix.join("internal.conf"), "").expect("a configuration");
        let whole = fs::read_to_string(prefix.join("nginx.conf")).expect("a configuration");
        let whole = format!("{}\n{whole}", filled(options.top));
        fs::write(prefix.join("nginx.conf"), whole).expect("a configuration");
        fs::create_dir_all(prefix.join("html")).expect("a directory");
        nginx.start_again();
        let workers = nginx.all_workers(options.workers);
        let beats = redis.beats();
        // Nothing else is read yet. A beat must grow between two readings of each worker.
        let enough = redis.calls("get") + 6 * options.workers as u64;
        until("Redis is proved current", SOON, || {
            redis.calls("get") >= enough
        });
        Self {
            nginx,
            redis,
            workers,
            _beats: beats,
            _directory: directory,
        }
    }

    /// Asks with GET.
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[])
    }

    /// Sends a request.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        http::send(self.nginx.public_port, method, path, headers)
    }

    /// Writes a file below nginx' prefix.
    ///
    /// # Panics
    /// When it can't.
    pub fn write(&self, name: &str, text: &str) {
        self.write_bytes(name, text.as_bytes());
    }

    /// The same with anything.
    ///
    /// # Panics
    /// As [`Site::write`].
    pub fn write_bytes(&self, name: &str, bytes: &[u8]) {
        fs::write(self.nginx.file(name), bytes).expect("a file");
    }

    /// The lines of a log below `logs/`, once there are so many: nginx writes them after the
    /// answer.
    ///
    /// # Panics
    /// When they do not come, or there are more.
    pub fn log(&self, name: &str, lines: usize) -> Vec<String> {
        let file = self.nginx.file("logs").join(name);
        let what = format!("{name} has {lines} lines");
        let found = eventually(&what, SOON, || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let found: Vec<String> = text.lines().map(str::to_owned).collect();
            (found.len() >= lines).then_some(found)
        });
        assert_eq!(found.len(), lines, "{found:?}");
        found
    }

    /// Checks that the worker is still the one that was started, and that the error log has
    /// nothing bad but lines with one of the texts in `expected`.
    ///
    /// # Panics
    /// When it is not so.
    pub fn assert_sound(&self, expected: &[&str]) {
        assert_eq!(self.nginx.complaints(expected), [""; 0]);
        assert_eq!(self.nginx.workers(), self.workers, "a worker was replaced");
    }

    /// Checks the same, ends nginx gracefully, and checks that it had forgotten no connection.
    ///
    /// # Panics
    /// When it is not so.
    pub fn assert_ends_sound(mut self, expected: &[&str]) {
        self.assert_sound(expected);
        self.nginx.quit();
        let log = self.nginx.error_log();
        assert!(!log.contains("open socket"), "{log}");
        assert_eq!(self.nginx.complaints(expected), [""; 0]);
    }
}
