//! Sidecars share the lanes of upkeep, and take over those of one that is killed in the middle.

use std::time::Duration;

use shortlink_tests::http;
use shortlink_tests::metrics::Page;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::Sidecar;
use shortlink_tests::stack::directory;
use shortlink_tests::wait::{SOON, eventually, until};

/// Lanes of each job.
const LANES: usize = 4;

/// Links that Redis has lost, and links whose quarantine is over.
const LIVE: usize = 60_000;
const DEAD: usize = 30_000;

/// A claim of a process that was killed expires after half a minute, and is looked at every ten seconds.
const TAKEN_OVER: Duration = Duration::from_secs(120);

/// A metric of a job, from one sidecar.
fn metric(sidecar: &Sidecar, name: &str, job: &str) -> u64 {
    let page = http::get(sidecar.port, "/metrics");
    let page = Page::read(&String::from_utf8_lossy(&page.body));
    let samples = page
        .of(name)
        .filter(|it| it.labels.get("job").map(String::as_str) == Some(job));
    samples.map(|it| it.value).sum::<f64>() as u64
}

fn lanes(sidecar: &Sidecar) -> [u64; 2] {
    ["reconcile", "sweep"].map(|job| metric(sidecar, "shortlink_job_lanes", job))
}

fn items(sidecar: &Sidecar) -> [u64; 2] {
    ["reconcile", "sweep"].map(|job| metric(sidecar, "shortlink_job_items_total", job))
}

#[test]
fn sidecars_share_lanes_and_finish_those_of_one_that_is_killed() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let settings = format!(
        "timeout_ms = 500\n[links]\nquarantine_days = 30\n\
         [upkeep]\nlanes = {LANES}\nreconcile_per_s = 3000\nrebuild = false\nsweep_every_s = 1\n"
    );
    let place = directory.path().join("sidecar");
    let first = Sidecar::start_on(
        &postgres.url(),
        &place,
        ports::free(),
        redis.port,
        &settings,
    );
    until("the only sidecar has all lanes", SOON, || {
        lanes(&first) == [LANES as u64; 2]
    });
    let mut second = first.start_beside(ports::free());
    let half = [LANES as u64 / 2; 2];
    until("both have half of the lanes", TAKEN_OVER, || {
        lanes(&first) == half && lanes(&second) == half
    });

    let before = items(&second);
    // A pass takes twenty seconds.
    let live = first.sample(LIVE, &[]);
    until("the second has compared some", TAKEN_OVER, || {
        items(&second)[0] > before[0]
    });
    let log = directory.path().join("dead");
    let count = DEAD.to_string();
    let words = ["make-sample-links", "--print-codes", "--count", &count];
    let mut dying = first.spawn(&[&words[..], &["--expired-days-ago", "40"]].concat(), &log);
    until("the second has deleted some", TAKEN_OVER, || {
        items(&second)[1] > before[1]
    });
    let done = items(&second);
    second.kill();
    let keys = redis.keys();
    assert!(keys < LIVE, "no link is missing in Redis: {keys}, {done:?}");
    assert!(dying.wait(TAKEN_OVER).success(), "{}", dying.log());
    assert!(done[1] - before[1] < DEAD as u64, "{done:?}");
    let dead = dying.log();
    let dead: Vec<&str> = dead.lines().filter(|it| !it.contains(' ')).collect();
    assert_eq!((live.len(), dead.len()), (LIVE, DEAD));

    until("the first has all lanes", TAKEN_OVER, || {
        lanes(&first) == [LANES as u64; 2]
    });
    until(
        "all dead links are deleted and their codes free",
        TAKEN_OVER,
        || {
            postgres
                .query("SELECT (SELECT count(*) FROM links) + (SELECT count(*) FROM removed_links)")
                == LIVE.to_string()
        },
    );
    // Each was deleted from the counts once.
    assert_eq!(
        postgres.query("SELECT sum(links) FROM code_usage"),
        LIVE.to_string()
    );
    eventually("Redis has all links", TAKEN_OVER, || {
        first.run(&["audit"]).status.success().then_some(())
    });
    for code in live.iter().step_by(1000) {
        assert!(
            redis.record(code).is_some_and(|it| it.contains("spring")),
            "{code}"
        );
    }
    for code in dead.iter().step_by(1000) {
        assert_eq!(redis.record(code), None);
        assert_eq!(
            http::get(first.port, &format!("/resolve/{code}")).status,
            404,
            "{code}"
        );
    }
    let errors = first.log();
    assert!(!errors.contains("ERROR"), "{errors}");
}
