//! An erasure of visits outlives the process that does it, while visits of the same campaign arrive.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::chance::Chance;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::visits::put_of;
use shortlink_tests::wait::{OverAtEnd, pass, until};
use vocabulary::visit::VisitId;

/// Number of links of the campaign.
const LINKS: usize = 50;

/// Number of visits before the erasure: many steps.
const OLD: u64 = 40_000;

/// Number of kills in the middle of the erasure.
const KILLS: u64 = 4;

/// Number of events in a batch.
const BATCH: u64 = 200;

/// The limit until visits are stored or the erasure is done: after each kill, the next step waits for the claim of the
/// killed process to expire.
const LATE: Duration = Duration::from_secs(120);

const STREAM: &str = "sl:v:{0}";

const AGENT: &str = "Mozilla/5.0 (iPhone)";

const HOUR_MS: u64 = 3_600_000;

#[test]
fn an_erasure_is_complete_however_often_the_sidecar_is_killed() {
    let stack = Stack::start();
    let sql = Sql::of(&stack, None);
    erasure_outlives_kills(stack, &sql);
}

#[test]
fn an_erasure_on_postgres_is_complete_however_often_the_sidecar_is_killed() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    let stack = Stack::on(&postgres);
    let sql = Sql::of(&stack, Some(&postgres));
    erasure_outlives_kills(stack, &sql);
}

/// Appends events of the campaign, of which each second one is of an hour ago, until it is over; notes the times of the
/// others.
fn visit(
    (port, began_ms): (u16, u64),
    codes: &[String],
    times: &Mutex<Vec<u64>>,
    is_over: &AtomicBool,
) {
    let begun = std::time::Instant::now();
    let mut sequence = 0;
    while !is_over.load(Ordering::Relaxed) {
        let passed = u64::try_from(begun.elapsed().as_millis()).expect("a number");
        let now_ms = began_ms + passed;
        let visits = (0..20).map(|n| {
            let code = &codes[(sequence + n) as usize % codes.len()];
            let time_ms = if n % 2 == 0 { now_ms } else { now_ms - HOUR_MS };
            let id = VisitId {
                origin: 2,
                sequence: sequence + n,
            };
            (id, code.as_str(), time_ms)
        });
        put_of(port, STREAM, visits, AGENT);
        times.lock().expect("no holder panics").extend([now_ms; 10]);
        sequence += 20;
        pass(Duration::from_millis(20));
    }
}

fn erasure_outlives_kills(mut stack: Stack, sql: &Sql<'_>) {
    let body = json!({ "name": "Spring", "longUrl": "https://e.example/{member}" });
    let made = stack.api("POST", "/v1/campaigns", Some(&body));
    let campaign = text(&made.json(), "id");
    let codes: Vec<String> = (0..LINKS)
        .map(|n| {
            let body = json!({ "campaignId": campaign, "parameters": { "member": n.to_string() } });
            text(&stack.create(&body), "shortCode")
        })
        .collect();
    let port = stack.redis.port;
    let now_ms = 1000 * stack.redis.now();
    for first in (0..OLD).step_by(BATCH as usize) {
        let visits = (first..first + BATCH).map(|sequence| {
            let code = &codes[sequence as usize % LINKS];
            let id = VisitId {
                origin: 1,
                sequence,
            };
            (id, code.as_str(), now_ms - HOUR_MS - sequence)
        });
        put_of(port, STREAM, visits, AGENT);
    }
    let count = |of: &str| sql.number(&format!("SELECT count(*) FROM visits WHERE {of}"));
    until("the visits are stored", LATE, || {
        count("1 = 1") as u64 == OLD
    });

    let (times, is_over) = (Mutex::default(), AtomicBool::new(false));
    let mut last = Value::Null;
    let mut chance = Chance::default();
    thread::scope(|scope| {
        let _over = OverAtEnd(&is_over);
        let server = (port, 1000 * stack.redis.now());
        let (codes, times, is_over) = (&codes, &times, &is_over);
        scope.spawn(move || visit(server, codes, times, is_over));
        until("visits arrive", LATE, || count("1 = 1") as u64 > OLD);
        let body = json!({ "action": "erase", "campaignId": campaign });
        let job = stack.api("POST", "/v1/jobs", Some(&body));
        assert_eq!(job.status, 202);
        let path = format!("/v1/jobs/{}", job.json()["id"]);
        let job = |stack: &Stack| stack.api("GET", &path, None).json();
        let erased = |stack: &Stack| job(stack)["erased"]["visits"].as_u64().expect("a number");
        for kill in 1..=KILLS {
            let enough = OLD * kill / (KILLS + 2);
            until("some visits are erased", LATE, || erased(&stack) >= enough);
            pass(chance.time_below(Duration::from_millis(50)));
            stack.sidecar.kill();
            stack.sidecar.start_again();
        }
        until("the erasure is done", LATE, || {
            last = job(&stack);
            last["state"] == "done"
        });
    });
    // Events of before that arrive even later, and one of now behind them.
    let now_ms = 1000 * stack.redis.now();
    let late = (0..100).map(|sequence| {
        let time_ms = if sequence < 99 {
            now_ms - HOUR_MS
        } else {
            now_ms
        };
        let id = VisitId {
            origin: 3,
            sequence,
        };
        (id, codes[0].as_str(), time_ms)
    });
    put_of(port, STREAM, late, AGENT);
    let mut times = times.into_inner().expect("no holder panics");
    times.push(now_ms);
    let erased_ms = sql.number(&format!(
        "SELECT created_at FROM jobs WHERE id = {}",
        last["id"]
    ));
    let left = times
        .iter()
        .filter(|time| **time as i64 > erased_ms)
        .count() as i64;
    let later = format!("at > {erased_ms}");
    until("the visits of after it are stored", LATE, || {
        count(&later) == left
    });
    assert_eq!(count(&format!("at <= {erased_ms}")), 0, "{last}");

    // Counts have all visits that were ever stored, those of the links without their hours.
    let erased = last["erased"]["visits"].as_i64().expect("a number");
    assert!(erased >= OLD as i64, "{last}");
    let path = format!("/v1/campaigns/{campaign}/stats");
    let counted = stack.api("GET", &path, None).json()["visits"]["total"].clone();
    assert_eq!(counted, erased + left, "{last}");
    let of_links = "SELECT coalesce(sum(visits), 0) FROM visit_link_hours WHERE";
    let all = format!("{of_links} 1 = 1");
    assert_eq!(sql.number(&all), erased + left, "{last}");
    let by_hour = format!("{of_links} hour > -1000000000");
    assert!(sql.number(&by_hour) <= left, "{last}");
    assert_eq!(last["changed"], json!(LINKS), "{last}");

    // A link was clicked if and only if a visit of it is left, whichever step was killed.
    let key = match sql {
        Sql::File(_) => "link_id",
        Sql::Server(_) => "code",
    };
    let expected = sql.query(&format!(
        "SELECT {key}, min(at), max(at), count(*) FROM visits WHERE class = 'human' GROUP BY 1 ORDER BY 1"
    ));
    let clicks = format!("SELECT {key}, first_at, last_at, visits FROM link_clicks ORDER BY 1");
    assert_eq!(sql.query(&clicks), expected);
    let path = format!("/v1/campaigns/{campaign}/clicks");
    let counted = stack.api("GET", &path, None).json();
    assert_eq!(counted["issued"], LINKS);
    assert_eq!(counted["clicked"], expected.lines().count(), "{counted}");
}
