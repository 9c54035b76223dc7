//! Visits in ClickHouse, while that is away, full, or not what it should be.

use serde_json::Value;
use shortlink_tests::clickhouse::ClickHouse;
use shortlink_tests::http;
use shortlink_tests::stack::{Stack, StackOptions, directory};
use shortlink_tests::wait::{SOON, until};

fn stack(clickhouse: &ClickHouse) -> Stack {
    Stack::with(&StackOptions {
        sidecar: format!("[visits]\nclickhouse = \"{}\"\n", clickhouse.url()),
        ..StackOptions::default()
    })
}

fn visits(stack: &Stack, code: &str) -> Option<u64> {
    let answer = stack.api("GET", &format!("/v1/links/{code}"), None);
    (answer.status == 200).then(|| answer.json()["visits"]["total"].as_u64())?
}

fn wait_for_visits(stack: &Stack, code: &str, count: u64) {
    until("the visits are stored", SOON, || {
        visits(stack, code) == Some(count)
    });
}

fn wait_for_message(stack: &Stack, words: &[&str]) {
    until(&format!("the log has {words:?}"), SOON, || {
        let log = stack.sidecar.log();
        log.lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    });
}

/// Checks what `shortlink doctor` finds out about ClickHouse.
fn doctor(stack: &Stack, state: &str, words: &str) {
    let output = stack.sidecar.run(&["doctor", "--json", "--without-nginx"]);
    let checks: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = checks["checks"].as_array().expect("checks");
    let found = checks.iter().find(|it| it["check"] == "clickhouse");
    let found = found.expect("the check of ClickHouse");
    assert_eq!(found["state"], state, "{found}");
    assert!(
        found["found"].as_str().is_some_and(|it| it.contains(words)),
        "{found}"
    );
}

/// Has ClickHouse execute a statement.
fn execute(clickhouse: &ClickHouse, statement: &str) {
    let request = http::request("POST", "/?database=shortlink", &[], statement.as_bytes());
    let answer = http::try_send(clickhouse.port, "POST", &request).expect("an answer");
    assert_eq!(
        answer.status,
        200,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
}

#[test]
fn while_clickhouse_is_away_or_full_links_work_and_visits_wait() {
    let directory = directory();
    let mut clickhouse = ClickHouse::start(directory.path());
    let stack = stack(&clickhouse);
    let code = stack.link("https://example.com/");
    assert_eq!(stack.follow(&code).status, 302);
    wait_for_visits(&stack, &code, 1);
    doctor(&stack, "ok", "tables are up to date");
    let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
    assert_eq!(link["visits"]["clicks"], link["visits"]["human"], "{link}");
    let clicked = || stack.api("GET", "/v1/links?clicked=true", None);
    assert_eq!(clicked().status, 200);
    clickhouse.kill();
    assert_eq!(clicked().status, 503);
    for _ in 0..5 {
        assert_eq!(stack.follow(&code).status, 302);
    }
    wait_for_message(&stack, &["ClickHouse at", "can't be reached", "start it"]);
    doctor(&stack, "fail", "can't be reached");
    let metrics = http::get(stack.sidecar.port, "/metrics").body;
    let metrics = String::from_utf8(metrics).expect("text");
    assert!(
        metrics.contains("\nshortlink_clickhouse_up 0\n"),
        "{metrics}"
    );
    let created = stack.link("https://example.com/new");
    assert_eq!(stack.follow(&created).status, 302);
    assert_eq!(visits(&stack, &code), None);
    clickhouse.start_again();
    wait_for_visits(&stack, &code, 6);
    wait_for_visits(&stack, &created, 1);
    clickhouse.fill(true);
    assert_eq!(stack.follow(&code).status, 302);
    wait_for_message(
        &stack,
        &["ClickHouse at", "no space left", "free or add some"],
    );
    clickhouse.fill(false);
    wait_for_visits(&stack, &code, 7);
}

#[test]
fn tables_of_another_version_or_database_are_refused_with_advice() {
    let directory = directory();
    let clickhouse = ClickHouse::start(directory.path());
    let mut stack = stack(&clickhouse);
    let code = stack.link("https://example.com/");
    for (change, back, words) in [
        (
            "ALTER TABLE visits_owner UPDATE version = version + 6 WHERE 1 SETTINGS mutations_sync = 1",
            "ALTER TABLE visits_owner UPDATE version = version - 6 WHERE 1 SETTINGS mutations_sync = 1",
            ["have the version", "install the version"],
        ),
        (
            "RENAME TABLE visits TO visits_before",
            "RENAME TABLE visits_before TO visits",
            ["lacks the tables of visits", "shortlink migrate"],
        ),
        (
            "ALTER TABLE visits RENAME COLUMN host TO domain",
            "ALTER TABLE visits RENAME COLUMN domain TO host",
            ["differ from those", "restore them"],
        ),
    ] {
        stack.sidecar.stop();
        execute(&clickhouse, change);
        stack.sidecar.start_again();
        assert_eq!(stack.follow(&code).status, 302);
        wait_for_message(&stack, &words);
        doctor(&stack, "fail", words[0]);
        execute(&clickhouse, back);
    }
    wait_for_visits(&stack, &code, 3);
}
