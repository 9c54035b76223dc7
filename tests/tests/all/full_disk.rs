//! The disk of the database is full, and has space again.
//!
//! A limit on the length of files, which the running sidecar is given from outside, takes the
//! space: its writes fail as they do on a full disk, and no disk has to be filled.

use std::collections::HashMap;

use serde_json::json;
use shortlink_tests::http::Response;
use shortlink_tests::made::{Made, listed, make_batch};
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

fn target(number: usize) -> String {
    format!("https://example.com/{number}")
}

fn assert_unavailable(answer: &Response) {
    assert_eq!(answer.status, 503);
    let media_type = answer.header("Content-Type");
    assert_eq!(media_type, Some("application/problem+json"));
    assert!(answer.header("Retry-After").is_some());
    let kind = text(&answer.json(), "type");
    assert_eq!(kind, "urn:shortlink:problem:unavailable");
}

#[test]
fn a_full_disk_costs_no_link_that_was_acknowledged() {
    let mut stack = Stack::start();
    let key = stack.sidecar.key.clone();
    let mut made: Vec<Made> = Vec::new();
    let mut asked = 0;
    let mut ask = |stack: &Stack, made: &mut Vec<Made>| {
        asked += 1;
        let target = target(asked);
        let answer = stack.api("POST", "/v1/links", Some(&json!({ "longUrl": target })));
        if answer.status == 201 {
            let code = text(&answer.json(), "shortCode");
            made.push(Made { code, target });
        }
        answer
    };
    let follow_all = |stack: &Stack, made: &[Made]| {
        for Made { code, target } in made {
            let answer = stack.follow(code);
            let found = (answer.status, answer.location());
            assert_eq!(found, (302, Some(&**target)), "{code}");
        }
    };
    let rows: Vec<String> = (0..2200)
        .map(|row| format!("https://example.com/row/{row}"))
        .collect();
    let headers = [("X-Api-Key", &*key), ("Idempotency-Key", "full")];
    let port = stack.sidecar.port;
    for round in 0..3 {
        for _ in 0..20 {
            assert_eq!(ask(&stack, &mut made).status, 201);
        }
        stack
            .sidecar
            .limit_files(Some(stack.sidecar.longest_file()));
        // One link at a time, each waited for until it is on the disk.
        until("the disk is full", SOON * 3, || {
            ask(&stack, &mut made).status != 201
        });
        for _ in 0..20 {
            assert_unavailable(&ask(&stack, &mut made));
        }
        let batch = make_batch(port, &headers, &rows);
        if round == 0 {
            assert_eq!((batch.made.len(), batch.refused.len()), (0, rows.len()));
            let unavailable = "\"status\":503";
            assert!(batch.refused.iter().all(|row| row.contains(unavailable)));
        }
        // Visitors notice nothing, be it in Redis or not.
        stack.redis.command(&["FLUSHALL"]);
        follow_all(&stack, &made);
        if round == 1 {
            // Not even the end of the process does harm then.
            stack.sidecar.kill();
            stack.sidecar.start_again();
        } else {
            stack.sidecar.limit_files(None);
        }
        until("the disk has space again", SOON, || {
            ask(&stack, &mut made).status == 201
        });
        let batch = make_batch(port, &headers, &rows);
        assert_eq!((batch.made.len(), batch.refused), (rows.len(), Vec::new()));
    }

    let all = listed(port, &key);
    let batch = make_batch(port, &headers, &rows).made;
    let expected: HashMap<&str, &str> = made
        .iter()
        .chain(batch.iter().map(|(_, made)| made))
        .map(|made| (&*made.code, &*made.target))
        .collect();
    assert_eq!(
        expected.len(),
        made.len() + rows.len(),
        "a code was given twice"
    );
    // Nothing was lost, and nothing was made that was answered with 503.
    for (code, target) in &expected {
        assert_eq!(all.get(*code).map(String::as_str), Some(*target), "{code}");
    }
    assert_eq!(all.len(), expected.len());
    follow_all(&stack, &made);
}
