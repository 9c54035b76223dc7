//! Schemathesis makes requests of `/openapi.json`, good and bad ones, and finds nothing wrong in the
//! answers. `tests/schemathesis/schemathesis.toml` says what it leaves out, and why.

use std::process::Command;
use std::time::Duration;

use shortlink_tests::process::Process;
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::{http, workspace};

/// The longest run beside other tests; by itself it takes half a minute.
const LIMIT: Duration = Duration::from_secs(240);

/// Seeds of the runs, so that a finding can be reproduced.
const SEEDS: [&str; 4] = ["1", "2", "3", "4"];

fn schemathesis(arguments: &[&str]) -> Command {
    let mut command = Command::new(workspace().join("scripts/schemathesis"));
    command.args(arguments);
    command
}

#[test]
fn nothing_is_wrong_with_answers_to_whatever_is_sent() {
    // Where it is missing it is installed first, which takes its time.
    let version = schemathesis(&["--version"]).output().expect("a program");
    let told = String::from_utf8_lossy(&version.stderr);
    assert!(
        version.status.success(),
        "Schemathesis can't be installed: {told}"
    );

    // It may come to revoke its own key, and is refused from then on: then it has tried too little.
    let is_whole = SEEDS.iter().any(|seed| was_let_in_until_the_end(seed));
    assert!(is_whole, "it always takes away its own key");
}

/// Has it try everything.
fn was_let_in_until_the_end(seed: &str) -> bool {
    let stack = Stack::with(&StackOptions {
        sidecar: "[visits]\nlive_listeners = 16\nlive_listeners_per_key = 16\n".to_owned(),
        ..StackOptions::default()
    });
    let key = stack.sidecar.make_key(&["admin"]);
    // The sidecar itself: nginx answers some bad requests before they reach it.
    let port = stack.sidecar.port;
    let address = format!("http://127.0.0.1:{port}/openapi.json");
    let header = format!("X-Api-Key: {key}");
    let report = stack.directory().join("report");
    let report = report.to_str().expect("a path");
    let command = schemathesis(&[
        "run",
        &address,
        "--header",
        &header,
        "--header",
        "X-Shortlink-Base: https://s.example.com",
        "--seed",
        seed,
        "--max-examples",
        "8",
        "--report-dir",
        report,
    ]);
    let log = stack.directory().join("schemathesis.log");
    let status = Process::start("schemathesis", &command, &log).wait(LIMIT);
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(status.success(), "{said}");

    assert!(!stack.sidecar.log().contains("a handler has panicked"));
    let answer = http::send(port, "GET", "/v1/audit", &[("X-Api-Key", &key)]);
    if answer.status != 200 {
        return false;
    }
    // Everything was tried.
    let description = http::get(port, "/openapi.json").json();
    let paths = description["paths"].as_object().expect("paths").values();
    let operations: usize = paths
        .map(|path| path.as_object().map_or(0, serde_json::Map::len))
        .sum();
    // It leaves out the operation that it has the description from.
    let tried = operations - 1;
    let tried = format!("Tested: {tried}\n");
    assert!(said.contains(&tried), "{tried}: {said}");
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(said.contains(&format!("✅ {phase}\n")), "{phase}: {said}");
    }
    true
}
