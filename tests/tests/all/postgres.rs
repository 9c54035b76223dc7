//! The sidecar on PostgreSQL.

use std::collections::{BTreeMap, HashSet};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};
use shortlink_tests::http::{self, Response};
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::sidecar::{self, Sidecar, api};
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, eventually, until};

const TARGET: &str = "https://example.com/target";

#[test]
fn links_are_made_followed_changed_and_revoked() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = Stack::on(&postgres);
    let code = stack.link(TARGET);
    let path = format!("/v1/links/{code}");
    assert_eq!(stack.follow(&code).location(), Some(TARGET));
    // Workers learn that Redis is empty a moment after its reply.
    let follow_anew = || {
        eventually("the fallback is asked", SOON, || {
            stack.redis.command(&["FLUSHALL"]);
            let answer = stack.follow(&code);
            (answer.header("X-Edge") == Some("miss/fallback")).then_some(answer)
        })
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
    // Published links leave the outbox.
    until("new links leave the outbox", SOON, || {
        postgres.query("SELECT count(*) FROM outbox WHERE revision = 1") == "0"
    });
}

/// Sends a request for a link.
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
    let stack = Stack::on(&postgres);
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
    // Each resolves the links of the other.
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
    let stack = Stack::on(&postgres);
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
            until(&format!("links are created ({round})"), SOON, || {
                made.load(Ordering::SeqCst) > before + 40
            });
            let before = refused.load(Ordering::SeqCst);
            postgres.kill();
            until(&format!("requests are refused ({round})"), SOON, || {
                refused.load(Ordering::SeqCst) > before + 4
            });
            // A live link is never 404, whichever server is away.
            assert_eq!(stack.follow("nosuchone").status, 503);
            assert_eq!(http::get(port, "/readyz").status, 503);
            postgres.start_again();
        }
        let before = made.load(Ordering::SeqCst);
        until("links are created again", SOON, || {
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
    // Links that no client got are published too, and the counts match the rows.
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

#[test]
fn campaigns_are_made_changed_and_told_to_redis() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let mut stack = Stack::on(&postgres);
    let key = stack.sidecar.make_key(&["admin"]);
    let call = |stack: &Stack, method, path: &str, body: Option<Value>| {
        api(stack.sidecar.port, &key, method, path, body.as_ref())
    };
    let body = json!({
        "name": "Spring", "longUrl": "https://shop.example.com/p?m={member}&c={code}",
    });
    let campaign = call(&stack, "POST", "/v1/campaigns", Some(body));
    assert_eq!(campaign.status, 201);
    let id = text(&campaign.json(), "id");
    let path = format!("/v1/campaigns/{id}");
    let record = |stack: &Stack| stack.redis.command(&["GET", &format!("sl:c:{id}")]);
    assert_eq!(
        record(&stack),
        "1 302 1 0 https://shop.example.com/p?m={0}&c={code}"
    );
    let change = json!({ "longUrl": "https://shop.example.com/new?m={member}" });
    let changed = call(&stack, "PATCH", &path, Some(change));
    assert_eq!(changed.json()["revision"], 2);
    assert_eq!(
        record(&stack),
        "1 302 2 0 https://shop.example.com/new?m={0}"
    );
    // A change during Redis' outage is published by the sidecar that runs when it is back.
    stack.redis.kill();
    let paused = call(&stack, "POST", &format!("{path}/pause"), None);
    assert_eq!(
        (paused.status, &paused.json()["published"]),
        (200, &json!(false))
    );
    stack.sidecar.kill();
    stack.redis.start_again();
    stack.sidecar.start_again();
    until("the pause is published", SOON, || {
        record(&stack) == "1 410 3"
    });
    let listed = call(&stack, "GET", "/v1/campaigns", None).json();
    assert_eq!(listed["campaigns"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["campaigns"][0]["state"], "paused");
    assert_eq!(call(&stack, "DELETE", &path, None).status, 200);
    until("the revocation is published", SOON, || {
        record(&stack) == "1 410 4"
    });
}

#[test]
fn a_redis_that_was_flushed_is_rebuilt_and_audited() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = Stack::on(&postgres);
    let codes = stack.sidecar.sample(6000, &[]);
    let expired = stack.sidecar.sample(10, &["--expired-days-ago", "3"]);
    let revoked = stack.link(TARGET);
    let path = format!("/v1/links/{revoked}");
    assert_eq!(stack.api("DELETE", &path, None).status, 200);
    stack.redis.command(&["FLUSHALL"]);
    let audit = || stack.sidecar.run(&["audit"]).status.code();
    assert_eq!(audit(), Some(2));
    let done = stack.sidecar.run_ok(&["rebuild"]);
    // The sidecar may have published the revocation again before.
    assert!(
        ["6,010 added", "6,011 added"]
            .iter()
            .any(|it| done.contains(it)),
        "{done}"
    );
    assert_eq!(audit(), Some(0));
    assert_eq!(stack.redis.keys(), 6011);
    // A record that only Redis has is found too.
    stack
        .redis
        .command(&["SET", "sl:l:nosuchone", "1 302 1 0 https://example.com/"]);
    assert_eq!(audit(), Some(2));
    stack.redis.command(&["DEL", "sl:l:nosuchone"]);
    let source = |code: &str| {
        let answer = stack.follow(code);
        (answer.status, answer.header("X-Edge").map(str::to_owned))
    };
    for code in codes.iter().step_by(97) {
        assert_eq!(source(code), (302, Some("redirect/redis".to_owned())));
    }
    for code in expired.iter().chain([&revoked]) {
        assert_eq!(source(code).0, 410, "{code}");
    }
}

#[test]
fn what_was_dead_for_long_is_swept_and_its_code_is_free() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = Stack::with(&StackOptions {
        database: Some(postgres.url()),
        sidecar: "[links]\nquarantine_days = 1\n[upkeep]\nsweep_every_s = 1".to_owned(),
        ..StackOptions::default()
    });
    stack.sidecar.sample(300, &["--expired-days-ago", "3"]);
    let kept = stack.link(TARGET);
    until("dead links are deleted", SOON, || {
        postgres.query("SELECT count(*) FROM links") == "1"
    });
    let counted = "SELECT sum(links), (SELECT count(*) FROM removed_links) FROM code_usage";
    assert_eq!(postgres.query(counted), "1|300");
    assert_eq!(stack.follow(&kept).location(), Some(TARGET));
}

#[test]
fn an_export_of_one_store_can_be_imported_into_the_other() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let (one, other) = (Stack::start(), Stack::on(&postgres));
    one.sidecar.sample(5000, &[]);
    for (slug, until) in [
        ("ABCDEFGHIJKLMNOP", None),
        ("until", Some("2035-01-01T00:00:00Z")),
    ] {
        let body = json!({ "longUrl": "https://example.com/a,\"b\"", "customSlug": slug,
            "validUntil": until });
        one.create(&body);
    }
    let revoked = one.link(TARGET);
    let path = format!("/v1/links/{revoked}");
    assert_eq!(one.api("DELETE", &path, None).status, 200);
    let out = directory.path().join("all.csv.gz").display().to_string();
    one.sidecar.run_ok(&["export", "--out", &out]);
    let import = |arguments: &[&str]| {
        let output = other.sidecar.run(&[&["import"], arguments].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    let first = import(&[&out]);
    assert!(first.contains("created: 5003"), "{first}");
    let again = import(&[&out]);
    assert!(again.contains("the same: 5003"), "{again}");
    let links = |stack: &Stack| {
        let all = stack.sidecar.run_ok(&["export", "--format", "ndjson"]);
        let links = all.lines().map(|line| {
            let mut link: Value = serde_json::from_str(line).expect("JSON");
            // The importing key is the creator.
            link["createdBy"].take();
            (text(&link, "shortCode"), link)
        });
        links.collect::<BTreeMap<String, Value>>()
    };
    assert_eq!(links(&other), links(&one));
    for (code, status) in [("ABCDEFGHIJKLMNOP", 302), ("until", 302), (&*revoked, 410)] {
        assert_eq!(other.follow(code).status, status, "{code}");
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
