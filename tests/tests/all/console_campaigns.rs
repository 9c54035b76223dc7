//! Campaigns and files of links, as users handle them in the console.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use shortlink_tests::browser::Looks;
use shortlink_tests::console::Console;
use shortlink_tests::sidecar::api;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, eventually, until};

/// The longest time for a file, on a slow machine.
const LONG: Duration = Duration::from_secs(90);

/// Rows of the file that most of these tests send.
const ROWS: usize = 10_000;

/// Each of so many rows has no member.
const WRONG_EACH: usize = 1_000;

const SPRING: &str = "https://shop.example.com/spring?m={member}&c={code}";

fn campaign(stack: &Stack) -> String {
    let body = json!({"name": "Spring", "longUrl": SPRING});
    let made = stack.api("POST", "/v1/campaigns", Some(&body));
    assert_eq!(made.status, 201);
    text(&made.json(), "id")
}

/// A file as a spreadsheet writes it, with a column that is nothing to the service.
fn file(stack: &Stack, name: &str, rows: usize) -> PathBuf {
    let mut lines = String::from("\u{feff}Member,Name,reference\r\n");
    for row in 0..rows {
        let member = match row % WRONG_EACH {
            17 => String::new(),
            _ => format!("m{row}"),
        };
        lines.push_str(&format!("{member},\"Li, {row}\",r-{row}\r\n"));
    }
    let path = stack.directory().join(name);
    fs::write(&path, lines).expect("a file");
    path
}

/// Chooses a file on a campaign's page, and waits until it was read through.
fn choose(console: &Console, path: &Path) {
    console.choose("#upload-file", path);
    console.browser.find("[data-send]:not([disabled])");
}

fn links_of(stack: &Stack, id: &str) -> i64 {
    let statement = format!("SELECT count(*) FROM links WHERE campaign_id = {id}");
    Sql::of(stack, None).number(&statement)
}

fn wait_for_end(console: &Console, how: &str) {
    wait_for(console, &format!("[data-ended={how}]"));
}

fn wait_for(console: &Console, selector: &str) {
    until(selector, LONG, || console.browser.has(selector));
}

#[test]
fn campaigns_are_made_and_lead_elsewhere() {
    let stack = Stack::start();
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    console.open("/console/campaigns", "Campaigns");
    browser.click("[data-new]");
    browser.text_with("h1", "New campaign");
    browser.assert_accessible();
    browser.fill("#f-name", "Spring");
    browser.fill("#f-longUrl", "https://{member}.example.com/");
    browser.text_with("[data-preview]", "Values that differ per link: member");
    browser.click("form .main");
    browser.text_with("#w-longUrl", "Target of the links");
    browser.assert_accessible();
    browser.fill("#f-longUrl", SPRING);
    browser.click("summary");
    browser.fill("#f-defaults-tags", "spring, sms");
    browser.click("details:has(#f-forwardQuery) > summary");
    browser.fill("#f-defaults-codeLength", "77");
    browser.click("#f-forwardQuery");
    browser.fill("#f-note", "for members");
    browser.click("form .main");
    browser.text_with("#w-defaults-codeLength", "Length of codes");
    browser.fill("#f-defaults-codeLength", "8-9");
    browser.click("form .main");
    browser.text_with("h1", "Campaign Spring");
    browser.text_with("main", "#sms #spring");
    browser.text_with("main", "8–9");
    browser.assert_accessible();
    let list = stack.api("GET", "/v1/campaigns", None).json();
    let campaign = &list["campaigns"][0];
    assert_eq!(campaign["longUrl"], SPRING);
    assert_eq!(campaign["forwardQuery"], true);
    assert_eq!(campaign["note"], "for members");
    assert_eq!(
        campaign["defaults"],
        json!({"tags": ["sms", "spring"], "codeLength": {"min": 8, "max": 9}})
    );
    let id = text(campaign, "id");
    for (code, member) in [("one", "Zoë"), ("two", "7")] {
        stack.create(&json!({
            "campaignId": id, "customSlug": code, "parameters": {"member": member},
        }));
    }
    let leads = |code: &str| stack.follow(code).location().map(str::to_owned);
    assert_eq!(
        leads("one").as_deref(),
        Some("https://shop.example.com/spring?m=Zo%C3%AB&c=one")
    );

    browser.click("[data-act=change]");
    browser.text_with("h1", "Change campaign");
    browser.text_with(
        "[data-preview]",
        "https://shop.example.com/spring?m=7&c=two",
    );
    browser.fill("#f-longUrl", "https://shop.example.com/summer/{member}");
    let preview = browser.text_with("[data-preview]", "New targets");
    browser.assert_accessible();
    let summer = "https://shop.example.com/summer/Zo%C3%AB";
    assert!(preview.contains(summer), "{preview}");
    browser.click("summary");
    browser.fill("#f-defaults-tags", "summer");
    browser.click("form .main");
    console.agree("It has 2 links.");
    browser.text_with("main", "https://shop.example.com/summer/{member}");
    until("the edge knows", SOON, || {
        leads("one").as_deref() == Some(summer)
    });
    // The other defaults of the campaign stay.
    let changed = stack
        .api("GET", &format!("/v1/campaigns/{id}"), None)
        .json();
    assert_eq!(
        changed["defaults"],
        json!({"tags": ["summer"], "codeLength": {"min": 8, "max": 9}})
    );

    // A link of it can get another value, and one of its own another way to redirect.
    console.open("/console/links/two/change", "Change link two");
    browser.fill("#f-parameters-member", "8");
    browser.assert_accessible();
    browser.click("form .main");
    browser.click("[data-engineers] summary");
    browser.text_with("[data-rule]", "https://shop.example.com/summer/8");
    stack.create(&json!({"longUrl": "https://example.com/", "customSlug": "own"}));
    console.open("/console/links/own/change", "Change link own");
    let choose = "const field = document.querySelector('#f-redirectStatus'); field.value = '308';";
    browser.run(choose, &[]);
    browser.click("form .main");
    browser.text_with("h1", "Link own");
    until("the edge knows", SOON, || stack.follow("own").status == 308);

    console.open(&format!("/console/campaigns/{id}"), "Campaign Spring");
    browser.click("[data-act=revoke]");
    console.agree("It has 2 links.");
    browser.find("[data-state=revoked]");
    until("the edge knows", SOON, || stack.follow("one").status == 410);
    browser.assert_sound(&["status of 422"]);
}

#[test]
fn a_file_becomes_links_of_a_campaign() {
    let stack = Stack::start();
    let id = campaign(&stack);
    let path = file(&stack, "members.csv", ROWS);
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    let page = format!("/console/campaigns/{id}");
    console.open(&page, "Campaign Spring");
    browser.assert_accessible();
    choose(&console, &path);
    let understood = |column: &str| {
        let script = "return document.querySelector(`[data-column='${arguments[0]}']`).value";
        browser.run(script, &[json!(column)])
    };
    assert_eq!(understood("Member"), "parameters.member");
    assert_eq!(understood("Name"), "");
    assert_eq!(understood("reference"), "externalId");
    browser.text_with("main", "https://shop.example.com/spring?m=m0&c={code}");
    browser.text_with("[data-send]", "Create links from 10,000 rows");
    browser.assert_accessible();
    browser.click("[data-send]");
    wait_for_end(&console, "done");
    browser.text_with(
        "[data-ended]",
        "Rows: 9,990 created, 10 failed, 10,000 in total",
    );
    browser.text_with("[data-links]", "9,990");
    browser.assert_accessible();
    assert_eq!(links_of(&stack, &id), 9_990);

    let results = console.download("[data-file=results]", "members-results.csv");
    let lines: Vec<&str> = results.trim_end().split("\r\n").collect();
    assert_eq!(
        lines[0],
        "\u{feff}Member,Name,reference,shortUrl,shortCode,status,reason"
    );
    assert_eq!(lines.len(), 1 + ROWS);
    let mut codes = BTreeMap::new();
    for (row, line) in lines[1..].iter().enumerate() {
        let is_wrong = row % WRONG_EACH == 17;
        let member = if is_wrong {
            String::new()
        } else {
            format!("m{row}")
        };
        let rest = line.strip_prefix(&format!("{member},\"Li, {row}\",r-{row},"));
        let rest: Vec<&str> = rest.expect("the row as it was sent").split(',').collect();
        if is_wrong {
            assert_eq!(rest[..3], ["", "", "422"], "{line}");
            assert_eq!(rest[3], "Member is required by the campaign");
        } else {
            assert!(rest[0].ends_with(&format!("/{}", rest[1])), "{line}");
            assert_eq!(rest[2..], ["201", ""], "{line}");
            codes.insert(row, rest[1].to_owned());
        }
    }
    for row in [0, 16, 18, 5_000, ROWS - 1] {
        let code = &codes[&row];
        let target = format!("https://shop.example.com/spring?m=m{row}&c={code}");
        assert_eq!(stack.follow(code).location(), Some(&*target));
    }
    let errors = console.download("[data-file=errors]", "members-errors.csv");
    let errors: Vec<&str> = errors.trim_end().split("\r\n").skip(1).collect();
    assert_eq!(errors.len(), 10);
    let last = "r-9017,9019,422,Member is required by the campaign";
    assert!(errors[9].ends_with(last), "{}", errors[9]);
    browser.text_with("[data-errors]", "9,019");

    // The same file again makes no link twice, though nothing of this page is remembered.
    browser.run("localStorage.clear()", &[]);
    console.open(&page, "Campaign Spring");
    choose(&console, &path);
    browser.click("[data-send]");
    wait_for_end(&console, "done");
    assert_eq!(links_of(&stack, &id), 9_990);
    let again = console.download("[data-file=results]", "members-results.csv");
    assert_eq!(again, results);

    // It is known by now, and can be sent anew when that is wanted.
    console.open(&page, "Campaign Spring");
    browser.text_with("main", "Uploads from this browser");
    choose(&console, &path);
    browser.text_with("main", "This file was uploaded before.");
    browser.assert_accessible();
    browser.click("#upload-anew");
    browser.click("[data-send]");
    wait_for_end(&console, "done");
    assert_eq!(links_of(&stack, &id), 2 * 9_990);

    // Among so many, the page searches for rare ones some at a time.
    console.open(
        &format!("/console/links?campaignId={id}&state=paused"),
        "Links",
    );
    browser.text_with("main", "No match so far. There are older links.");
    browser.click("a[rel=next]");
    browser.text_with("main", "No links match the filter");
    browser.assert_sound(&[]);
}

#[test]
fn the_links_of_an_upload_are_revoked_together() {
    let stack = Stack::start();
    let id = campaign(&stack);
    let other = json!({"campaignId": id, "customSlug": "other", "parameters": {"member": "7"}});
    stack.create(&other);
    let path = file(&stack, "mistaken.csv", ROWS);
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    let page = format!("/console/campaigns/{id}");
    console.open(&page, "Campaign Spring");
    choose(&console, &path);
    browser.click("[data-send]");
    wait_for_end(&console, "done");
    let number = |what: &str, of: &str| {
        let statement = format!("SELECT count({what}) FROM links WHERE {of}");
        Sql::of(&stack, None).number(&statement)
    };
    // The file was sent in several requests.
    assert_eq!(number("DISTINCT upload_id", "code <> 'other'"), 1);
    let first = stack.api("GET", "/v1/links?limit=1", None).json();
    let first = text(&first["links"][0], "shortCode");
    assert_eq!(stack.follow(&first).status, 302);
    browser.click("[data-revoke]");
    console.agree("The upload has 9,990 links.");
    wait_for(&console, "[data-revoked=done]");
    browser.text_with(
        "[data-revoked]",
        "Links revoked: 9,990. Already revoked: 0. Failed: 0.",
    );
    browser.assert_accessible();
    assert_eq!(number("*", "revoked_at IS NOT NULL"), 9_990);
    until("the edge knows", SOON, || {
        stack.follow(&first).status == 410
    });
    assert_eq!(stack.follow("other").status, 302);
    // The browser remembers the upload.
    console.open(&page, "Campaign Spring");
    browser.click(".past [data-revoke]");
    console.agree("The upload has 9,990 links.");
    wait_for(&console, "[data-revoked=done]");
    browser.text_with(
        "[data-revoked]",
        "Links revoked: 0. Already revoked: 9,990.",
    );
    browser.assert_sound(&[]);
}

#[test]
fn an_upload_that_was_cut_goes_on_and_makes_no_link_twice() {
    let mut stack = Stack::start();
    let id = campaign(&stack);
    let path = file(&stack, "slow.csv", ROWS);
    // A key that makes it last.
    let body = json!({
        "name": "slow", "scopes": ["links:read", "links:write", "campaigns:read"],
        "rateLimit": {"requestsPerSecond": 300, "burst": 1_000},
    });
    let admin = stack.sidecar.make_key(&["admin"]);
    let port = stack.nginx.internal_port;
    let made = api(port, &admin, "POST", "/v1/keys", Some(&body)).json();
    let console = Console::enter(&stack, &text(&made, "secret"), Looks::default());
    let browser = &console.browser;
    let page = format!("/console/campaigns/{id}");
    let done = || {
        let script = "return Number(document.querySelector('[data-progress]')?.dataset.progress)";
        browser.run(script, &[]).as_u64().unwrap_or(0)
    };
    console.open(&page, "Campaign Spring");
    choose(&console, &path);
    browser.click("[data-send]");
    until("some rows are done", LONG, || done() > 0);
    browser.assert_accessible();
    // Other pages can be looked at meanwhile.
    browser.click("nav a[href='/console/links']");
    browser.text_with("h1", "Links");
    browser.run("history.back()", &[]);
    browser.find("[data-stop]");
    // The user stops it.
    browser.click("[data-stop]");
    wait_for_end(&console, "stopped");
    assert!(links_of(&stack, &id) < 9_990);
    browser.assert_accessible();
    // From here on it may be faster. Then the service dies.
    let key = format!("/v1/keys/{}", text(&made, "id"));
    let faster = json!({"rateLimit": {"requestsPerSecond": 500, "burst": 1_000}});
    assert_eq!(api(port, &admin, "PATCH", &key, Some(&faster)).status, 200);
    browser.click("[data-again]");
    until("it goes on", LONG, || done() > 2_000);
    stack.sidecar.kill();
    eventually("the page reports it", LONG, || {
        let ended = ["[data-ended=broken]", "[data-again]"];
        ended.iter().all(|it| browser.has(it)).then_some(())
    });
    stack.sidecar.start_again();
    browser.click("[data-again]");
    until("it goes on", LONG, || done() > 4_000);
    // Then the page is left.
    browser.open("/console/links");
    browser.text_with("h1", "Links");
    console.open(&page, "Campaign Spring");
    browser.text_with("main", "not finished");
    choose(&console, &path);
    browser.text_with("main", "This file was uploaded before.");
    browser.click("[data-send]");
    wait_for_end(&console, "done");
    browser.text_with("[data-ended]", "Rows: 9,990 created, 10 failed");
    assert_eq!(links_of(&stack, &id), 9_990);
    let results = console.download("[data-file=results]", "slow-results.csv");
    let codes: BTreeSet<&str> = results
        .lines()
        .filter_map(|it| it.split(',').nth(5))
        .collect();
    assert!(codes.len() >= 9_990, "{}", codes.len());
    // A request beyond the rate limit of the key, which rows have used up, gets 429.
    browser.assert_sound(&["ERR_", "status of 50", "status of 429"]);
}

#[test]
fn files_for_links_of_their_own_are_read_as_they_come() {
    let stack = Stack::start();
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    let write = |name: &str, bytes: &[u8]| {
        let path = stack.directory().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    };
    console.open("/console/new", "New link");
    browser.click("main p a");
    browser.text_with("h1", "Create links from a file");
    browser.assert_accessible();
    // Only by keyboard: the field takes the focus, and so does the next element.
    let focus = "document.querySelector('#upload-file').focus(); \
                 return document.activeElement.id";
    assert_eq!(browser.run(focus, &[]), json!("upload-file"));
    console.choose("#upload-file", &write("empty.csv", b"url\n"));
    browser.text_with("[role=alert]", "no rows below the first line");
    let latin = write("latin.csv", b"url;tags\nhttps://example.com/a;caf\xe9\n");
    console.choose("#upload-file", &latin);
    browser.text_with("[role=alert]", "The file is not in UTF-8");
    browser.assert_accessible();
    console.open("/console/new/file", "Create links from a file");
    let text = "Ziel;tags;note\nhttps://example.com/a;x|y;\"two\nlines; \"\"said\"\"\"\n\n\
                nonsense;;\nhttps://example.com/c;;";
    console.choose("#upload-file", &write("own.csv", text.as_bytes()));
    browser.text_with("main", "Choose a column for: Target");
    assert!(browser.has("[data-send][disabled]"));
    let choose = "const field = document.querySelector('[data-column=Ziel]'); \
                  field.value = 'longUrl'; field.dispatchEvent(new Event('change'));";
    browser.run(choose, &[]);
    browser.text_with("main", "Target of the first row: https://example.com/a");
    browser.click("[data-send]:not([disabled])");
    wait_for_end(&console, "done");
    browser.text_with("[data-ended]", "Rows: 2 created, 1 failed, 3 in total");
    browser.text_with("[data-errors]", "5");
    let list = stack.api("GET", "/v1/links", None).json();
    let links = list["links"].as_array().expect("links");
    let first = links
        .iter()
        .find(|link| link["longUrl"] == "https://example.com/a");
    let first = first.expect("the first link");
    assert_eq!(first["tags"], json!(["x", "y"]));
    assert_eq!(first["note"], "two\nlines; \"said\"");
    let results = console.download("[data-file=results]", "own-results.csv");
    assert!(
        results.contains("\"two\nlines; \"\"said\"\"\";"),
        "{results}"
    );
    browser.click("[data-other]");
    // The meaning of its columns is known when it is chosen again, under any name.
    console.choose("#upload-file", &write("again.csv", text.as_bytes()));
    browser.text_with(
        "main",
        "This file was uploaded before. Sending it again creates no duplicates",
    );
    let tags = choose
        .replace("Ziel", "tags")
        .replace("longUrl", "externalId");
    browser.run(&tags, &[]);
    browser.text_with("main", "This file was uploaded before with other columns.");
    browser.assert_accessible();
    browser.click("[data-other], main .row button:not(.main)");
    // The first sheet of a workbook; its column of URLs is recognised, and named in errors.
    let workbook = shortlink_tests::workspace().join("tests/data/links.xlsx");
    console.choose("#upload-file", &workbook);
    browser.text_with(
        "main",
        "Target of the first row: https://www.example.com/a?x=1&y=2",
    );
    browser.click("[data-send]:not([disabled])");
    wait_for_end(&console, "done");
    browser.text_with("[data-ended]", "Rows: 3 created, 1 failed, 4 in total");
    let errors = browser.text_with("[data-errors]", "Landing page ");
    // The number of the row in the sheet, which has an empty one.
    assert!(errors.contains('6'), "{errors}");
    let list = stack.api("GET", "/v1/links?externalId=13800138000", None);
    assert_eq!(list.json()["links"][0]["note"], "José, \"J\"");
    browser.click("[data-other]");
    // As Chinese and Western editions of spreadsheets write them.
    let target = |note: &str| {
        let list = stack.api("GET", "/v1/links", None).json();
        let links = list["links"].as_array().expect("links").clone();
        let link = links.into_iter().find(|link| link["note"] == note);
        link.map(|link| link["longUrl"].clone())
    };
    let gbk = b"\xcd\xf8\xd6\xb7,note\nhttps://example.com/gbk,\xc0\xee\n";
    let utf16 = |text: &str| -> Vec<u8> {
        let units = text.encode_utf16().flat_map(u16::to_le_bytes);
        [0xff, 0xfe].into_iter().chain(units).collect()
    };
    for (name, bytes, encoding, note) in [
        ("gbk.csv", gbk.to_vec(), "gb18030", "李"),
        (
            "utf16.csv",
            utf16("url\tnote\r\nhttps://example.com/utf16\tJosé\r\n"),
            "utf-16le",
            "José",
        ),
    ] {
        console.choose("#upload-file", &write(name, &bytes));
        browser.text_with("main", &format!("The file was read as {encoding}."));
        browser.click("[data-send]:not([disabled])");
        wait_for_end(&console, "done");
        let path = name.trim_end_matches(".csv");
        assert_eq!(
            target(note),
            Some(json!(format!("https://example.com/{path}")))
        );
        browser.click("[data-other]");
    }
    // The file is sent in parts, and the fault is in the last one.
    let rows = format!("https://example.com/{}\n", "x".repeat(180)).repeat(1_000);
    let open = format!("url\n{rows}\n\"https://example.com/open\n");
    console.choose("#upload-file", &write("open.csv", open.as_bytes()));
    browser.click("[data-send]:not([disabled])");
    wait_for_end(&console, "done");
    browser.text_with(
        "[data-ended]",
        "Rows: 1,000 created, 1 failed, 1,001 in total",
    );
    browser.text_with("[data-errors]", "1,003");
    browser.text_with("[data-errors]", "from line 1003 to the end");
    browser.click("[data-other]");
    // A quotation mark of the first row that is closed much later: the rows in between are refused as one, and no result
    // is mistaken for that of another row.
    let rows = format!("https://example.com/{},x\n", "x".repeat(180)).repeat(1_000);
    let open = format!(
        "url,note\nhttps://example.com/open,\"Bob\n{rows}https://example.com/closed,\"\n\nnonsense,\n\
         https://example.com/good,\"two\nlines\"\n"
    );
    console.choose("#upload-file", &write("swallowing.csv", open.as_bytes()));
    browser.text_with("main", "Target of the first row: https://example.com/open");
    browser.click("[data-send]:not([disabled])");
    wait_for_end(&console, "done");
    browser.text_with("[data-ended]", "Rows: 1 created, 2 failed, 3 in total");
    browser.text_with("[data-errors]", "spans 1002 lines from line 2 on");
    browser.text_with("[data-errors]", "1,005");
    let results = console.download("[data-file=results]", "swallowing-results.csv");
    let good = "https://example.com/good,\"two\nlines\",http";
    assert!(
        results.contains(good) && results.len() < 10_000,
        "{results}"
    );
    browser.click("[data-other]");
    browser.find("#upload-file");
    browser.assert_sound(&[]);
}

#[test]
fn pages_of_campaigns_speak_chinese_and_fit_a_phone() {
    let stack = Stack::start();
    let id = campaign(&stack);
    let member = json!({"campaignId": id, "parameters": {"member": "长".repeat(40)}});
    stack.create(&member);
    let looks = Looks::phone("zh-CN");
    let console = Console::enter(&stack, &stack.sidecar.key, looks);
    let browser = &console.browser;
    for (path, heading) in [
        ("/console/campaigns-new".to_owned(), "新建活动"),
        (format!("/console/campaigns/{id}"), "活动 Spring"),
        (format!("/console/campaigns/{id}/change"), "更改活动"),
        ("/console/new/file".to_owned(), "从文件创建短链接"),
    ] {
        console.open(&path, heading);
        browser.assert_fits();
        browser.assert_accessible();
    }
    console.open(&format!("/console/campaigns/{id}"), "活动 Spring");
    choose(&console, &file(&stack, "phone.csv", 40));
    browser.assert_fits();
    browser.assert_accessible();
    browser.click("[data-send]");
    wait_for_end(&console, "done");
    browser.text_with("[data-ended]", "行：成功 39，失败 1，共 40");
    browser.assert_fits();
    browser.assert_accessible();
    browser.assert_sound(&[]);
}

#[test]
fn who_may_not_make_links_is_told_so() {
    let stack = Stack::start();
    let id = campaign(&stack);
    let key = stack.sidecar.make_key(&["campaigns:read"]);
    let console = Console::enter(&stack, &key, Looks::default());
    let browser = &console.browser;
    console.open(&format!("/console/campaigns/{id}"), "Campaign Spring");
    assert!(!browser.has("#upload-file") && !browser.has("[data-act]"));
    console.open("/console/campaigns-new", "New campaign");
    browser.text_with(
        "main",
        "This needs the permission to create, change and revoke campaigns (campaigns:write).",
    );
    console.open("/console/new/file", "Create links from a file");
    browser.text_with(
        "main",
        "This needs the permission to create, change and revoke links (links:write).",
    );
    browser.assert_accessible();
    assert_eq!(
        Value::Null,
        browser.run("return document.querySelector('form')", &[])
    );
    browser.assert_sound(&[]);
}
