//! A module that was built for other structures than those of the nginx that loads it is refused, although version and
//! build options are the same.
//!
//! nginx' headers are edited as a distributor's patch would, and the module is built with them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use shortlink_tests::nginx::Nginx;
use shortlink_tests::{stack, workspace};

/// The folder that a variable names, as `make` sets it, or else `default`.
fn folder(variable: &str, default: &Path) -> PathBuf {
    let path = std::env::var_os(variable).map_or_else(|| default.to_owned(), PathBuf::from);
    assert!(path.exists(), "{} is missing: make build", path.display());
    path.canonicalize().expect("a path")
}

/// Edits a header of the copy below `source`.
fn edit(source: &Path, header: &str, from: &str, to: &str) {
    let path = source.join("src").join(header);
    let text = fs::read_to_string(&path).expect("a header");
    assert!(text.contains(from), "{header} has no {from:?}");
    fs::write(&path, text.replacen(from, to, 1)).expect("a header");
}

/// Returns what the nginx under test says about a module that was built after `change` of its headers.
fn refusal(change: impl FnOnce(&Path)) -> String {
    let directory = stack::directory();
    let source = directory.path().join("source");
    let original = folder("NGINX_SOURCE_DIR", Path::new("/usr/share/nginx/src"));
    let objs = workspace().join("target/nginx/objs");
    let objs = folder("NGINX_BUILD_DIR", &objs);
    fs::create_dir(&source).expect("a directory");
    let status = Command::new("cp")
        .args(["-rL"])
        .arg(original.join("src"))
        .arg(&source)
        .status();
    assert!(status.expect("cp").success());
    // The compiler's paths are relative to the source unless the build directory lies elsewhere.
    symlink(&objs, source.join("objs")).expect("a link");
    change(&source);

    // A folder for all versions of nginx: only the bindings and the module differ. Others may build there meanwhile,
    // and cargo lets only one at it.
    let target = workspace().join("target/nginxes/cargo");
    fs::create_dir_all(&target).expect("a directory");
    let lock = fs::File::create(target.join(".lock-of-tests")).expect("a file");
    lock.lock().expect("a lock");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--locked",
            "-p",
            "ngx_http_shortlink_module",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(workspace())
        .env("NGINX_SOURCE_DIR", &source)
        .env("NGINX_BUILD_DIR", &objs)
        .output()
        .expect("cargo");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let module = directory.path().join("module.so");
    fs::copy(
        target.join("debug/libngx_http_shortlink_module.so"),
        &module,
    )
    .expect("a module");
    drop(lock);

    let output = Nginx::try_module(directory.path(), &module);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_refused(change: impl FnOnce(&Path), structure: &str) {
    let refusal = refusal(change);
    for text in [
        "built for another nginx than this one",
        structure,
        "make build NGINX=<source>",
    ] {
        assert!(refusal.contains(text), "{text:?} is not in:\n{refusal}");
    }
}

#[test]
fn a_timer_that_would_keep_old_workers_alive() {
    // OpenResty's nginx has this bit, that of nginx.org in the same version has not.
    const BIT: &str = "    unsigned         skip_socket_leak_check:1;\n";
    assert_refused(
        |source| {
            let header = source.join("src/event/ngx_event.h");
            let has_bit = fs::read_to_string(header).expect("a header").contains(BIT);
            if has_bit {
                edit(source, "event/ngx_event.h", BIT, "");
            } else {
                let next = "    unsigned         cancelable:1;\n";
                edit(source, "event/ngx_event.h", next, &format!("{BIT}{next}"));
            }
        },
        "ngx_event_t (cancelable, timer)",
    );
}

#[test]
fn a_bit_of_a_request_and_the_size_of_a_connection() {
    assert_refused(
        |source| {
            let next = "    unsigned                          header_sent:1;\n";
            let header = "http/ngx_http_request.h";
            edit(
                source,
                header,
                next,
                &format!("    unsigned patched:1;\n{next}"),
            );
        },
        "ngx_http_request_t (header_sent)",
    );
    assert_refused(
        |source| {
            let next = "    ngx_buf_t          *buffer;\n";
            let header = "core/ngx_connection.h";
            edit(source, header, next, &format!("    void *patched;\n{next}"));
        },
        "ngx_connection_t",
    );
}
