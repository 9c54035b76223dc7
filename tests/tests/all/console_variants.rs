//! A/B tests in the console: the variants of a form, their results, and the winner.

use serde_json::{Value, json};
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::console::Console;
use shortlink_tests::http;
use shortlink_tests::stack::{Stack, StackOptions, text};
use shortlink_tests::wait::{SOON, until};

use super::console_statistics::{DESKTOP, PHONE};

/// A field of a variant.
fn of(variant: usize, member: &str) -> String {
    format!("[data-variant='{variant}'] [data-member={member}]")
}

/// Fills in a variant that was added.
fn give(browser: &Browser, number: usize, name: &str, weight: &str, target: &str) {
    browser.click("#f-variants > [data-act=add]");
    browser.fill(&of(number, "name"), name);
    browser.fill(&of(number, "weight"), weight);
    browser.fill(&of(number, "longUrl"), target);
}

/// The text of a variant's row of the results.
fn row(browser: &Browser, name: &str) -> String {
    let row = format!("[data-variants] tr[data-variant='{name}']");
    browser.find(&row);
    let script = format!("return document.querySelector(\"{row}\").textContent");
    browser
        .run(&script, &[])
        .as_str()
        .expect("a text")
        .to_owned()
}

#[test]
fn a_marketer_compares_variants_and_ends_the_test() {
    let stack = Stack::with(&StackOptions::default());
    let looks = Looks::phone("en");
    let console = Console::enter(&stack, &stack.sidecar.key, looks);
    let browser = &console.browser;
    // The first request has reported the domain of the stack; it is stored a moment later.
    until("the domain is offered", SOON, || {
        console.open("/console/new", "New link");
        browser.has("select#f-domain")
    });
    browser.fill("#f-longUrl", "https://e.example/");
    browser.fill("#f-customSlug", "tested");
    browser.click("details:nth-of-type(1) > summary");
    browser.choose("#f-domain", "localhost");
    browser.click("details:nth-of-type(4) > summary");
    give(browser, 0, "a b", "2", "https://e.example/a");
    give(browser, 1, "b", "", "https://e.example/b");
    browser.assert_accessible();
    browser.assert_fits();
    browser.click("form .main");
    browser.text_with("[data-variant='0'] .wrong", "Name");
    browser.text_with("[data-variant='1'] .wrong", "Weight");
    browser.assert_accessible();
    browser.fill(&of(0, "name"), "a");
    browser.fill(&of(1, "weight"), "1");
    browser.click("form .main");
    browser.text_with("[data-made] h2", "Link created");
    let link = || stack.api("GET", "/v1/links/tested", None).json();
    assert_eq!(link()["domain"], "localhost");
    let shares = |first: f64, second: f64| {
        json!([
            {"percent": first, "variant": "a", "longUrl": "https://e.example/a"},
            {"percent": second, "variant": "b", "longUrl": "https://e.example/b"},
        ])
    };
    assert_eq!(link()["rules"], shares(66.67, 33.33));

    // Other rules leave the variants as they are; new weights leave the rules.
    console.open("/console/links/tested/change", "Change link");
    browser.click("details:nth-of-type(1) > summary");
    assert!(!browser.has("[data-rule='0']"));
    browser.click("#f-rules > [data-act=add]");
    browser.click("[data-rule='0'] [data-member=device] input");
    browser.fill(
        "[data-rule='0'] [data-member=longUrl]",
        "https://e.example/app",
    );
    browser.click("form .main");
    browser.find("[data-variants]");
    let ios = json!({"device": ["ios"], "longUrl": "https://e.example/app"});
    let with_ios = |shares: Value| {
        let mut rules = vec![ios.clone()];
        rules.extend(shares.as_array().expect("rules").clone());
        Value::from(rules)
    };
    assert_eq!(link()["rules"], with_ios(shares(66.67, 33.33)));
    console.open("/console/links/tested/change", "Change link");
    browser.click("details:nth-of-type(2) > summary");
    browser.fill(&of(0, "weight"), "50");
    browser.fill(&of(1, "weight"), "50");
    browser.click("form .main");
    browser.find("[data-variants]");
    assert_eq!(link()["rules"], with_ios(shares(50.0, 50.0)));

    // Results: each visitor is in one share, so both have visits after some.
    let port = stack.nginx.public_port;
    let mut followed = [0, 0];
    for number in 0..60 {
        let agent = format!("{DESKTOP} Edg/126.0.{number}.0");
        let answer = http::send(port, "GET", "/tested", &[("User-Agent", &agent)]);
        let place = usize::from(answer.location() == Some("https://e.example/b"));
        followed[place] += 1;
    }
    let [a, b] = followed;
    assert!(a > 0 && b > 0, "{followed:?}");
    http::send(port, "GET", "/tested", &[("User-Agent", PHONE)]);
    let results = || stack.api("GET", "/v1/links/tested/variants", None).json();
    let clicks = |of: &Value| -> u64 {
        let variants = of["variants"].as_array().expect("variants");
        variants.iter().filter_map(|it| it["clicks"].as_u64()).sum()
    };
    until("all visits are stored", SOON, || clicks(&results()) == 61);
    console.open("/console/links/tested?by=variant", "tested");
    assert!(
        row(browser, "a").contains(&format!("{a} (")),
        "{}",
        row(browser, "a")
    );
    assert!(
        row(browser, "b").contains(&format!("{b} (")),
        "{}",
        row(browser, "b")
    );
    assert!(
        row(browser, "").contains("Default target1 ("),
        "{}",
        row(browser, "")
    );
    browser.text_with(".statistics .legend", "Variant");
    browser.find(".statistics .legend [data-value=a]");
    browser.assert_accessible();
    browser.assert_fits();
    browser.click("[data-winner=b]");
    console.agree("The variants are removed");
    until("it has ended", SOON, || !browser.has("[data-winner]"));
    assert_eq!(link()["longUrl"], "https://e.example/b");
    assert_eq!(link()["rules"], json!([ios]));
    // The results stay.
    assert!(row(browser, "a").contains(&format!("{a} (")));
    browser.assert_sound(&["status of 422"]);
}

#[test]
fn a_campaign_has_variants_and_a_try_with_one_of_its_links() {
    let stack = Stack::start();
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    until("the domain is offered", SOON, || {
        console.open("/console/campaigns-new", "New campaign");
        browser.has("select#f-defaults-domain")
    });
    browser.fill("#f-name", "Spring");
    browser.fill("#f-longUrl", "https://e.example/{member}");
    browser.click("details:nth-of-type(1) > summary");
    browser.choose("#f-defaults-domain", "localhost");
    browser.click("details:nth-of-type(3) > summary");
    give(browser, 0, "a", "1", "https://a.example/{member}");
    give(browser, 1, "b", "0", "https://b.example/{member}");
    give(browser, 2, "c", "1", "https://c.example/{member}");
    browser.click("[data-variant='2'] [data-act=remove]");
    browser.click("form .main");
    browser.text_with("h1", "Campaign Spring");
    browser.text_with("dl.facts", "Short domain: localhost");
    let campaigns = stack.api("GET", "/v1/campaigns", None).json();
    let campaign = &campaigns["campaigns"][0];
    assert_eq!(campaign["rules"].to_string().matches("variant").count(), 1);
    assert!(!browser.has("[data-try]"));
    let body =
        json!({"campaignId": campaign["id"], "parameters": {"member": "7"}, "customSlug": "m7"});
    assert_eq!(stack.create(&body)["domain"], "localhost");
    let page = format!("/console/campaigns/{}", text(campaign, "id"));
    console.open(&page, "Campaign Spring");
    browser.text_with("main", "With the link m7 of this campaign.");
    browser.click("[data-try]");
    browser.text_with(
        "[data-said]",
        "Rule 1 fits: the visitor goes to https://a.example/7",
    );
    assert!(row(browser, "a").contains('–'));
    browser.assert_accessible();
    browser.click("[data-winner='']");
    console.agree("The variants are removed");
    until("it has ended", SOON, || !browser.has("[data-variants]"));
    let ended = stack
        .api(
            "GET",
            &format!("/v1/campaigns/{}", text(campaign, "id")),
            None,
        )
        .json();
    assert_eq!(
        (&ended["longUrl"], &ended["rules"]),
        (&json!("https://e.example/{member}"), &Value::Null)
    );
    browser.assert_sound(&[]);
}
