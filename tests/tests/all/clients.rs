//! Clients that are generated from `openapi.json` work through nginx.

use std::process::Command;
use std::time::Duration;

use shortlink_tests::process::Process;
use shortlink_tests::stack::Stack;
use shortlink_tests::workspace;

/// The longest run beside other tests, once the client is there.
const LIMIT: Duration = Duration::from_secs(120);

fn run_client(language: &str) {
    let script = workspace().join("scripts/clients");
    // Installing the generator and generating take a minute.
    let generated = Command::new(&script).arg(language).output();
    let generated = generated.expect("a program");
    let text = String::from_utf8_lossy(&generated.stderr);
    assert!(generated.status.success(), "{text}");

    let stack = Stack::start();
    let address = format!("http://127.0.0.1:{}", stack.nginx.internal_port);
    let mut command = Command::new(&script);
    command.args([language, &address, &stack.sidecar.key]);
    let log = stack.directory().join("client.log");
    let status = Process::start(language, &command, &log).wait(LIMIT);
    let text = std::fs::read_to_string(&log).expect("a log");
    assert!(status.success(), "{text}");
}

#[test]
fn a_client_in_typescript_creates_pages_handles_errors_and_streams() {
    run_client("typescript");
}

#[test]
fn a_client_in_python_creates_pages_handles_errors_and_streams() {
    run_client("python");
}
