//! Texts that users have typed stay when another language is chosen; and the short domains that forms offer.

use std::fs;

use serde_json::{Value, json};
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::console::{Console, made};
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

/// The value of a field, once there is one.
fn value(browser: &Browser, field: &str) -> Value {
    let script = "return document.querySelector(arguments[0])?.value ?? null";
    browser.run(script, &[json!(field)])
}

/// Waits until a field has a value.
fn wait_for(browser: &Browser, field: &str, expected: &str) {
    until(field, SOON, || value(browser, field) == json!(expected));
}

#[test]
fn another_language_leaves_what_was_typed() {
    let stack = Stack::start();
    let target = "https://shop.example.com/spring?m={member}";
    let body = json!({"name": "Spring", "longUrl": target});
    let id = text(
        &stack.api("POST", "/v1/campaigns", Some(&body)).json(),
        "id",
    );
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;

    // Fields of every kind, in folds and lists, and of a campaign that is chosen first.
    console.open("/console/new", "New link");
    browser.run(
        "document.querySelectorAll('main details').forEach((it) => { it.open = true })",
        &[],
    );
    browser.fill("#f-longUrl", "https://example.com/");
    browser.fill("#f-maxVisits", "7");
    browser.click("#f-rules [data-act=add]");
    browser.fill("#f-rules [data-member=longUrl]", "https://example.com/ios");
    browser.click("[data-language]");
    browser.text_with("h1", "新建短链接");
    wait_for(browser, "#f-maxVisits", "7");
    wait_for(browser, "#f-longUrl", "https://example.com/");
    wait_for(
        browser,
        "#f-rules [data-member=longUrl]",
        "https://example.com/ios",
    );
    let focused = "return document.activeElement.matches('[data-language]')";
    assert_eq!(browser.run(focused, &[]), json!(true));
    browser.choose("#of-campaign", &id);
    browser.fill("#f-parameters-member", "4711");
    browser.click("[data-language]");
    browser.text_with("h1", "New link");
    wait_for(browser, "#f-parameters-member", "4711");
    browser.click("form.fields .main");
    let link = stack.api("GET", &format!("/v1/links/{}", made(browser)), None);
    assert_eq!(link.json()["parameters"]["member"], "4711");
    assert_eq!(link.json()["maxVisits"], 7);

    // A file, and the fields that its columns become. A campaign brings its target with it.
    let path = stack.directory().join("people.csv");
    fs::write(&path, "Name;Number\nAnn;1\nBob;2\n").expect("a file");
    console.open(&format!("/console/message?campaignId={id}"), "New message");
    wait_for(browser, "#f-text", target);
    browser.fill("#f-text", &format!("Hi {{name}}: {target}"));
    console.choose("#recipients-file", &path);
    browser.text_with("main form", "2 recipients");
    browser.choose("#v-member", "1");
    browser.click("[data-language]");
    browser.text_with("main form", "2 位收件人");
    wait_for(browser, "#v-member", "1");
    browser.click("form.fields .main");
    browser.find("[data-ended]");
    let links = stack
        .api("GET", &format!("/v1/links?campaignId={id}"), None)
        .json();
    let members: Vec<&Value> = links["links"]
        .as_array()
        .expect("links")
        .iter()
        .map(|it| &it["parameters"]["member"])
        .collect();
    assert!(
        members.contains(&&json!("1")) && members.contains(&&json!("2")),
        "{links}"
    );
    browser.assert_sound(&[]);
}

#[test]
fn a_form_offers_the_short_domains_of_its_links_with_their_brands() {
    let stack = Stack::start();
    let body = json!({"name": "Spring", "longUrl": "https://shop.example.com/{member}"});
    let id = text(
        &stack.api("POST", "/v1/campaigns", Some(&body)).json(),
        "id",
    );
    let table = format!(
        "shortlink_domains {{\n brand \"Shop & Söhne\";\n brand Club;\n localhost serving;\n a.example active;\n \
         b.example active brand=off;\n vip.example active campaign={id} brand=Club;\n}}\n"
    );
    fs::write(stack.nginx.file("domains.conf"), table).expect("domains.conf");
    stack.nginx.reload();
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    let offered = |field: &str| {
        let script =
            "return [...document.querySelector(arguments[0]).options].map((it) => it.text)";
        browser.run(script, &[json!(field)])
    };
    let all = json!([
        "Chosen by the service",
        "a.example – Shop & Söhne",
        "b.example"
    ]);
    until("nginx has reported its table", SOON, || {
        console.open("/console/new", "New link");
        browser.has("select#f-domain") && offered("#f-domain") == all
    });
    browser.assert_accessible();
    browser.choose("#of-campaign", &id);
    browser.find("#f-parameters-member");
    let of_campaign = json!(["Chosen by the service", "vip.example – Club"]);
    assert_eq!(offered("#f-domain"), of_campaign);
    console.open("/console/message", "New message");
    assert_eq!(offered("#f-domain"), all);
    console.open(
        &format!("/console/campaigns/{id}/change"),
        "Change campaign",
    );
    assert_eq!(offered("#f-defaults-domain"), of_campaign);
    console.open("/console/domains", "Domains");
    browser.text_with("[data-domain='a.example']", "Shop & Söhne");
    browser.text_with("[data-domain='vip.example']", "only for campaign Spring");
    let made =
        stack.create(&json!({"longUrl": "https://shop.example.com/", "domain": "b.example"}));
    console.open(
        &format!("/console/links/{}/change", text(&made, "shortCode")),
        "Change link",
    );
    assert_eq!(value(browser, "#f-domain"), json!("b.example"));
    browser.assert_sound(&[]);
}
