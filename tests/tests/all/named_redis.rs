//! Several Redis servers behind one nginx, each with locations, links, visits and metrics of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::cluster::Cluster;
use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::metrics::Page;
use shortlink_tests::ports;
use shortlink_tests::redis::{Beats, Redis};
use shortlink_tests::site::{ONE, Site, SiteOptions};
use shortlink_tests::stack;
use shortlink_tests::visits::visits;
use shortlink_tests::wait::{OverAtEnd, SOON, pass, until};
use tempfile::TempDir;

use crate::visits::{STREAM, follow_on};

/// The target of the code `one` in the Redis with a name.
const BLUE_ONE: &str = "https://blue.example/one";

/// A site whose second server asks a second Redis, named `blue`.
struct Sites {
    site: Site,
    blue: Redis,
    _beats: Beats,
    _directory: TempDir,
}

/// The differences between a test's sites and others.
struct Options<'a> {
    visits: &'a str,
    cache: &'a str,
    /// The answer of the fallback of `blue`.
    blue_fallback: &'a str,
    workers: usize,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            visits: "off",
            cache: "1m stale=10m",
            blue_fallback: "404",
            workers: 1,
        }
    }
}

impl Sites {
    fn start(options: &Options<'_>) -> Self {
        let directory = stack::directory();
        let blue = second_redis(&directory.path().join("blue"));
        let beats = blue.beats();
        let http = format!(
            "shortlink_redis blue {{ server 127.0.0.1:{}; heartbeat 100ms; budget 10s; }}\n\
             server {{\nlisten 127.0.0.1:INTERNAL_PORT;\n\
             location / {{ shortlink blue; shortlink_fallback @fallback max_fails=2; }}\n\
             location @fallback {{ return {}; }}\n}}\n# more",
            blue.port, options.blue_fallback
        );
        let site = Site::with(&SiteOptions {
            http: &http,
            server: "location / { shortlink; shortlink_fallback @fallback max_fails=2; }\n\
                     location @fallback { return 404; }\n\
                     location = /metrics { shortlink_status; }",
            visits: options.visits,
            cache: options.cache,
            workers: options.workers,
            ..SiteOptions::default()
        });
        let this = Self {
            site,
            blue,
            _beats: beats,
            _directory: directory,
        };
        let authoritative = "shortlink_redis_authoritative";
        until("both are proved current", SOON, || {
            let numbers = this.numbers(authoritative);
            let all = options.workers as f64;
            numbers.get("") == Some(&all) && numbers.get("blue") == Some(&all)
        });
        this
    }

    fn blue(&self, path: &str) -> Response {
        http::get(self.site.nginx.internal_port, path)
    }

    fn follow_blue(&self, count: usize) {
        for _ in 0..count {
            let answer = self.blue("/one");
            assert_eq!((answer.status, answer.location()), (302, Some(BLUE_ONE)));
        }
    }

    /// The sum of a metric's samples by the name of the Redis.
    fn numbers(&self, metric: &str) -> BTreeMap<String, f64> {
        let page = self.site.get("/metrics").body;
        let page = Page::read(&String::from_utf8(page).expect("text"));
        let mut numbers = BTreeMap::new();
        for sample in page.of(metric) {
            let name = sample.labels.get("redis").cloned().unwrap_or_default();
            *numbers.entry(name).or_default() += sample.value;
        }
        numbers
    }
}

/// Another Redis, with the code `one` and a revoked one.
fn second_redis(directory: &Path) -> Redis {
    let redis = Redis::start(directory, ports::free());
    redis.set_record("one", &format!("1 302 1 0 {BLUE_ONE}"));
    redis
}

/// Number of connections that workers have to a Redis.
fn edges(redis: &Redis) -> usize {
    let clients = redis.command(&["CLIENT", "LIST"]);
    clients.matches("name=shortlink-edge").count()
}

/// The codes of the visits in a Redis.
fn recorded(redis: &Redis) -> usize {
    visits(redis.port, STREAM).len()
}

#[test]
fn one_code_has_a_target_in_each_redis_and_is_revoked_in_one() {
    let sites = Sites::start(&Options::default());
    for _ in 0..5 {
        let answer = sites.site.get("/one");
        assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
        sites.follow_blue(1);
    }
    assert_eq!(
        sites.site.get("/one").header("X-Edge"),
        Some("redirect/cache")
    );
    assert_eq!(sites.blue("/two").status, 404);
    sites.blue.set_record("one", "1 410 2");
    until("the revocation has reached the worker", SOON, || {
        sites.blue("/one").status == 410
    });
    let answer = sites.site.get("/one");
    assert_eq!(answer.location(), Some(ONE));
    assert_eq!(answer.header("X-Edge"), Some("redirect/cache"));
    sites.site.redis.set_record("one", "1 410 2");
    sites
        .blue
        .set_record("one", &format!("1 302 3 0 {BLUE_ONE}"));
    until("both changes have reached the worker", SOON, || {
        sites.site.get("/one").status == 410 && sites.blue("/one").location() == Some(BLUE_ONE)
    });
    // Each Redis has a connection of its own, and is named in the metrics unless it has no name.
    assert_eq!((edges(&sites.site.redis), edges(&sites.blue)), (1, 1));
    let keys = |numbers: BTreeMap<String, f64>| numbers.into_keys().collect::<Vec<_>>();
    assert_eq!(
        keys(sites.numbers("shortlink_requests_total")),
        ["", "blue"]
    );
    assert_eq!(keys(sites.numbers("shortlink_cache_entries")), ["", "blue"]);
    assert_eq!(
        keys(sites.numbers("shortlink_redis_round_trip_seconds_count")),
        ["", "blue"]
    );
    assert_eq!(keys(sites.numbers("shortlink_workers")), [""]);
    let page = String::from_utf8(sites.site.get("/metrics").body).expect("text");
    assert_eq!(page.matches("# TYPE shortlink_requests_total ").count(), 1);
    let blue = r#"shortlink_requests_total{outcome="miss",source="fallback",redis="blue"} 1"#;
    assert!(page.contains(blue), "{page}");
    assert!(
        page.contains(
            "\nshortlink_redis_connected 1\nshortlink_redis_connected{redis=\"blue\"} 1\n"
        )
    );
    sites.site.assert_ends_sound(&[]);
}

#[test]
fn visits_reach_the_redis_of_their_link_also_through_files() {
    let mut sites = Sites::start(&Options {
        visits: "on bytes=8k buffer=64k interval=20ms spool=spool",
        ..Options::default()
    });
    follow_on(sites.site.nginx.public_port, 10);
    sites.follow_blue(20);
    until("all visits are stored", SOON, || {
        (recorded(&sites.site.redis), recorded(&sites.blue)) == (10, 20)
    });
    sites.blue.kill();
    let spool = sites.site.nginx.file("spool");
    let files = |directory: &Path| {
        let entries = fs::read_dir(directory).expect("the directory");
        let files = entries.filter(|entry| entry.as_ref().expect("an entry").path().is_file());
        files.count()
    };
    // More than fits in memory.
    sites.follow_blue(3000);
    follow_on(sites.site.nginx.public_port, 10);
    assert!(files(&spool.join("blue")) > 0);
    assert_eq!(files(&spool), 0);
    assert_eq!(sites.numbers("shortlink_visits_dropped_total")["blue"], 0.0);
    assert!(sites.numbers("shortlink_visits_spooled_total")["blue"] > 1000.0);
    assert_eq!(sites.numbers("shortlink_visits_spooled_total")[""], 0.0);
    until("the other Redis gets its visits", SOON, || {
        recorded(&sites.site.redis) == 20
    });
    sites.blue.start_again();
    until("its own Redis gets the rest", SOON, || {
        recorded(&sites.blue) == 3020
    });
    until("no file is left", SOON, || files(&spool.join("blue")) == 0);
    assert_eq!(recorded(&sites.site.redis), 20);
    // Files of a Redis that no location uses are reported.
    let nginx = &sites.site.nginx;
    fs::write(spool.join("blue").join("left.visits"), "").expect("a file");
    let warned = |text: &str| {
        let tested = nginx.test_configuration();
        let said = String::from_utf8_lossy(&tested.stderr).into_owned();
        assert!(tested.status.success(), "{said}");
        said.contains(text)
    };
    assert!(!warned("has visits that are not sent"));
    nginx.edit("public.conf", "shortlink blue;", "shortlink;");
    assert!(warned(
        "spool/blue has visits that are not sent, because no location has \"shortlink blue;\""
    ));
    let log = nginx.error_log();
    assert!(log.contains("shortlink \"blue\": lost Redis"), "{log}");
    assert!(!log.contains("shortlink: lost Redis"), "{log}");
    sites.site.assert_ends_sound(&["lost Redis"]);
}

#[test]
fn a_redis_that_hangs_delays_no_redirect_of_another_and_its_requests_are_answered() {
    let sites = Sites::start(&Options {
        cache: "off",
        ..Options::default()
    });
    sites.blue.hang();
    let mut waiting: Vec<Connection> = (0..10)
        .map(|_| {
            let port = sites.site.nginx.internal_port;
            let mut connection = Connection::open(port).expect("a connection");
            let request = http::request("GET", "/one", &[], b"");
            connection.send(&request).expect("sent");
            connection
        })
        .collect();
    until("all wait", SOON, || {
        sites.numbers("shortlink_waiting_requests")["blue"] == 10.0
    });
    let begin = Instant::now();
    follow_on(sites.site.nginx.public_port, 100);
    // One that waited for the other Redis would take a second at least.
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(sites.numbers("shortlink_waiting_requests")["blue"], 10.0);
    assert_eq!(sites.numbers("shortlink_redis_connected")[""], 1.0);
    // A client that leaves is taken from those who wait for its own Redis.
    waiting.truncate(5);
    until("five have left", SOON, || {
        sites.numbers("shortlink_waiting_requests")["blue"] == 5.0
    });
    sites.blue.go_on();
    for connection in &mut waiting {
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!((answer.status, answer.location()), (302, Some(BLUE_ONE)));
    }
    sites
        .site
        .assert_ends_sound(&["lost Redis", "answers too late"]);
}

#[test]
fn an_old_worker_answers_the_requests_that_wait_for_any_redis() {
    let sites = Sites::start(&Options {
        cache: "off",
        workers: 2,
        ..Options::default()
    });
    let nginx = &sites.site.nginx;
    sites.blue.hang();
    let mut waiting = Connection::open(nginx.internal_port).expect("a connection");
    let request = http::request("GET", "/one", &[], b"");
    waiting.send(&request).expect("sent");
    until("it waits", SOON, || {
        sites.numbers("shortlink_waiting_requests")["blue"] == 1.0
    });
    let old = nginx.begin_reload();
    // The timer of the Redis that nothing waits for keeps no worker; the other one does.
    follow_on(nginx.public_port, 10);
    pass(Duration::from_millis(500));
    sites.blue.go_on();
    let answer = waiting.receive("GET").expect("read").expect("an answer");
    assert_eq!((answer.status, answer.location()), (302, Some(BLUE_ONE)));
    drop(waiting);
    nginx.wait_for_end_of(&old);
    assert!(!nginx.error_log().contains("open socket"));
}

#[test]
fn a_cluster_beside_a_single_server_is_asked_for_its_own_codes() {
    let sites = Sites::start(&Options {
        cache: "off",
        ..Options::default()
    });
    let directory = stack::directory();
    let cluster = Cluster::start(directory.path());
    let _beats = cluster.beats();
    let target = |number: usize| format!("https://green.example/{number}");
    for number in 0..30 {
        let record = format!("1 302 1 0 {}", target(number));
        cluster.command(&["SET", &format!("sl:l:n{number}"), &record]);
    }
    let port = ports::free();
    let nginx = &sites.site.nginx;
    let added = format!(
        "shortlink_redis green {{ cluster 127.0.0.1:{}; budget 10s; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ shortlink green; }} }}",
        cluster.nodes[0].port
    );
    nginx.edit("public.conf", "# more", &added);
    nginx.reload_with(1);
    for number in 0..30 {
        let answer = http::get(port, &format!("/n{number}"));
        assert_eq!(answer.location(), Some(&*target(number)));
        assert_eq!(sites.site.get("/one").location(), Some(ONE));
        sites.follow_blue(1);
    }
    let asked = cluster.nodes.iter().filter(|node| edges(node) > 0);
    assert_eq!(asked.count(), cluster.nodes.len());
    assert_eq!(nginx.complaints(&[]), [""; 0]);
}

#[test]
fn codes_have_the_format_of_their_location() {
    let sites = Sites::start(&Options::default());
    let nginx = &sites.site.nginx;
    // Eight characters are an issued code with seven before its check character, which is wrong here.
    let code = "aaaaaaaa";
    for redis in [&sites.site.redis, &sites.blue] {
        redis.set_record(code, &format!("1 302 1 0 {ONE}"));
    }
    let path = format!("/{code}");
    let statuses = || (sites.site.get(&path).status, sites.blue(&path).status);
    assert_eq!(statuses(), (404, 404));
    let added = "shortlink blue; shortlink_check none;";
    nginx.edit("public.conf", "shortlink blue;", added);
    nginx.reload_with(1);
    assert_eq!(statuses(), (404, 302));
    // A location has that of its server unless it has one of its own.
    let listen = format!("listen 127.0.0.1:{};", nginx.internal_port);
    nginx.edit("public.conf", added, "shortlink blue;");
    nginx.edit(
        "public.conf",
        &listen,
        &format!("{listen} shortlink_check luhn body=6;"),
    );
    nginx.reload_with(1);
    assert_eq!(statuses(), (404, 302));
    nginx.edit(
        "public.conf",
        "shortlink blue;",
        "shortlink blue; shortlink_check luhn;",
    );
    nginx.reload_with(1);
    assert_eq!(statuses(), (404, 404));
    assert_eq!(nginx.complaints(&[]), [""; 0]);
}

#[test]
fn an_if_in_a_location_may_use_another_redis() {
    let sites = Sites::start(&Options::default());
    let nginx = &sites.site.nginx;
    nginx.edit(
        "public.conf",
        "location / { shortlink;",
        "location / { shortlink; if ($arg_brand) { shortlink blue; }",
    );
    nginx.reload_with(1);
    for _ in 0..3 {
        assert_eq!(sites.site.get("/one").location(), Some(ONE));
        assert_eq!(sites.site.get("/one?brand=1").location(), Some(BLUE_ONE));
    }
    assert_eq!(nginx.complaints(&[]), [""; 0]);
}

#[test]
fn the_fallbacks_of_two_redis_have_bounds_of_their_own() {
    let sites = Sites::start(&Options {
        blue_fallback: "502",
        ..Options::default()
    });
    let open = "shortlink_fallback_breaker_open";
    until("the fallback fails too often", SOON, || {
        assert!(matches!(sites.blue("/absent").status, 502 | 503));
        sites.numbers(open)["blue"] == 1.0
    });
    assert_eq!(sites.numbers(open)[""], 0.0);
    assert_eq!(sites.site.get("/absent").status, 404);
    assert_eq!(sites.numbers("shortlink_fallback_answers_total")[""], 1.0);
    sites.site.assert_sound(&["the fallback failed"]);
}

#[test]
fn an_address_has_misses_of_its_own_in_each_redis() {
    let sites = Sites::start(&Options::default());
    let nginx = &sites.site.nginx;
    nginx.edit("shortlink.conf", "127.0.0.0/8    1;", "127.0.0.0/8    0;");
    nginx.edit(
        "shortlink.conf",
        "rate=60r/m burst=100",
        "rate=1r/m burst=5",
    );
    nginx.reload_with(1);
    until("the address is limited", SOON, || {
        sites.blue("/absent").status == 429
    });
    assert_eq!(sites.site.get("/absent").status, 404);
    let limited = sites.numbers("shortlink_limit_reached_total");
    assert_eq!((limited[""], limited["blue"]), (0.0, 1.0));
}

#[test]
fn a_redis_that_no_location_uses_gets_no_connection_and_no_metrics() {
    let sites = Sites::start(&Options::default());
    let nginx = &sites.site.nginx;
    assert_eq!(edges(&sites.blue), 1);
    nginx.edit("public.conf", "shortlink blue;", "shortlink;");
    nginx.reload_with(1);
    until("no connection is left", SOON, || edges(&sites.blue) == 0);
    assert_eq!(sites.blue("/one").location(), Some(ONE));
    assert_eq!(edges(&sites.blue), 0);
    assert!(
        !sites
            .numbers("shortlink_requests_total")
            .contains_key("blue")
    );
    // The same for the Redis without a name.
    nginx.edit("public.conf", "shortlink;", "shortlink blue;");
    nginx.reload_with(1);
    until("no connection is left", SOON, || {
        edges(&sites.site.redis) == 0
    });
    assert_eq!(sites.site.get("/one").location(), Some(BLUE_ONE));
    assert_eq!(edges(&sites.site.redis), 0);
    let shown = sites.numbers("shortlink_requests_total");
    assert_eq!(shown.into_keys().collect::<Vec<_>>(), ["blue"]);
}

#[test]
fn no_request_fails_while_reloads_add_and_remove_a_redis() {
    let sites = Sites::start(&Options {
        visits: "on interval=20ms",
        workers: 2,
        ..Options::default()
    });
    let directory = stack::directory();
    let green = second_redis(&directory.path().join("green"));
    let port = ports::free();
    let added = format!(
        "shortlink_redis green {{ server 127.0.0.1:{}; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ shortlink green; }} }}",
        green.port
    );
    let nginx = &sites.site.nginx;
    let ports = [nginx.public_port, nginx.internal_port];
    let followed = [AtomicU64::new(0), AtomicU64::new(0)];
    let is_over = AtomicBool::new(false);
    let mut asked = 0;
    thread::scope(|scope| {
        let _over = OverAtEnd(&is_over);
        for ((port, target), followed) in ports.into_iter().zip([ONE, BLUE_ONE]).zip(&followed) {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let answer = http::get(port, "/one");
                    assert_eq!((answer.status, answer.location()), (302, Some(target)));
                    followed.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..5 {
            nginx.edit("public.conf", "# more", &added);
            nginx.reload();
            assert_eq!(http::get(port, "/one").location(), Some(BLUE_ONE));
            asked += 1;
            nginx.edit("public.conf", &added, "# more");
            nginx.reload();
            until("no connection is left", SOON, || edges(&green) == 0);
        }
    });
    let followed = followed.map(|count| count.into_inner() as usize);
    assert!(followed.iter().all(|&count| count > 100), "{followed:?}");
    until("every visit is stored, and none elsewhere", SOON, || {
        [&sites.site.redis, &sites.blue, &green].map(recorded) == [followed[0], followed[1], asked]
    });
    // The counters have survived.
    let total = sites.numbers("shortlink_visits_total");
    assert_eq!(
        [total[""], total["blue"]],
        followed.map(|count| count as f64)
    );
    assert_eq!(nginx.complaints(&[]), [""; 0]);
    assert!(!nginx.error_log().contains("open socket"));
}

#[test]
fn nginx_refuses_names_that_are_wrong_unknown_or_given_twice() {
    let sites = Sites::start(&Options::default());
    let refused = |from: &str, to: &str, expected: &[&str]| {
        let nginx = &sites.site.nginx;
        nginx.edit("public.conf", from, to);
        let tested = nginx.test_configuration();
        let said = String::from_utf8_lossy(&tested.stderr).into_owned();
        assert!(!tested.status.success(), "{to} is taken: {said}");
        for expected in expected.iter().chain(&["public.conf:"]) {
            assert!(said.contains(expected), "{to}: no {expected} in {said}");
        }
        nginx.edit("public.conf", to, from);
    };
    refused(
        "shortlink blue;",
        "shortlink red;",
        &[
            "\"shortlink red\"",
            "\"shortlink_redis\"",
            "\"shortlink_redis blue\"",
        ],
    );
    refused(
        "shortlink_redis blue",
        "shortlink_redis",
        &["\"shortlink_redis\" is given twice"],
    );
    refused(
        "# more",
        "shortlink_redis blue { server 127.0.0.1; }",
        &["\"shortlink_redis blue\" is given twice"],
    );
    for name in [
        "a/b",
        "bl.ue",
        "\"\"",
        "ä",
        "a23456789b23456789c23456789d23456",
    ] {
        let to = format!("shortlink {name};");
        refused(
            "shortlink blue;",
            &to,
            &["letters, digits", name.trim_matches('"')],
        );
    }
    refused(
        "shortlink blue;",
        "shortlink blue red;",
        &["number of arguments"],
    );
}
