//! Links, campaigns and messages choose the short domain of their short URLs.

use serde_json::{Value, json};
use shortlink_tests::http;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, eventually};

use super::domains::{follow, set_domains};

const TARGET: &str = "https://target.example/";

/// The short domain of a link's short URL.
fn host(link: &Value) -> String {
    let url = text(link, "shortUrl");
    let host = url.split('/').nth(2).expect("a host");
    host.to_owned()
}

/// Sends rows to the API, and returns the results.
fn send(stack: &Stack, path: &str, media_type: &str, rows: &str) -> Vec<Value> {
    let headers = [
        ("X-Api-Key", &*stack.sidecar.key),
        ("Content-Type", media_type),
        ("Accept", "application/json"),
    ];
    let request = http::request("POST", path, &headers, rows.as_bytes());
    let answer = http::try_send(stack.nginx.internal_port, "POST", &request).expect("an answer");
    assert_eq!(answer.status, 200, "{path}");
    answer.json().as_array().expect("results").clone()
}

/// Asserts that a request is refused because of the domain, and that the allowed ones are named.
fn assert_refused(answer: &Value, pointer: &str, name: &str, allowed: &str) {
    let error = &answer["errors"][0];
    assert_eq!(
        (&answer["status"], &error["pointer"]),
        (&json!(422), &json!(pointer)),
        "{answer}"
    );
    let detail = text(error, "detail");
    assert!(detail.contains(&format!("{name:?}")), "{detail}");
    assert!(detail.ends_with(allowed), "{detail}");
}

#[test]
fn a_link_is_on_its_domain_while_that_is_active_for_it() {
    let stack = Stack::start();
    let body = json!({ "name": "vip", "longUrl": "https://target.example/{code}" });
    let campaign = text(
        &stack.api("POST", "/v1/campaigns", Some(&body)).json(),
        "id",
    );
    let table = format!(
        "a.example.com active;\nb.example.com active;\nlong-name.example.com active;\n\
         vip.example.com active campaign={campaign};\nold.example.com serving;\nend.example.com retired;"
    );
    set_domains(&stack, &table);
    let free = "a.example.com, b.example.com, long-name.example.com";

    // Refused: everything that is not active for the link.
    for name in [
        "old.example.com",
        "end.example.com",
        "vip.example.com",
        "x.example.com",
    ] {
        let body = json!({ "longUrl": TARGET, "domain": name });
        let answer = stack.api("POST", "/v1/links", Some(&body)).json();
        assert_refused(&answer, "/domain", name, free);
    }
    let body = json!({ "campaignId": campaign, "domain": "a.example.com" });
    let answer = stack.api("POST", "/v1/links", Some(&body)).json();
    assert_refused(&answer, "/domain", "a.example.com", "vip.example.com");
    let body = json!({ "campaignId": campaign, "domain": "vip.example.com" });
    assert_eq!(host(&stack.create(&body)), "vip.example.com");
    let body = json!({ "longUrl": TARGET, "domain": "https://a.example.com/" });
    let answer = stack.api("POST", "/v1/links", Some(&body)).json();
    assert_eq!(answer["errors"][0]["pointer"], "/domain", "{answer}");

    // Chosen: every answer has it, and the code works everywhere.
    let mut links = Vec::new();
    for number in 0..12 {
        let body = json!({
            "longUrl": format!("{TARGET}{number}"), "domain": "B.Example.com", "tags": ["chosen"],
        });
        let link = stack.create(&body);
        assert_eq!(
            (host(&link), &link["domain"]),
            ("b.example.com".to_owned(), &json!("b.example.com"))
        );
        links.push(text(&link, "shortCode"));
    }
    let path = format!("/v1/links/{}", links[0]);
    let hosts = |at: &str| -> Vec<String> {
        let listed = stack.api("GET", at, None).json();
        let listed = listed["links"].as_array().expect("links").clone();
        listed.iter().map(host).collect()
    };
    assert_eq!(hosts("/v1/links?tag=chosen"), vec!["b.example.com"; 12]);
    assert_eq!(follow(&stack, "old.example.com", &links[0]), Some(302));
    let qr = stack.api("GET", &format!("{path}/qr"), None).body;

    // Without the name, the ordinary choice; with it again, the same short URL.
    set_domains(
        &stack,
        &table.replace("b.example.com active", "b.example.com serving"),
    );
    eventually("nginx has the new table", SOON, || {
        let others = hosts("/v1/links?tag=chosen");
        let is_gone = others.iter().all(|it| it != "b.example.com");
        is_gone.then_some(others)
    });
    let link = stack.api("GET", &path, None).json();
    assert_eq!(link["domain"], "b.example.com");
    assert_ne!(stack.api("GET", &format!("{path}/qr"), None).body, qr);
    assert_eq!(follow(&stack, "old.example.com", &links[0]), Some(302));
    // A change may repeat the link's own domain, but not choose another that is not active.
    let change = |domain: &str| {
        let body = json!({ "domain": domain, "note": "kept" });
        stack.api("PATCH", &path, Some(&body)).json()
    };
    assert_eq!(change("b.example.com")["domain"], "b.example.com");
    assert_refused(
        &change("old.example.com"),
        "/domain",
        "old.example.com",
        "a.example.com, long-name.example.com",
    );
    set_domains(&stack, &table);
    eventually("nginx has the old table", SOON, || {
        (hosts("/v1/links?tag=chosen") == vec!["b.example.com"; 12]).then_some(())
    });
    assert_eq!(stack.api("GET", &format!("{path}/qr"), None).body, qr);

    // Changed and cleared, with a history; by a job as well.
    let body = json!({ "domain": "a.example.com" });
    assert_eq!(
        host(&stack.api("PATCH", &path, Some(&body)).json()),
        "a.example.com"
    );
    let history = stack.api("GET", &format!("{path}/history"), None).json();
    assert_eq!(history["history"][0]["before"]["domain"], "b.example.com");
    let cleared = stack
        .api("PATCH", &path, Some(&json!({ "domain": null })))
        .json();
    assert_eq!(cleared["domain"], Value::Null);
    let job = |domain: &str| {
        let body = json!({ "action": "change", "tag": "chosen", "change": { "domain": domain } });
        stack.api("POST", "/v1/jobs", Some(&body)).json()
    };
    assert_refused(
        &job("vip.example.com"),
        "/change/domain",
        "vip.example.com",
        free,
    );
    let started = job("long-name.example.com");
    let started = format!("/v1/jobs/{}", started["id"]);
    eventually("the job is done", SOON, || {
        (stack.api("GET", &started, None).json()["state"] == "done").then_some(())
    });
    assert_eq!(
        hosts("/v1/links?tag=chosen"),
        vec!["long-name.example.com"; 12]
    );

    // Exported, and imported again.
    let exported = stack.sidecar.run_ok(&["export"]);
    let header = exported.lines().next().expect("a header");
    assert!(header.ends_with(",domain"), "{header}");
    let row = exported
        .lines()
        .find(|line| line.starts_with(&links[1]))
        .expect("a row");
    assert!(row.ends_with(",long-name.example.com"), "{row}");
    let copied = exported
        .lines()
        .next()
        .map(|header| format!("{header}\n{}\n", row.replace(&links[1], "copied-link")));
    let file = stack.directory().join("links.csv");
    std::fs::write(&file, copied.expect("a header")).expect("a file");
    stack
        .sidecar
        .run_ok(&["import", file.to_str().expect("a path")]);
    let copied = stack.api("GET", "/v1/links/copied-link", None).json();
    assert_eq!(host(&copied), "long-name.example.com");

    // Reserved for the API key: its links have no other.
    let key = text(&link, "createdBy");
    let reserved = table.replace(
        "a.example.com active",
        &format!("a.example.com active key={key}"),
    );
    set_domains(&stack, &reserved);
    eventually("nginx has the reservation", SOON, || {
        let link = stack.create(&json!({ "longUrl": TARGET }));
        (host(&link) == "a.example.com").then_some(())
    });
    let body = json!({ "longUrl": TARGET, "domain": "b.example.com" });
    let answer = stack.api("POST", "/v1/links", Some(&body)).json();
    assert_refused(
        &answer,
        "/domain",
        "b.example.com",
        "use one of a.example.com",
    );
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn rows_messages_and_campaigns_choose_a_domain() {
    let stack = Stack::start();
    let long = "a-name-of-a-domain-that-is-as-long-as-a-label-may-be.example.com";
    let table = format!(
        "a.example.com active;\nb.example.com active;\n{long} active;\nold.example.com serving;"
    );
    set_domains(&stack, &table);
    let rows = format!(
        "longUrl,domain\n{TARGET}1,b.example.com\n{TARGET}2,old.example.com\n{TARGET}3,\n{TARGET}4,{long}\n"
    );
    let results = send(&stack, "/v1/links/batch", "text/csv", &rows);
    assert_eq!(host(&results[0]["link"]), "b.example.com");
    assert_refused(
        &results[1]["problem"],
        "/domain",
        "old.example.com",
        &format!("a.example.com, b.example.com, {long}"),
    );
    assert_eq!(results[2]["link"]["domain"], Value::Null);
    assert_eq!(host(&results[3]["link"]), long);

    // The segments are those with the chosen domain.
    let text_of = |length: usize| format!("{} {TARGET}m", "x".repeat(length));
    // Ten segments have 1530 septets; the short URL on the short domain has 31.
    let message = |domain: &str, length: usize| {
        let row = json!([{ "text": text_of(length), "domain": domain }]);
        send(&stack, "/v1/messages", "application/json", &row.to_string()).remove(0)
    };
    let short = message("a.example.com", 1490);
    let url = text(&short["message"], "text");
    assert!(url.contains(" https://a.example.com/"), "{url}");
    assert_eq!(short["message"]["after"]["segments"], 10);
    assert_eq!(
        message(long, 1490)["problem"]["errors"][0]["pointer"],
        "/text"
    );
    let refused = message("old.example.com", 10);
    assert_eq!(
        refused["problem"]["errors"][0]["pointer"], "/domain",
        "{refused}"
    );

    // The default of a campaign is stored with its links.
    let body = json!({
        "name": "spring", "longUrl": "https://target.example/{code}", "defaults": { "domain": "x.example.com" },
    });
    let answer = stack.api("POST", "/v1/campaigns", Some(&body)).json();
    let all = format!("a.example.com, b.example.com, {long}");
    assert_refused(&answer, "/defaults/domain", "x.example.com", &all);
    let body = json!({
        "name": "spring", "longUrl": "https://target.example/{code}", "defaults": { "domain": "b.example.com" },
    });
    let campaign = stack.api("POST", "/v1/campaigns", Some(&body)).json();
    assert_eq!(campaign["defaults"]["domain"], "b.example.com");
    let id = text(&campaign, "id");
    let first = stack.create(&json!({ "campaignId": id }));
    assert_eq!(host(&first), "b.example.com");
    let own = stack.create(&json!({ "campaignId": id, "domain": "a.example.com" }));
    assert_eq!(host(&own), "a.example.com");
    let path = format!("/v1/campaigns/{id}");
    let change = |defaults: Value| {
        let answer = stack.api("PATCH", &path, Some(&json!({ "defaults": defaults })));
        (answer.status, answer.json())
    };

    // Not active any more: links are created nevertheless, and the default can stay.
    set_domains(
        &stack,
        &table.replace("b.example.com active", "b.example.com serving"),
    );
    let link = eventually("nginx has the new table", SOON, || {
        let link = stack.create(&json!({ "campaignId": id }));
        (host(&link) != "b.example.com").then_some(link)
    });
    assert_eq!(link["domain"], "b.example.com");
    assert_eq!(
        change(json!({ "domain": "b.example.com", "tags": ["t"] })).0,
        200
    );
    let (status, answer) = change(json!({ "domain": "old.example.com" }));
    assert_eq!(status, 422);
    let left = format!("a.example.com, {long}");
    assert_refused(&answer, "/defaults/domain", "old.example.com", &left);
    assert_eq!(change(json!({ "domain": "a.example.com" })).0, 200);
    assert_eq!(
        host(&stack.create(&json!({ "campaignId": id }))),
        "a.example.com"
    );
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}
