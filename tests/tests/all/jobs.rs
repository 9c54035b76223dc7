//! Jobs outlive the process that does them.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::made::make_batch;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::wait::until;

/// Number of links of a job: many steps.
const LINKS: usize = 3_000;

/// Number of kills in the middle of a job.
const KILLS: u64 = 3;

/// The limit until a job is done: after each kill, its next step waits for the claim of the killed process to expire.
const LATE: Duration = Duration::from_secs(60);

#[test]
fn every_link_of_a_job_is_changed_once_however_often_the_sidecar_is_killed() {
    job_outlives_kills(Stack::start());
}

#[test]
fn every_link_of_a_job_is_changed_once_on_postgres_however_often_the_sidecar_is_killed() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    job_outlives_kills(Stack::on(&postgres));
}

fn job_outlives_kills(mut stack: Stack) {
    let targets: Vec<String> = (0..LINKS)
        .map(|row| format!("https://example.com/{row}"))
        .collect();
    let key = stack.sidecar.key.clone();
    let made = make_batch(stack.nginx.internal_port, &[("X-Api-Key", &key)], &targets).made;
    let codes: HashSet<String> = made.into_iter().map(|(_, made)| made.code).collect();
    assert_eq!(codes.len(), LINKS);
    let first = codes.iter().next().expect("a code");
    let link = stack.api("GET", &format!("/v1/links/{first}"), None).json();
    let upload = text(&link, "uploadId");
    let body = json!({ "action": "revoke", "uploadId": upload });
    let job = stack.api("POST", "/v1/jobs", Some(&body));
    assert_eq!(job.status, 202);
    let path = format!("/v1/jobs/{}", job.json()["id"]);
    let done = |stack: &Stack| {
        let job = stack.api("GET", &path, None).json();
        job["done"].as_u64().expect("a number")
    };
    for kill in 1..=KILLS {
        let enough = LINKS as u64 * kill / (KILLS + 2);
        until("the job has done some steps", LATE, || {
            done(&stack) >= enough
        });
        stack.sidecar.kill();
        stack.sidecar.start_again();
    }
    let mut last = Value::Null;
    until("the job is done", LATE, || {
        last = stack.api("GET", &path, None).json();
        last["state"] == "done"
    });
    assert_eq!(
        (&last["changed"], &last["selected"]),
        (&json!(LINKS), &json!(LINKS)),
        "{last}"
    );
    let results = stack.api("GET", &format!("{path}/results"), None).body;
    let results = String::from_utf8(results).expect("text");
    let results: Vec<Value> = results
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let told: HashSet<String> = results
        .iter()
        .map(|result| text(result, "shortCode"))
        .collect();
    assert_eq!((results.len(), told), (LINKS, codes.clone()));
    for code in codes.iter().take(50) {
        let history = stack
            .api("GET", &format!("/v1/links/{code}/history"), None)
            .json();
        assert_eq!(
            history["history"].as_array().map(Vec::len),
            Some(1),
            "{code}"
        );
    }
    until("the links answer 410", LATE, || {
        codes
            .iter()
            .take(200)
            .all(|code| stack.follow(code).status == 410)
    });
}
