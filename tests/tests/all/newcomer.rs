//! The commands of README.md and of the tutorial run as they are printed, in bash and in zsh.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use shortlink_tests::{stack, workspace};

/// A fenced block of a document.
struct Block {
    language: String,
    text: String,
}

/// The fenced blocks of a document, in order, without the indentation of a list.
fn blocks(document: &str) -> Vec<Block> {
    let text = fs::read_to_string(workspace().join(document)).expect("a document");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let content = line.trim_start();
        let Some(language) = content.strip_prefix("```") else {
            continue;
        };
        let indentation = line.len() - content.len();
        let body = lines
            .by_ref()
            .take_while(|line| !line.trim_start().starts_with("```"))
            .map(|line| line.get(indentation..).unwrap_or_default());
        blocks.push(Block {
            language: language.to_owned(),
            text: body.map(|line| format!("{line}\n")).collect(),
        });
    }
    blocks
}

/// Returns the steps of a reader once `make run` is ready: types a document's commands, and writes its short
/// domains into the file that it names. A command that fails ends the script.
fn script(document: &str) -> String {
    let mut script = String::from("set -e\n");
    let mut starts = 0;
    for Block { language, text } in blocks(document) {
        match &*language {
            "sh" if text == "make run\n" => starts += 1,
            "sh" => {
                // An interactive zsh takes no comments.
                assert!(!text.contains('#'), "{document}: a comment in {text}");
                script += &text;
            }
            "nginx" => {
                let write = "cat >var/nginx/domains.conf <<'DOMAINS'";
                writeln!(script, "{write}\n{text}DOMAINS").expect("a string");
            }
            "text" | "console" => {}
            other => panic!("{document}: a block of {other}"),
        }
    }
    assert_eq!(starts, 1, "{document} starts everything");
    script
}

/// Follows a document in a shell; answers with what the shell and `make run` have printed.
fn follow(document: &str, shell: &str) -> (String, String) {
    let directory = stack::directory();
    let directory = directory.path();
    let var = directory.join("var");
    fs::create_dir(&var).expect("a folder");
    // nginx' workers are of another user.
    let public = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o711);
    fs::set_permissions(&var, public).expect("its mode");
    // In the namespace the folder above lies over this one. To remove it would take it away from another namespace,
    // so one newcomer comes after the other.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let below = workspace().join("var");
    let is_new = fs::create_dir(&below).is_ok();
    let (file, log) = (directory.join("script"), directory.join("log"));
    fs::write(&file, script(document)).expect("a script");
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    if !nix::unistd::Uid::effective().is_root() {
        command.arg("--map-root-user");
    }
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/newcomer.sh");
    command.arg(driver).arg(shell).args([&file, &var, &log]);
    // As from a terminal: settings of this test run do not reach the build, which then has nothing to do.
    // Settings of the compiler do.
    let own = [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "SHORTLINK_",
        "NGINX_",
        "MAKE",
        "MFLAGS",
        "DATABASE_URL",
        "PUBLIC_PORT",
        "INTERNAL_PORT",
        "REDIS_PORT",
        "SIDECAR_PORT",
        "VAR_DIR",
    ];
    command.current_dir(workspace());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text == "CARGO" || own.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    // Nor do this user's own settings of the shell and of curl.
    command
        .env("ZDOTDIR", directory)
        .env("CURL_HOME", directory);
    let output = command.output().expect("unshare can be run");
    if is_new {
        fs::remove_dir(&below).expect("the folder, still empty");
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let log = fs::read_to_string(&log).unwrap_or_default();
    assert!(
        output.status.success(),
        "{document} in {shell}: {}\n{printed}\nmake run:\n{log}",
        output.status
    );
    (printed, log)
}

/// Holds what a shell has printed to all texts that must be in it.
fn shows(shell: &str, printed: &str, expected: &[&str]) {
    for text in expected {
        assert!(printed.contains(text), "{shell}: {text} in\n{printed}");
    }
}

/// The shells of our readers.
const SHELLS: [&str; 2] = ["bash", "zsh"];

#[test]
fn the_readme_runs_as_printed() {
    for shell in SHELLS {
        let (printed, log) = follow("README.md", shell);
        let expected = [
            "HTTP/1.1 302 Moved Temporarily\r\n",
            "Location: https://www.example.com/\r\n",
            "\"shortUrl\":\"http://localhost:8080/",
            "\"externalId\":\"customer-4711\"",
            "syntax is ok",
        ];
        shows(shell, &printed, &expected);
        // It shows the real output of `make run`, and `…` stands for a folder of the reader's.
        let shown = blocks("README.md").into_iter();
        let shown = shown.filter(|block| block.text.starts_with("ngx-shortlink is ready."));
        let shown: Vec<Block> = shown.collect();
        assert_eq!(shown.len(), 1);
        for line in shown[0].text.lines() {
            let mut from = 0;
            for part in line.split('…') {
                let place = log[from..].find(part);
                from += place.unwrap_or_else(|| panic!("{part} in\n{log}")) + part.len();
            }
        }
    }
}

#[test]
fn the_tutorial_runs_as_printed() {
    for shell in SHELLS {
        let (printed, _) = follow("docs/src/tutorial.md", shell);
        let expected = [
            "\nhttp://localhost:8080/",
            "HTTP/1.1 302 Moved Temporarily\r\n",
            "HTTP/1.1 404 Not Found\r\n",
            "HTTP/1.1 410 Gone\r\n",
            "3 rows: 3 links",
            "https://shop.example.com/last-days?member=4713",
            "syntax is ok",
            " 0 failed, ",
        ];
        shows(shell, &format!("\n{printed}"), &expected);
    }
}

#[test]
fn the_readme_is_one_page() {
    let text = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    assert!(text.lines().count() <= 150, "{}", text.lines().count());
    let map = fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    assert!(map.lines().count() <= 200, "{}", map.lines().count());
}
