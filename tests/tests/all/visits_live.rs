//! The live feed of visits, from the redirect to the listener.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::feed::Feed;
use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions, directory};
use shortlink_tests::visits::{names, put};
use shortlink_tests::wait::{SOON, until};
use vocabulary::visit::VisitId;

const STREAM: &str = "sl:v:{0}";

const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 \
    (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1";

fn stack_with(sidecar: &str) -> Stack {
    Stack::with(&StackOptions {
        sidecar: sidecar.to_owned(),
        ..StackOptions::default()
    })
}

/// Follows a link as a phone does.
fn tap(stack: &Stack, code: &str, host: &str, user_agent: &str) {
    let headers = [
        ("Host", host),
        ("User-Agent", user_agent),
        ("Accept-Language", "de-AT,de;q=0.9"),
        ("Referer", "https://www.example.com/mail?token=x"),
    ];
    let path = format!("/{code}");
    let answer = http::send(stack.nginx.public_port, "GET", &path, &headers);
    assert_eq!(answer.status, 302);
}

/// Opens a feed through nginx' internal server.
fn feed(stack: &Stack, query: &str, last: Option<&str>) -> Feed {
    Feed::open(stack.nginx.internal_port, &stack.sidecar.key, query, last)
}

/// A number of a sidecar's metrics.
fn metric(port: u16, name: &str) -> u64 {
    let text = String::from_utf8(http::get(port, "/metrics").body).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.trim().parse().expect("a number")
}

/// Appends a batch of visits to the stream, each of more than half a kilobyte.
fn blast(stack: &Stack, origin: u64, sequences: Range<u64>) {
    let names = sequences.map(|sequence| VisitId { origin, sequence });
    put(stack.redis.port, STREAM, names, &"x".repeat(512));
}

#[test]
fn a_tap_is_seen_at_once_at_every_sidecar() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    let stack = Stack::on(&postgres);
    let second = stack.sidecar.start_beside(ports::free());
    let code = stack.link("https://example.com/");
    let key = &stack.sidecar.key;
    let reads = stack.redis.calls("xread");
    let mut feeds = [
        feed(&stack, "", None),
        Feed::open(second.port, key, "", None),
    ];
    assert_eq!(reads, 0, "nothing is read without a listener");
    // nginx obeys this header and removes it.
    let direct = &feeds[1].head;
    assert_eq!(direct.header("X-Accel-Buffering"), Some("no"));
    assert_eq!(direct.header("Content-Type"), Some("text/event-stream"));
    tap(&stack, &code, "localhost", PHONE);
    let seen: Vec<Value> = feeds.iter_mut().map(|feed| feed.visit().data).collect();
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0]["shortCode"], code.as_str());
    assert_eq!(seen[0]["class"], "human");
    assert_eq!(seen[0]["client"], "127.0.0.0");
    assert_eq!(seen[0]["visitor"].as_str().map(str::len), Some(32));
    // It is the stored visit, member by member.
    let path = format!("/v1/links/{code}/visits");
    until("the visit is stored", SOON, || {
        let kept = stack.api("GET", &path, None).json();
        kept["visits"].as_array().is_some_and(|it| !it.is_empty())
    });
    assert_eq!(stack.api("GET", &path, None).json()["visits"][0], seen[0]);
    // Listeners do not depend on the storing sidecar: each sends every visit once.
    for _ in 0..60 {
        tap(&stack, &code, "localhost", PHONE);
    }
    for feed in &mut feeds {
        let ids: BTreeSet<String> = (0..60).map(|_| feed.visit().id).collect();
        assert_eq!(ids.len(), 60);
    }
    // Storing visits works as before, and stored batches are trimmed.
    until("stored batches are trimmed", SOON, || {
        stack.redis.command(&["XLEN", STREAM]) == "0"
    });
    let groups = stack.redis.command(&["XINFO", "GROUPS", STREAM]);
    assert_eq!(groups.matches("consumers").count(), 1, "{groups}");
    let stored = metric(stack.sidecar.port, "shortlink_visits_kept_total")
        + metric(second.port, "shortlink_visits_kept_total");
    assert_eq!(stored, 61);
    drop(feeds);
    until("the metrics show no listener", SOON, || {
        metric(second.port, "shortlink_live_listeners") == 0
            && metric(stack.sidecar.port, "shortlink_live_listeners") == 0
    });
}

#[test]
fn who_comes_again_is_told_of_what_came_meanwhile_or_that_it_is_gone() {
    // No sidecar stores visits, so that none trims them.
    let stack = stack_with("[visits]\nstore = false\n");
    let code = stack.link("https://example.com/");
    let mut first = feed(&stack, "", None);
    tap(&stack, &code, "localhost", PHONE);
    let seen = first.visit();
    // A sidecar that only listens makes no key for visitors.
    assert_eq!(seen.data["visitor"], Value::Null);
    assert_eq!(seen.data["os"], "iOS 17.2");
    drop(first);
    for agent in ["one/1", "two/2", "three/3"] {
        tap(&stack, &code, "localhost", agent);
    }
    until("Redis has all", SOON, || {
        names(stack.redis.port, STREAM).len() == 4
    });
    let mut again = feed(&stack, "", Some(&seen.id));
    let visits: Vec<_> = (0..3).map(|_| again.visit()).collect();
    let agents: BTreeSet<&str> = visits
        .iter()
        .filter_map(|visit| visit.data["userAgent"].as_str())
        .collect();
    assert_eq!(agents, ["one/1", "three/3", "two/2"].into());
    drop(again);
    // From the last one on nothing is missing, though the stream holds nothing any more.
    stack.redis.command(&["XTRIM", STREAM, "MAXLEN", "0"]);
    let mut whole = feed(&stack, "", Some(&visits[2].id));
    let mut gap = feed(&stack, "", Some(&seen.id));
    assert_eq!(gap.steady_event().name, "gap");
    tap(&stack, &code, "localhost", "four/4");
    for feed in [&mut whole, &mut gap] {
        assert_eq!(feed.visit().data["userAgent"], "four/4");
    }
}

#[test]
fn redis_is_killed_and_back_and_what_came_meanwhile_is_told() {
    let mut stack = Stack::start();
    let code = stack.link("https://example.com/");
    let mut feed = feed(&stack, "", None);
    tap(&stack, &code, "localhost", PHONE);
    feed.visit();
    stack.redis.kill();
    feed.named("interrupted");
    for _ in 0..3 {
        tap(&stack, &code, "localhost", PHONE);
    }
    // A new listener learns that too.
    let late = Feed::try_open(stack.nginx.internal_port, &stack.sidecar.key, "", None);
    let mut late = late.expect("a feed");
    assert_eq!(late.event().name, "interrupted");
    stack.redis.start_again();
    assert_eq!(feed.named("resumed").data, json!({}));
    assert_eq!(late.named("resumed").data, json!({}));
    for _ in 0..3 {
        feed.named("visit");
    }
    // An entry that is no visit disturbs no listener.
    for command in [
        &["XADD", STREAM, "*", "b", "nonsense"][..],
        &["XADD", STREAM, "*", "other", "field"],
        &["XADD", STREAM, "*", "b", ""],
    ] {
        stack.redis.command(command);
    }
    tap(&stack, &code, "localhost", "after/1");
    assert_eq!(feed.named("visit").data["userAgent"], "after/1");
}

#[test]
fn a_feed_ends_soon_after_its_key_is_revoked_and_no_other_does() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/");
    let key = stack.sidecar.make_key(&["stats:read"]);
    let mut revoked = Feed::open(stack.nginx.internal_port, &key, "", None);
    let mut other = feed(&stack, "", None);
    // Over the command line, which does not notify the sidecar.
    let id = key.split('_').nth(1).expect("an id");
    stack.sidecar.run_ok(&["keys", "revoke", id]);
    let end = revoked.named("end");
    assert_eq!(end.data, json!({ "reason": "key" }));
    assert_eq!(revoked.next_event(), None);
    let refused = Feed::try_open(stack.nginx.internal_port, &key, "", None);
    assert_eq!(refused.expect_err("no feed").status, 401);
    tap(&stack, &code, "localhost", PHONE);
    other.visit();
    // A silent feed gets a sign of life before nginx or a proxy closes it.
    other.comment(Duration::from_secs(30));
}

#[test]
fn a_sidecar_that_stops_does_not_wait_for_who_listens() {
    let mut stack = Stack::start();
    let mut through_nginx = feed(&stack, "", None);
    let mut direct = Feed::open(stack.sidecar.port, &stack.sidecar.key, "", None);
    assert_eq!(stack.sidecar.stop(), Some(0));
    let log = stack.sidecar.log();
    assert!(!log.contains("cut off"), "{log}");
    for feed in [&mut through_nginx, &mut direct] {
        let end = feed.steady_event();
        assert_eq!(end.data, json!({ "reason": "shutdown" }));
        assert_eq!(feed.next_event(), None);
    }
}

#[test]
fn listeners_are_told_of_what_they_ask_for_and_as_many_may_listen_as_is_said() {
    let stack = stack_with("[visits]\nlive_listeners = 3\n");
    let (one, two) = (
        stack.link("https://example.com/1"),
        stack.link("https://example.com/2"),
    );
    let mut by_code = feed(&stack, &format!("?code={two}"), None);
    let mut bots = feed(&stack, "?class=bot", None);
    let mut by_domain = feed(&stack, "?domain=LOCALHOST&class=human", None);
    let key = &stack.sidecar.key;
    let refused = Feed::try_open(stack.nginx.internal_port, key, "", None);
    let refused = refused.expect_err("no free place");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("Retry-After"), Some("2"));
    tap(&stack, &one, "localhost", "curl/8.0");
    tap(&stack, &one, "localhost", PHONE);
    tap(&stack, &two, "localhost", "curl/8.0");
    tap(&stack, &two, "localhost", PHONE);
    let pairs = |feed: &mut Feed| -> BTreeSet<(String, String)> {
        let pair = |data: Value| {
            let text = |name: &str| data[name].as_str().expect("text").to_owned();
            (text("shortCode"), text("class"))
        };
        (0..2).map(|_| pair(feed.visit().data)).collect()
    };
    let pair = |code: &str, class: &str| (code.to_owned(), class.to_owned());
    let (bot, human) = ("bot", "human");
    assert_eq!(
        pairs(&mut by_code),
        [pair(&two, bot), pair(&two, human)].into()
    );
    assert_eq!(pairs(&mut bots), [pair(&one, bot), pair(&two, bot)].into());
    assert_eq!(
        pairs(&mut by_domain),
        [pair(&one, human), pair(&two, human)].into()
    );
    let mut nowhere = None;
    drop(bots);
    until("there is a free place", SOON, || {
        let open = Feed::try_open(
            stack.nginx.internal_port,
            key,
            "?domain=other.example",
            None,
        );
        nowhere = open.ok();
        nowhere.is_some()
    });
    tap(&stack, &one, "localhost", PHONE);
    by_domain.visit();
    for (query, status) in [("?nonsense=1", 400), ("?class=alien", 400)] {
        let refused = Feed::try_open(stack.nginx.internal_port, key, query, None);
        assert_eq!(refused.expect_err("no feed").status, status, "{query}");
    }
}

#[test]
fn the_feed_can_be_switched_off() {
    let stack = stack_with("[visits]\nlive_listeners = 0\n");
    let refused = Feed::try_open(stack.nginx.internal_port, &stack.sidecar.key, "", None);
    assert_eq!(refused.expect_err("no feed").status, 404);
}

#[test]
fn of_a_blast_some_visits_are_told_and_how_many_were_not() {
    let stack = stack_with("[visits]\nlive_per_s = 10\n");
    let mut feed = feed(&stack, "", None);
    for batch in 0..50 {
        blast(&stack, 1, batch * 100..(batch + 1) * 100);
    }
    let (mut told, mut left_out) = (0, 0);
    while told + left_out < 5000 {
        let event = feed.steady_event();
        match event.name.as_str() {
            "visit" => told += 1,
            "sampled" => left_out += event.data["visits"].as_u64().expect("a number"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(told + left_out, 5000);
    assert!((10..2500).contains(&told), "{told}");
}

#[test]
fn who_does_not_read_loses_visits_and_is_told_how_many() {
    let stack = stack_with("[visits]\nlive_per_s = 10000\n");
    // Without nginx, which has buffers of its own.
    let open = || Feed::open(stack.sidecar.port, &stack.sidecar.key, "", None);
    let (mut slow, mut quick) = (open(), open());
    // More than the system keeps for a connection.
    let mut origin = 0;
    let mut sent = 0;
    while sent < 12_000 {
        origin += 1;
        for batch in 0..4 {
            blast(&stack, origin, batch * 100..(batch + 1) * 100);
        }
        sent += 400;
        // A listener that does not read delays no other.
        for _ in 0..400 {
            quick.visit();
        }
    }
    let (mut told, mut lost) = (0, 0);
    while told + lost < sent {
        let event = slow.steady_event();
        match event.name.as_str() {
            "visit" => told += 1,
            "lost" => lost += event.data["visits"].as_u64().expect("a number"),
            other => panic!("{other}"),
        }
    }
    assert!(lost > 0);
    assert_eq!(told + lost, sent);
}
