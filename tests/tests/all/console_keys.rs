//! API keys and the audit log, as users handle them in the console.

use serde_json::json;
use shortlink_tests::browser::Looks;
use shortlink_tests::console::{Console, copy};
use shortlink_tests::http;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

/// Returns the API's status for a key that lists links.
fn status(stack: &Stack, key: &str) -> u16 {
    let port = stack.nginx.internal_port;
    http::send(port, "GET", "/v1/links", &[("X-Api-Key", key)]).status
}

/// The text of a key that is shown, and its id.
fn shown(console: &Console) -> (String, String) {
    let text = console.browser.text_with("[data-secret] code", "slk_");
    let id = text.split('_').nth(1).expect("an id").to_owned();
    (text, id)
}

#[test]
fn keys_are_made_changed_rotated_and_revoked_and_the_audit_log_tells() {
    let stack = Stack::start();
    let admin = stack.sidecar.make_key(&["admin"]);
    let console = Console::enter(&stack, &admin, Looks::default());
    let browser = &console.browser;
    browser.click("nav a[href='/console/keys']");
    browser.text_with("h1", "API keys");
    browser.assert_accessible();
    browser.click("[data-new]");
    browser.click("form .main");
    browser.text_with("#w-name", "Name");
    browser.text_with("#w-scopes", "Scopes");
    browser.assert_accessible();
    browser.fill("#f-name", "campaign system");
    // By keyboard: a space ticks the box that has the focus.
    browser.find("[data-value='links:read']").type_keys(" ");
    browser.click("form details summary");
    browser.fill("#f-rateLimit-requestsPerSecond", "50");
    browser.fill("#f-policy-allowedDomains", "example.com, =example.org");
    browser.click("form .main");
    browser.text_with("[data-secret] h2", "Key campaign system created");
    let focused = browser.run("return document.activeElement.textContent", &[]);
    assert_eq!(focused, json!("Key campaign system created"));
    copy(browser);
    browser.assert_accessible();
    let (secret, id) = shown(&console);
    assert_eq!(status(&stack, &secret), 200);
    let asked = |id: &str| {
        let path = format!("/v1/keys/{id}");
        let port = stack.nginx.internal_port;
        shortlink_tests::sidecar::api(port, &admin, "GET", &path, None).json()
    };
    let made = asked(&id);
    assert_eq!(made["scopes"], json!(["links:read"]));
    assert_eq!(
        made["rateLimit"],
        json!({"requestsPerSecond": 50, "burst": 50})
    );
    assert_eq!(
        made["policy"]["allowedDomains"],
        json!(["example.com", "=example.org"])
    );

    // It is shown this once.
    browser.click(&format!("[data-key='{id}'] a"));
    browser.text_with("h1", "Key campaign system");
    let html = browser.run("return document.documentElement.innerHTML", &[]);
    assert!(!html.as_str().expect("text").contains(&secret));
    browser.assert_accessible();
    browser.click("[data-act=change]");
    browser.fill("#f-name", "another name");
    browser.click("details [data-value='stats:read']");
    browser.click("details form .main");
    browser.text_with("h1", "Key another name");
    let changed = asked(&id);
    assert_eq!(changed["scopes"], json!(["links:read", "stats:read"]));
    assert_eq!(changed["rateLimit"]["requestsPerSecond"], json!(50));

    browser.click("[data-act=rotate]");
    let (successor, next) = shown(&console);
    assert_ne!(next, id);
    assert_eq!(
        [status(&stack, &secret), status(&stack, &successor)],
        [200, 200]
    );
    console.open(&format!("/console/keys/{id}"), "Key another name");
    browser.text_with("main", "Rotated to");
    browser.click("[data-act=revoke]");
    console.agree("Requests with it are refused within a second.");
    browser.find("[data-state=revoked]");
    assert!(!browser.has("[data-act]"));
    until("it opens nothing", SOON, || status(&stack, &secret) == 401);
    assert_eq!(status(&stack, &successor), 200);

    browser.click("nav a[href='/console/audit']");
    browser.text_with("h1", "Audit log");
    for action in ["create", "change", "rotate", "revoke"] {
        browser.find(&format!("[data-action='key.{action}']"));
    }
    browser.assert_accessible();
    browser.click("main > details > summary");
    browser.fill("#by-subject", &format!("key:{id}"));
    browser.click(".filters button");
    let script =
        "return [...document.querySelectorAll('[data-action]')].map((it) => it.dataset.action)";
    until("others are filtered out", SOON, || {
        browser.run(script, &[]) == json!(["key.revoke", "key.rotate", "key.change", "key.create"])
    });
    browser.click("[data-action='key.change'] summary");
    browser.text_with("[data-action='key.change']", "another name");
    browser.assert_accessible();
    browser.assert_sound(&["status of 422"]);
}

#[test]
fn whoever_revokes_their_own_key_is_signed_out() {
    let stack = Stack::start();
    stack.sidecar.make_key(&["admin"]);
    let own = stack.sidecar.make_key(&["keys:admin", "links:read"]);
    let console = Console::enter(&stack, &own, Looks::default());
    let browser = &console.browser;
    let id = own.split('_').nth(1).expect("an id");
    console.open(&format!("/console/keys/{id}"), "Key");
    browser.text_with("main", "You are signed in with this key.");
    browser.click("[data-act=revoke]");
    console.agree("you will be signed out");
    browser.find("#key");
    browser.assert_sound(&["status of 401"]);
}

#[test]
fn the_audit_log_is_read_a_page_at_a_time() {
    let stack = Stack::start();
    let body = json!({"name": "Spring", "longUrl": "https://example.com/{member}"});
    let made = stack.api("POST", "/v1/campaigns", Some(&body)).json();
    let id = text(&made, "id");
    for _ in 0..30 {
        for step in ["pause", "resume"] {
            let path = format!("/v1/campaigns/{id}/{step}");
            assert_eq!(stack.api("POST", &path, None).status, 200);
        }
    }
    let admin = stack.sidecar.make_key(&["admin"]);
    let console = Console::enter(&stack, &admin, Looks::default());
    let browser = &console.browser;
    console.open(
        &format!("/console/audit?subject=campaign:{id}"),
        "Audit log",
    );
    let rows = || {
        let script = "return document.querySelectorAll('[data-action]').length";
        browser.run(script, &[])
    };
    assert_eq!(rows(), json!(50));
    browser.click("a[rel=next]");
    browser.find("[data-action='campaign.create']");
    assert_eq!(rows(), json!(11));
    assert!(!browser.has("a[rel=next]"));
    let key = stack.sidecar.key.split('_').nth(1).expect("an id");
    // The key is named, with its id beside the name.
    browser.find(&format!("table [title='{key}']"));
    browser.click(&format!("td a[href='/console/campaigns/{id}']"));
    browser.text_with("h1", "Campaign Spring");
    console.open("/console/audit?action=link.revoke", "Audit log");
    browser.text_with("main", "No entries match the filter");
    browser.assert_accessible();
    browser.assert_sound(&[]);
}

#[test]
fn pages_of_keys_speak_chinese_and_fit_a_phone() {
    let stack = Stack::start();
    let admin = stack.sidecar.make_key(&["admin"]);
    let looks = Looks::phone("zh-CN");
    let console = Console::enter(&stack, &admin, looks);
    let browser = &console.browser;
    let id = admin.split('_').nth(1).expect("an id");
    for (path, heading) in [
        ("/console/keys".to_owned(), "API 密钥"),
        (format!("/console/keys/{id}"), "密钥"),
        ("/console/audit".to_owned(), "审计日志"),
    ] {
        console.open(&path, heading);
        let summaries = "document.querySelectorAll('details').forEach((it) => { it.open = true; })";
        browser.run(summaries, &[]);
        browser.assert_fits();
        browser.assert_accessible();
    }
    browser.assert_sound(&[]);
}

#[test]
fn who_may_not_handle_keys_is_told_so() {
    let stack = Stack::start();
    let reader = stack.sidecar.make_key(&["links:read"]);
    let console = Console::enter(&stack, &reader, Looks::default());
    let browser = &console.browser;
    assert!(!browser.has("nav a[href='/console/keys']"));
    console.open("/console/keys", "API keys");
    browser.text_with(
        "main",
        "This needs the permission to manage API keys and people (keys:admin).",
    );
    console.open("/console/audit", "Audit log");
    browser.text_with(
        "main",
        "This needs the permission to do everything (admin).",
    );
    browser.assert_accessible();
    browser.assert_sound(&[]);
}
