//! Visits, from the redirect to their statistics.

use std::thread;

use serde_json::{Value, json};
use shortlink_tests::http;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, until};

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 \
    (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1";

/// Follows a link as a phone does; answers the status.
fn follow(stack: &Stack, code: &str) -> u16 {
    let headers = [
        ("User-Agent", IPHONE),
        ("Accept-Language", "de-AT,de;q=0.9"),
        ("Referer", "https://www.example.com/mail?token=x"),
    ];
    let path = format!("/{code}");
    http::send(stack.nginx.public_port, "GET", &path, &headers).status
}

/// Follows a link when a part may be away; answers whether it redirected.
fn try_follow(stack: &Stack, code: &str) -> bool {
    let path = format!("/{code}");
    let request = http::request("GET", &path, &[("User-Agent", IPHONE)], b"");
    let answer = http::try_send(stack.nginx.public_port, "GET", &request);
    answer.is_ok_and(|answer| answer.status == 302)
}

fn stats(stack: &Stack, path: &str) -> Value {
    let answer = stack.api("GET", path, None);
    assert_eq!(answer.status, 200, "{path}: {}", answer.json());
    answer.json()
}

fn total(stack: &Stack, path: &str) -> u64 {
    let total = stats(stack, path)["visits"]["total"].clone();
    total.as_u64().expect("a number")
}

/// A number of the sidecar's metrics.
fn metric(stack: &Stack, name: &str) -> f64 {
    let answer = http::get(stack.sidecar.port, "/metrics");
    let text = String::from_utf8(answer.body).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(f64::NAN, |value| value.trim().parse().expect("a number"))
}

/// Checks that visits are stored, counted and returned on a store.
fn visits_are_told(stack: &Stack) {
    let code = stack.link("https://example.com/");
    for _ in 0..3 {
        assert_eq!(follow(stack, &code), 302);
    }
    assert_eq!(
        http::send(stack.nginx.public_port, "HEAD", &format!("/{code}"), &[]).status,
        302
    );
    let path = format!("/v1/links/{code}/stats?by=device,os,browser,domain,referrer");
    until("all visits are counted", SOON, || total(stack, &path) == 4);
    let stats = stats(stack, &path);
    assert_eq!(stats["visits"]["human"], 3, "{stats}");
    assert_eq!(stats["by"]["device"][0]["value"], "phone");
    assert_eq!(stats["by"]["os"][0]["value"], "iOS");
    assert_eq!(stats["by"]["browser"][0]["value"], "Mobile Safari");
    assert_eq!(stats["by"]["referrer"][0]["value"], "www.example.com");
    assert_eq!(stats["by"]["domain"][0]["total"], 4);
    let visits = stack.api("GET", &format!("/v1/links/{code}/visits?class=human"), None);
    let visits = visits.json();
    let visit = &visits["visits"][0];
    assert_eq!(visit["userAgent"], IPHONE);
    assert_eq!(visit["language"], "de-AT");
    // By default only the network of an address is stored.
    assert_eq!(visit["client"], "127.0.0.0");
    assert_eq!(visit["visitor"].as_str().map(str::len), Some(32));
    for other in &visits["visits"].as_array().expect("visits")[1..] {
        assert_eq!(other["visitor"], visit["visitor"]);
    }
    let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
    assert_eq!(link["visits"]["total"], 4);
    assert!(link["visits"]["lastAt"].is_string());
}

#[test]
fn every_visit_is_told_with_what_is_known_of_it() {
    visits_are_told(&Stack::start());
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    visits_are_told(&Stack::on(&postgres));
}

#[test]
fn a_test_of_two_targets_shows_its_results_and_ends_with_a_winner() {
    let stack = Stack::start();
    let variant = |name: &str, weight: u32| json!({ "name": name, "weight": weight, "longUrl": format!("https://{name}.example/") });
    let body = json!({
        "longUrl": "https://example.com/", "variants": [variant("a", 0), variant("b", 1)],
    });
    let code = text(&stack.create(&body), "shortCode");
    // From the fallback as well.
    for _ in 0..2 {
        assert_eq!(follow(&stack, &code), 302);
        stack.redis.command(&["DEL", &format!("sl:l:{code}")]);
    }
    let path = format!("/v1/links/{code}");
    let results = format!("{path}/variants");
    until("the visits are stored", SOON, || {
        stats(&stack, &results)["variants"][0]["clicks"] == 2
    });
    assert_eq!(stats(&stack, &results)["variants"][0]["variant"], "b");
    let by = stats(&stack, &format!("{path}/stats?by=variant"));
    assert_eq!(by["by"]["variant"][0]["value"], "b");
    let visits = stats(&stack, &format!("{path}/visits"));
    assert_eq!(visits["visits"][0]["variant"], "b");
    let changed = json!({ "variants": [variant("a", 1), variant("b", 1)] });
    assert_eq!(stack.api("PATCH", &path, Some(&changed)).status, 200);
    let winner = json!({ "variant": "a" });
    let ended = stack.api("POST", &format!("{path}/winner"), Some(&winner));
    assert_eq!(ended.json()["longUrl"], "https://a.example/");
    until("all visitors follow the winner", SOON, || {
        stack.follow(&code).location() == Some("https://a.example/")
    });
}

#[test]
fn a_campaign_and_a_domain_are_told_of_their_visits() {
    let stack = Stack::start();
    let body = json!({ "name": "Spring", "longUrl": "https://e.example/{member}" });
    let id = text(
        &stack.api("POST", "/v1/campaigns", Some(&body)).json(),
        "id",
    );
    for member in ["1", "2"] {
        let body = json!({ "campaignId": id, "parameters": { "member": member } });
        let code = text(&stack.create(&body), "shortCode");
        assert_eq!(follow(&stack, &code), 302);
    }
    assert_eq!(follow(&stack, &stack.link("https://example.com/")), 302);
    let path = format!("/v1/campaigns/{id}/stats");
    until("its visits are counted", SOON, || total(&stack, &path) == 2);
    until("all are", SOON, || total(&stack, "/v1/stats") == 3);
    let domains = stats(&stack, "/v1/domains/stats");
    assert_eq!(domains["domains"][0]["domain"], "localhost");
    assert_eq!(domains["domains"][0]["visits"], 3);
}

#[test]
fn a_link_ends_after_as_many_visits_as_it_was_made_for() {
    let stack = Stack::start();
    let body = json!({ "longUrl": "https://example.com/", "maxVisits": 3 });
    let code = text(&stack.create(&body), "shortCode");
    // A preview of a link uses nothing up.
    let preview = [("User-Agent", "WhatsApp/2.23.20.0 A")];
    for _ in 0..5 {
        let path = format!("/{code}");
        let answer = http::send(stack.nginx.public_port, "GET", &path, &preview);
        assert_eq!(answer.status, 302);
    }
    let path = format!("/v1/links/{code}/stats");
    until("previews are counted", SOON, || total(&stack, &path) == 5);
    for _ in 0..3 {
        assert_eq!(follow(&stack, &code), 302);
    }
    until("it has ended", SOON, || follow(&stack, &code) == 410);
    let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
    assert_eq!(link["state"], "expired");
}

#[test]
fn visits_wait_for_a_sidecar_that_is_away_and_none_is_trimmed() {
    let mut stack = Stack::start();
    let codes: Vec<String> = (0..20)
        .map(|_| stack.link("https://example.com/"))
        .collect();
    for code in &codes {
        assert_eq!(follow(&stack, code), 302);
    }
    stack.sidecar.kill();
    for _ in 0..50 {
        for code in &codes {
            assert!(try_follow(&stack, code), "{code}");
        }
    }
    stack.sidecar.start_again();
    until("all visits are counted", SOON, || {
        total(&stack, "/v1/stats") == 51 * 20
    });
    // And then nothing is left in Redis.
    until("what is stored is trimmed", SOON, || {
        stack.redis.command(&["XLEN", "sl:v:{0}"]) == "0"
    });
    assert_eq!(metric(&stack, "shortlink_visit_queue_batches"), 0.0);
}

#[test]
fn what_is_no_visit_goes_to_quarantine_and_keeps_nothing_back() {
    let stack = Stack::start();
    let code = stack.link("https://example.com/");
    for arguments in [
        &["XADD", "sl:v:{0}", "*", "b", "nonsense"][..],
        &["XADD", "sl:v:{0}", "*", "other", "field"],
        &["XADD", "sl:v:{0}", "*", "b", ""],
    ] {
        stack.redis.command(arguments);
    }
    assert_eq!(follow(&stack, &code), 302);
    let path = format!("/v1/links/{code}/stats");
    until("the visit is counted", SOON, || total(&stack, &path) == 1);
    assert_eq!(metric(&stack, "shortlink_visits_quarantined_total"), 3.0);
    until("nothing is left", SOON, || {
        stack.redis.command(&["XLEN", "sl:v:{0}"]) == "0"
    });
    // A stream that is none is put right by an operator; until then redirects go on.
    stack.redis.command(&["DEL", "sl:v:{0}"]);
    stack.redis.command(&["SET", "sl:v:{0}", "x"]);
    for _ in 0..10 {
        assert_eq!(follow(&stack, &code), 302);
    }
    stack.redis.command(&["DEL", "sl:v:{0}"]);
    until("what was kept is stored", SOON, || {
        total(&stack, &path) == 11
    });
}

#[test]
fn two_sidecars_share_the_work_and_whoever_dies_leaves_nothing_behind() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    let stack = Stack::on(&postgres);
    let mut second = stack.sidecar.start_beside(shortlink_tests::ports::free());
    let code = stack.link("https://example.com/");
    let followed: usize = thread::scope(|scope| {
        let followers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..400).filter(|_| try_follow(&stack, &code)).count()))
            .collect();
        for _ in 0..3 {
            second.kill();
            second.start_again();
        }
        followers
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .sum()
    });
    assert_eq!(followed, 800);
    let path = format!("/v1/links/{code}/stats");
    // Another one takes over the visits of a killed one after half a minute.
    until("all visits are counted", SOON * 4, || {
        total(&stack, &path) == followed as u64
    });
    assert_eq!(total(&stack, &path), followed as u64);
}

#[test]
fn a_database_that_is_away_delays_visits_and_nothing_else() {
    let directory = directory();
    let mut postgres = Postgres::start(directory.path());
    let stack = Stack::with(&StackOptions {
        database: Some(postgres.url()),
        ..StackOptions::default()
    });
    let code = stack.link("https://example.com/");
    assert_eq!(follow(&stack, &code), 302);
    postgres.kill();
    for _ in 0..200 {
        assert_eq!(follow(&stack, &code), 302);
    }
    postgres.start_again();
    let path = format!("/v1/links/{code}/stats");
    until("the database answers", SOON, || {
        stack.api("GET", &path, None).status == 200
    });
    until("all visits are counted", SOON * 2, || {
        total(&stack, &path) == 201
    });
}

#[test]
fn taps_on_a_paused_campaign_are_counted_apart() {
    let stack = Stack::start();
    let body = json!({ "name": "Spring", "longUrl": "https://e.example/{member}" });
    let id = text(
        &stack.api("POST", "/v1/campaigns", Some(&body)).json(),
        "id",
    );
    let body = json!({ "campaignId": id, "parameters": { "member": "1" } });
    let code = text(&stack.create(&body), "shortCode");
    assert_eq!(follow(&stack, &code), 302);
    let path = format!("/v1/campaigns/{id}/stats?by=device");
    until("the first visit", SOON, || total(&stack, &path) == 1);
    let before = stats(&stack, &path);
    let paused = stack.api("POST", &format!("/v1/campaigns/{id}/pause"), None);
    assert_eq!(paused.status, 200, "{}", paused.json());
    until("the pause", SOON, || follow(&stack, &code) == 410);
    for _ in 1..50 {
        assert_eq!(follow(&stack, &code), 410);
    }
    // Nothing is recorded of an answer 404.
    assert_eq!(follow(&stack, "unknown-code"), 404);
    until("all taps", SOON, || {
        stats(&stack, &path)["visits"]["refused"] == 50
    });
    let after = stats(&stack, &path);
    assert_eq!(after["visits"]["human"], before["visits"]["human"]);
    assert_eq!(after["visitors"], before["visitors"]);
    assert_eq!(after["by"]["device"][0]["refused"], 50);
    let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
    let visits = &link["visits"];
    assert_eq!(
        (&visits["human"], &visits["refused"]),
        (&json!(1), &json!(50))
    );
    let path = format!("/v1/links/{code}/visits?class=refused&limit=100");
    let visits = stack.api("GET", &path, None).json();
    let visits = visits["visits"].as_array().expect("visits").clone();
    assert_eq!(visits.len(), 50);
    for visit in &visits {
        assert_eq!(
            (&visit["status"], &visit["reason"]),
            (&json!(410), &json!("browser"))
        );
    }
}

#[test]
fn a_sweep_is_judged_by_its_behaviour_and_a_person_stays_one() {
    let stack = Stack::with(&StackOptions {
        sidecar: "[visits]\njudge_after_s = 1\n".to_owned(),
        ..StackOptions::default()
    });
    const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 \
        (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36";
    let codes: Vec<String> = (0..60)
        .map(|number| stack.link(&format!("https://example.com/{number}")))
        .collect();
    assert_eq!(follow(&stack, &codes[0]), 302);
    for code in &codes {
        let path = format!("/{code}");
        let answer = http::send(
            stack.nginx.public_port,
            "GET",
            &path,
            &[("User-Agent", CHROME)],
        );
        assert_eq!(answer.status, 302);
    }
    until("the second judgement", SOON, || {
        let visits = stats(&stack, "/v1/stats")["visits"].clone();
        visits["total"] == 61 && visits["human"] == 1 && visits["scanner"] == 60
    });
    let path = format!("/v1/links/{}/visits", codes[0]);
    let visits = stack.api("GET", &path, None).json();
    // In the order in which they were stored: the workers send theirs by themselves.
    let mut reasons: Vec<&str> = visits["visits"]
        .as_array()
        .expect("visits")
        .iter()
        .map(|visit| visit["reason"].as_str().expect("a reason"))
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["browser", "sweep"]);
}
