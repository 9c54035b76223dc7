//! The real system of a schedule, and its faults.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::bounds::{BUDGET, HEARTBEAT};
use super::history::Moment;
use super::judge::{Effect, Window};
use super::plan::{Fault, Layout, Link, Plan, Servers, Store};
use crate::clock::Clock;
use crate::http;
use crate::nginx::{Nginx, NginxOptions};
use crate::ports;
use crate::postgres::Postgres;
use crate::process::{Process, signal};
use crate::proxy::{Mode, Proxy};
use crate::redis::{Redis, try_command};
use crate::sidecar::Sidecar;
use crate::stack::directory;
use crate::wait::{SOON, pass, until, within};

/// All servers and the proxies between them. They are ended in the order of the fields.
#[derive(Debug)]
pub struct World {
    /// nginx.
    pub nginx: Nginx,
    /// The sidecars, of which faults concern the first.
    pub sidecars: Vec<Sidecar>,
    /// The Redis servers; the first is the master.
    pub redis: Vec<Redis>,
    postgres: Option<Postgres>,
    layout: Layout,
    edge_redis: Proxy,
    sidecar_redis: Proxy,
    edge_sidecars: Vec<Proxy>,
    sidecar_sql: Proxy,
    replication: Proxy,
    edge_replica: Proxy,
    /// A client of the database that holds a lock.
    locker: Option<Process>,
    stopped_worker: Option<Pid>,
    /// The clock of the first sidecar.
    clock: Clock,
    directory: TempDir,
    begin: Instant,
    /// The faults as they happened.
    pub windows: Vec<Window>,
}

impl World {
    /// Starts everything.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(plan: &Plan) -> Self {
        let layout = plan.world;
        let directory = directory();
        let path = directory.path();
        let mut redis = vec![Redis::start(&path.join("redis"), ports::free())];
        let replication = Proxy::to(redis[0].port);
        if layout.redis != Servers::Single {
            let port = replication.port.to_string();
            let arguments = ["--replicaof", "127.0.0.1", &port];
            let pause = ["--repl-diskless-sync-delay", "0"];
            let arguments = [&arguments[..], &pause[..]].concat();
            redis.push(Redis::start_with(
                &path.join("replica"),
                ports::free(),
                &arguments,
            ));
            redis[0].command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
            until("the replica follows", SOON, || {
                redis[1].command(&["ROLE"]).contains("connected")
            });
        }
        let edge_redis = Proxy::to(redis[0].port);
        let sidecar_redis = Proxy::to(redis[0].port);
        let edge_replica = Proxy::to(redis.last().expect("a server").port);
        let postgres =
            (layout.store != Store::File).then(|| Postgres::start(&path.join("postgres")));
        let sidecar_sql = Proxy::to(postgres.as_ref().map_or(0, |postgres| postgres.port));
        let database = match layout.store {
            Store::File => format!("sqlite:{}", path.join("sidecar/links.db").display()),
            _ => format!(
                "postgres://shortlink@127.0.0.1:{}/postgres",
                sidecar_sql.port
            ),
        };
        let clock = Clock::new(path);
        let settings = "timeout_ms = 250\n[upkeep]\nsweep_every_s = 5\n";
        let mut sidecars = vec![Sidecar::start_on(
            &database,
            &path.join("sidecar"),
            ports::free(),
            sidecar_redis.port,
            settings,
        )];
        if layout.store == Store::Shared {
            sidecars.push(sidecars[0].start_beside(ports::free()));
        }
        for sidecar in &mut sidecars {
            set_time_limits(sidecar);
        }
        sidecars[0].environment = clock.environment();
        for sidecar in &mut sidecars {
            serve(sidecar);
        }
        let edge_sidecars: Vec<Proxy> = sidecars.iter().map(|it| Proxy::to(it.port)).collect();
        if layout.links > 0 {
            sidecars[0].sample(layout.links, &[]);
            sidecars[0].run_ok(&["rebuild"]);
        }
        let nginx = start_nginx(
            &path.join("nginx"),
            layout,
            [edge_redis.port, edge_replica.port],
            &edge_sidecars,
        );
        nginx.all_workers(layout.workers);
        Self {
            nginx,
            sidecars,
            redis,
            postgres,
            layout,
            edge_redis,
            sidecar_redis,
            edge_sidecars,
            sidecar_sql,
            replication,
            edge_replica,
            locker: None,
            stopped_worker: None,
            clock,
            directory,
            begin: Instant::now(),
            windows: Vec::new(),
        }
    }

    /// The beginning of the schedule.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// The directory of the servers' files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn now(&self) -> Moment {
        self.begin.elapsed()
    }

    fn link(&self, link: Link) -> &Proxy {
        match link {
            Link::EdgeRedis => &self.edge_redis,
            Link::SidecarRedis => &self.sidecar_redis,
            Link::EdgeSidecar(place) => &self.edge_sidecars[place],
            Link::SidecarSql => &self.sidecar_sql,
            Link::Replication => &self.replication,
            Link::EdgeReplica => &self.edge_replica,
        }
    }

    /// Notes a fault, and returns its place.
    fn note(&mut self, fault: Fault, effects: &'static [Effect]) -> usize {
        self.windows.push(Window {
            name: format!("{fault:?}"),
            begin: self.now(),
            end: None,
            effects,
        });
        self.windows.len() - 1
    }

    /// Begins a fault; returns the place of its window, if it is not over at once.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn begin_fault(&mut self, fault: Fault) -> usize {
        let place = self.note(fault, effects(fault, self.layout));
        match fault {
            Fault::KillRedis => self.redis[0].kill(),
            Fault::HangRedis => self.redis[0].hang(),
            Fault::Flush => drop(self.redis[0].command(&["FLUSHALL"])),
            Fault::FillRedis => {
                self.redis[0].command(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            Fault::Rewind => self.redis[0].save(),
            Fault::Failover => self.replication.set(Mode::Silent),
            Fault::KillSidecar(place) => self.sidecars[place].kill(),
            Fault::HangSidecar(place) => self.sidecars[place].hang(),
            Fault::Clock(seconds) => self.clock.set(seconds),
            Fault::LockSql => self.lock(),
            Fault::ReadOnlySql => self.set_read_only(true),
            Fault::FullDisk => {
                let sidecar = &self.sidecars[0];
                sidecar.limit_files(Some(sidecar.longest_file()));
            }
            Fault::KillSql => self.postgres.as_mut().expect("a PostgreSQL").kill(),
            Fault::Reload => signal(self.nginx.master(), Signal::SIGHUP),
            Fault::KillWorker => {
                let workers = self.nginx.all_workers(self.layout.workers);
                self.nginx.kill_workers(&workers[..1]);
            }
            Fault::HangWorker => {
                let workers = self.nginx.workers();
                let worker = Pid::from_raw(i32::try_from(workers[0]).expect("a pid"));
                kill(worker, Signal::SIGSTOP).expect("a worker");
                self.stopped_worker = Some(worker);
            }
            Fault::Connection(link, mode) => self.link(link).set(mode),
        }
        if matches!(fault, Fault::Flush | Fault::Reload | Fault::KillWorker) {
            self.windows[place].end = Some(self.now());
        }
        place
    }

    /// Ends a fault, which [`World::begin_fault`] began.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn end_fault(&mut self, fault: Fault, place: usize) {
        match fault {
            Fault::KillRedis => self.redis[0].start_again(),
            Fault::HangRedis => self.redis[0].go_on(),
            Fault::FillRedis => {
                self.redis[0].command(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            Fault::Rewind | Fault::Failover => {
                // Until here nothing has happened that anyone sees.
                self.windows[place].begin = self.now();
                self.windows[place].effects = OTHER_DATA;
                if fault == Fault::Rewind {
                    self.redis[0].kill_and_go_back();
                    self.redis[0].start_again();
                } else {
                    self.promote();
                }
            }
            Fault::KillSidecar(place) => {
                self.sidecars[place].launch();
                // The time that a process needs to start is that of the machine. Without its database it
                // may not start.
                let sidecar = &mut self.sidecars[place];
                let _ = within(SOON, || {
                    let is_done = sidecar.has_ended() || answers(sidecar.port, "/healthz");
                    is_done.then_some(())
                });
            }
            Fault::HangSidecar(place) => self.sidecars[place].go_on(),
            Fault::Clock(_) => self.clock.set(0),
            Fault::LockSql => self.locker = None,
            Fault::ReadOnlySql => self.set_read_only(false),
            Fault::FullDisk => self.sidecars[0].limit_files(None),
            Fault::KillSql => self.postgres.as_mut().expect("a PostgreSQL").start_again(),
            Fault::HangWorker => {
                if let Some(worker) = self.stopped_worker.take() {
                    kill(worker, Signal::SIGCONT).expect("a worker");
                }
            }
            Fault::Connection(link, _) => self.link(link).set(Mode::Open),
            Fault::Flush | Fault::Reload | Fault::KillWorker => return,
        }
        self.windows[place].end = Some(self.now());
    }

    /// Lets time pass; a sidecar that ends by itself meanwhile, since its database is away, is started
    /// again, as systemd does.
    pub fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            self.supervise();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            pass(left.min(Duration::from_millis(100)));
        }
    }

    /// Starts sidecars that have ended by themselves.
    pub fn supervise(&mut self) {
        for place in 0..self.sidecars.len() {
            if self.sidecars[place].has_ended() {
                let effects = effects(Fault::KillSidecar(place), self.layout);
                let begin = self.now();
                self.sidecars[place].launch();
                self.windows.push(Window {
                    name: "a sidecar ended by itself".to_owned(),
                    begin,
                    end: Some(self.now()),
                    effects,
                });
            }
        }
    }

    /// Has the replica take over, which does not know of the last changes.
    fn promote(&mut self) {
        self.redis[0].kill();
        self.redis.swap(0, 1);
        self.redis[0].promote();
        for proxy in [&self.edge_redis, &self.sidecar_redis] {
            proxy.switch(self.redis[0].port);
        }
    }

    fn lock(&mut self) {
        let log = self.directory.path().join("locker.log");
        let _ = fs::remove_file(&log);
        let mut command = Command::new("sh");
        match &self.postgres {
            None => {
                let file = self.directory.path().join("sidecar/links.db");
                command.arg("-c").arg(format!(
                    "(echo 'BEGIN EXCLUSIVE; SELECT 7;'; exec sleep 60) | \
                     exec sqlite3 -cmd '.timeout 5000' '{}'",
                    file.display()
                ));
            }
            Some(postgres) => {
                command.arg("-c").arg(format!(
                    "(echo 'BEGIN; LOCK TABLE links IN ACCESS EXCLUSIVE MODE; SELECT 7;'; \
                     exec sleep 60) | exec psql -X -A -t -q -d '{}'",
                    postgres.url()
                ));
            }
        }
        self.locker = Some(Process::start("a locker", &command, &log));
        // A busy database may not give the lock: then there is no fault.
        let _ = within(Duration::from_secs(5), || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            said.contains('7').then_some(())
        });
    }

    fn set_read_only(&self, on: bool) {
        let postgres = self.postgres.as_ref().expect("a PostgreSQL");
        let word = if on { "on" } else { "off" };
        postgres.query(&format!(
            "SET TRANSACTION READ WRITE; \
             ALTER DATABASE postgres SET default_transaction_read_only = {word}"
        ));
        // Sessions that run keep the setting that they began with.
        postgres.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'shortlink'",
        );
    }

    /// The record of a key in the Redis that has the data now, for reports.
    pub fn record(&self, key: &str) -> String {
        try_command(self.redis[0].port, &["GET", key]).unwrap_or_else(|error| error.to_string())
    }
}

/// Effects of a Redis that has other data all at once.
const OTHER_DATA: &[Effect] = &[
    Effect::Rewound,
    Effect::EdgeBlind,
    Effect::Unpublished,
    Effect::Lost,
    Effect::VisitsLost,
];

fn effects(fault: Fault, layout: Layout) -> &'static [Effect] {
    use Effect::{EdgeBlind, Lagging, Lost, NginxBreaks, NoFallback, Unpublished, VisitsLost};
    match fault {
        // The replica still answers.
        Fault::KillRedis | Fault::HangRedis if layout.redis == Servers::Near => {
            &[EdgeBlind, Unpublished, Lagging]
        }
        Fault::KillRedis | Fault::HangRedis => &[EdgeBlind, Unpublished],
        // New changes are as they are; records are missing.
        Fault::Flush => &[Lost, VisitsLost, Unpublished],
        Fault::FillRedis => &[Unpublished],
        // These have effects at their end only.
        Fault::Rewind => &[],
        Fault::Failover => &[],
        Fault::KillSidecar(_) | Fault::HangSidecar(_) => &[NoFallback, Unpublished],
        Fault::Clock(_) => &[Effect::WrongClock],
        Fault::LockSql | Fault::KillSql | Fault::ReadOnlySql => &[NoFallback, Unpublished],
        Fault::FullDisk => &[Unpublished],
        Fault::Reload => &[EdgeBlind],
        Fault::KillWorker => &[EdgeBlind, NginxBreaks],
        Fault::HangWorker => &[EdgeBlind],
        Fault::Connection(link, _) => match link {
            Link::EdgeRedis if layout.redis == Servers::Near => &[EdgeBlind, Lagging],
            Link::EdgeRedis => &[EdgeBlind],
            Link::SidecarRedis => &[Unpublished],
            Link::EdgeSidecar(_) => &[NoFallback],
            Link::SidecarSql => &[NoFallback, Unpublished],
            Link::Replication => &[Lagging],
            Link::EdgeReplica => &[EdgeBlind],
        },
    }
}

/// Returns whether a sidecar answers 200.
fn answers(port: u16, path: &str) -> bool {
    let bytes = http::request("GET", path, &[], b"");
    http::try_send(port, "GET", &bytes).is_ok_and(|answer| answer.status == 200)
}

/// Starts a sidecar, again if a busy machine lets it wait too long for its database.
fn serve(sidecar: &mut Sidecar) {
    sidecar.launch();
    until("the sidecar is ready", SOON, || {
        if sidecar.has_ended() {
            sidecar.launch();
        }
        answers(sidecar.port, "/readyz")
    });
}

/// Stops a sidecar that other tests would use, and gives it the default limits.
fn set_time_limits(sidecar: &mut Sidecar) {
    sidecar.kill();
    sidecar.edit_config("acquire_timeout_ms = 3000", "acquire_timeout_ms = 1000");
    sidecar.edit_config(
        "statement_timeout_ms = 20000",
        "statement_timeout_ms = 2000",
    );
    sidecar.edit_config("lock_timeout_ms = 20000", "lock_timeout_ms = 1000");
}

fn start_nginx(
    prefix: &Path,
    layout: Layout,
    [redis, replica]: [u16; 2],
    sidecars: &[Proxy],
) -> Nginx {
    let heartbeat = HEARTBEAT.as_millis();
    let near = match layout.redis {
        Servers::Near => format!("replica   127.0.0.1:{replica};\n"),
        Servers::Single | Servers::Pair => String::new(),
    };
    let budget = format!("{}ms", BUDGET.as_millis());
    let mut replace = vec![
        (
            "shortlink_cache 32m stale=60s;",
            format!("shortlink_cache 1m stale={}s;", layout.stale.as_secs()),
        ),
        (
            "worker_processes 2",
            format!("worker_processes {}", layout.workers),
        ),
        ("budget   2s", format!("budget   {budget}")),
    ];
    if let Some(second) = sidecars.get(1) {
        let second = second.port;
        replace.push((
            "max_fails=0;",
            format!("max_fails=0;\n server 127.0.0.1:{second} max_fails=0;"),
        ));
    }
    if layout.spool {
        replace.push(("buffer=8m", "buffer=8m spool=spool".to_owned()));
    }
    let options = NginxOptions {
        redis: Some(format!(
            "server   127.0.0.1:{redis};\n{near}heartbeat {heartbeat}ms;"
        )),
        replace,
        ..NginxOptions::default()
    };
    Nginx::start(
        prefix,
        (ports::free(), ports::free()),
        0,
        sidecars[0].port,
        &options,
    )
}
