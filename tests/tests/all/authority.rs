//! Bad news needs a source that is proved current: nginx is cut off, Redis is late, a replica
//! receives nothing more, the sidecar hangs.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use shortlink_tests::http::{self, Response};
use shortlink_tests::metrics::Page;
use shortlink_tests::nginx::{Nginx, NginxOptions, REAL_BUDGET};
use shortlink_tests::ports;
use shortlink_tests::proxy::{Mode, Proxy};
use shortlink_tests::redis::{Beats, Redis};
use shortlink_tests::sidecar::{Sidecar, api};
use shortlink_tests::stack::{directory, text};
use shortlink_tests::wait::{SOON, pass, until};
use tempfile::TempDir;

const TARGET: &str = "https://example.com/target";

/// The promised age of bad news: four seconds, and the time between a check and its beat.
const BOUND: Duration = Duration::from_secs(5);

/// nginx that reaches Redis through a proxy; the sidecar reaches it directly.
struct World {
    nginx: Nginx,
    sidecar: Sidecar,
    redis: Redis,
    proxy: Proxy,
    beats: Option<Beats>,
    _directory: TempDir,
}

impl World {
    /// Starts everything, and waits until the data of Redis are proved.
    fn start(replace: &[(&'static str, &str)]) -> Self {
        let directory = directory();
        let path = directory.path();
        let redis = Redis::start(&path.join("redis"), ports::free());
        let proxy = Proxy::to(redis.port);
        let sidecar = Sidecar::start(&path.join("sidecar"), ports::free(), redis.port, "");
        let mut replaced = vec![("worker_processes 2", "worker_processes 1".to_owned())];
        replaced.extend(replace.iter().map(|(from, to)| (*from, (*to).to_owned())));
        let options = NginxOptions {
            replace: replaced,
            budget: REAL_BUDGET,
            ..NginxOptions::default()
        };
        let ports = (ports::free(), ports::free());
        let nginx = Nginx::start(
            &path.join("nginx"),
            ports,
            proxy.port,
            sidecar.port,
            &options,
        );
        let beats = Some(redis.beats());
        let world = Self {
            nginx,
            sidecar,
            redis,
            proxy,
            beats,
            _directory: directory,
        };
        world.wait_for_proof();
        world
    }

    fn wait_for_proof(&self) {
        until("the data are proved", SOON, || {
            self.metric("shortlink_redis_authoritative") == 1.0
        });
    }

    fn metric(&self, name: &str) -> f64 {
        let page = http::get(self.nginx.internal_port, "/edge/metrics");
        Page::read(&String::from_utf8_lossy(&page.body)).sum(name)
    }

    fn api(&self, method: &str, path: &str, body: &serde_json::Value) -> Response {
        api(
            self.sidecar.port,
            &self.sidecar.key,
            method,
            path,
            Some(body),
        )
    }

    fn create(&self, body: &serde_json::Value) -> String {
        let answer = self.api("POST", "/v1/links", body);
        assert_eq!(
            answer.status,
            201,
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
        text(&answer.json(), "shortCode")
    }

    fn follow(&self, code: &str) -> Response {
        http::get(self.nginx.public_port, &format!("/{code}"))
    }

    /// Waits until a code is answered from the cache.
    fn cache(&self, code: &str, status: u16) {
        until(&format!("{code} is cached"), SOON, || {
            let answer = self.follow(code);
            let edge = answer.header("X-Edge").unwrap_or_default();
            answer.status == status && edge.ends_with("/cache")
        });
    }

    /// Unknown codes, cached as such; a paused and a scheduled link, and one of a paused campaign.
    fn with_bad_news(&self) -> Subjects {
        let custom: Vec<String> = (0..20).map(|number| format!("early{number:02}")).collect();
        for code in &custom {
            self.redis.set_record(code, &self.redis.negative());
            self.cache(code, 404);
        }
        let paused = self.create(&json!({ "longUrl": TARGET }));
        self.post(&format!("/v1/links/{paused}"), "pause");
        self.cache(&paused, 410);
        let scheduled =
            self.create(&json!({ "longUrl": TARGET, "validSince": "2099-01-01T00:00:00Z" }));
        self.cache(&scheduled, 404);
        let template = json!({ "name": "Spring", "longUrl": TARGET });
        let campaign = self.api("POST", "/v1/campaigns", &template);
        let campaign = text(&campaign.json(), "id");
        let member = self.create(&json!({ "campaignId": campaign }));
        let campaign = format!("/v1/campaigns/{campaign}");
        self.post(&campaign, "pause");
        self.cache(&member, 410);
        Subjects {
            custom,
            paused,
            scheduled,
            campaign,
            member,
        }
    }

    fn change(&self, code: &str, body: &serde_json::Value) {
        let answer = self.api("PATCH", &format!("/v1/links/{code}"), body);
        assert_eq!(
            answer.status,
            200,
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
    }

    fn post(&self, path: &str, change: &str) {
        let path = format!("{path}/{change}");
        let answer = api(self.sidecar.port, &self.sidecar.key, "POST", &path, None);
        assert_eq!(
            answer.status,
            200,
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
    }

    /// Makes all of them live.
    fn make_live(&self, subjects: &Subjects) {
        for code in &subjects.custom {
            self.create(&json!({ "longUrl": TARGET, "customSlug": code }));
        }
        self.post(&format!("/v1/links/{}", subjects.paused), "resume");
        self.post(&subjects.campaign, "resume");
        self.change(&subjects.scheduled, &json!({ "validSince": null }));
    }

    /// Every request redirects, from the first one on.
    fn assert_live(&self, subjects: &Subjects) {
        for _ in 0..3 {
            for code in subjects.all() {
                let answer = self.follow(code);
                let seen = (answer.status, answer.location());
                assert_eq!(seen, (302, Some(TARGET)), "{code}");
            }
        }
    }
}

struct Subjects {
    custom: Vec<String>,
    paused: String,
    scheduled: String,
    campaign: String,
    member: String,
}

impl Subjects {
    fn all(&self) -> impl Iterator<Item = &str> {
        let others = [&self.paused, &self.scheduled, &self.member];
        self.custom.iter().chain(others).map(String::as_str)
    }
}

#[test]
fn nginx_that_is_cut_off_denies_no_link_that_became_live() {
    for mode in [Mode::Silent, Mode::Slow(Duration::from_millis(125))] {
        let world = World::start(&[]);
        let subjects = world.with_bad_news();
        world.proxy.set(mode);
        // The bound of a worker that knows nothing of it.
        let begin = Instant::now();
        until("it is noticed", SOON, || {
            world.metric("shortlink_redis_authoritative") == 0.0
        });
        assert!(
            begin.elapsed() < BOUND + Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
        world.make_live(&subjects);
        world.assert_live(&subjects);
        world.proxy.set(Mode::Open);
        world.wait_for_proof();
        world.assert_live(&subjects);
    }
}

#[test]
fn bad_news_of_a_redis_without_beats_is_doubted() {
    let mut world = World::start(&[]);
    let subjects = world.with_bad_news();
    // A sidecar that beats must be gone, and its changes with it.
    world.beats = None;
    world.sidecar.hang();
    until("the proof ends", SOON, || {
        world.metric("shortlink_redis_authoritative") == 0.0
    });
    let answer = world.follow(&subjects.custom[0]);
    assert_eq!(
        (answer.status, answer.header("Retry-After")),
        (503, Some("2"))
    );
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    let gone = world.follow(&subjects.paused);
    assert_eq!(gone.status, 410);
    assert!(
        String::from_utf8_lossy(&gone.body).contains("<html"),
        "its page"
    );
    world.sidecar.go_on();
}

#[test]
fn a_hung_sidecar_takes_no_live_link_down() {
    let world = World::start(&[("worker_connections 4096", "worker_connections 256")]);
    let live: Vec<String> = (0..10)
        .map(|_| world.create(&json!({ "longUrl": TARGET })))
        .collect();
    for code in &live {
        assert_eq!(world.follow(code).status, 302);
    }
    world.sidecar.hang();
    let begin = Instant::now();
    let port = world.nginx.public_port;
    thread::scope(|scope| {
        // A flood of 120 unknown codes a second, whatever becomes of each.
        scope.spawn(|| {
            for number in 0..1200u32 {
                let due = Duration::from_millis(u64::from(number) * 1000 / 120);
                if let Some(ahead) = due.checked_sub(begin.elapsed()) {
                    pass(ahead);
                }
                scope.spawn(move || {
                    let request = http::request("GET", &format!("/nosuchone{number}"), &[], b"");
                    let answer = http::try_send(port, "GET", &request);
                    assert_eq!(answer.expect("an answer").status, 503);
                });
            }
        });
        let mut visits = 0;
        while begin.elapsed() < Duration::from_secs(10) {
            for code in &live {
                let answer = http::try_send(
                    port,
                    "GET",
                    &http::request("GET", &format!("/{code}"), &[], b""),
                );
                assert_eq!(answer.expect("an answer").status, 302);
                visits += 1;
            }
            pass(Duration::from_millis(50));
        }
        assert!(visits > 100, "{visits}");
    });
    assert!(world.metric("shortlink_fallback_refused_total") > 500.0);
    assert_eq!(world.metric("shortlink_fallback_breaker_open"), 1.0);
    let log = world.nginx.error_log();
    assert!(!log.contains("worker_connections are not enough"));
    let lines = log.lines().filter(|line| line.contains("[error]")).count();
    assert!(lines < 100, "{lines} lines");
    world.sidecar.go_on();
    until("the sidecar answers again", SOON, || {
        world.follow("nosuchone").status == 404
    });
    assert_eq!(world.metric("shortlink_fallback_breaker_open"), 0.0);
    until("lines that were left out are counted", SOON, || {
        world.nginx.error_log().contains(" lines of this kind)")
    });
}

#[test]
fn a_worker_without_files_says_that_it_is_unavailable() {
    let world = World::start(&[]);
    let live = world.create(&json!({ "longUrl": TARGET }));
    let mut visitor = http::Connection::open(world.nginx.public_port).expect("a connection");
    let mut follow = |code: &str| {
        let request = http::request("GET", &format!("/{code}"), &[], b"");
        visitor.send(&request).expect("a connection");
        visitor
            .receive("GET")
            .expect("an answer")
            .expect("an answer")
    };
    assert_eq!(follow(&live).status, 302);
    let worker = world.nginx.workers()[0];
    let limit = |files: usize| {
        let mut command = Command::new("prlimit");
        command.args([format!("--pid={worker}"), format!("--nofile={files}:")]);
        assert!(command.status().expect("prlimit").success());
    };
    // The first number that is free: no file can be opened, and open ones stay.
    let is_open = |file: &usize| Path::new(&format!("/proc/{worker}/fd/{file}")).exists();
    limit((0..).find(|file| !is_open(file)).expect("a number"));
    let answer = follow("nosuchone");
    assert_eq!(
        (answer.status, answer.header("Retry-After")),
        (503, Some("2"))
    );
    limit(1024);
    // nginx closes a connection on which it failed.
    assert_eq!(world.follow("nosuchone").status, 404);
    assert!(world.nginx.error_log().contains("Too many open files"));
}

#[test]
fn a_replica_that_receives_nothing_more_is_asked_for_five_seconds_at_most() {
    let directory = directory();
    let path = directory.path();
    let master = Redis::start(&path.join("master"), ports::free());
    let way = Proxy::to(master.port);
    let port = way.port.to_string();
    let replica = Redis::start_with(
        &path.join("replica"),
        ports::free(),
        &["--replicaof", "127.0.0.1", &port],
    );
    let sidecar = Sidecar::start(&path.join("sidecar"), ports::free(), master.port, "");
    let _beats = master.beats();
    let options = NginxOptions {
        redis: Some(format!(
            "server 127.0.0.1:{};\nreplica 127.0.0.1:{};",
            master.port, replica.port
        )),
        ..NginxOptions::default()
    };
    let ports = (ports::free(), ports::free());
    let nginx = Nginx::start(
        &path.join("nginx"),
        ports,
        master.port,
        sidecar.port,
        &options,
    );
    let create = |body| {
        let answer = api(sidecar.port, &sidecar.key, "POST", "/v1/links", Some(&body));
        assert_eq!(answer.status, 201);
        text(&answer.json(), "shortCode")
    };
    let follow = |code: &str| http::get(nginx.public_port, &format!("/{code}"));
    let doomed = create(json!({ "longUrl": TARGET }));
    until("the replica is asked", SOON, || {
        let page = http::get(nginx.internal_port, "/edge/metrics");
        let page = String::from_utf8_lossy(&page.body).into_owned();
        Page::read(&page).sum("shortlink_redis_authoritative") == 4.0
    });
    master.set_record("newcode", &master.negative());
    until("the replica has it", SOON, || {
        replica.record("newcode").is_some()
    });
    for _ in 0..3 {
        assert_eq!(
            (follow(&doomed).status, follow("newcode").status),
            (302, 404)
        );
    }
    way.set(Mode::Silent);
    let answer = api(
        sidecar.port,
        &sidecar.key,
        "DELETE",
        &format!("/v1/links/{doomed}"),
        None,
    );
    assert_eq!(answer.status, 200);
    create(json!({ "longUrl": TARGET, "customSlug": "newcode" }));
    let begin = Instant::now();
    until("the master is asked", SOON, || {
        (follow(&doomed).status, follow("newcode").status) == (410, 302)
    });
    assert!(
        begin.elapsed() < BOUND + Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
}
