//! The program's help and version, and commands on the database that scripts read.

use std::process::Command;

use serde_json::{Value, json};
use shortlink_tests::sidecar::program;
use shortlink_tests::stack::{Stack, directory};

use super::{path, said};

/// Returns the output of a command without an environment, not even a home.
fn bare(arguments: &[&str]) -> String {
    let mut command = program();
    command
        .args(arguments)
        .env("SHORTLINK_CONFIG", "/nonexistent");
    let said = said(&mut command);
    assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.error);
    said.out
}

#[test]
fn shells_complete_commands_and_options() {
    let bash = bare(&["completion", "bash"]);
    let directory = directory();
    let file = directory.path().join("ask");
    let ask = |words: &str, current: &str, before: &str| {
        let script = format!(
            "{bash}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _shortlink shortlink '{current}' '{before}'; echo \"${{COMPREPLY[@]}}\""
        );
        std::fs::write(&file, script).expect("room");
        let said = said(Command::new("bash").arg(&file));
        assert_eq!(said.code, Some(0), "{}", said.error);
        said.out.trim().to_owned()
    };
    assert_eq!(ask("shortlink links ex", "ex", "links"), "explain export");
    let states = ask("shortlink links import --idem", "--idem", "import");
    assert_eq!(states, "--idempotency-key");
    assert!(bare(&["completion", "zsh"]).starts_with("#compdef shortlink"));
    assert!(bare(&["completion", "fish"]).contains("complete -c shortlink"));
    let mut other = program();
    assert_eq!(said(other.args(["completion", "other"])).code, Some(2));
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let directory = directory();
    let pages = directory.path().join("man1");
    bare(&["man", path(&pages)]);
    for (page, word) in [
        ("shortlink.1", "doctor"),
        ("shortlink-links-import.1", "idempotency"),
        ("shortlink-keys-create.1", "scope"),
    ] {
        let text = std::fs::read_to_string(pages.join(page)).expect(page);
        assert!(text.starts_with(".ie") || text.starts_with(".TH"), "{text}");
        assert!(text.contains(word), "{page}");
    }
    assert!(!pages.join("shortlink-make-sample-links.1").exists());
}

#[test]
fn keys_and_rebuilds_are_told_as_json() {
    let stack = Stack::start();
    let admin = stack.sidecar.make_key(&["admin"]);
    stack.sidecar.run_ok(&[
        "keys",
        "create",
        "--name",
        "shop",
        "--scope",
        "links:write",
        "--rate-limit",
        "5",
        "--strategy",
        "pool",
        "--allowed-domain",
        "example.com",
    ]);
    let told: Value =
        serde_json::from_str(&stack.sidecar.run_ok(&["keys", "list", "--json"])).expect("JSON");
    let keys = told["keys"].as_array().expect("keys");
    // Each as the API returns it.
    let port = stack.nginx.internal_port;
    let mut listed = shortlink_tests::sidecar::api(port, &admin, "GET", "/v1/keys", None).json();
    let mut listed = listed["keys"].take();
    // Only the service counts links.
    for key in listed.as_array_mut().expect("keys") {
        let members = key.as_object_mut().expect("a key");
        assert!(members.remove("linksCreated").is_some());
    }
    assert_eq!(keys.len(), 3);
    for key in keys {
        assert!(
            listed.as_array().expect("keys").contains(key),
            "{key} in {listed}"
        );
    }

    stack.sidecar.sample(3, &[]);
    let told = stack.sidecar.run_ok(&["rebuild", "--json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["isDone"], true);
    assert_eq!(told["links"], json!(3));
    // The service, which rebuilds by itself, can have added some before.
    assert!(
        told["added"].as_u64().is_some_and(|added| added <= 3),
        "{told}"
    );
    for (arguments, member) in [
        (["audit", "--json"].as_slice(), "drift"),
        (
            &[
                "domains",
                "check",
                path(&stack.nginx.file("domains.conf")),
                "--json",
            ],
            "domains",
        ),
    ] {
        let told: Value = serde_json::from_str(&stack.sidecar.run_ok(arguments)).expect("JSON");
        assert!(!told[member].is_null(), "{told}");
    }
}
