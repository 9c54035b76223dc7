//! Click ids, from the redirect to the conversion.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use shortlink_tests::http;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

/// Follows a link; returns the click id in the target.
fn follow(stack: &Stack, code: &str) -> String {
    let answer = stack.follow(code);
    assert_eq!(answer.status, 302);
    let location = answer.location().expect("a target");
    let begin = format!("https://shop.example.com/{code}?sl_click=");
    let id = location
        .strip_prefix(&*begin)
        .and_then(|it| it.strip_suffix("#top"));
    let id = id.unwrap_or_else(|| panic!("{location}"));
    assert_eq!(id.len(), 22, "{location}");
    assert_eq!(answer.header("X-Shortlink-Click"), None);
    id.to_owned()
}

/// Reports a conversion of a click; returns the result.
fn report(stack: &Stack, key: &str, id: &str) -> Value {
    let rows = json!([{ "conversionId": id, "clickId": id }]);
    let headers = [("X-Api-Key", key), ("Content-Type", "application/json")];
    let port = stack.nginx.internal_port;
    let request = http::request(
        "POST",
        "/v1/conversions",
        &headers,
        rows.to_string().as_bytes(),
    );
    let answer = http::try_send(port, "POST", &request).expect("an answer");
    answer.json()[0].clone()
}

#[test]
fn each_visit_has_a_click_id_that_leads_to_its_link() {
    let stack = Stack::start();
    let key = stack.sidecar.make_key(&["conversions:write"]);
    let campaign = json!({
        "name": "Spring", "longUrl": "https://shop.example.com/{code}#top", "clickId": "sl_click",
    });
    let campaign = stack.api("POST", "/v1/campaigns", Some(&campaign)).json();
    let link = json!({ "campaignId": text(&campaign, "id") });
    let own = json!({
        "longUrl": "https://shop.example.com/own-link#top", "customSlug": "own-link",
        "clickId": "sl_click", "redirectStatus": 301,
    });
    let codes: Vec<String> = [&link, &link, &own]
        .map(|link| text(&stack.create(link), "shortCode"))
        .to_vec();
    let mut ids = BTreeSet::new();
    let mut expected = Vec::new();
    for round in 0..12 {
        // From Redis, from the cache, and from the fallback.
        if round == 8 {
            stack.redis.command(&["FLUSHALL"]);
        }
        for code in &codes {
            let id = follow(&stack, code);
            assert!(ids.insert(id.clone()), "{id} was repeated");
            expected.push((id, code.clone()));
        }
    }
    for (id, code) in &expected {
        until("the visit is stored", SOON, || {
            report(&stack, &key, id)["status"] != 404
        });
        // It was counted by the last call.
        let again = report(&stack, &key, id);
        assert_eq!(
            (&again["status"], &again["shortCode"]),
            (&json!(200), &json!(code))
        );
    }
    let path = format!("/v1/campaigns/{}/conversions", text(&campaign, "id"));
    let counts = stack.api("GET", &path, None).json();
    assert_eq!(
        (&counts["converted"], &counts["conversions"]),
        (&json!(2), &json!(24))
    );
    // Without it, the target is as it is written.
    let campaign = format!("/v1/campaigns/{}", text(&campaign, "id"));
    for (path, code) in [(&*campaign, &codes[0]), ("/v1/links/own-link", &codes[2])] {
        stack.api("PATCH", path, Some(&json!({ "clickId": null })));
        until("the change is published", SOON, || {
            let target = format!("https://shop.example.com/{code}#top");
            stack.follow(code).location() == Some(&*target)
        });
    }
}
