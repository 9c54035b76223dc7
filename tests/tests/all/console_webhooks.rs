//! Webhooks, as users handle them in the console.

use std::sync::atomic::Ordering;

use serde_json::json;
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::console::Console;
use shortlink_tests::sidecar::api;
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::wait::{SOON, until};

use super::webhooks::{Endpoint, SETTINGS};

fn stack() -> Stack {
    Stack::with(&StackOptions {
        sidecar: SETTINGS.to_owned(),
        ..StackOptions::default()
    })
}

/// The states of the attempts that are shown, the latest first.
fn attempts(browser: &Browser) -> serde_json::Value {
    let script = "return [...document.querySelectorAll('[data-message]')].map((it) => 'delivered' in it.dataset)";
    browser.run(script, &[])
}

#[test]
fn webhooks_are_made_tested_paused_replayed_changed_and_deleted() {
    let stack = stack();
    let admin = stack.sidecar.make_key(&["webhooks:admin", "links:write"]);
    let endpoint = Endpoint::start(0);
    let console = Console::enter(&stack, &admin, Looks::default());
    let browser = &console.browser;
    browser.click("nav a[href='/console/webhooks']");
    browser.text_with("h1", "Webhooks");
    browser.assert_accessible();
    browser.click("[data-new]");
    browser.click("form .main");
    browser.text_with("#w-name", "Name");
    browser.text_with("#w-url", "Endpoint");
    browser.fill("#f-name", "CRM");
    browser.fill("#f-url", &endpoint.url());
    browser.click("[data-value='link.clicked']");
    browser.click("form details summary");
    browser.fill("#f-tags", "spring, summer");
    browser.fill("#f-maxBatch", "20");
    browser.assert_accessible();
    browser.click("form .main");
    browser.text_with("[data-secret] h2", "Webhook CRM created");
    let secret = browser.text_with("[data-secret] code", "whsec_");
    secret.clone_into(&mut endpoint.received.secret.lock().expect("no holder panics"));
    browser.assert_accessible();
    let asked = || {
        let port = stack.nginx.internal_port;
        let list = api(port, &admin, "GET", "/v1/webhooks", None).json();
        list["webhooks"][0].clone()
    };
    let made = asked();
    assert_eq!(
        (&made["tags"], &made["maxBatch"]),
        (&json!(["spring", "summer"]), &json!(20))
    );
    let events = made["events"].as_array().expect("events");
    assert!(
        !events.is_empty() && !events.contains(&json!("link.clicked")),
        "{made}"
    );

    // The secret is shown this once.
    browser.click("[data-webhook] a");
    browser.text_with("h1", "Webhook CRM");
    let html = browser.run("return document.documentElement.innerHTML", &[]);
    assert!(!html.as_str().expect("text").contains(&secret));
    browser.text_with("main", "No attempts yet");
    browser.click("[data-act='webhook.test']");
    until("the attempt is shown", SOON, || {
        attempts(browser) == json!([true])
    });
    assert_eq!(endpoint.received.messages.load(Ordering::Relaxed), 1);
    browser.assert_accessible();
    endpoint.received.refused.store(1, Ordering::Relaxed);
    browser.click("[data-act='webhook.test']");
    until("the refusal is shown", SOON, || {
        attempts(browser) == json!([false, true])
    });
    browser.text_with("[data-message] .revoked", "503");

    browser.click("[data-act=pause]");
    browser.text_with("main", "Events wait until you resume it.");
    assert_eq!(asked()["state"], "paused");
    browser.click("[data-act=resume]");
    browser.find("[data-act=pause]");
    assert_eq!(asked()["state"], "active");
    browser.click("[data-act=secret]");
    browser.assert_accessible();
    browser.click("[data-act=rotate]");
    browser.text_with("[data-secret] h2", "New secret of webhook CRM created");
    let renewed = browser.text_with("[data-secret] code", "whsec_");
    assert_ne!(renewed, secret);
    browser.text_with("details[open]", "Give the endpoint the new secret");
    // For a day, messages have both signatures.
    endpoint.received.refused.store(0, Ordering::Relaxed);
    let id = asked()["id"].as_str().expect("an id").to_owned();
    for known in [secret, renewed] {
        known.clone_into(&mut endpoint.received.secret.lock().expect("no holder panics"));
        let path = format!("/v1/webhooks/{id}/test");
        let tested = api(stack.nginx.internal_port, &admin, "POST", &path, None).json();
        assert_eq!(tested["delivered"], true, "{tested}");
    }
    browser.click("details[open] summary");
    browser.click("[data-act=replay]");
    browser.choose("#f-since", "2001-01-01T01:01");
    browser.click("details[open] .main");
    // Events from before the webhook can't be replayed.
    browser.text_with("#w-since", "must not be before");
    browser.click("[data-act=change]");
    browser.fill("details[open] #f-name", "another name");
    browser.click("[data-value='link.clicked']");
    browser.choose("#f-tags", "");
    // By keyboard: the key Enter sends the form.
    browser.press("#f-name", "\u{e007}");
    browser.text_with("h1", "Webhook another name");
    let changed = asked();
    assert_eq!(changed["tags"], json!(null));
    assert_eq!(
        changed["events"].as_array().map(Vec::len),
        Some(events.len() + 1)
    );
    browser.click("[data-act=delete]");
    console.agree("Undelivered events are discarded.");
    browser.text_with("h1", "Webhooks");
    assert_eq!(asked(), json!(null));
    browser.assert_sound(&["status of 422"]);
}

#[test]
fn pages_of_webhooks_speak_chinese_and_fit_a_phone() {
    let stack = stack();
    let admin = stack.sidecar.make_key(&["admin"]);
    let endpoint = Endpoint::start(1);
    let body =
        json!({"name": "CRM", "url": endpoint.url(), "campaignIds": ["1"], "classes": ["human"]});
    let call = |path: &str, body| api(stack.nginx.internal_port, &admin, "POST", path, body).json();
    let made = call("/v1/webhooks", Some(&body));
    let path = format!("/v1/webhooks/{}", made["id"].as_str().expect("an id"));
    for action in ["test", "pause"] {
        call(&format!("{path}/{action}"), None);
    }
    let looks = Looks::phone("zh-CN");
    let console = Console::enter(&stack, &admin, looks);
    let browser = &console.browser;
    for path in [
        "/console/webhooks".to_owned(),
        path.replace("/v1", "/console"),
    ] {
        console.open(&path, "Webhook");
        let summaries = "document.querySelectorAll('details').forEach((it) => { it.open = true; })";
        browser.run(summaries, &[]);
        browser.assert_fits();
        browser.assert_accessible();
    }
    browser.assert_sound(&[]);
}
