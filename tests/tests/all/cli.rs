//! `shortlink` as a client of a running service.

mod conversions;
mod import;
mod messages;
mod refusals;
mod rules;
mod tools;
mod utm_templates;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use shortlink_tests::ports;
use shortlink_tests::process::Process;
use shortlink_tests::sidecar::program;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

/// A user with a home, a key and a service to ask.
struct User {
    home: PathBuf,
    server: String,
    key: String,
}

/// The exit code and the output of a command.
struct Said {
    code: Option<i32>,
    out: String,
    error: String,
}

impl User {
    fn new(stack: &Stack) -> Self {
        let home = stack.directory().join(format!("home-{}", ports::free()));
        fs::create_dir_all(&home).expect("a home");
        Self {
            home,
            server: format!("http://127.0.0.1:{}", stack.nginx.internal_port),
            key: stack.sidecar.key.clone(),
        }
    }

    /// A command with nothing in its environment but where the service is, and the key. A
    /// configuration file or database would be refused.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command
            .args(arguments)
            .env("HOME", &self.home)
            .env_remove("XDG_CONFIG_HOME")
            .env("SHORTLINK_CONFIG", "/nonexistent")
            .env("DATABASE_URL", "nonsense:")
            .env("SHORTLINK_SERVER", &self.server)
            .env("SHORTLINK_KEY", &self.key)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        said(&mut self.command(arguments))
    }

    /// Returns the output of a command that must succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.error);
        said.out
    }

    /// The same as JSON.
    fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{arguments:?}: {out}"))
    }

    /// The same as an object a line.
    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        values(&self.ok(&[arguments, &["--json"]].concat()))
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    /// Starts a command that goes on by itself.
    fn begin(&self, arguments: &[&str], log: &Path) -> Process {
        Process::start("shortlink", &self.command(arguments), log)
    }
}

fn said(command: &mut Command) -> Said {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program can be run");
    Said {
        code: status.code(),
        out: String::from_utf8(stdout).expect("text"),
        error: String::from_utf8(stderr).expect("text"),
    }
}

/// An object of each line.
fn values(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect()
}

/// The rest of the line that begins with a label.
fn field<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| Some(line.strip_prefix(label)?.strip_prefix("  ")?.trim()))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

#[test]
fn a_link_is_made_shown_changed_held_back_and_revoked() {
    let stack = Stack::shared();
    let user = User::new(stack);
    let made = user.ok(&[
        "links",
        "create",
        "https://www.example.com/a",
        "--tag",
        "x",
        "--tag",
        "y",
        "--external-id",
        "m-17",
        "--valid-until",
        "2099-12-31",
        "--forward-query",
        "--status",
        "307",
        "--utm",
        "source=sms",
        "--domain",
        "localhost",
    ]);
    let code = field(&made, "code").expect("a code").to_owned();
    let short_url = field(&made, "short URL").expect("a short URL").to_owned();
    assert!(short_url.ends_with(&format!("/{code}")), "{made}");
    assert_eq!(field(&made, "tags"), Some("x, y"));
    let answer = stack.follow(&code);
    assert_eq!(answer.status, 307);

    // As JSON it is what the API answers, byte for byte.
    let path = format!("/v1/links/{code}");
    let shown = user.ok(&["links", "get", &short_url, "--json"]);
    let body = stack.api("GET", &path, None).body;
    assert_eq!(shown.trim_end().as_bytes(), body.trim_ascii_end());
    let link: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(link["longUrl"], "https://www.example.com/a?utm_source=sms");
    assert_eq!(link["validUntil"], "2099-12-31T00:00:00Z");
    assert_eq!(link["forwardQuery"], true);
    assert_eq!(link["externalId"], "m-17");
    assert_eq!(link["domain"], "localhost");

    let changed = user.json(&[
        "links",
        "change",
        &code,
        "--url",
        "https://www.example.com/b",
        "--clear",
        "valid-until,tags,domain",
        "--note",
        "new",
        "--if-revision",
        "1",
    ]);
    assert_eq!(changed["longUrl"], "https://www.example.com/b");
    assert_eq!(changed["validUntil"], Value::Null);
    assert_eq!(changed["tags"], json!([]));
    assert_eq!(changed["domain"], Value::Null);
    let late = user.run(&[
        "links",
        "change",
        &code,
        "--note",
        "x",
        "--if-revision",
        "1",
    ]);
    assert_eq!(late.code, Some(1));
    assert!(late.error.contains("412"), "{}", late.error);

    let paused = user.ok(&["links", "pause", &code]);
    assert_eq!(field(&paused, "state"), Some("paused"));
    until("it is paused", SOON, || stack.follow(&code).status == 410);
    assert_eq!(user.json(&["links", "resume", &code])["state"], "live");
    until("it is resumed", SOON, || stack.follow(&code).status == 307);

    let explained = user.ok(&["links", "explain", &code]);
    assert_eq!(field(&explained, "answer"), Some("307"), "{explained}");
    assert_eq!(
        user.json(&["links", "explain", &code])["answer"]["status"],
        307
    );
    let history = user.ok(&["links", "history", &code]);
    assert!(history.contains("https://www.example.com/a"), "{history}");
    assert_eq!(user.lines(&["links", "history", &code]).len(), 3);
    assert!(user.ok(&["links", "qr", &code]).contains("<svg"));

    // There is no terminal for a question.
    let asked = user.run(&["links", "revoke", &code]);
    assert_eq!(asked.code, Some(2));
    for part in [&*code, "https://www.example.com/b", "410", "--yes"] {
        assert!(asked.error.contains(part), "{}", asked.error);
    }
    assert_eq!(stack.follow(&code).status, 307);
    let revoked = user.ok(&["links", "revoke", &code, "--yes"]);
    assert_eq!(field(&revoked, "state"), Some("revoked"));
    until("it is revoked", SOON, || stack.follow(&code).status == 410);
}

#[test]
fn who_sits_at_a_terminal_is_asked_before_a_link_is_revoked() {
    let stack = Stack::shared();
    let user = User::new(stack);
    let code = stack.link("https://www.example.com/");
    for (answer, exit, status) in [("n", 1, 302), ("y", 0, 410)] {
        // `script` gives the command a terminal.
        let command = user.command(&["links", "revoke", &code]);
        let program = command.get_program().to_str().expect("a path").to_owned();
        let mut terminal = Command::new("script");
        terminal
            .args([
                "-qec",
                &format!("{program} links revoke {code}"),
                "/dev/null",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (variable, value) in command.get_envs() {
            if let Some(value) = value {
                terminal.env(variable, value);
            }
        }
        let mut running = terminal.spawn().expect("script can be run");
        let mut input = running.stdin.take().expect("an input");
        std::io::Write::write_all(&mut input, format!("{answer}\n").as_bytes()).expect("written");
        let output = running.wait_with_output().expect("it ends");
        drop(input);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Continue? [y/N]"), "{text}");
        assert_eq!(output.status.code(), Some(exit), "{text}");
        until("the answer counts", SOON, || {
            stack.follow(&code).status == status
        });
    }
}

#[test]
fn lists_are_read_page_by_page() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let rows: Vec<Value> = (0..2100)
        .map(|row| {
            json!({ "longUrl": format!("https://www.example.com/{row}"),
                           "tags": [if row % 2 == 0 { "even" } else { "odd" }] })
        })
        .collect();
    let answer = stack.api("POST", "/v1/links/batch", Some(&json!(rows)));
    assert_eq!(answer.status, 200);
    let all = user.lines(&["links", "list", "--all"]);
    assert_eq!(all.len(), 2100);
    let codes: std::collections::BTreeSet<String> =
        all.iter().map(|link| text(link, "shortCode")).collect();
    assert_eq!(codes.len(), 2100, "none twice");
    assert_eq!(
        user.lines(&["links", "list", "--limit", "1500"]).len(),
        1500
    );
    assert_eq!(
        user.lines(&["links", "list", "--all", "--tag", "odd"])
            .len(),
        1050
    );
    assert_eq!(user.lines(&["links", "list", "--state", "paused"]).len(), 0);

    let said = user.run(&["links", "list", "--limit", "3"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", said.out);
    assert!(lines[0].starts_with("CODE"), "{}", said.out);
    assert!(
        lines[1].contains("https://www.example.com/"),
        "{}",
        said.out
    );
    assert!(said.error.contains("there are more"), "{}", said.error);

    // A reader may close the output early.
    let mut running = user
        .command(&["links", "list", "--all"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    drop(running.stdout.take());
    let output = running.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");

    // The listed links are exported, in both formats.
    let csv = user.home.join("links.csv");
    let said = user.run(&["links", "export", "--out", path(&csv), "--tag", "even"]);
    assert_eq!(said.code, Some(0), "{}", said.error);
    assert!(said.error.contains("1,050 links"), "{}", said.error);
    let csv = fs::read_to_string(csv).expect("a file");
    assert_eq!(csv.lines().count(), 1051);
    assert!(csv.starts_with("shortCode,shortUrl,longUrl,state,"));
    let ndjson = user.ok(&["links", "export", "--format", "ndjson"]);
    assert_eq!(values(&ndjson), all);
}

#[test]
fn campaigns_are_made_shown_changed_and_their_results_exported() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let made = user.json(&[
        "campaigns",
        "create",
        "Spring",
        "https://shop.example.com/p?m={member}",
        "--default-tag",
        "spring",
        "--note",
        "n",
    ]);
    let id = text(&made, "id");
    assert_eq!(made["parameters"], json!(["member"]));
    assert_eq!(made["defaults"]["tags"], json!(["spring"]));
    for member in ["4711", "4712"] {
        let pair = format!("member={member}");
        let link = user.json(&["links", "create", "--campaign", &id, "--parameter", &pair]);
        assert_eq!(
            link["longUrl"],
            format!("https://shop.example.com/p?m={member}")
        );
        assert_eq!(link["tags"], json!(["spring"]));
    }
    let shown = user.ok(&["campaigns", "get", &id]);
    assert_eq!(field(&shown, "name"), Some("Spring"));
    assert_eq!(field(&shown, "note"), Some("n"));
    let listed = user.ok(&["campaigns", "list"]);
    assert!(
        listed.starts_with("ID") && listed.contains("Spring"),
        "{listed}"
    );
    assert_eq!(user.lines(&["campaigns", "list"]).len(), 1);
    let url = "https://shop.example.com/q?m={member}";
    let changed = user.json(&["campaigns", "change", &id, "--url", url, "--clear", "note"]);
    assert_eq!(changed["longUrl"], url);
    assert_eq!(changed["note"], Value::Null);
    assert_eq!(user.json(&["campaigns", "pause", &id])["state"], "paused");
    let links = user.ok(&["links", "list", "--campaign", &id]);
    assert_eq!(links.matches("campaign paused").count(), 2, "{links}");
    assert_eq!(user.json(&["campaigns", "resume", &id])["state"], "live");

    let link = text(&user.lines(&["links", "list"])[0], "shortCode");
    assert_eq!(stack.follow(&link).status, 302);
    let results = || user.ok(&["campaigns", "export-results", &id, "--format", "ndjson"]);
    until("the visit is reported", SOON, || {
        let results = values(&results());
        results.len() == 2 && results[0]["visits"]["total"] == 1
    });
    let csv = user.ok(&["campaigns", "export-results", &id]);
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(csv.contains("https://shop.example.com/q?m=4711"), "{csv}");
    assert_eq!(
        user.run(&["campaigns", "export-results", "zz"]).code,
        Some(1)
    );

    let recipients =
        |clicked: &str| user.ok(&["campaigns", "recipients", &id, "--clicked", clicked]);
    // curl's visit is none of a person.
    assert_eq!(
        recipients("true"),
        "externalId,shortCode,firstClickAt,lastClickAt,clicks\n"
    );
    let none = recipients("false");
    assert_eq!(none.lines().count(), 3, "{none}");
    assert!(none.contains(&format!(",{link},,,0\n")), "{none}");
    let clicks = user.ok(&["stats", "clicks", &id]);
    let figures: Vec<&str> = clicks
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(figures, ["2", "0", "0.0%"], "{clicks}");

    assert_eq!(user.run(&["campaigns", "revoke", &id]).code, Some(2));
    let revoked = user.ok(&["campaigns", "revoke", &id, "--yes"]);
    assert_eq!(field(&revoked, "state"), Some("revoked"));
}

#[test]
fn visits_are_counted_and_the_space_of_codes_is_shown() {
    let stack = Stack::start();
    let user = User::new(&stack);
    let campaign = json!({ "name": "c", "longUrl": "https://www.example.com/c" });
    let campaign = stack.api("POST", "/v1/campaigns", Some(&campaign)).json();
    let id = text(&campaign, "id");
    let code = text(&stack.create(&json!({ "campaignId": id })), "shortCode");
    for _ in 0..3 {
        assert_eq!(stack.follow(&code).status, 302);
    }
    until("visits are counted", SOON, || {
        user.json(&["stats", "link", &code])["visits"]["total"] == 3
    });
    let by = [
        "stats",
        "link",
        &code,
        "--by",
        "device,os",
        "--interval",
        "day",
    ];
    let told = user.ok(&by);
    for part in ["DAY", "BY DEVICE", "BY OS", "all"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(user.json(&by)["by"]["device"].is_array());
    assert_eq!(user.json(&["stats", "campaign", &id])["visits"]["total"], 3);
    let ended = user.json(&[
        "stats",
        "all",
        "--since",
        "2026-01-01",
        "--until",
        "2026-01-02",
    ]);
    assert_eq!(ended["visits"]["total"], 0);
    assert_eq!(user.json(&["stats", "all"])["visits"]["total"], 3);
    let domains = user.ok(&["stats", "domains"]);
    assert!(domains.contains("localhost"), "{domains}");
    let domains = user.json(&["stats", "domains", "--minutes", "5"]);
    assert_eq!(domains["domains"][0]["visits"], 3);
    let domains = user.ok(&["domains", "list"]);
    let mut cells = domains.lines().nth(1).expect("a domain").split_whitespace();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let base = format!("http://localhost:{}", stack.nginx.public_port);
    for cell in ["localhost", host.trim(), "active", "3", &base] {
        assert_eq!(cells.next(), Some(cell), "{domains}");
    }
    let domains = user.json(&["domains", "list"]);
    assert_eq!(domains["domains"][0]["domain"], "localhost");

    let position = user.home.join("position");
    let follow = ["visits", "follow", "--no-wait", "--campaign", &id];
    let from_start = [
        &follow[..],
        &["--after", "start", "--cursor-file", path(&position)],
    ]
    .concat();
    let visits = values(&user.ok(&from_start));
    assert_eq!(visits.len(), 3);
    assert!(
        visits
            .iter()
            .all(|it| it["shortCode"] == *code && it["campaignId"] == *id)
    );
    assert_eq!(stack.follow(&code).status, 302);
    let mut new = String::new();
    until("the new visit, and only that, is printed", SOON, || {
        new = user.ok(&from_start);
        !new.is_empty()
    });
    assert_eq!(values(&new).len(), 1);
    assert_eq!(user.ok(&follow), "");

    let space = user.ok(&["codespace"]);
    assert!(space.starts_with("strategy permuted"), "{space}");
    assert!(user.json(&["codespace"])["lengths"].is_array());
}
