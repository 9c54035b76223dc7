//! The sidecar on PostgreSQL.

use std::collections::HashSet;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::json;
use shortlink_tests::http::{self, Response};
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::sidecar::{self, Sidecar, api};
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://example.com/target";

fn stack_on(postgres: &Postgres) -> Stack {
    Stack::with(&StackOptions {
        database: Some(postgres.url()),
        ..StackOptions::default()
    })
}

#[test]
fn links_are_made_followed_changed_and_revoked() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = stack_on(&postgres);
    let code = stack.link(TARGET);
    let path = format!("/v1/links/{code}");
    assert_eq!(stack.follow(&code).location(), Some(TARGET));
    let follow_anew = || {
        stack.redis.command(&["FLUSHALL"]);
        let answer = stack.follow(&code);
        assert_eq!(answer.header("X-Edge"), Some("miss/fallback"));
        answer
    };
    let answer = follow_anew();
    assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));

    let new = "https://example.com/new";
    let change =
        json!({ "longUrl": new, "redirectStatus": 307, "validUntil": "2100-01-01T00:00:00Z" });
    let changed = stack.api("PATCH", &path, Some(&change));
    assert_eq!(changed.status, 200);
    assert_eq!(changed.json()["revision"], 2);
    until("the change is seen", SOON, || {
        stack.follow(&code).location() == Some(new)
    });
    let answer = follow_anew();
    assert_eq!((answer.status, answer.location()), (307, Some(new)));

    let slug = json!({ "longUrl": TARGET, "customSlug": "ABCDEFGHIJKLMNOP" });
    stack.create(&slug);
    let listed = stack.api("GET", "/v1/links?limit=1", None).json();
    assert_eq!(listed["links"].as_array().map(Vec::len), Some(1));
    let cursor = text(&listed, "nextCursor");
    let rest = stack.api("GET", &format!("/v1/links?cursor={cursor}"), None);
    assert_eq!(rest.json()["links"].as_array().map(Vec::len), Some(1));

    assert_eq!(stack.api("DELETE", &path, None).status, 200);
    assert_eq!(follow_anew().status, 410);
    let kept = postgres.query("SELECT count(*) FROM links WHERE revoked_at IS NOT NULL");
    assert_eq!(kept, "1");
    // What was published leaves the outbox.
    until("new links leave the outbox", SOON, || {
        postgres.query("SELECT count(*) FROM outbox WHERE revision = 1") == "0"
    });
}

/// A request that makes a link.
fn make(sidecar_port: u16, key: &str, slug: Option<&str>) -> Response {
    let body = match slug {
        Some(slug) => json!({ "longUrl": TARGET, "customSlug": slug }),
        None => json!({ "longUrl": TARGET }),
    };
    api(sidecar_port, key, "POST", "/v1/links", Some(&body))
}

#[test]
fn two_sidecars_share_a_database() {
    const SLUGS: usize = 25;
    const CREATES: usize = 150;
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = stack_on(&postgres);
    let other = Sidecar::start_on(
        &postgres.url(),
        &directory.path().join("other"),
        ports::free(),
        stack.redis.port,
        "",
    );
    let sidecars = [
        (stack.sidecar.port, &*stack.sidecar.key),
        // One database, so that each knows the other's keys.
        (other.port, &*stack.sidecar.key),
        (stack.sidecar.port, &*other.key),
        (other.port, &*other.key),
    ];
    let answers: Vec<(u16, usize)> = thread::scope(|scope| {
        let makers = sidecars.map(|(port, key)| {
            scope.spawn(move || {
                let slugs = (0..SLUGS).map(|number| {
                    let slug = format!("slug{number}");
                    (make(port, key, Some(&slug)).status, number)
                });
                slugs.collect::<Vec<_>>()
            })
        });
        let answers = makers.map(|maker| maker.join().expect("a maker"));
        answers.into_iter().flatten().collect()
    });
    for number in 0..SLUGS {
        let mut statuses: Vec<u16> = answers
            .iter()
            .filter(|(_, other)| *other == number)
            .map(|(status, _)| *status)
            .collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409], "slug{number}");
    }

    let codes: Vec<String> = thread::scope(|scope| {
        let makers = sidecars.map(|(port, key)| {
            scope.spawn(move || {
                let made = (0..CREATES).map(|_| make(port, key, None));
                made.map(|answer| text(&answer.json(), "shortCode"))
                    .collect::<Vec<_>>()
            })
        });
        let codes = makers.map(|maker| maker.join().expect("a maker"));
        codes.into_iter().flatten().collect()
    });
    assert_eq!(codes.len(), 4 * CREATES);
    let different: HashSet<&String> = codes.iter().collect();
    assert_eq!(different.len(), codes.len(), "a code was given out twice");
    let kept = postgres.query("SELECT count(*) FROM links");
    assert_eq!(kept, (SLUGS + codes.len()).to_string());
    // What one has made the other resolves.
    stack.redis.command(&["FLUSHALL"]);
    for code in codes.iter().step_by(29) {
        assert_eq!(stack.follow(code).location(), Some(TARGET));
    }
    until("the outbox is empty", SOON, || {
        postgres.query("SELECT count(*) FROM outbox") == "0"
    });
}

#[test]
fn postgres_is_killed_under_load_and_no_acknowledged_link_is_lost() {
    let directory = directory();
    let mut postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = stack_on(&postgres);
    let is_over = AtomicBool::new(false);
    let (made, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let (port, key) = (stack.sidecar.port, &*stack.sidecar.key);
    let acknowledged: Vec<String> = thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut codes = Vec::new();
                    while !is_over.load(Ordering::SeqCst) {
                        let answer = make(port, key, None);
                        if answer.status == 201 {
                            codes.push(text(&answer.json(), "shortCode"));
                            made.fetch_add(1, Ordering::SeqCst);
                            continue;
                        }
                        assert_eq!(answer.status, 503);
                        assert_eq!(
                            answer.header("Content-Type"),
                            Some("application/problem+json")
                        );
                        assert!(answer.header("Retry-After").is_some());
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                    codes
                })
            })
            .collect();
        for round in 0..3 {
            let before = made.load(Ordering::SeqCst);
            until(&format!("links are made ({round})"), SOON, || {
                made.load(Ordering::SeqCst) > before + 40
            });
            let before = refused.load(Ordering::SeqCst);
            postgres.kill();
            until(&format!("requests are refused ({round})"), SOON, || {
                refused.load(Ordering::SeqCst) > before + 4
            });
            // A live link is never 404, whoever is away.
            assert_eq!(stack.follow("nosuchone").status, 503);
            assert_eq!(http::get(port, "/readyz").status, 503);
            postgres.start_again();
        }
        let before = made.load(Ordering::SeqCst);
        until("links are made again", SOON, || {
            made.load(Ordering::SeqCst) > before + 40
        });
        is_over.store(true, Ordering::SeqCst);
        let codes = makers
            .into_iter()
            .map(|maker| maker.join().expect("a maker"));
        codes.flatten().collect()
    });
    let kept = postgres.query("SELECT code FROM links");
    let kept: HashSet<&str> = kept.lines().collect();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|code| !kept.contains(&***code))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    let different: HashSet<&String> = acknowledged.iter().collect();
    assert_eq!(different.len(), acknowledged.len());
    // Those that nobody was told of are published too, and what was counted is what is there.
    until("the outbox is empty", SOON, || {
        postgres.query("SELECT count(*) FROM outbox") == "0"
    });
    let counted = postgres.query("SELECT sum(links) FROM code_usage");
    assert_eq!(counted, kept.len().to_string());
    stack.redis.command(&["FLUSHALL"]);
    for code in acknowledged.iter().step_by(17) {
        assert_eq!(stack.follow(code).location(), Some(TARGET));
    }
}

fn migrate(url: &str) -> std::process::Child {
    let mut command = sidecar::program();
    command.arg("migrate").env("DATABASE_URL", url);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the sidecar can be run")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn five_processes_migrate_at_once() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let migrations: Vec<_> = (0..5).map(|_| migrate(&postgres.url())).collect();
    let mut idle = 0;
    for migration in migrations {
        let output = migration.wait_with_output().expect("its output");
        assert!(output.status.success(), "{}", said(&output));
        idle += usize::from(said(&output).contains("(migrations applied: 0)"));
    }
    assert_eq!(idle, 4);
    let keys = postgres.query("SELECT count(*), min(length(value)) FROM settings");
    assert_eq!(keys, "1|32");
}

#[test]
fn what_is_wrong_with_a_database_is_said_without_its_password() {
    let port = ports::free();
    for (url, expected) in [
        (
            "mysql://user:secret@localhost/links".to_owned(),
            &["database.url", "sqlite:, postgres: or postgresql:"][..],
        ),
        (
            format!("postgresql://user:secret@127.0.0.1:{port}/links"),
            &["cannot open the PostgreSQL database \"links\" at 127.0.0.1"],
        ),
    ] {
        let output = migrate(&url).wait_with_output().expect("its output");
        let said = said(&output);
        assert!(!output.status.success(), "{said}");
        for words in expected {
            assert!(said.contains(words), "{said}");
        }
        assert!(!said.contains("secret"), "{said}");
    }
}
