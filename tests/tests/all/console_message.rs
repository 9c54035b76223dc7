//! The page that replaces the URLs of a message by short links.

use std::fs;

use serde_json::json;
use shortlink_tests::browser::Looks;
use shortlink_tests::console::{Console, copy};
use shortlink_tests::stack::{Stack, text};

#[test]
fn a_message_gets_short_links_and_shows_what_they_save() {
    let stack = Stack::start();
    let target = "https://shop.example.com/spring?m={member}";
    let body = json!({"name": "Spring", "longUrl": target});
    let made = stack.api("POST", "/v1/campaigns", Some(&body));
    let id = text(&made.json(), "id");

    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    console.open("/console/message", "New message");
    browser.assert_accessible();
    let long = "a".repeat(100);
    browser.fill("#f-text", &format!("Hi {{name}}, {long} {target}!"));
    browser.text_with("[data-variables]", "Value of member");
    browser.fill("#v-name", "Ann");
    browser.choose("#f-campaignId", &id);
    browser.click("form .main");
    // Refused for the value that is missing, without a link.
    browser.text_with(".notice.bad", "member");
    browser.assert_accessible();
    browser.fill("#v-member", "4711");
    browser.click("form .main");
    let shown = browser.text_with("[data-text]", "Hi Ann, ");
    let code = shown
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches('!');
    browser.text_with("main", "1 segment (");
    browser.text_with(
        "[data-saved]",
        "Segments: 1,000 before, 1,000 with short links, 0 fewer.",
    );
    browser.fill("#recipients", "20");
    browser.text_with("[data-saved]", "Segments: 20 before, 20 with");
    copy(browser);
    browser.assert_accessible();
    let answer = stack.follow(code);
    assert_eq!(
        answer.location(),
        Some("https://shop.example.com/spring?m=4711")
    );
    let links = stack
        .api("GET", &format!("/v1/links?campaignId={id}"), None)
        .json();
    assert_eq!(links["links"].as_array().map(Vec::len), Some(1));

    // The recipients of a file.
    console.open("/console/message", "New message");
    let path = stack.directory().join("people.csv");
    fs::write(&path, "Name;Phone;id\nAnn;1;r-1\n;2;r-2\nBob;3;r-3\n").expect("a file");
    browser.fill("#f-text", "Hi {name}: https://shop.example.com/");
    console.choose("#recipients-file", &path);
    browser.text_with("main form", "3 recipients");
    browser.assert_accessible();
    browser.click("form .main");
    browser.text_with(
        "[data-ended]",
        "Messages: 2 finished, 1 failed, 3 in total.",
    );
    browser.text_with("[data-errors]", "Name needs a value");
    browser.assert_accessible();
    let file = console.download("[data-csv]", "people-messages.csv");
    assert!(
        file.contains("\r\nAnn,1,r-1,Hi Ann: http://") && !file.contains(",r-2,"),
        "{file}"
    );
    let list = stack.api("GET", "/v1/links?externalId=r-3", None).json();
    assert_eq!(list["links"].as_array().map(Vec::len), Some(1));
    browser.assert_sound(&[]);

    let looks = Looks::phone("zh-CN");
    let console = Console::enter(&stack, &stack.sidecar.key, looks);
    console.open("/console/message", "新建短信");
    console.browser.fill(
        "#f-text",
        &format!("{long}{long} https://shop.example.com/"),
    );
    console.browser.click("form .main");
    console.browser.text_with("[data-saved]", "减少");
    console.browser.assert_fits();
    console.browser.assert_accessible();
    console.browser.assert_sound(&[]);
}
