//! `shortlink doctor`: all is well, and then each thing is broken once.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use shortlink_tests::feed::Feed;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, directory};
use shortlink_tests::wait::{SOON, until};
use shortlink_tests::workspace;

/// Runs doctor; returns its exit code and checks.
fn look(stack: &Stack, more: &[&str]) -> (Option<i32>, Vec<Value>) {
    let server = format!("http://127.0.0.1:{}", stack.nginx.internal_port);
    let prefix = stack.nginx.file("").display().to_string();
    let conf = stack.nginx.file("nginx.conf").display().to_string();
    let whole = ["--nginx-prefix", &prefix, "--nginx-conf", &conf];
    let mut arguments = vec!["doctor", "--json"];
    if !more.contains(&"--server") {
        arguments.extend(["--server", &server]);
    }
    if !more.contains(&"--without-nginx") && !more.contains(&"--nginx-conf") {
        arguments.extend(whole);
    }
    arguments.extend(more);
    let output = stack.sidecar.run(&arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let checks = told["checks"].as_array().expect("checks").clone();
    for check in &checks {
        let docs = check["docs"].as_str().expect("a link");
        let (page, section) = docs.split_once('#').expect("a section of a page");
        assert!(sections(page).contains(section), "{page} lacks {section}");
    }
    (output.status.code(), checks)
}

/// The sections about checks of a page.
fn sections(page: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join(page)).expect(page);
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    headings.map(|it| it.trim_matches('`').to_owned()).collect()
}

#[test]
fn the_book_has_a_section_for_every_check_and_no_other() {
    let folder = workspace().join("sidecar/src/cli/doctor");
    let mut files = vec![folder.with_extension("rs")];
    for folder in [folder.clone(), folder.join("nginx")] {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let entries = entries.map(|entry| entry.path());
        files.extend(entries.filter(|path| path.extension().is_some_and(|it| it == "rs")));
    }
    let mut named = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).expect("a file");
        let code = text.split("#[cfg(test)]").next().expect("code");
        for place in [
            "Finding::new(",
            "Finding::ok(",
            "Finding::warn(",
            "Finding::fail(",
            "clock(",
            "let check = ",
        ] {
            let rests = code.split(place).skip(1);
            let literals = rests.filter_map(|rest| rest.trim_start().strip_prefix('"'));
            named.extend(literals.map(|it| it.split('"').next().unwrap_or_default().to_owned()));
        }
    }
    let sections = sections("docs/src/operations/doctor.md");
    assert!(sections.len() >= 19, "{sections:?}");
    assert_eq!(sections, named);
}

/// Returns the checks that failed: names and states.
fn ills(checks: &[Value]) -> Vec<(String, String)> {
    let text = |check: &Value, member: &str| check[member].as_str().expect("a text").to_owned();
    let mut ills = Vec::new();
    for check in checks.iter().filter(|it| it["state"] != "ok") {
        assert!(check["advice"].is_string(), "{check}");
        ills.push((text(check, "check"), text(check, "state")));
    }
    ills
}

/// Checks that doctor reports only this fault, and returns it.
fn finds(stack: &Stack, more: &[&str], check: &str, state: &str) -> Value {
    let (code, checks) = look(stack, more);
    assert_eq!(
        ills(&checks),
        [(check.to_owned(), state.to_owned())],
        "{checks:#?}"
    );
    assert_eq!(code, Some(i32::from(state == "fail")), "{check}");
    let mut found = checks.into_iter().filter(|it| it["check"] == check);
    found.find(|it| it["state"] == state).expect("it is there")
}

/// A stack with which all is well.
fn well(stack: &Stack) {
    stack.sidecar.make_key(&["admin"]);
    let file = stack.directory().join("sidecar/links.db");
    if file.exists() {
        close(&file);
    }
    let (code, checks) = look(stack, &[]);
    assert_eq!(ills(&checks), [], "{checks:#?}");
    assert_eq!(code, Some(0));
}

fn close(file: &Path) {
    fs::set_permissions(file, Permissions::from_mode(0o600)).expect("its mode");
}

#[test]
fn doctor_names_what_is_wrong_with_files_the_database_and_keys() {
    let mut stack = Stack::start();
    well(&stack);
    let text = String::from_utf8(stack.sidecar.run(&["doctor", "--without-nginx"]).stdout);
    let text = text.expect("text");
    assert!(text.starts_with("ok    configuration"), "{text}");
    assert!(text.ends_with("0 failed, 0 with a warning\n"), "{text}");

    let file = stack.directory().join("sidecar/links.db");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("its mode");
    let found = finds(&stack, &[], "secrets", "warn");
    assert!(
        found["advice"]
            .as_str()
            .expect("advice")
            .starts_with("chmod"),
        "{found}"
    );
    close(&file);

    stack.sidecar.run_ok(&[
        "keys",
        "create",
        "--name",
        "short",
        "--scope",
        "links:read",
        "--expires-at",
        "2099-01-01T00:00:00Z",
    ]);
    let soon = finds(&stack, &["--ends-within", "65000"], "keys", "warn");
    assert!(
        soon["found"]
            .as_str()
            .expect("a text")
            .contains("\"short\""),
        "{soon}"
    );
    let sql = Sql::of(&stack, None);
    let admins = "SELECT count(*) FROM api_keys WHERE scopes LIKE '%admin%'";
    assert!(sql.number(admins) > 0);
    sql.query("UPDATE api_keys SET revoked_at = 1 WHERE scopes LIKE '%admin%'");
    finds(&stack, &[], "keys-admin", "warn");
    sql.query("UPDATE api_keys SET revoked_at = NULL");

    let last = "(SELECT max(version) FROM _sqlx_migrations)";
    sql.query(&format!(
        "CREATE TABLE kept AS SELECT * FROM _sqlx_migrations WHERE version = {last};
         DELETE FROM _sqlx_migrations WHERE version = {last}"
    ));
    let behind = finds(&stack, &["--without-nginx"], "database", "fail");
    assert!(
        behind["advice"]
            .as_str()
            .expect("advice")
            .contains("migrate"),
        "{behind}"
    );
    sql.query("INSERT INTO _sqlx_migrations SELECT * FROM kept; DROP TABLE kept");
    well(&stack);

    stack.sidecar.edit_config("[http]", "[http]\nlistn = 1");
    finds(&stack, &["--without-nginx"], "configuration", "fail");
    stack.sidecar.edit_config("[http]\nlistn = 1", "[http]");
    assert_eq!(stack.sidecar.stop(), Some(0));
    finds(&stack, &[], "sidecar", "fail");
}

#[test]
fn doctor_names_what_is_wrong_with_redis() {
    let mut stack = Stack::start();
    well(&stack);
    let set = |name: &str, value: &str| {
        stack.redis.command(&["CONFIG", "SET", name, value]);
    };
    set("maxmemory-policy", "allkeys-lru");
    finds(&stack, &[], "redis-memory", "fail");
    set("maxmemory-policy", "noeviction");
    set("appendonly", "no");
    finds(&stack, &[], "redis-persistence", "warn");
    set("appendonly", "yes");
    stack
        .redis
        .command(&["ACL", "SETUSER", "default", "-xautoclaim", "-xgroup|create"]);
    let found = finds(&stack, &[], "redis-rights", "fail");
    let advice = found["advice"].as_str().expect("advice");
    assert!(
        advice.contains("+xautoclaim +") || advice.contains("+xautoclaim,"),
        "{advice}"
    );
    assert!(advice.contains("+xgroup|create"), "{advice}");
    stack.redis.command(&["ACL", "SETUSER", "default", "+@all"]);
    well(&stack);
    let before = stack.redis.keys();
    look(&stack, &[]);
    assert_eq!(stack.redis.keys(), before, "nothing is changed there");
    // The tests run on Valkey, too, which reports besides the Redis that it is compatible with.
    let about = stack.redis.command(&["INFO", "server"]);
    let version = |name: &str| {
        let mut lines = about.lines();
        let version = lines.find_map(|line| line.strip_prefix(&format!("{name}_version:")));
        version.map(|version| format!("{name} {}", version.trim()))
    };
    let version = version("valkey").or_else(|| version("redis"));
    let (_, checks) = look(&stack, &[]);
    let named = checks.iter().find(|it| it["check"] == "redis");
    let found = named.expect("the check of Redis")["found"].to_string();
    assert!(found.contains(&version.expect("a version")), "{found}");
    stack.redis.kill();
    let (code, checks) = look(&stack, &[]);
    let ills = ills(&checks);
    assert!(
        ills.contains(&("redis".to_owned(), "fail".to_owned())),
        "{checks:#?}"
    );
    assert!(
        ills.contains(&("sidecar".to_owned(), "warn".to_owned())),
        "{checks:#?}"
    );
    assert_eq!(code, Some(1));
}

#[test]
fn the_rights_that_are_documented_are_enough() {
    let page =
        fs::read_to_string(workspace().join("docs/src/operations/redis.md")).expect("redis.md");
    let block = page
        .split("ACL SETUSER shortlink ")
        .nth(1)
        .expect("the rights");
    let block = block.split("```").next().expect("its end");
    let rights = block
        .split_whitespace()
        .filter(|word| word.starts_with('+'));
    let stack = Stack::start();
    let rules = [
        "ACL",
        "SETUSER",
        "sidecar",
        "on",
        ">secret",
        "resetkeys",
        "~sl:*",
    ];
    let rules: Vec<&str> = rules.into_iter().chain(rights).collect();
    assert!(rules.len() > 20, "{rules:?}");
    stack.redis.command(&rules);
    let mut stack = stack;
    let (from, to) = ("redis://127", "redis://sidecar:secret@127");
    assert_eq!(stack.sidecar.stop(), Some(0));
    stack.sidecar.edit_config(from, to);
    close(&stack.directory().join("sidecar/shortlink.toml"));
    stack.sidecar.start_again();
    well(&stack);
    // Not only by doctor's own checks: links are created, changed and counted.
    let code = stack.link("https://www.example.com/");
    let mut feed = Feed::open(stack.nginx.internal_port, &stack.sidecar.key, "", None);
    assert_eq!(stack.follow(&code).status, 302);
    let path = format!("/v1/links/{code}");
    assert_eq!(feed.visit().data["shortCode"], code.as_str());
    until("the visit is stored", SOON, || {
        stack.api("GET", &path, None).json()["visits"]["total"] == 1
    });
    let paused = stack.api("POST", &format!("{path}/pause"), None).json();
    assert_eq!(paused["published"], true, "{paused}");
    stack.sidecar.run_ok(&["rebuild", "--restart"]);
    stack.sidecar.run_ok(&["audit"]);
    let denied = stack.redis.command(&["ACL", "LOG"]);
    assert!(!denied.contains("sidecar"), "{denied}");
}

#[test]
fn doctor_names_what_is_wrong_with_nginx() {
    let stack = Stack::start();
    well(&stack);
    let nothing = ["--without-nginx", "--server", "http://127.0.0.1:1"];
    assert_eq!(ills(&look(&stack, &nothing).1), []);
    let (code, checks) = look(&stack, &["--nginx", "/nonexistent"]);
    assert_eq!(
        ills(&checks),
        [("nginx".to_owned(), "fail".to_owned())],
        "{checks:#?}"
    );
    assert_eq!(code, Some(1));
    let away = format!("http://127.0.0.1:{}", ports::free());
    finds(&stack, &["--server", &away], "module", "fail");
    let public = format!("http://127.0.0.1:{}", stack.nginx.public_port);
    finds(&stack, &["--server", &public], "module", "warn");

    let edit = |file: &str, from: &str, to: &str, check: &str, state: &str| {
        stack.nginx.edit(file, from, to);
        let found = finds(&stack, &[], check, state);
        stack.nginx.edit(file, to, from);
        found["found"].as_str().expect("a text").to_owned()
    };
    let visits = "shortlink_visits on ";
    let streams = "shortlink_visits on streams=2 ";
    let found = edit("shortlink.conf", visits, streams, "streams", "fail");
    assert!(
        found.contains("streams=2") && found.contains("is 1"),
        "{found}"
    );
    edit(
        "shortlink.conf",
        "prefix   sl:;",
        "prefix   other:;",
        "prefix",
        "fail",
    );
    let found = edit(
        "shortlink.conf",
        "luhn body=7",
        "luhn body=6",
        "codes",
        "fail",
    );
    assert!(found.contains("the length"), "{found}");
    let (from, to) = ("shortlink_visits on", "shortlink_wisits on");
    let found = edit("shortlink.conf", from, to, "nginx-configuration", "fail");
    assert!(found.contains("unknown directive"), "{found}");
    let found = edit(
        "nginx.conf",
        "load_module /",
        "load_module /none/",
        "module-file",
        "fail",
    );
    assert!(found.contains("dlopen"), "{found}");
    let empty = stack.directory().join("empty.conf");
    fs::write(&empty, "events {}\n").expect("a file");
    let empty = empty.display().to_string();
    finds(
        &stack,
        &["--nginx-conf", &empty],
        "nginx-configuration",
        "fail",
    );

    // The findings of `shortlink domains check` are reported here too.
    let table = "shortlink_domains {\ncertificate none/*.pem;\ncertificate_key none/*.key;\n\
                 a.example.com active;\n}\n";
    fs::write(stack.nginx.file("domains.conf"), table).expect("a file");
    let found = finds(&stack, &[], "domains", "warn");
    assert!(
        found["found"]
            .as_str()
            .expect("a text")
            .contains("a.example.com"),
        "{found}"
    );
}

#[test]
fn doctor_looks_at_postgresql_too() {
    let directory = directory();
    let mut postgres = Postgres::start(directory.path());
    let stack = Stack::on(&postgres);
    well(&stack);
    let (_, checks) = look(&stack, &[]);
    assert!(
        checks.iter().any(|it| it["check"] == "database-clock"),
        "{checks:#?}"
    );
    postgres.kill();
    let (code, checks) = look(&stack, &[]);
    let ills = ills(&checks);
    assert!(
        ills.contains(&("database".to_owned(), "fail".to_owned())),
        "{checks:#?}"
    );
    assert!(
        ills.contains(&("sidecar".to_owned(), "fail".to_owned())),
        "{checks:#?}"
    );
    assert_eq!(code, Some(1));
}
