//! Takes pictures of the console: `cargo run -p shortlink-tests --example screenshots <folder>`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::http;
use shortlink_tests::past;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::Stack;
use shortlink_tests::wait::{SOON, until};

/// A picture: its name, the page, its heading, and whether it is dark.
type Picture = (&'static str, &'static str, &'static str, bool);

/// On a desk.
const DESK: &[Picture] = &[
    ("overview", "/console", "Overview", false),
    ("links", "/console/links", "Links", false),
    ("campaign", "/console/campaigns/1", "Campaign Spring", false),
    ("link", "/console/links/sp7", "Link sp7", false),
    (
        "statistics",
        "/console/statistics?by=domain",
        "Statistics",
        false,
    ),
    (
        "countries",
        "/console/statistics?range=90&by=country",
        "Statistics",
        true,
    ),
    ("live", "/console/live", "Live visits", false),
    ("domains", "/console/domains", "Domains", false),
    ("service", "/console/service", "Service", true),
    (
        "campaign-change",
        "/console/campaigns/1/change",
        "Change campaign",
        false,
    ),
    ("audit", "/console/audit", "Audit log", false),
];

/// On a phone.
const PHONE: &[Picture] = &[
    ("new-phone", "/console/new", "New link", false),
    ("link-phone", "/console/links/sp7", "Link sp7", true),
    ("live-phone", "/console/live", "Live visits", false),
];

/// In Chinese, on a desk.
const CHINESE: &[Picture] = &[("links-chinese", "/console/links", "短链接", false)];

/// Follows a link, as one of several programs.
fn tap(stack: &Stack, code: &str, number: usize) {
    let agents = [
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
         Version/17.2 Mobile/15E148 Safari/604.1",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 \
         Safari/537.36",
        "WhatsApp/2.23.20.0 A",
    ];
    let headers = [
        ("Host", ["s1.example.com", "s2.example.com"][number % 2]),
        ("User-Agent", agents[number % 3]),
    ];
    http::send(
        stack.nginx.public_port,
        "GET",
        &format!("/{code}"),
        &headers,
    );
}

fn main() {
    let folder = PathBuf::from(env::args().nth(1).expect("a folder for the pictures"));
    fs::create_dir_all(&folder).expect("a folder");
    let stack = Stack::start();
    let table = "shortlink_domains {\n localhost active scheme=http;\n s1.example.com active weight=3;\n \
                 s2.example.com active;\n vip.example.com active campaign=k1;\n \
                 *.s.example.com serving;\n old.example.com retired;\n}\n";
    fs::write(stack.nginx.file("domains.conf"), table).expect("domains.conf");
    stack.nginx.reload();
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
    stack.api(
        "POST",
        "/v1/campaigns",
        Some(&json!({
            "name": "Spring", "longUrl": "https://shop.example.com/spring?m={member}&c={code}",
            "note": "Members who have agreed to messages", "defaults": {"tags": ["spring"]},
        })),
    );
    for member in ["4711", "4712", "4713"] {
        stack.create(&json!({"campaignId": "1", "parameters": {"member": member}}));
    }
    for step in ["pause", "resume"] {
        stack.api("POST", &format!("/v1/campaigns/1/{step}"), None);
    }
    let key = stack.sidecar.make_key(&["admin"]);
    let rows: String = (0..20_000).map(row).collect();
    let file = stack.directory().join("members.csv");
    fs::write(&file, format!("Member,Name,reference\n{rows}")).expect("a file");
    let sql = Sql::of(&stack, None);
    for (domain, fell_ago) in [
        ("s1.example.com", 9),
        ("s2.example.com", 0),
        ("localhost", 0),
    ] {
        past::fill_minutes(&sql, domain, 84, fell_ago);
    }
    for (name, width, language, pictures) in [
        ("desk", 1280, "en", DESK),
        ("phone", 360, "en", PHONE),
        ("chinese", 1280, "zh", CHINESE),
    ] {
        let directory = stack.directory().join(name);
        let looks = Looks { width, language };
        let browser = Browser::start(&directory, stack.nginx.internal_port, looks);
        browser.open("/console");
        browser.fill("#key", &key);
        browser.click("form .main");
        browser.find("table");
        for (name, path, heading, is_dark) in pictures {
            browser.set_dark(*is_dark);
            browser.open(path);
            browser.text_with("h1", heading);
            if path.ends_with("live") {
                browser.find("[data-feed=live]");
                for number in 0..12 {
                    tap(&stack, &format!("sp{number}"), number);
                }
                browser.find("[data-visit]:nth-child(10)");
            }
            until("all of it is shown", SOON, || !browser.has("[aria-busy]"));
            browser.picture(&folder.join(format!("{name}.png")));
        }
        if name == "desk" {
            browser.set_dark(false);
            upload(&browser, &file, |name| folder.join(format!("{name}.png")));
        }
    }
}

/// A row of the file that is sent. Some are wrong.
fn row(number: u32) -> String {
    match number % 4_000 {
        2 => format!(",\"Li, Na\",r-{number}\n"),
        _ => format!("m{number},\"Li, Na\",r-{number}\n"),
    }
}

/// Chooses and sends a file, with pictures of each step.
fn upload(browser: &Browser, file: &Path, picture: impl Fn(&str) -> PathBuf) {
    let shown = |name: &str, part: &str| {
        browser.find(part);
        let script = "document.querySelector('.steps-of-upload').scrollIntoView({block: 'center'})";
        browser.run(script, &[]);
        browser.picture(&picture(name));
    };
    browser.open("/console/campaigns/1");
    let path = file.display().to_string();
    browser.find("#upload-file").type_keys(&path);
    shown("upload", "[data-send]:not([disabled])");
    browser.click("[data-send]");
    until("some rows are done", SOON, || {
        let script = "return document.querySelector('progress')?.value > 2000";
        browser.run(script, &[]) == json!(true) || browser.has("[data-ended]")
    });
    shown("upload-going", ".steps-of-upload");
    shown("upload-done", "[data-ended]");
}
