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

/// What each picture shows: its name, the page, its heading, and whether it is dark.
const PAGES: [(&str, &str, &str, bool); 17] = [
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
        "statistics-dark",
        "/console/statistics?by=domain",
        "Statistics",
        true,
    ),
    ("live", "/console/live", "Visits live", false),
    ("domains", "/console/domains", "Domains", false),
    ("service", "/console/service", "Service", false),
    ("campaigns", "/console/campaigns", "Campaigns", false),
    ("campaign", "/console/campaigns/1", "Campaign Spring", false),
    (
        "campaign-change",
        "/console/campaigns/1/change",
        "Change campaign",
        false,
    ),
    (
        "campaign-new",
        "/console/campaigns-new",
        "New campaign",
        false,
    ),
    ("keys", "/console/keys", "API keys", false),
    ("audit", "/console/audit", "Audit log", false),
    (
        "audit-dark",
        "/console/audit?subject=campaign:1",
        "Audit log",
        true,
    ),
    ("link-dark", "/console/links/sp7", "Link sp7", true),
];

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
        browser.fill("#key", &key);
        browser.click("form .main");
        browser.text_with("h1", "Links");
        for (name, path, heading, is_dark) in PAGES {
            browser.set_dark(is_dark);
            browser.open(path);
            browser.text_with("h1", heading);
            if name == "live" {
                browser.find("[data-feed=live]");
                for number in 0..12 {
                    tap(&stack, &format!("sp{number}"), number);
                }
                browser.find("[data-visit]:nth-child(10)");
            }
            until("all of it is shown", SOON, || !browser.has("[aria-busy]"));
            browser.picture(&folder.join(format!("{name}{suffix}.png")));
        }
        browser.set_dark(false);
        upload(&browser, &file, |name| {
            folder.join(format!("{name}{suffix}.png"))
        });
    }
}

/// A row of the file that is sent. Some are wrong.
fn row(number: u32) -> String {
    match number % 4_000 {
        2 => format!(",\"Li, Na\",r-{number}\n"),
        _ => format!("m{number},\"Li, Na\",r-{number}\n"),
    }
}

/// How a file is chosen, sent and done.
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
