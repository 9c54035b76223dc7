//! Redis, sidecar and nginx together, as a user runs them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{self, Response};
use crate::metrics::Page;
use crate::nginx::{Nginx, NginxOptions};
use crate::ports;
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::sidecar::{Sidecar, api};
use crate::wait::{SOON, until};

/// The differences between a test's stack and that of a user.
#[derive(Clone, Debug, Default)]
pub struct StackOptions {
    /// Added to the sidecar's configuration.
    pub sidecar: String,
    /// For nginx.
    pub nginx: NginxOptions,
    /// The URL of the sidecar's database; `None` for a SQLite file of its own.
    pub database: Option<String>,
    /// The port at which nginx looks for Redis; `None` for the right one.
    pub redis_port_of_nginx: Option<u16>,
}

/// All servers. They are ended in the order of the fields.
#[derive(Debug)]
pub struct Stack {
    /// nginx with the module.
    pub nginx: Nginx,
    /// The sidecar.
    pub sidecar: Sidecar,
    /// Redis.
    pub redis: Redis,
    directory: TempDir,
}

impl Stack {
    /// Starts everything with the defaults.
    pub fn start() -> Self {
        Self::with(&StackOptions::default())
    }

    /// The stack of all tests that need nothing of their own but links, campaigns and keys, started by
    /// the first of them. A test on it neither edits, reloads, flushes nor limits anything, reads no
    /// counter and no whole listing, and causes no line in a log that another would complain of.
    ///
    /// # Panics
    /// When it does not start.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<(Stack, Child)> = LazyLock::new(|| {
            let (started, stack) = mpsc::sync_channel(0);
            // The kernel ends servers together with the thread that started them, so this one stays.
            thread::spawn(move || {
                let _ = started.send(Stack::start());
                loop {
                    thread::park();
                }
            });
            let stack = stack.recv().expect("the shared stack starts");
            // Nothing drops a static: the directory is removed once this process is gone, which closes
            // the pipe.
            let cleaner = Command::new("setsid")
                .args(["sh", "-c", "cat; until rm -rf \"$0\"; do sleep 0.1; done"])
                .arg(stack.directory())
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            (stack, cleaner.expect("a shell"))
        });
        &SHARED.0
    }

    /// Starts everything on a PostgreSQL, which must live longer.
    pub fn on(postgres: &Postgres) -> Self {
        Self::with(&StackOptions {
            database: Some(postgres.url()),
            ..StackOptions::default()
        })
    }

    /// Starts everything.
    pub fn with(options: &StackOptions) -> Self {
        let directory = directory();
        let path = directory.path();
        let redis = Redis::start(&path.join("redis"), ports::free());
        let sidecar_directory = path.join("sidecar");
        let file = || format!("sqlite:{}", sidecar_directory.join("links.db").display());
        let sidecar = Sidecar::start_on(
            &options.database.clone().unwrap_or_else(file),
            &sidecar_directory,
            ports::free(),
            redis.port,
            &options.sidecar,
        );
        let nginx = Nginx::start(
            &path.join("nginx"),
            (ports::free(), ports::free()),
            options.redis_port_of_nginx.unwrap_or(redis.port),
            sidecar.port,
            &options.nginx,
        );
        let stack = Self {
            nginx,
            sidecar,
            redis,
            directory,
        };
        if options.redis_port_of_nginx.is_none() && options.nginx.redis.is_none() {
            stack.wait_until_redis_is_current();
        }
        stack
    }

    /// Waits until nginx takes the data set of Redis for current: before that, it asks the sidecar about codes that
    /// are unknown or gone.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_until_redis_is_current(&self) {
        until("Redis is proved current", SOON, || {
            let page = http::get(self.nginx.internal_port, "/edge/metrics");
            let page = Page::read(&String::from_utf8_lossy(&page.body));
            page.sum("shortlink_redis_authoritative") >= page.sum("shortlink_workers")
        });
    }

    /// The directory of the servers' files.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Sends a request to the API through nginx' internal server.
    pub fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        api(
            self.nginx.internal_port,
            &self.sidecar.key,
            method,
            path,
            body,
        )
    }

    /// Creates a link and returns the API's answer.
    ///
    /// # Panics
    /// When it is not made.
    pub fn create(&self, body: &Value) -> Value {
        let answer = self.api("POST", "/v1/links", Some(body));
        assert_eq!(
            answer.status,
            201,
            "{body}: {}",
            String::from_utf8_lossy(&answer.body)
        );
        answer.json()
    }

    /// Creates a link to a target and returns its code.
    pub fn link(&self, target: &str) -> String {
        text(&self.create(&json!({ "longUrl": target })), "shortCode")
    }

    /// Follows a code on the public server.
    pub fn follow(&self, code: &str) -> Response {
        http::get(self.nginx.public_port, &format!("/{code}"))
    }
}

/// A temporary directory that nginx' workers can reach.
///
/// # Panics
/// When it can't be made.
pub fn directory() -> TempDir {
    let directory = tempfile::Builder::new().prefix("shortlink-test-").tempdir();
    let directory = directory.expect("a directory");
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("its mode");
    directory
}

/// The same in memory, where the system has such a place: for files that must not wait for a disk.
pub fn directory_in_memory() -> TempDir {
    let directory = tempfile::Builder::new()
        .prefix("shortlink-test-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/dev/shm");
    directory.unwrap_or_else(|_no_such_place| self::directory())
}

/// A text member of a JSON object.
///
/// # Panics
/// When there is none.
pub fn text(object: &Value, member: &str) -> String {
    object[member]
        .as_str()
        .unwrap_or_else(|| panic!("no text {member} in {object}"))
        .to_owned()
}
