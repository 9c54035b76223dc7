//! Clicks of a campaign's recipients, from the tap to the page of the campaign, the files and the erasure.

use std::process::Command;

use serde_json::{Value, json};
use shortlink_tests::browser::Looks;
use shortlink_tests::console::Console;
use shortlink_tests::http;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::wait::{SOON, until};

use super::console_statistics::{PHONE, PREVIEW};

/// A campaign whose links are of the recipients r-1 to r-5; returns its id.
fn campaign(stack: &Stack) -> String {
    let body = json!({"name": "Spring", "longUrl": "https://example.com/?m={member}"});
    let created = stack.api("POST", "/v1/campaigns", Some(&body));
    let id = text(&created.json(), "id");
    for n in 1..=5 {
        stack.create(&json!({
            "campaignId": id, "customSlug": format!("m{n}"), "externalId": format!("r-{n}"),
            "parameters": {"member": n.to_string()},
        }));
    }
    id
}

fn tap(stack: &Stack, code: &str, user_agent: &str) {
    let headers = [("User-Agent", user_agent)];
    let answer = http::send(
        stack.nginx.public_port,
        "GET",
        &format!("/{code}"),
        &headers,
    );
    assert_eq!(answer.status, 302);
}

/// Taps of two recipients, and a preview of a third one's link.
fn tapped(stack: &Stack) -> String {
    let id = campaign(stack);
    for (code, agent) in [("m1", PHONE), ("m1", PHONE), ("m2", PHONE), ("m3", PREVIEW)] {
        tap(stack, code, agent);
    }
    until("all visits are stored", SOON, || {
        stack.api("GET", "/v1/stats", None).json()["visits"]["total"] == json!(4)
    });
    id
}

fn clicks(stack: &Stack, id: &str) -> Value {
    stack
        .api("GET", &format!("/v1/campaigns/{id}/clicks"), None)
        .json()
}

/// The external ids of a file of recipients, with their numbers of clicks, in order.
fn recipients(table: &str) -> Vec<(String, String)> {
    let rows = table.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0].to_owned(), cells[4].to_owned())
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

fn owned(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    let rows = rows.iter();
    rows.map(|(id, clicks)| ((*id).to_owned(), (*clicks).to_owned()))
        .collect()
}

#[test]
fn the_page_of_a_campaign_shows_its_clicks_and_saves_its_recipients() {
    let stack = Stack::start();
    let id = tapped(&stack);
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    let page = format!("/console/campaigns/{id}");
    console.open(&page, "Campaign Spring");
    let figure = |name: &str| browser.text_with(&format!("[data-clicks] [data-figure={name}]"), "");
    assert!(figure("issued").contains('5'));
    assert!(figure("clicked").contains('2'));
    assert!(figure("rate").contains("40%"));
    assert!(!browser.has("[data-conversions]"));
    let row =
        json!([{"conversionId": "o-1", "externalId": "r-1", "value": "49.90", "currency": "EUR"}]);
    let headers = [
        (
            "X-Api-Key",
            &*stack.sidecar.make_key(&["conversions:write"]),
        ),
        ("Content-Type", "application/json"),
    ];
    let request = http::request(
        "POST",
        "/v1/conversions",
        &headers,
        row.to_string().as_bytes(),
    );
    http::try_send(stack.nginx.internal_port, "POST", &request).expect("an answer");
    console.open(&page, "Campaign Spring");
    let converted =
        |name: &str| browser.text_with(&format!("[data-conversions] [data-figure={name}]"), "");
    assert!(converted("rate").contains("50%"));
    assert!(converted("EUR").contains("49.90"));
    assert!(figure("half").contains("1 hour"));
    let phones = browser.text_with("[data-clicks] [data-by=device] [data-value=phone]", "");
    assert!(phones.contains("100%"), "{phones}");
    let said =
        "return document.querySelector('[data-clicks] .plot').getAttribute('aria-valuetext')";
    let said = browser.run(said, &[]);
    assert!(said.as_str().expect("text").contains("2 links"), "{said}");
    browser.assert_accessible();
    let saved = |clicked: bool, name: &str| {
        let button = format!("[data-download={clicked}]");
        recipients(&console.download(&button, &format!("campaign-{id}-{name}.csv")))
    };
    assert_eq!(saved(true, "clicked"), owned(&[("r-1", "2"), ("r-2", "1")]));
    let none = owned(&[("r-3", "0"), ("r-4", "0"), ("r-5", "0")]);
    assert_eq!(saved(false, "not-clicked"), none);
    browser.assert_sound(&[]);

    let looks = Looks::phone("zh-CN");
    let console = Console::enter(&stack, &stack.sidecar.key, looks);
    console.open(&page, "活动 Spring");
    console.browser.text_with("[data-clicks]", "点击率");
    console.browser.assert_fits();
    console.browser.assert_accessible();
    console.browser.assert_sound(&[]);

    // Side by side with another campaign.
    let body = json!({"name": "Summer", "longUrl": "https://example.com/?m={member}"});
    let other = text(
        &stack.api("POST", "/v1/campaigns", Some(&body)).json(),
        "id",
    );
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    console.open("/console/campaigns", "Campaigns");
    browser.assert_accessible();
    browser.click(&format!("[data-choose][value='{id}']"));
    browser.click("[data-compare]");
    browser.text_with("h1", "Compare campaigns");
    browser.text_with(&format!("[data-campaign='{id}'] [data-rate]"), "40%");
    browser.assert_accessible();
    browser.assert_fits();
    let file = console.download("[data-csv]", "campaigns.csv");
    let lines: Vec<&str> = file.lines().collect();
    // Only the selected campaign.
    assert_eq!(lines.len(), 2, "{file}");
    assert!(lines[1].starts_with("Spring,5,2,0.4,1,3,"), "{file}");
    console.open("/console/campaigns-compared", "Compare campaigns");
    browser.text_with(&format!("[data-campaign='{other}']"), "Summer");
    browser.text_with(&format!("[data-campaign='{id}']"), "Phone 100%");
    browser.assert_sound(&[]);
}

#[test]
fn clicks_are_counted_on_postgres_until_they_are_erased() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    let stack = Stack::on(&postgres);
    let id = tapped(&stack);
    let counted = clicks(&stack, &id);
    assert_eq!(counted["clickRate"], 0.4, "{counted}");
    let table = |clicked: bool| {
        let url = format!(
            "http://127.0.0.1:{}/v1/campaigns/{id}/recipients?clicked={clicked}",
            stack.nginx.internal_port
        );
        let key = format!("X-Api-Key: {}", stack.sidecar.key);
        let output = Command::new("curl")
            .args(["-sSf", "-H", &key, "-H", "Accept: text/csv", &url])
            .output();
        recipients(&String::from_utf8(output.expect("curl").stdout).expect("text"))
    };
    assert_eq!(table(true), owned(&[("r-1", "2"), ("r-2", "1")]));
    let erased = stack.api("DELETE", "/v1/visits?externalId=r-1", None);
    assert_eq!(erased.json()["visits"], 2);
    assert_eq!(clicks(&stack, &id)["clicked"], 1);
    assert_eq!(table(true), owned(&[("r-2", "1")]));
    assert_eq!(table(false).len(), 4);
    tap(&stack, "m1", PHONE);
    until("the recipient clicks again", SOON, || {
        clicks(&stack, &id)["clicked"] == 2
    });
    assert_eq!(table(true), owned(&[("r-1", "1"), ("r-2", "1")]));
}
