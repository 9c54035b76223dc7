//! Clocks of sidecars that are wrong, and wrong in different ways: what was stored reaches Redis all the same.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shortlink_tests::clock::Clock;
use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::proxy::{Mode, Proxy};
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::{Sidecar, api};
use shortlink_tests::stack::{directory, text};
use shortlink_tests::wait::{SOON, until};

/// The promise is 2 seconds; the rest allows for a machine that is busy with other tests.
const BOUND: Duration = Duration::from_secs(5);

/// Links of each sidecar.
const LINKS: usize = 20;

const RIGHT: i64 = 0;
const HOUR: i64 = 3600;

/// Gives a sidecar a clock of its own.
fn with_clock(sidecar: &mut Sidecar, clock: &Clock) {
    sidecar.kill();
    sidecar.environment = clock.environment();
    sidecar.start_again();
}

fn links(sidecar: &Sidecar) -> Vec<String> {
    let create = |_| {
        let body = json!({"longUrl": "https://example.com/"});
        let answer = api(sidecar.port, &sidecar.key, "POST", "/v1/links", Some(&body));
        assert_eq!(answer.status, 201);
        text(&answer.json(), "shortCode")
    };
    (0..LINKS).map(create).collect()
}

/// Revokes links, of which Redis must not learn.
fn revoke(sidecar: &Sidecar, codes: &[String]) {
    for code in codes {
        let path = format!("/v1/links/{code}");
        let answer = api(sidecar.port, &sidecar.key, "DELETE", &path, None);
        assert_eq!(answer.status, 200, "{code}");
        assert_eq!(answer.json()["published"], false, "{code}");
    }
}

fn readiness(sidecar: &Sidecar) -> Value {
    http::get(sidecar.port, "/readyz").json()
}

fn wait_until_ready(sidecar: &Sidecar) {
    until("nothing waits for Redis", SOON, || {
        readiness(sidecar)["status"] == "ready"
    });
}

/// Waits until a sidecar reports that changes wait for Redis.
fn wait_until_overdue(sidecar: &Sidecar, count: usize) {
    until("changes are overdue", SOON, || {
        let outbox = readiness(sidecar)["checks"]["outbox"].clone();
        outbox["waiting"] == count && outbox["since"].is_string()
    });
}

/// Has Redis come back, and all these revocations with it.
fn expect_revoked(redis: &Redis, proxy: &Proxy, codes: &[String]) {
    proxy.set(Mode::Open);
    let begun = Instant::now();
    until("every revocation is in Redis", SOON, || {
        let is_revoked = |code: &String| {
            redis
                .record(code)
                .is_some_and(|it| it.starts_with("1 410 "))
        };
        codes.iter().all(is_revoked)
    });
    let took = begun.elapsed();
    assert!(took < BOUND, "the last revocation after {took:?}");
}

#[test]
fn a_clock_one_hour_ahead_that_is_corrected_buries_no_revocation() {
    let directory = directory();
    let path = directory.path();
    let redis = Redis::start(&path.join("redis"), ports::free());
    let proxy = Proxy::to(redis.port);
    let clock = Clock::new(path);
    let mut sidecar = Sidecar::start(&path.join("sidecar"), ports::free(), proxy.port, "");
    sidecar.edit_config("timeout_ms = 5000", "timeout_ms = 250");
    with_clock(&mut sidecar, &clock);
    let early = links(&sidecar);
    clock.set(HOUR);
    let late = links(&sidecar);
    wait_until_ready(&sidecar);
    proxy.set(Mode::Cut);
    revoke(&sidecar, &early);
    clock.set(RIGHT);
    revoke(&sidecar, &late);
    let codes = [early, late].concat();
    wait_until_overdue(&sidecar, codes.len());
    // A command that reaches Redis says so, too.
    let [away, direct] = [proxy.port, redis.port].map(|port| format!("127.0.0.1:{port}/0"));
    sidecar.edit_config(&away, &direct);
    let audit = sidecar.run(&["audit"]);
    assert_eq!(audit.status.code(), Some(2), "{audit:?}");
    let report = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(report.contains(&codes.len().to_string()), "{report}");
    expect_revoked(&redis, &proxy, &codes);
    wait_until_ready(&sidecar);
    sidecar.run_ok(&["audit"]);
}

#[test]
fn sidecars_whose_clocks_are_five_minutes_apart_publish_for_each_other() {
    let directory = directory();
    let path = directory.path();
    let postgres = Postgres::start(&path.join("postgres"));
    let redis = Redis::start(&path.join("redis"), ports::free());
    let proxy = Proxy::to(redis.port);
    let mut ahead = Sidecar::start_on(
        &postgres.url(),
        &path.join("sidecar"),
        ports::free(),
        proxy.port,
        "timeout_ms = 250\n",
    );
    let mut behind = ahead.start_beside(ports::free());
    let clocks = [150, -150].map(|seconds| {
        let directory = path.join(seconds.to_string());
        std::fs::create_dir(&directory).expect("a directory");
        let clock = Clock::new(&directory);
        clock.set(seconds);
        clock
    });
    with_clock(&mut ahead, &clocks[0]);
    with_clock(&mut behind, &clocks[1]);
    let (theirs, ours) = (links(&ahead), links(&behind));
    wait_until_ready(&ahead);
    wait_until_ready(&behind);
    proxy.set(Mode::Cut);
    // Each revokes what the other has made, and either of them may be the one that publishes.
    revoke(&ahead, &ours);
    revoke(&behind, &theirs);
    let codes = [ours, theirs].concat();
    for sidecar in [&ahead, &behind] {
        wait_until_overdue(sidecar, codes.len());
    }
    expect_revoked(&redis, &proxy, &codes);
    for sidecar in [&ahead, &behind] {
        wait_until_ready(sidecar);
    }
    // One leaves revocations behind, and the other publishes them, whatever its clock says of them.
    let left = links(&ahead);
    wait_until_ready(&behind);
    proxy.set(Mode::Cut);
    revoke(&ahead, &left);
    ahead.kill();
    expect_revoked(&redis, &proxy, &left);
    wait_until_ready(&behind);
}
