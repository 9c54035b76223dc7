//! nginx and the module are replaced while they serve, as the runbook says.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use shortlink_tests::http;
use shortlink_tests::stack::Stack;
use shortlink_tests::visits::Account;
use shortlink_tests::wait::{SOON, until};

use super::reload::{Seen, under_load, wait_for_answers};

/// Everything, with a module that lies where it can be replaced.
fn stack() -> Stack {
    let mut stack = Stack::start();
    let conf = fs::read_to_string(stack.nginx.file("nginx.conf")).expect("a configuration");
    let line = conf.lines().find(|line| line.starts_with("load_module "));
    let module = line.and_then(|line| line.split([' ', ';']).nth(1));
    let module = module.expect("a module").to_owned();
    let own = stack.nginx.file("module.so");
    fs::copy(&module, &own).expect("a copy");
    stack.nginx.quit();
    let own = own.display().to_string();
    stack.nginx.edit("nginx.conf", &module, &own);
    stack.nginx.start_daemon();
    stack
}

/// Replaces the module by another file, by rename: the old one stays mapped.
fn replace_module(stack: &Stack) {
    let (path, new) = (stack.nginx.file("module.so"), stack.nginx.file("new.so"));
    fs::copy(&path, &new).expect("a copy");
    fs::rename(&new, &path).expect("another module");
}

/// The inode of the file that a process has mapped as the module.
fn mapped(pid: u32, path: &Path) -> Option<u64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let name = path.display().to_string();
    let line = maps.lines().find(|line| line.contains(&name))?;
    line.split_whitespace().nth(4)?.parse().ok()
}

fn account(stack: &Stack) -> Account {
    let page = http::get(stack.nginx.internal_port, "/edge/metrics");
    Account::of(&String::from_utf8(page.body).expect("text"))
}

/// That every answer that clients have got is a visit, and none is stored twice.
fn assert_every_visit_is_stored(stack: &Stack, seen: &Seen) {
    let answered = seen.answered.load(Ordering::Relaxed);
    let stored = || {
        let stats = stack.api("GET", "/v1/stats", None);
        stats.json()["visits"]["total"].as_u64().expect("a number")
    };
    until("every visit is stored", SOON, || stored() >= answered);
    until("nothing waits", SOON, || account(stack).held == 0);
    assert_eq!(stored(), answered);
}

#[test]
fn no_request_fails_and_no_visit_is_lost_when_nginx_and_its_module_are_replaced() {
    let mut stack = stack();
    let path = stack.nginx.file("module.so");
    let seen = under_load(&mut stack, false, |stack, seen| {
        for _ in 0..3 {
            let old = stack.nginx.workers();
            replace_module(stack);
            let there = fs::metadata(&path).expect("the module").ino();
            let new = stack.nginx.begin_upgrade();
            wait_for_answers(seen, 200);
            stack.nginx.retire_old_workers(new);
            wait_for_answers(seen, 200);
            stack.nginx.finish_upgrade(new);
            wait_for_answers(seen, 200);
            let workers = stack.nginx.workers();
            assert!(workers.len() == 2 && !workers.iter().any(|pid| old.contains(pid)));
            for worker in workers {
                assert_eq!(mapped(worker, &path), Some(there), "the new module serves");
            }
        }
    });
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0);
    assert_every_visit_is_stored(&stack, &seen);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
    // Reloads after an upgrade work as before it.
    stack.nginx.reload();
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn an_upgrade_can_be_gone_back_from() {
    let mut stack = stack();
    let path = stack.nginx.file("module.so");
    let before = fs::metadata(&path).expect("the module").ino();
    let seen = under_load(&mut stack, false, |stack, seen| {
        replace_module(stack);
        let new = stack.nginx.begin_upgrade();
        stack.nginx.retire_old_workers(new);
        wait_for_answers(seen, 200);
        stack.nginx.undo_upgrade(new);
        wait_for_answers(seen, 200);
        for worker in stack.nginx.workers() {
            // A file that is gone, whose inode no other file has.
            assert_eq!(mapped(worker, &path), Some(before), "the old module serves");
        }
    });
    assert_eq!(seen.refused.load(Ordering::Relaxed), 0);
    assert_every_visit_is_stored(&stack, &seen);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn a_reload_does_not_load_another_module() {
    let stack = stack();
    let path = stack.nginx.file("module.so");
    let before = fs::metadata(&path).expect("the module").ino();
    replace_module(&stack);
    stack.nginx.reload();
    for worker in stack.nginx.workers() {
        assert_eq!(mapped(worker, &path), Some(before));
    }
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}
