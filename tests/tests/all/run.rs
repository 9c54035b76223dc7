//! `scripts/run`, what `make run` ends in, as a newcomer uses it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use shortlink_tests::process::Process;
use shortlink_tests::wait::{SOON, until};
use shortlink_tests::{http, ports, stack, workspace};

fn script(var: &Path, public: &str, internal: &str) -> Command {
    script_of(workspace(), var, public, internal)
}

/// The script in another folder of the project.
fn script_of(project: &Path, var: &Path, public: &str, internal: &str) -> Command {
    let mut command = Command::new(project.join("scripts/run"));
    command
        .env("VAR_DIR", var)
        .env("PUBLIC_PORT", public)
        .env("INTERNAL_PORT", internal);
    command
}

fn free() -> String {
    ports::free().to_string()
}

/// Runs the script, which must refuse, and returns what it says.
fn refused(command: &mut Command) -> String {
    let Output {
        status,
        stderr,
        stdout,
    } = command.output().expect("the script can be run");
    let said = String::from_utf8(stderr).expect("text");
    assert!(
        !status.success(),
        "{said}{}",
        String::from_utf8_lossy(&stdout)
    );
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

/// The processes that have a file below a folder open, or name it on their command line.
fn processes_of(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let open = fs::read_dir(entry.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut open = open.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        if command.contains(&folder.display().to_string())
            || open.any(|file| file.starts_with(folder))
        {
            found.push(format!("{} {command}", entry.file_name().display()));
        }
    }
    found
}

/// Waits for killed processes, which take a moment to be gone.
fn wait_until_nothing_is_left(folder: &Path) {
    until("no process is left", SOON, || {
        processes_of(folder).is_empty()
    });
}

/// Starts it in a folder of the project, uses it, ends it, and returns what it says.
fn run_and_use(project: &Path, var: &Path, run: u32) -> String {
    let (public, internal) = (ports::free().to_string(), ports::free().to_string());
    let log = var.with_extension(format!("log{run}"));
    let script = script_of(project, var, &public, &internal);
    let mut process = Process::start("scripts/run", &script, &log);
    process.wait_ready(|| fs::read_to_string(&log).is_ok_and(|log| log.contains("Ctrl-C stops")));
    let said = process.log();
    assert!(
        said.contains(&format!("http://localhost:{public}")),
        "{said}"
    );
    assert!(
        said.contains(&format!("http://127.0.0.1:{internal}")),
        "{said}"
    );

    // The printed line, as it would be pasted.
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with("curl "))
        .expect("a curl line");
    let output = Command::new("sh").args(["-c", line]).output().expect("sh");
    let link: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a link");
    let url = stack::text(&link, "shortUrl");
    let code = url
        .strip_prefix(&format!("http://localhost:{public}/"))
        .expect("a short URL");
    let port = public.parse().expect("a port");
    assert_eq!(
        http::get(port, &format!("/{code}")).location(),
        Some("https://www.example.com/")
    );

    let mode = fs::metadata(var.join("api-key"))
        .expect("the key")
        .permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );

    // A second one on the same directory reports the first, and disturbs nothing.
    let other = refused(&mut script_of(project, var, "1", "2"));
    assert!(other.contains("another run"), "{other}");
    assert_eq!(http::get(port, &format!("/{code}")).status, 302);
    // Its workers, of another user, can read the pages.
    let page = http::get(port, "/nosuchone").body;
    let page = String::from_utf8_lossy(&page).into_owned();
    assert!(
        page.contains("<title>This link does not exist</title>"),
        "{page}"
    );

    process.signal(Signal::SIGINT);
    let ended = process.wait(SOON * 3).code();
    let said = process.log();
    assert_eq!(ended, Some(130), "{said}");
    assert!(!said.contains("did not end"), "{said}");
    wait_until_nothing_is_left(var);
    said
}

#[test]
fn a_newcomer_runs_it_twice_and_nothing_is_left_running() {
    let directory = stack::directory();
    let var = directory.path().join("var");
    run_and_use(workspace(), &var, 1);
    let key = fs::read_to_string(var.join("api-key")).expect("the key");
    let check_keys = fs::read_to_string(var.join("check-keys")).expect("check keys");
    let nginx = |var: &Path| fs::read_to_string(var.join("nginx/shortlink.conf")).expect("a file");
    assert!(nginx(&var).contains("\nshortlink_check keyed "));
    run_and_use(workspace(), &var, 2);
    assert!(nginx(&var).contains("\nshortlink_check keyed "));
    let kept = fs::read_to_string(var.join("check-keys")).expect("check keys");
    assert_eq!(kept, check_keys);
    // Without the keys, all codes would be unknown.
    fs::remove_file(var.join("check-keys")).expect("check keys");
    let said = refused(&mut script(&var, &free(), &free()));
    assert!(said.contains("check-keys is missing"), "{said}");
    // A directory from before there were check keys keeps its codes.
    fs::write(var.join("shortlink.toml"), "").expect("a file");
    run_and_use(workspace(), &var, 3);
    assert!(nginx(&var).contains("\nshortlink_check luhn "));
    assert!(!var.join("check-keys").exists());
    assert_eq!(
        fs::read_to_string(var.join("api-key")).expect("the key"),
        key
    );
}

/// The folder as the first `make run` leaves it: the optimised program is not there yet.
#[test]
fn until_the_sidecar_is_optimised_the_other_one_starts_and_is_named() {
    let directory = stack::directory();
    let project = directory.path().join("project");
    let target = project.join("target");
    fs::create_dir_all(target.join("debug")).expect("a folder");
    let link = |from: &Path, to: &Path| std::os::unix::fs::symlink(from, to).expect("a link");
    for entry in fs::read_dir(workspace()).expect("the project").flatten() {
        if entry.file_name() != "target" {
            link(&entry.path(), &project.join(entry.file_name()));
        }
    }
    let built = workspace().join("target");
    link(&built.join("modules"), &target.join("modules"));
    let program = built.join("programs/shortlink");
    link(&program, &target.join("debug/shortlink"));
    let notice = "compiled without optimisation";

    let var = directory.path().join("var");
    let said = run_and_use(&project, &var, 1);
    assert!(said.contains(notice), "{said}");
    // As `make build` leaves it.
    fs::create_dir(target.join("programs")).expect("a folder");
    link(&program, &target.join("programs/shortlink"));
    let said = run_and_use(&project, &var, 2);
    assert!(!said.contains(notice), "{said}");
}

#[test]
fn a_part_that_dies_is_named_and_the_rest_is_stopped() {
    let directory = stack::directory();
    let var = directory.path().join("var");
    let (public, internal) = (ports::free().to_string(), ports::free().to_string());
    let log = var.with_extension("log");
    let mut process = Process::start("scripts/run", &script(&var, &public, &internal), &log);
    process.wait_ready(|| fs::read_to_string(&log).is_ok_and(|log| log.contains("Ctrl-C stops")));
    let nginx = fs::read_to_string(var.join("nginx.pid")).expect("nginx' pid");
    let nginx = nix::unistd::Pid::from_raw(nginx.trim().parse().expect("a pid"));
    nix::sys::signal::kill(nginx, Signal::SIGKILL).expect("nginx runs");
    assert_eq!(process.wait(SOON).code(), Some(1));
    assert!(
        process.log().contains("nginx has ended"),
        "{}",
        process.log()
    );
    wait_until_nothing_is_left(&var);
}

#[test]
fn wrong_settings_and_taken_ports_are_told_in_one_line() {
    let directory = stack::directory();
    let var = directory.path().join("var");
    let free = ports::free().to_string();
    for wrong in ["abc", "0", "99999", "-1", "80 80", "08080"] {
        let said = refused(&mut script(&var, wrong, &free));
        assert!(
            said.contains("PUBLIC_PORT") && said.contains("1 to 65535"),
            "{wrong}: {said}"
        );
    }
    let said = refused(&mut script(&var, &free, &free));
    assert!(
        said.contains("PUBLIC_PORT") && said.contains("INTERNAL_PORT"),
        "{said}"
    );

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let said = refused(&mut script(&var, &port, &free));
    assert!(
        said.contains(&port) && said.contains("PUBLIC_PORT"),
        "{said}"
    );
    let said = refused(&mut script(&var, &free, &port));
    assert!(
        said.contains(&port) && said.contains("INTERNAL_PORT"),
        "{said}"
    );

    let said = refused(script(&var, &free, "8081").env("VAR_DIR", "/proc/nosuch"));
    assert!(said.contains("VAR_DIR"), "{said}");
    let said =
        refused(script(&var, &free, &ports::free().to_string()).env("SHORTLINK_BIN", "/nosuch"));
    assert!(
        said.contains("/nosuch") && said.contains("make build"),
        "{said}"
    );
    let said =
        refused(script(&var, &free, &ports::free().to_string()).env("PATH", "/nosuch:/bin/nosuch"));
    assert!(
        said.contains("missing") || said.contains("No such file"),
        "{said}"
    );
    assert_eq!(processes_of(&var), [""; 0]);
}

/// A folder with programs that `scripts/setup` uses, and a copy of it that any user may read.
fn setup_with(programs: &[(&str, &str)]) -> (tempfile::TempDir, Command) {
    let directory = stack::directory();
    let root = directory.path();
    for folder in ["scripts", "bin"] {
        fs::create_dir(root.join(folder)).expect("a folder");
    }
    for file in ["scripts/setup", "Cargo.toml"] {
        fs::copy(workspace().join(file), root.join(file)).expect("a copy");
        open_to_all(&root.join(file));
    }
    for name in ["bash", "env", "dirname", "sed", "cut", "sort", "cat"] {
        let real = format!("/usr/bin/{name}");
        std::os::unix::fs::symlink(real, root.join("bin").join(name)).expect("a link");
    }
    for (name, text) in programs {
        let path = root.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a program");
        open_to_all(&path);
    }
    for path in [root.to_owned(), root.join("bin"), root.join("scripts")] {
        open_to_all(&path);
    }
    // Not as root, even if the tests run as root.
    let mut command = if nix::unistd::Uid::effective().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env"]);
        command
    } else {
        Command::new("env")
    };
    command
        .arg("-i")
        .arg(format!("PATH={}", root.join("bin").display()));
    command.arg("bash").arg(root.join("scripts/setup"));
    (directory, command)
}

fn open_to_all(path: &Path) {
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(path, mode).expect("its mode");
}

#[test]
fn what_the_machine_lacks_is_told_in_one_line_with_what_to_do() {
    let cargo = ("cargo", "exit 0");
    let rustc = |version: &str| {
        (
            "rustc",
            format!("echo 'rustc {version} (0123456 2026-01-01)'"),
        )
    };
    let (_, new) = rustc("1.95.0");
    let (_, old) = rustc("1.80.1");
    for (programs, expected) in [
        (
            vec![],
            &["Rust is missing", "install Rust 1.", "https://rustup.rs"][..],
        ),
        (
            vec![cargo, ("rustc", &*old)],
            &["Rust 1.80.1 is too old", "rustup update"],
        ),
        (
            vec![cargo, ("rustc", &*new)],
            &["neither Debian nor Ubuntu", "redis-server"],
        ),
        (
            vec![cargo, ("rustc", &*new), ("dpkg-query", "exit 1")],
            &[
                "there is no sudo",
                "as root with apt-get install nginx nginx-dev",
            ],
        ),
    ] {
        let (_directory, mut command) = setup_with(&programs);
        let said = refused(&mut command);
        for part in expected {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
}

#[test]
fn a_taken_port_shows_before_the_build() {
    let directory = stack::directory();
    let var = directory.path().join("var");
    let port = ports::free();
    let taken = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let port = port.to_string();
    let mut check = script(&var, &port, &ports::free().to_string());
    // Not even the programs need to be there.
    check
        .arg("--check")
        .env("SHORTLINK_BIN", "/nosuch")
        .env("SHORTLINK_MODULE", "/nosuch");
    let said = refused(&mut check);
    assert!(
        said.contains(&format!("port {port} is taken")) && said.contains("set PUBLIC_PORT"),
        "{said}"
    );
    drop(taken);
    let mut check = script(&var, &port, &ports::free().to_string());
    assert!(
        check
            .arg("--check")
            .output()
            .expect("the script")
            .status
            .success()
    );
    // It comes first in what `make run` does.
    let makefile = fs::read_to_string(workspace().join("Makefile")).expect("Makefile");
    assert!(
        makefile.contains("\nrun:\n\t@scripts/run --check\n"),
        "{makefile}"
    );
}
