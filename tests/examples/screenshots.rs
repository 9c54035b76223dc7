//! Takes pictures of the console: `cargo run -p shortlink-tests --example screenshots <folder>`.

use std::env;
use std::fs;
use std::path::PathBuf;

use serde_json::json;
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::past;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::Stack;
use shortlink_tests::wait::{SOON, until};

/// What each picture shows: its name, the page, its heading, and whether it is dark.
const PAGES: [(&str, &str, &str, bool); 8] = [
    ("links", "/console", "Links", false),
    ("new", "/console/new", "New link", false),
    ("link", "/console/links/sp7", "Link sp7", false),
    ("statistics", "/console/statistics", "Statistics", false),
    (
        "countries",
        "/console/statistics?range=90&by=country",
        "Statistics",
        false,
    ),
    (
        "domains-dark",
        "/console/statistics?by=domain",
        "Statistics",
        true,
    ),
    ("service", "/console/service", "Service", false),
    ("link-dark", "/console/links/sp7", "Link sp7", true),
];

fn main() {
    let folder = PathBuf::from(env::args().nth(1).expect("a folder for the pictures"));
    fs::create_dir_all(&folder).expect("a folder");
    let stack = Stack::start();
    for number in 0..12 {
        stack.create(&json!({
            "longUrl": format!("https://shop.example.com/spring/{number}?utm_source=sms"),
            "customSlug": format!("sp{number}"), "tags": ["spring", "sms"],
        }));
    }
    let change = json!({"longUrl": "https://shop.example.com/spring/sold-out"});
    stack.api("PATCH", "/v1/links/sp7", Some(&change));
    stack.api("POST", "/v1/links/sp9/pause", None);
    stack.api("DELETE", "/v1/links/sp4", None);
    past::fill_hours(&Sql::of(&stack, None), "sp7");
    for (suffix, width) in [("", 1280), ("-phone", 360)] {
        let directory = stack.directory().join(format!("browser{suffix}"));
        let looks = Looks {
            width,
            ..Looks::default()
        };
        let browser = Browser::start(&directory, stack.nginx.internal_port, looks);
        browser.open("/console");
        browser.text_with("h1", "Sign in");
        browser.picture(&folder.join(format!("sign-in{suffix}.png")));
        browser.fill("#key", &stack.sidecar.key);
        browser.click("form .main");
        browser.text_with("h1", "Links");
        for (name, path, heading, is_dark) in PAGES {
            browser.set_dark(is_dark);
            browser.open(path);
            browser.text_with("h1", heading);
            until("all of it is shown", SOON, || !browser.has("[aria-busy]"));
            browser.picture(&folder.join(format!("{name}{suffix}.png")));
        }
    }
}
