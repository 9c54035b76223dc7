//! Rules in the console: the part of a form, its faults, and the try as a visitor.

use serde_json::{Value, json};
use shortlink_tests::browser::Looks;
use shortlink_tests::console::{Console, made};
use shortlink_tests::http;
use shortlink_tests::stack::{Stack, text};

/// A field of a rule.
fn of(rule: usize, member: &str) -> String {
    format!("[data-rule='{rule}'] [data-member={member}]")
}

/// The element that has the focus, by an expression of it.
fn focused(console: &Console, what: &str) -> Value {
    let script = format!("const it = document.activeElement; return {what}");
    console.browser.run(&script, &[])
}

#[test]
fn a_marketer_gives_rules_and_tries_them_as_a_visitor() {
    let stack = Stack::start();
    let looks = Looks::phone("en");
    let console = Console::enter(&stack, &stack.sidecar.key, looks);
    let browser = &console.browser;
    console.open("/console/new", "New link");
    browser.fill("#f-longUrl", "https://e.example/");
    browser.click("details:nth-of-type(3) > summary");
    browser.click("#f-rules > [data-act=add]");
    assert_eq!(focused(&console, "it.type"), "checkbox");
    browser.click(&format!("{} input", of(0, "device")));
    browser.fill(&of(0, "longUrl"), "nonsense");
    browser.click("#f-rules > [data-act=add]");
    browser.fill(&of(1, "language"), "de, en");
    browser.fill(&of(1, "country"), "de");
    browser.fill(&of(1, "percent"), "100");
    browser.fill(&of(1, "variant"), "german");
    browser.fill(&of(1, "longUrl"), "https://e.example/de");
    browser.assert_accessible();
    browser.assert_fits();
    browser.click("form .main");
    browser.text_with("[data-rule='0'] .wrong", "Target of the rule");
    assert_eq!(focused(&console, "it.dataset.member"), "longUrl");
    assert!(!browser.has("[data-rule='1'] .wrong"));
    browser.assert_accessible();
    browser.fill(&of(0, "longUrl"), "https://e.example/app");
    browser.click("form .main");
    let code = made(browser);
    let path = format!("/v1/links/{code}");
    let rules = || stack.api("GET", &path, None).json()["rules"].clone();
    let first = json!({"device": ["ios"], "longUrl": "https://e.example/app"});
    let second = json!({
        "language": ["de", "en"], "country": ["DE"], "percent": 100, "variant": "german",
        "longUrl": "https://e.example/de",
    });
    let equal = |found: Value, expected: &[&Value]| {
        // A whole percent is the same number in either form.
        let found = found.to_string().replace(":100.0", ":100");
        assert_eq!(found, json!(expected).to_string());
    };
    equal(rules(), &[&first, &second]);

    let page = format!("/console/links/{code}");
    console.open(&page, &code);
    browser.click("[data-try]");
    browser.text_with(
        "[data-said]",
        "Rule 1 fits: the visitor goes to https://e.example/app",
    );
    browser.choose("#try-device", "desktop");
    browser.click("[data-try]");
    browser.text_with(
        "[data-said]",
        "No rule fits: the visitor goes to https://e.example/",
    );
    browser.text_with("[data-said]", "Does not fit: Device");
    browser.fill("#try-language", "de-AT");
    browser.fill("#try-country", "de");
    browser.click("[data-try]");
    browser.find("[data-pointer='/rules/1/longUrl']");
    browser.text_with("[data-said]", "Rule 2 fits");
    browser.assert_accessible();
    browser.assert_fits();
    browser.fill("#try-country", "nowhere");
    browser.click("[data-try]");
    browser.text_with("[data-said]", "country");

    console.open(&format!("{page}/change"), "Change link");
    browser.click("details:nth-of-type(1) > summary");
    browser.click("[data-rule='0'] [data-act=down]");
    assert_eq!(focused(&console, "it.dataset.act"), "up");
    browser.fill("#f-pausedTarget", "https://e.example/paused");
    browser.assert_accessible();
    browser.click("form .main");
    // Only the page of the link has it.
    browser.find("[data-try]");
    equal(rules(), &[&second, &first]);
    let pause = format!("{path}/pause");
    assert_eq!(stack.api("POST", &pause, None).status, 200);
    console.open(&page, &code);
    browser.text_with(
        "[data-rule=paused]",
        "Visitors go to a target instead of 410.",
    );
    browser.click("[data-try]");
    browser.text_with("[data-said]", "https://e.example/paused");

    console.open(&format!("{page}/change"), "Change link");
    browser.click("details:nth-of-type(1) > summary");
    browser.click("[data-rule='0'] [data-act=remove]");
    browser.click("form .main");
    browser.find("[data-try]");
    equal(rules(), &[&first]);

    // A campaign has the same part.
    console.open("/console/campaigns-new", "New campaign");
    browser.fill("#f-name", "Spring");
    browser.fill("#f-longUrl", "https://e.example/{member}");
    browser.click("details:nth-of-type(2) > summary");
    browser.click("#f-rules > [data-act=add]");
    browser.click(&format!("{} input", of(0, "device")));
    browser.fill(&of(0, "longUrl"), "https://app.example/{member}");
    browser.fill("#f-notYetTarget", "https://e.example/soon");
    browser.click("form .main");
    browser.text_with("h1", "Campaign Spring");
    let list = stack.api("GET", "/v1/campaigns", None).json();
    let campaign = &list["campaigns"][0];
    assert_eq!(text(campaign, "notYetTarget"), "https://e.example/soon");
    assert_eq!(campaign["rules"][0]["device"], json!(["ios"]));
    let link = json!({"campaignId": campaign["id"], "parameters": {"member": "7"}});
    let link = text(&stack.create(&link), "shortCode");
    let port = stack.nginx.public_port;
    let answer = http::send(
        port,
        "GET",
        &format!("/{link}"),
        &[("User-Agent", "iPhone")],
    );
    assert_eq!(answer.location(), Some("https://app.example/7"));
    browser.assert_sound(&["status of 422", "status of 400"]);
}

#[test]
fn a_marketer_gives_a_preview_and_sees_what_a_messenger_gets() {
    let stack = Stack::start();
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    console.open("/console/new", "New link");
    browser.fill("#f-longUrl", "https://e.example/");
    browser.click("details:has(#f-preview-title) > summary");
    browser.fill("#f-preview-title", "Sale");
    browser.fill("#f-preview-description", "50% off");
    browser.fill("#f-preview-image", "http://e.example/a.png");
    browser.assert_accessible();
    browser.assert_fits();
    browser.click("form .main");
    browser.text_with("#w-preview-image", "Image URL: must be an https URL");
    browser.fill("#f-preview-image", "https://e.example/a.png");
    browser.click("form .main");
    let code = made(browser);
    let path = format!("/v1/links/{code}");
    let preview = || stack.api("GET", &path, None).json()["preview"].clone();
    let image = "https://e.example/a.png";
    let expected = json!({"title": "Sale", "description": "50% off", "image": image});
    assert_eq!(preview(), expected);

    let page = format!("/console/links/{code}");
    console.open(&page, &code);
    browser.text_with(".facts", "Sale · 50% off");
    browser.choose("#try-device", "messenger");
    browser.click("[data-try]");
    browser.text_with(
        "[data-said]",
        "The messenger shows the preview, which links to https://e.example/",
    );
    // The fields that stay are sent, too: a change replaces the preview.
    console.open(&format!("{page}/change"), "Change link");
    browser.click("details:has(#f-preview-title) > summary");
    browser.fill("#f-preview-description", "");
    browser.click("form .main");
    browser.find("[data-try]");
    assert_eq!(preview(), json!({"title": "Sale", "image": image}));
    console.open(&format!("{page}/change"), "Change link");
    browser.click("details:has(#f-preview-title) > summary");
    browser.fill("#f-preview-title", "");
    browser.fill("#f-preview-image", "");
    browser.click("form .main");
    browser.find("[data-agreement]");
    assert_eq!(preview(), Value::Null);
    browser.assert_sound(&["status of 422"]);
}
