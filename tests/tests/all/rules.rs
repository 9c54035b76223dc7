//! Rules of links and campaigns, and targets instead of answers, from nginx and from the fallback.

use serde_json::{Value, json};
use shortlink_tests::calendar::format_time;
use shortlink_tests::http::{self, Response};
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X) Mobile/15E148";
const ANDROID: &str = "Mozilla/5.0 (Linux; Android 16; Pixel 10) AppleWebKit/537.36";
const WINDOWS: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64)";

fn follow(stack: &Stack, path: &str, agent: &str, language: &str) -> Response {
    let headers = [("User-Agent", agent), ("Accept-Language", language)];
    let port = stack.nginx.public_port;
    let answer = http::send(port, "GET", &format!("/{path}"), &headers);
    assert_eq!(answer.header("X-Shortlink-Variant"), None);
    answer
}

/// The target that the explanation names for a visitor from this machine, and the member that has it.
fn explained(
    stack: &Stack,
    code: &str,
    agent: &str,
    language: &str,
    query: &str,
) -> (String, String) {
    let parts = [
        ("userAgent", agent),
        ("language", language),
        ("query", query),
        ("address", "127.0.0.1"),
    ];
    let visitor = parts.map(|(name, value)| {
        let escaped = value.bytes().map(|byte| format!("%{byte:02x}"));
        format!("{name}={}", escaped.collect::<String>())
    });
    let path = format!("/v1/links/{code}/explain?{}", visitor.join("&"));
    let answer = stack.api("GET", &path, None);
    assert_eq!(answer.status, 200);
    let answer = answer.json()["answer"].clone();
    (text(&answer, "location"), text(&answer, "pointer"))
}

/// Makes Redis forget a link, so that the fallback answers the next visitor. Waits until nginx has, too.
fn forget(stack: &Stack, code: &str) {
    stack.redis.command(&["DEL", &format!("sl:l:{code}")]);
}

#[test]
fn visitors_get_the_target_of_their_rule_wherever_it_is_chosen() {
    let stack = Stack::shared();
    let shares: Vec<Value> = [30, 50]
        .into_iter()
        .map(|percent| {
            let target = format!("https://example.com/{percent}");
            json!({ "percent": percent, "variant": format!("v{percent}"), "longUrl": target })
        })
        .collect();
    let mut rules = vec![
        json!({ "device": ["ios"], "language": ["de"], "longUrl": "https://example.com/ios-de" }),
        json!({ "device": ["ios", "android"], "longUrl": "https://example.com/phone" }),
        json!({
            "query": { "name": "src", "value": "ad" }, "longUrl": "https://example.com/ad",
        }),
    ];
    rules.extend(shares);
    let body = json!({ "longUrl": "https://example.com/else", "rules": rules });
    let code = text(&stack.create(&body), "shortCode");
    let target = |path: &str, agent: &str, language: &str| {
        let answer = follow(stack, path, agent, language);
        assert_eq!(answer.status, 302);
        answer.location().expect("a target").to_owned()
    };
    let ad = format!("{code}?src=ad");
    // The share of a desktop is always the same.
    let desktop = target(&code, WINDOWS, "en");
    assert!(desktop.starts_with("https://example.com/"), "{desktop}");
    // From Redis and from the cache, and twice from the fallback.
    for round in 0..5 {
        for (path, agent, language, expected) in [
            (
                &code,
                IPHONE,
                "de-AT,en;q=0.5",
                "https://example.com/ios-de",
            ),
            (&code, IPHONE, "en", "https://example.com/phone"),
            (&code, ANDROID, "de", "https://example.com/phone"),
            (&ad, WINDOWS, "de", "https://example.com/ad"),
            (&code, WINDOWS, "en", &*desktop),
        ] {
            if round >= 3 {
                forget(stack, &code);
            }
            let found = target(path, agent, language);
            assert_eq!(found, expected, "round {round}: {agent} {language}");
            let query = path.split_once('?').map_or("", |(_, query)| query);
            let (explained, _) = explained(stack, &code, agent, language, query);
            assert_eq!(explained, expected, "round {round}: {agent} {language}");
        }
    }
    // Of many visitors each gets its share, in Redis and in SQL alike.
    let mut counts = [0; 3];
    for number in 0..60 {
        let agent = format!("{WINDOWS} {number}");
        let found = target(&code, &agent, "en");
        forget(stack, &code);
        assert_eq!(target(&code, &agent, "en"), found);
        let places = ["/30", "/50", "/else"];
        let (explained, pointer) = explained(stack, &code, &agent, "en", "");
        assert_eq!(explained, found);
        let place = places.iter().position(|end| found.ends_with(end));
        let pointers = ["/rules/3/longUrl", "/rules/4/longUrl", "/longUrl"];
        assert_eq!(Some(&*pointer), place.map(|place| pointers[place]));
        counts[place.expect("one of the targets")] += 1;
    }
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}

#[test]
fn an_expired_or_paused_link_leads_to_its_target_instead() {
    let stack = Stack::shared();
    let end = stack.redis.now() + 4;
    let body = json!({
        "longUrl": "https://example.com/", "validUntil": format_time(end),
        "expiredTarget": "https://example.com/expired",
    });
    let expiring = text(&stack.create(&body), "shortCode");
    let start = stack.redis.now() + 600;
    let body = json!({
        "longUrl": "https://example.com/", "validSince": format_time(start),
        "notYetTarget": "https://example.com/early",
        "pausedTarget": "https://example.com/paused",
    });
    let early = text(&stack.create(&body), "shortCode");
    let body = json!({
        "longUrl": "https://example.com/", "pausedTarget": "https://example.com/paused",
    });
    let paused = text(&stack.create(&body), "shortCode");
    assert_eq!(
        stack.follow(&paused).location(),
        Some("https://example.com/")
    );
    let path = format!("/v1/links/{paused}");
    assert_eq!(
        stack.api("POST", &format!("{path}/pause"), None).status,
        200
    );
    until("the link has expired", SOON, || {
        stack.follow(&expiring).location() == Some("https://example.com/expired")
    });
    until("the link is paused", SOON, || {
        stack.follow(&paused).location() == Some("https://example.com/paused")
    });
    for round in 0..4 {
        for (code, target, member) in [
            (&expiring, "https://example.com/expired", "/expiredTarget"),
            (&early, "https://example.com/early", "/notYetTarget"),
            (&paused, "https://example.com/paused", "/pausedTarget"),
        ] {
            if round >= 2 {
                forget(stack, code);
            }
            let given = (target.to_owned(), member.to_owned());
            assert_eq!(explained(stack, code, "", "", ""), given, "round {round}");
            let answer = stack.follow(code);
            assert_eq!(answer.status, 302, "round {round}");
            assert_eq!(answer.location(), Some(target), "round {round}");
        }
    }
    assert_eq!(stack.api("DELETE", &path, None).status, 200);
    until("the link is revoked", SOON, || {
        stack.follow(&paused).status == 410
    });
}

#[test]
fn one_change_of_a_campaign_sends_the_visitors_of_all_its_links_elsewhere() {
    let stack = Stack::shared();
    let ios = |target: &str| json!([{ "device": ["ios"], "longUrl": target }]);
    let campaign = json!({
        "name": "Spring", "longUrl": "https://shop.example.com/{code}?m={member}",
        "rules": ios("https://apps.example.com/{member}"),
    });
    let campaign = stack.api("POST", "/v1/campaigns", Some(&campaign)).json();
    let id = text(&campaign, "id");
    let codes = ["a", "b"].map(|member| {
        let link = json!({ "campaignId": id, "parameters": { "member": member } });
        (member, text(&stack.create(&link), "shortCode"))
    });
    let check = |ios: &dyn Fn(&str) -> String| {
        codes.iter().all(|(member, code)| {
            let of_phone = follow(stack, code, IPHONE, "en");
            let of_desktop = follow(stack, code, WINDOWS, "en");
            let desktop = format!("https://shop.example.com/{code}?m={member}");
            assert_eq!(of_desktop.location(), Some(&*desktop));
            of_phone.location() == Some(&*ios(member))
        })
    };
    assert!(check(&|member| format!(
        "https://apps.example.com/{member}"
    )));
    let change = json!({ "rules": ios("https://new.example.com/{member}") });
    let path = format!("/v1/campaigns/{id}");
    assert_eq!(stack.api("PATCH", &path, Some(&change)).status, 200);
    let new = |member: &str| format!("https://new.example.com/{member}");
    until("the campaign has changed", SOON, || check(&new));
    for (_, code) in &codes {
        forget(stack, code);
    }
    assert!(check(&new));
}
