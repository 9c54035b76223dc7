//! Links of campaigns, from the request that makes them to the redirect.

use std::fs;

use serde_json::{Value, json};
use shortlink_tests::http::Response;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

const TEMPLATE: &str = "https://shop.example.com/p?m={member}&c={code}";

fn campaign(stack: &Stack) -> String {
    let body = json!({ "name": "Spring", "longUrl": TEMPLATE });
    let created = stack.api("POST", "/v1/campaigns", Some(&body));
    assert_eq!(created.status, 201, "{}", created.json());
    text(&created.json(), "id")
}

/// Creates links of a campaign for the members of these numbers.
fn links(stack: &Stack, campaign: &str, members: std::ops::Range<usize>) -> Vec<String> {
    let rows = members.map(
        |member| json!({ "campaignId": campaign, "parameters": { "member": member.to_string() } }),
    );
    let rows: Vec<Value> = rows.collect();
    let answer = stack.api("POST", "/v1/links/batch", Some(&json!(rows)));
    assert_eq!(answer.status, 200);
    let results = answer.json();
    let results = results.as_array().expect("results");
    let code = |result: &Value| {
        assert_eq!(result["status"], 201, "{result}");
        text(&result["link"], "shortCode")
    };
    results.iter().map(code).collect()
}

fn change(stack: &Stack, campaign: &str, body: &Value) {
    let path = format!("/v1/campaigns/{campaign}");
    assert_eq!(stack.api("PATCH", &path, Some(body)).status, 200);
}

fn act(stack: &Stack, campaign: &str, what: &str) {
    let path = format!("/v1/campaigns/{campaign}/{what}");
    assert_eq!(stack.api("POST", &path, None).status, 200);
}

/// The status and the location of an answer.
type Expected = (u16, Option<String>);

fn answer(response: &Response) -> (u16, Option<&str>) {
    (response.status, response.location())
}

#[test]
fn one_write_changes_every_link_of_a_campaign() {
    let stack = Stack::start();
    let (id, other) = (campaign(&stack), campaign(&stack));
    let codes = links(&stack, &id, 0..500);
    let others = links(&stack, &other, 0..1);
    let all_answer = |what: &str, expected: &dyn Fn(usize, &str) -> Expected| {
        for (member, code) in codes.iter().enumerate() {
            let expected = expected(member, code);
            // Every worker is notified at once, but not in the very moment of the answer.
            until(what, SOON, || {
                let followed = stack.follow(code);
                let (status, location) = answer(&followed);
                (status, location.map(str::to_owned)) == expected
            });
        }
    };
    all_answer("links redirect", &|member, code| {
        let target = format!("https://shop.example.com/p?m={member}&c={code}");
        (302, Some(target))
    });
    let writes = stack.redis.writes();
    let new =
        json!({ "longUrl": "https://new.example.com/{code}#{member}", "redirectStatus": 307 });
    change(&stack, &id, &new);
    all_answer("links are retargeted", &|member, code| {
        (
            307,
            Some(format!("https://new.example.com/{code}#{member}")),
        )
    });
    assert_eq!(stack.redis.writes(), writes + 1);
    act(&stack, &id, "pause");
    all_answer("links are paused", &|_, _| (410, None));
    act(&stack, &id, "resume");
    all_answer("links redirect again", &|member, code| {
        (
            307,
            Some(format!("https://new.example.com/{code}#{member}")),
        )
    });
    let path = format!("/v1/campaigns/{id}");
    assert_eq!(stack.api("DELETE", &path, None).status, 200);
    all_answer("links are revoked", &|_, _| (410, None));
    // Another campaign's links don't mind.
    let target = format!("https://shop.example.com/p?m=0&c={}", others[0]);
    assert_eq!(answer(&stack.follow(&others[0])), (302, Some(&*target)));
}

#[test]
fn links_of_campaigns_survive_the_loss_of_redis() {
    let stack = Stack::start();
    let id = campaign(&stack);
    let codes = links(&stack, &id, 0..300);
    let follow_all = || {
        for (member, code) in codes.iter().enumerate() {
            let target = format!("https://shop.example.com/p?m={member}&c={code}");
            assert_eq!(answer(&stack.follow(code)), (302, Some(&*target)));
        }
    };
    follow_all();
    stack.redis.command(&["FLUSHALL"]);
    follow_all();
    let key = format!("sl:c:{id}");
    until("the campaign's record is written again", SOON, || {
        stack.redis.command(&["EXISTS", &key]) == "1"
    });
    // And by a rebuild, all at once.
    stack.redis.command(&["FLUSHALL"]);
    stack.sidecar.run_ok(&["rebuild"]);
    assert_eq!(stack.redis.command(&["EXISTS", &key]), "1");
    for (member, code) in codes.iter().enumerate() {
        let record = format!("c{id} {member}");
        assert_eq!(stack.redis.record(code), Some(record));
    }
    follow_all();
    // The new data set gets the campaign's change again; what is deleted before that comes back.
    stack.wait_until_redis_is_current();
    assert_eq!(stack.sidecar.run(&["audit"]).status.code(), Some(0));
    stack.redis.command(&["DEL", &key]);
    let mut audit = stack.sidecar.run(&["audit", "--json"]);
    // A record is noted a moment after its publication; until then it is no drift.
    until("the drift is found", SOON, || {
        audit = stack.sidecar.run(&["audit", "--json"]);
        audit.status.code() == Some(2)
    });
    let report: Value = serde_json::from_slice(&audit.stdout).expect("JSON");
    assert_eq!(report["examples"][0]["code"], format!("campaign {id}"));
    stack.sidecar.run_ok(&["audit", "--repair"]);
    assert_eq!(stack.redis.command(&["EXISTS", &key]), "1");
    // A value is changed like anything else of a link.
    let body = json!({ "parameters": { "member": "Zoë & co" } });
    let path = format!("/v1/links/{}", codes[0]);
    assert_eq!(stack.api("PATCH", &path, Some(&body)).status, 200);
    let target = format!(
        "https://shop.example.com/p?m=Zo%C3%AB%20%26%20co&c={}",
        codes[0]
    );
    until("the change is seen", SOON, || {
        answer(&stack.follow(&codes[0])) == (302, Some(&*target))
    });
}

#[test]
fn a_link_of_a_campaign_with_a_short_parameter_takes_at_most_100_bytes_of_redis() {
    let stack = Stack::start();
    let id = campaign(&stack);
    let used = || -> u64 {
        let memory = stack.redis.command(&["INFO", "memory"]);
        let line = memory
            .lines()
            .find_map(|line| line.strip_prefix("used_memory_dataset:"));
        line.expect("a number").trim().parse().expect("a number")
    };
    links(&stack, &id, 0..1);
    let before = used();
    // Members of eight digits, which is more than there are phones in most countries.
    let count = 40_000;
    for begin in (0..count).step_by(10_000) {
        let begin = 10_000_000 + begin;
        links(&stack, &id, begin..begin + 10_000);
    }
    let keys = stack.redis.keys();
    assert_eq!(keys, count + 2);
    let each = (used() - before) as f64 / count as f64;
    // The size that Redis reports of one key, without its entry in the table of all keys.
    assert!(each <= 100.0, "{each} bytes a link");
}

#[test]
fn links_are_taken_elsewhere_with_their_campaigns_or_without() {
    let stack = Stack::start();
    let id = campaign(&stack);
    let code = links(&stack, &id, 7..8).remove(0);
    let body = json!({
        "longUrl": "https://example.com/", "forwardQuery": true, "maxVisits": 9,
        "validSince": "2026-01-01T00:00:00Z", "externalId": "order 7", "note": "two\nlines",
        "tags": ["a|b", "spring"], "customSlug": "everything",
    });
    stack.create(&body);
    stack.create(&json!({ "longUrl": "https://example.com/", "customSlug": "held" }));
    assert_eq!(stack.api("POST", "/v1/links/held/pause", None).status, 200);
    for format in ["csv", "ndjson"] {
        let file = stack.directory().join(format!("links.{format}"));
        let file = file.to_str().expect("text");
        stack.sidecar.run_ok(&["export", "--out", file]);
        let there = Stack::start();
        // A sidecar without the campaign refuses its links, and none is lost.
        let first = there.sidecar.run(&["import", file]);
        assert_eq!(first.status.code(), Some(2));
        let said = String::from_utf8_lossy(&first.stderr).into_owned();
        assert!(
            said.contains("links of campaigns that there are not"),
            "{said}"
        );
        assert_eq!(campaign(&there), id);
        there.sidecar.run_ok(&["import", file]);
        let target = format!("https://shop.example.com/p?m=7&c={code}");
        until("it redirects there", SOON, || {
            answer(&there.follow(&code)) == (302, Some(&*target))
        });
        for code in ["everything", "held", &code] {
            let path = format!("/v1/links/{code}");
            let (mut here, mut there) = (
                stack.api("GET", &path, None).json(),
                there.api("GET", &path, None).json(),
            );
            for link in [&mut here, &mut there] {
                let members = link.as_object_mut().expect("a link");
                for own in [
                    "createdBy",
                    "createdByName",
                    "shortUrl",
                    "uploadId",
                    "visits",
                ] {
                    members.remove(own);
                }
            }
            assert_eq!(here, there);
        }
        // Without the campaign a link leads to where it led.
        let alone = Stack::start();
        let output = alone.sidecar.run(&["import", "--map", "campaignId=", file]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(answer(&alone.follow(&code)), (302, Some(&*target)));
        assert!(fs::metadata(file).is_ok());
    }
}
