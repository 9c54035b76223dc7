//! One id leads from nginx' log through the sidecar's to the statements in PostgreSQL.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use shortlink_tests::http;
use shortlink_tests::metrics::Page;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, eventually, until};

const TARGET: &str = "https://example.com/traced";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn start(postgres: &Postgres, sample_one_in: u32) -> Stack {
    postgres.query("ALTER SYSTEM SET log_statement = 'all'");
    postgres.query("SELECT pg_reload_conf()");
    Stack::with(&StackOptions {
        database: Some(postgres.url()),
        sidecar: format!(
            "[log]\nlevel = \"debug\"\nformat = \"json\"\nsample_one_in = {sample_one_in}\n"
        ),
        ..StackOptions::default()
    })
}

/// The statements that PostgreSQL was given with a comment that has this.
fn statements(directory: &Path, comment: &str) -> Vec<String> {
    let log = fs::read_to_string(directory.join("postgres/server.log")).expect("a log");
    let lines = log.lines().filter(|line| line.contains(comment));
    lines.map(str::to_owned).collect()
}

/// Returns the sidecar's log lines of a trace.
fn events(stack: &Stack, trace: &str) -> Vec<Value> {
    let log = stack.sidecar.log();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    events
        .filter(|event: &Value| event["span"]["trace_id"] == trace)
        .collect()
}

#[test]
fn a_request_is_found_in_every_log() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = start(&postgres, 1);

    // A caller of the API learns the id that nginx has given.
    let made = stack.api("POST", "/v1/links", Some(&json!({ "longUrl": TARGET })));
    let code = text(&made.json(), "shortCode");
    let id = made.header("X-Request-Id").expect("an id").to_owned();
    let comment = format!("/*traceparent='00-{id}-{}-01'*/", &id[..16]);
    let found = eventually("the statement is logged", SOON, || {
        Some(statements(directory.path(), &comment)).filter(|found| !found.is_empty())
    });
    assert!(
        found.iter().any(|line| line.contains("INSERT INTO")),
        "{found:?}"
    );
    let events_of = |id: &str| {
        eventually("the answer is logged", SOON, || {
            let mut events = events(&stack, id).into_iter();
            events.rfind(|it| it["message"] == "answered")
        })
    };
    let event = events_of(&id);
    assert_eq!(event["http.request.method"], "POST");
    assert_eq!(event["http.route"], "/v1/links");
    assert_eq!(event["http.response.status_code"], 201);
    assert!(event["http.server.request.duration"].as_f64() > Some(0.0));
    // It is the trace itself, and not said twice.
    assert_eq!(event["span"]["request_id"], Value::Null);

    // nginx' own log has it, and where the sidecar had no part none is drawn.
    let logged = |outcome: &str| {
        eventually("nginx has logged", SOON, || {
            let log = fs::read_to_string(stack.nginx.file("logs/access.log")).ok()?;
            let mut lines = log.lines().filter(|line| line.contains(outcome));
            let line = lines.next_back()?;
            Some(line.rsplit_once("trace=")?.1.to_owned())
        })
    };
    assert_eq!(logged("\"POST /v1/links\" 201"), id);
    assert_eq!(stack.follow(&code).location(), Some(TARGET));
    assert_eq!(logged("source=redis"), "-");
    until("a worker has kept it", SOON, || {
        let edge = stack.follow(&code);
        edge.header("X-Edge") == Some("redirect/cache")
    });
    assert_eq!(logged("source=cache"), "-");

    // A visitor whom nginx sends on is traced by nginx' id, whatever the visitor says.
    stack.redis.command(&["FLUSHALL"]);
    let said = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let headers = [("Host", "localhost"), ("traceparent", said.as_str())];
    let port = stack.nginx.public_port;
    until("the sidecar is asked", SOON, || {
        let followed = http::send(port, "GET", &format!("/{code}"), &headers);
        assert_eq!(followed.location(), Some(TARGET));
        followed.header("X-Edge") == Some("miss/fallback")
    });
    let id = logged("source=fallback");
    assert_eq!(id.len(), 32);
    let event = events_of(&id);
    assert_eq!(event["http.route"], "/resolve/{*path}");
    assert_eq!(event["http.response.status_code"], 302);
    assert!(!statements(directory.path(), &format!("00-{id}-")).is_empty());
    assert_eq!(statements(directory.path(), TRACE), [""; 0]);
}

#[test]
fn a_caller_may_say_what_is_traced() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = start(&postgres, 0);
    let send = |traceparent: &str| {
        let key = &stack.sidecar.key;
        let headers = [("X-Api-Key", key.as_str()), ("traceparent", traceparent)];
        let answer = http::send(
            stack.nginx.internal_port,
            "GET",
            "/v1/links?limit=1",
            &headers,
        );
        assert_eq!(answer.status, 200);
        answer.header("X-Request-Id").expect("an id").to_owned()
    };
    // No request is traced unless its client asks for it.
    send("");
    send("nonsense*/ DROP TABLE links");
    send(&format!("00-{TRACE}-00f067aa0ba902b7-00"));
    let id = send(&format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let found = eventually("the statement is logged", SOON, || {
        Some(statements(directory.path(), "traceparent=")).filter(|found| !found.is_empty())
    });
    let comment = format!("/*traceparent='00-{TRACE}-00f067aa0ba902b7-01'*/");
    assert!(
        found.iter().all(|line| line.contains(&comment)),
        "{found:?}"
    );
    // nginx' id of the request stands beside the trace.
    let events = eventually("the answers are logged", SOON, || {
        Some(events(&stack, TRACE)).filter(|events| events.len() >= 2)
    });
    assert!(events.iter().any(|it| it["span"]["request_id"] == id));

    let page = http::get(stack.sidecar.port, "/metrics");
    let page = Page::read(&String::from_utf8(page.body).expect("text"));
    let listed = page.of("http_server_request_duration_seconds_count");
    let listed = listed.into_iter().find(|sample| {
        sample.labels.get("http_route").map(String::as_str) == Some("/v1/links")
            && sample.labels.get("http_request_method").map(String::as_str) == Some("GET")
    });
    assert_eq!(listed.expect("a histogram").value, 4.0);
    assert!(page.sum("process_resident_memory_bytes") > 1e6);
    assert!(page.sum("process_cpu_seconds_total") >= 0.0);
    let started = page.sum("process_start_time_seconds");
    let now = page.sum("shortlink_clock_seconds");
    assert!((now - 600.0..=now + 1.0).contains(&started), "{started}");
}

#[test]
fn what_waits_long_for_the_database_is_logged() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = Stack::with(&StackOptions {
        database: Some(postgres.url()),
        sidecar: "[log]\nformat = \"json\"\n".to_owned(),
        ..StackOptions::default()
    });
    until("a short wait is not logged", SOON, || {
        let listed = stack.api("GET", "/v1/links?limit=1", None);
        assert_eq!(listed.status, 200);
        let id = listed.header("X-Request-Id").expect("an id");
        let mut events = events(&stack, id).into_iter();
        events.all(|it| it["message"] != "the database was slow")
    });
    // Longer than is slow, shorter than a lock is waited for; on a busy machine not at once.
    let event = eventually("a request waits long enough", SOON, || {
        let listed = std::thread::scope(|scope| {
            let lock = "LOCK TABLE links; SELECT pg_sleep(0.9)";
            let locker = scope.spawn(|| postgres.query(lock));
            until("the table is locked, or was", SOON, || {
                let held = "SELECT count(*) FROM pg_locks WHERE relation = 'links'::regclass \
                            AND mode = 'AccessExclusiveLock' AND granted";
                postgres.query(held) == "1" || locker.is_finished()
            });
            stack.api("GET", "/v1/links?limit=1", None)
        });
        let id = listed.header("X-Request-Id").expect("an id");
        let mut events = events(&stack, id).into_iter();
        events.find(|it| it["message"] == "the database was slow")
    });
    assert_eq!(event["operation"], "list links");
    assert!(event["seconds"].as_f64() > Some(0.5), "{event}");
}
