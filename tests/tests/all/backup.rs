//! A backup is made while everything serves, everything is lost, and the backup is restored, as the
//! runbook says.

use std::collections::HashSet;
use std::fs;
use std::process::Command;

use serde_json::json;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://example.com/target";

/// The strategies with stored counters or with codes that were made ahead.
const STRATEGIES: [&str; 3] = ["permuted", "pool", "sequence"];

/// Number of links of each at a time: more than the pool is filled up to, so that it is emptied.
const LINKS: usize = 60;

/// A sidecar that looks after Redis by itself is not what is tried here.
const SIDECAR: &str = "[codes]\npool_low = 20\npool_high = 50";

fn make(stack: &Stack) -> Vec<String> {
    let strategies = STRATEGIES.iter();
    let made = strategies.flat_map(|strategy| {
        (0..LINKS).map(move |_| {
            let body = json!({ "longUrl": TARGET, "strategy": strategy });
            text(&stack.create(&body), "shortCode")
        })
    });
    made.collect()
}

/// Runs a command of the runbook.
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

/// The links before the backup: live ones, one that was changed and one that was revoked.
struct Before {
    live: Vec<String>,
    changed: String,
    revoked: String,
}

fn prepare(stack: &Stack) -> Before {
    let mut live = make(stack);
    let (changed, revoked) = (live.remove(0), live.remove(0));
    let path = format!("/v1/links/{changed}");
    let body = json!({ "longUrl": "https://example.com/changed" });
    assert_eq!(stack.api("PATCH", &path, Some(&body)).status, 200);
    let path = format!("/v1/links/{revoked}");
    assert_eq!(stack.api("DELETE", &path, None).status, 200);
    Before {
        live,
        changed,
        revoked,
    }
}

/// After the database of the backup is in its place and the sidecar is not running yet.
fn go_on(stack: &mut Stack, before: &Before, lost: &[String]) {
    stack.redis.start_again();
    let skipped = stack.sidecar.run(&["skip-codes", "--links", "1000"]);
    let said = String::from_utf8_lossy(&skipped.stderr).into_owned();
    assert!(skipped.status.success(), "{said}");
    assert!(
        said.contains("the codes that 1,000 links may have"),
        "{said}"
    );
    stack.sidecar.run_ok(&["rebuild"]);
    stack.sidecar.start_again();

    for code in &before.live {
        until("Redis answers for a link of the backup", SOON, || {
            let answer = stack.follow(code);
            assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
            let edge = answer.header("X-Edge").unwrap_or_default();
            edge == "redirect/redis" || edge == "redirect/cache"
        });
    }
    let answer = stack.follow(&before.changed);
    assert_eq!(answer.location(), Some("https://example.com/changed"));
    assert_eq!(stack.follow(&before.revoked).status, 410);
    // They are gone, and their codes belong to no other link.
    for code in lost {
        assert_eq!(stack.follow(code).status, 404);
    }
    let mut given: HashSet<String> = before.live.iter().chain(lost).cloned().collect();
    for code in make(stack) {
        assert_eq!(stack.follow(&code).location(), Some(TARGET));
        assert!(given.insert(code), "a code was given twice");
    }
    // The changed link can be changed further.
    let body = json!({ "longUrl": TARGET });
    let path = format!("/v1/links/{}", before.changed);
    let changed = stack.api("PATCH", &path, Some(&body)).json();
    assert_eq!(changed["published"], true);
    until("the change is seen", SOON, || {
        stack.follow(&before.changed).location() == Some(TARGET)
    });
    let (code, report) = {
        let output = stack.sidecar.run(&["audit", "--json"]);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(code, Some(0), "there is drift: {report}");
}

fn options(database: Option<String>) -> StackOptions {
    StackOptions {
        sidecar: SIDECAR.to_owned(),
        database,
        ..StackOptions::default()
    }
}

#[test]
fn a_database_of_sqlite_is_restored_and_no_code_is_given_twice() {
    let mut stack = Stack::with(&options(None));
    let database = stack.directory().join("sidecar/links.db");
    let copy = stack.directory().join("backup.db");
    let before = prepare(&stack);
    let (from, to) = (database.display().to_string(), copy.display().to_string());
    run("sqlite3", &[&from, &format!(".backup '{to}'")]);
    run("sqlite3", &[&to, "PRAGMA integrity_check"]);
    let lost = make(&stack);

    stack.sidecar.kill();
    stack.redis.kill_and_forget();
    for ending in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{from}{ending}"));
    }
    fs::copy(&copy, &database).expect("the backup");
    go_on(&mut stack, &before, &lost);
}

#[test]
fn a_database_of_postgres_is_restored_and_no_code_is_given_twice() {
    let directory = directory();
    let mut first = Postgres::start(&directory.path().join("first"));
    let mut stack = Stack::with(&options(Some(first.url())));
    let before = prepare(&stack);
    let file = directory.path().join("backup.dump").display().to_string();
    run(
        "pg_dump",
        &["--format=custom", "--file", &file, "--dbname", &first.url()],
    );
    let lost = make(&stack);

    stack.sidecar.kill();
    stack.redis.kill_and_forget();
    first.kill();
    let second = Postgres::start(&directory.path().join("second"));
    let target = second.url();
    let restore = ["--no-owner", "--exit-on-error", "--dbname", &target, &file];
    run("pg_restore", &restore);
    stack.sidecar.edit_config(&first.url(), &second.url());
    go_on(&mut stack, &before, &lost);
}
