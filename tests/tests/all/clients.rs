//! The clients of `clients/`, installed as users install them: their examples work through nginx, and a batch that a crash
//! of the sidecar interrupts creates each link once.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use shortlink_tests::calendar;
use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::process::Process;
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::{SOON, until};
use shortlink_tests::workspace;

/// The longest run of an example beside other tests, once the client is installed.
const LIMIT: Duration = Duration::from_secs(120);

/// Rows of a batch, and those with results before the sidecar is killed.
const ROWS: usize = 20_000;
const BEFORE: usize = 5_000;

/// Webhooks may be sent to loopback.
const SETTINGS: &str = "[webhooks]\nplain_http = true\nallowed_networks = [\"127.0.0.0/8\"]\n";

/// Each run has a log of its own.
static RUNS: AtomicU64 = AtomicU64::new(0);

fn script() -> Command {
    Command::new(workspace().join("scripts/clients"))
}

/// Installs a client, which takes a minute the first time. Its own tests run then.
fn install(language: &str) {
    let installed = script().arg(language).output().expect("a program");
    let text = String::from_utf8_lossy(&installed.stderr);
    assert!(installed.status.success(), "{text}");
}

/// Starts an example of a client.
fn start(
    stack: &Stack,
    language: &str,
    key: &str,
    arguments: &[&str],
    more: &[(&str, &str)],
) -> Process {
    let address = format!("http://127.0.0.1:{}", stack.nginx.internal_port);
    let mut command = script();
    command.arg(language).args(arguments);
    command
        .env("SHORTLINK_URL", address)
        .env("SHORTLINK_KEY", key);
    command.envs(more.iter().copied());
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let log = stack.directory().join(format!("client-{number}.log"));
    Process::start(language, &command, &log)
}

/// Runs an example of a client; returns its output.
fn run(stack: &Stack, language: &str, arguments: &[&str]) -> String {
    let mut process = start(stack, language, &stack.sidecar.key, arguments, &[]);
    let status = process.wait(LIMIT);
    assert!(status.success(), "{}", process.log());
    process.log()
}

/// The words of the lines that begin with `first`.
fn words<'l>(log: &'l str, first: &str) -> Vec<Vec<&'l str>> {
    let lines = log.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.filter(|words| words[0] == first).collect()
}

fn examples_work(language: &str) {
    install(language);
    let mut stack = Stack::with(&StackOptions {
        sidecar: SETTINGS.to_owned(),
        ..StackOptions::default()
    });
    stack.sidecar.key = stack.sidecar.make_key(&["admin"]);

    let log = run(&stack, language, &["links"]);
    let created = words(&log, "created")[0][1];
    assert_eq!(
        words(&log, "listed"),
        [["listed", created, "Spring"]],
        "{log}"
    );
    let refused: BTreeSet<_> = words(&log, "refused").iter().map(|it| it[1]).collect();
    assert_eq!(refused, BTreeSet::from(["/longUrl", "/maxVisits"]), "{log}");
    let link = stack
        .api("GET", &format!("/v1/links/{created}"), None)
        .json();
    assert_eq!(
        (text(&link, "state"), text(&link, "note")),
        ("revoked".to_owned(), "Spring".to_owned())
    );

    let code = stack.link("https://example.com/visited");
    assert_eq!(stack.follow(&code).status, 302);
    let position = stack.directory().join("position");
    let visits = ["visits", position.to_str().expect("UTF-8"), "1"];
    let log = run(&stack, language, &visits);
    assert_eq!(words(&log, "visit")[0][2], code, "{log}");
    // It continues behind the visit that it has had.
    let other = stack.link("https://example.com/visited-later");
    assert_eq!(stack.follow(&other).status, 302);
    let log = run(&stack, language, &visits);
    let seen: Vec<_> = words(&log, "visit").iter().map(|it| it[2]).collect();
    assert_eq!(seen, [&*other], "{log}");

    verifies_webhooks(&stack, language);
}

/// The endpoint of the example accepts messages of the service, while its secret is rotated too, and no others.
fn verifies_webhooks(stack: &Stack, language: &str) {
    let port = ports::free();
    let body = json!({ "name": "CRM", "url": format!("http://127.0.0.1:{port}/") });
    let webhook = stack.api("POST", "/v1/webhooks", Some(&body)).json();
    let path = format!("/v1/webhooks/{}", text(&webhook, "id"));
    let environment = [
        ("PORT", &*port.to_string()),
        ("SECRETS", &*text(&webhook, "secret")),
    ];
    let mut endpoint = start(
        stack,
        language,
        &stack.sidecar.key,
        &["webhook"],
        &environment,
    );
    endpoint
        .wait_ready(|| http::try_send(port, "GET", &http::request("GET", "/", &[], b"")).is_ok());

    let test = || {
        let attempt = stack.api("POST", &format!("{path}/test"), None).json();
        attempt["status"].as_u64()
    };
    assert_eq!(test(), Some(204), "{}", endpoint.log());
    let overlap = json!({ "overlapSeconds": 60 });
    let rotated = stack.api("POST", &format!("{path}/rotate"), Some(&overlap));
    assert_eq!(rotated.status, 200);
    assert_eq!(test(), Some(204), "{}", endpoint.log());
    until("both events are printed", SOON, || {
        words(&endpoint.log(), "event").len() == 2
    });

    let forged =
        br#"{"type":"link.clicked","id":"click_1","timestamp":"2030-06-01T12:00:00Z","data":{}}"#;
    let signature = format!("v1,{}=", "A".repeat(43));
    let now = calendar::now().to_string();
    let headers = [
        ("webhook-id", "click_1"),
        ("webhook-timestamp", &*now),
        ("webhook-signature", &*signature),
    ];
    let request = http::request("POST", "/", &headers, forged);
    let answer = http::try_send(port, "POST", &request).expect("an answer");
    assert_eq!(answer.status, 400, "{}", endpoint.log());
    assert_eq!(words(&endpoint.log(), "event").len(), 2);
    endpoint.kill();
}

/// Kills the sidecar while a batch is under way, and starts it again. A second run with the same key creates nothing.
fn a_crash_loses_and_repeats_no_row(language: &str) {
    install(language);
    let mut stack = Stack::start();
    stack.sidecar.key = stack.sidecar.make_key(&["admin"]);
    // The limit makes the batch last for some seconds.
    let key = stack.api(
        "POST",
        "/v1/keys",
        Some(&json!({
            "name": "batches",
            "scopes": ["links:read", "links:write"],
            "rateLimit": { "requestsPerSecond": 5_000, "burst": 5_000 },
        })),
    );
    let key = text(&key.json(), "secret");
    let rows = ROWS.to_string();
    let mut batch = start(&stack, language, &key, &["batch", "spring", &rows], &[]);
    until("the first results", LIMIT, || {
        batch.log().lines().count() >= BEFORE || batch.has_ended()
    });
    assert!(!batch.has_ended(), "{}", batch.log());
    stack.sidecar.kill();
    stack.sidecar.start_again();
    let status = batch.wait(LIMIT);
    let log = batch.log();
    assert!(status.success(), "{log}");

    let results: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(results.len(), ROWS);
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result[..2], [index.to_string(), format!("m-{index}")]);
    }
    let codes: BTreeSet<&str> = results.iter().map(|it| it[2]).collect();
    assert_eq!(codes.len(), ROWS);
    let link = stack
        .api("GET", &format!("/v1/links/{}", results[0][2]), None)
        .json();
    let upload = text(&link, "uploadId");
    let expected: BTreeSet<String> = codes.iter().map(|&it| it.to_owned()).collect();
    assert_eq!(links_of(&stack, &upload), expected);

    let mut again = start(&stack, language, &key, &["batch", "spring", &rows], &[]);
    assert!(again.wait(LIMIT).success(), "{}", again.log());
    assert!(again.log() == log, "a repetition has other results");
    assert_eq!(links_of(&stack, &upload).len(), ROWS);
}

/// The codes of all links of an upload.
fn links_of(stack: &Stack, upload: &str) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/links?uploadId={upload}&limit=1000{cursor}");
        let page = stack.api("GET", &path, None).json();
        for link in page["links"].as_array().expect("links") {
            assert!(codes.insert(text(link, "shortCode")), "{link}");
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return codes,
        }
    }
}

#[test]
fn the_examples_in_typescript_work() {
    examples_work("typescript");
}

#[test]
fn the_examples_in_python_work() {
    examples_work("python");
}

#[test]
fn a_crash_loses_and_repeats_no_row_in_typescript() {
    a_crash_loses_and_repeats_no_row("typescript");
}

#[test]
fn a_crash_loses_and_repeats_no_row_in_python() {
    a_crash_loses_and_repeats_no_row("python");
}
