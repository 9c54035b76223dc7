//! The console's statistics of visits, held against the taps that went through nginx.

use std::fs;

use serde_json::{Value, json};
use shortlink_tests::browser::{Browser, Looks, downloaded};
use shortlink_tests::http;
use shortlink_tests::past;
use shortlink_tests::places;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{SOON, until};
use tempfile::TempDir;

use super::console::{browser, open, sign_in};

pub(super) const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 \
    (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1";
pub(super) const DESKTOP: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 \
    (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36";
pub(super) const PREVIEW: &str = "WhatsApp/2.23.20.0 A";

/// The keys for End and for the arrow to the left.
const END: char = '\u{e010}';
const LEFT: char = '\u{e012}';

/// A stack with two domains that knows places, and its taps.
pub(super) struct Scene {
    pub(super) stack: Stack,
    campaign: String,
    _places: TempDir,
}

impl Scene {
    pub(super) fn start() -> Self {
        let directory = directory();
        let file = directory.path().join("places.mmdb");
        places::write(&file, "AT");
        let stack = Stack::with(&StackOptions {
            sidecar: format!("[visits]\ngeo_database = \"{}\"\n", file.display()),
            ..StackOptions::default()
        });
        let table = "shortlink_domains {\n s1.example.com active scheme=http;\n \
                     s2.example.com serving;\n}\n";
        fs::write(stack.nginx.file("domains.conf"), table).expect("domains.conf");
        stack.nginx.reload();
        let body = json!({"name": "Spring", "longUrl": "https://example.com/?m={member}"});
        let made = stack.api("POST", "/v1/campaigns", Some(&body));
        Self {
            campaign: text(&made.json(), "id"),
            stack,
            _places: directory,
        }
    }

    pub(super) fn tap(&self, code: &str, host: &str, user_agent: &str, times: usize) {
        for _ in 0..times {
            let headers = [("Host", host), ("User-Agent", user_agent)];
            let path = format!("/{code}");
            let answer = http::send(self.stack.nginx.public_port, "GET", &path, &headers);
            assert_eq!(answer.status, 302);
        }
    }

    /// Ten taps of a link, and three of a campaign's.
    pub(super) fn with_taps() -> Self {
        let scene = Self::start();
        let stack = &scene.stack;
        stack.create(&json!({"longUrl": "https://example.com/", "customSlug": "plain"}));
        stack.create(&json!({
            "campaignId": scene.campaign, "customSlug": "member", "parameters": {"member": "7"},
        }));
        scene.tap("plain", "s1.example.com", PHONE, 5);
        scene.tap("plain", "s2.example.com", DESKTOP, 3);
        scene.tap("plain", "s1.example.com", PREVIEW, 2);
        scene.tap("member", "s2.example.com", PHONE, 3);
        until("all visits are stored", SOON, || {
            let stats = stack.api("GET", "/v1/stats", None).json();
            stats["visits"]["total"] == json!(13)
        });
        scene
    }
}

/// Waits until what was chosen is shown.
fn shown(browser: &Browser) {
    until("the statistics are there", SOON, || {
        browser.has(".statistics .figures") && !browser.has("[aria-busy]")
    });
}

fn choose_split(browser: &Browser, split: &str) {
    browser.choose("#s-by", split);
    shown(browser);
}

/// Returns the legend: names and numbers of visits.
fn legend(browser: &Browser) -> Value {
    let script = "return [...document.querySelectorAll('.statistics .legend tbody tr')].map((row) => \
                  [row.cells[0].textContent, row.cells[1].textContent])";
    browser.run(script, &[])
}

/// The sums of the columns of the table with the chart's numbers, by their names.
fn sums(browser: &Browser) -> Value {
    let script = "const table = document.querySelector('[data-numbers]'); \
        return [...table.tHead.rows[0].cells].slice(1).map((head, column) => [head.textContent, \
        [...table.tBodies[0].rows].reduce((sum, row) => \
        sum + Number(row.cells[column + 1].textContent), 0)])";
    browser.run(script, &[])
}

fn figure(browser: &Browser, name: &str) -> Value {
    let script = "return document.querySelector(arguments[0]).textContent";
    browser.run(script, &[json!(format!("[data-figure={name}] dd"))])
}

#[test]
fn a_chart_tells_when_visits_were_and_what_they_have_in_common() {
    let scene = Scene::with_taps();
    let stack = &scene.stack;
    let browser = browser(stack, Looks::default());
    open(&browser, "/console/statistics", "Sign in");
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "Statistics");
    shown(&browser);
    assert_eq!(figure(&browser, "total"), json!("13"));
    assert_eq!(figure(&browser, "human"), json!("11"));
    assert_eq!(figure(&browser, "machines"), json!("2"));
    assert_eq!(figure(&browser, "refused"), json!("0"));
    // One on a phone and one at a desk.
    assert_eq!(figure(&browser, "visitors"), json!("2"));
    assert_eq!(
        legend(&browser),
        json!([["Person", "11"], ["Preview", "2"]])
    );
    browser.click("[data-table]");
    assert_eq!(
        sums(&browser),
        json!([["Person", 11], ["Preview", 2], ["All", 13]])
    );
    browser.assert_accessible();

    for (split, expected) in [
        (
            "domain",
            json!([["s1.example.com", 7], ["s2.example.com", 6], ["All", 13]]),
        ),
        ("country", json!([["Austria", 13], ["All", 13]])),
        (
            "device",
            json!([["Phone", 8], ["Desktop", 3], ["Other", 2], ["All", 13]]),
        ),
    ] {
        choose_split(&browser, split);
        browser.click("[data-table]");
        assert_eq!(sums(&browser), expected, "{split}");
    }
    // The address holds the choice, and restores it.
    assert_eq!(browser.path(), "/console/statistics?by=device");
    browser.choose("#s-range", "365");
    shown(&browser);
    assert!(browser.has("#s-step option[value=hour][disabled]"));
    browser.assert_accessible();
    open(&browser, "/console/links/plain?by=domain", "Link plain");
    shown(&browser);
    let both = json!([["s1.example.com", "7"], ["s2.example.com", "3"]]);
    assert_eq!(legend(&browser), both);
    let page = format!("/console/campaigns/{}", scene.campaign);
    open(&browser, &page, "Campaign Spring");
    shown(&browser);
    assert_eq!(legend(&browser), json!([["Person", "3"]]));
    browser.assert_accessible();

    // The period that was counted, and no visitors for a part of a day.
    let stats = stack.api("GET", "/v1/stats?interval=day", None).json();
    let day = text(&stats["intervals"][0], "begin").replace("T00:00:00Z", "");
    let page = format!("/console/statistics?range=other&since={day}T01:20Z&until={day}T23:40Z");
    open(&browser, &page, "Statistics");
    shown(&browser);
    let script =
        "return [...document.querySelectorAll('[data-period] time')].map((it) => it.dateTime)";
    assert_eq!(
        browser.run(script, &[]),
        json!([format!("{day}T01:00:00Z"), format!("{day}T23:00:00Z")])
    );
    assert_eq!(figure(&browser, "visitors"), json!("–"));
    browser.text_with("[data-figure=visitors]", "contains only a part");
    browser.assert_accessible();
    browser.assert_sound(&[]);
}

#[test]
fn a_chart_is_read_by_keyboard_kept_as_a_file_and_may_be_empty() {
    let scene = Scene::with_taps();
    let stack = &scene.stack;
    let browser = browser(stack, Looks::default());
    open(&browser, "/console/statistics?by=domain&range=1", "Sign in");
    sign_in(&browser, &stack.sidecar.key);
    shown(&browser);
    browser.click("[data-table]");
    let script = "const rows = [...document.querySelectorAll('[data-begin]')]; \
                  return [rows.length, rows.findIndex((row) => row.dataset.begin === arguments[0])]";
    let stats = stack.api("GET", "/v1/stats?interval=hour", None).json();
    let hour = &stats["intervals"][0];
    let begin = text(hour, "begin").replace('Z', ".000Z");
    let [rows, place] = [0, 1].map(|at| browser.run(script, &[json!(begin)])[at].as_i64());
    let back = rows.expect("rows") - 1 - place.expect("a place");
    let keys: String = std::iter::once(END)
        .chain((0..back).map(|_| LEFT))
        .collect();
    browser.press(".plot", &keys);
    let said = "return document.querySelector('.plot').getAttribute('aria-valuetext')";
    let told = browser.run(said, &[]);
    let expected = format!("{} visits", hour["total"]);
    assert!(told.as_str().expect("text").contains(&expected), "{told}");
    assert!(browser.has(".tip:not([hidden])"));
    browser.text_with(".tip", "s1.example.com");
    browser.assert_accessible();
    browser.press(".plot", &LEFT.to_string());
    let told = browser.run(said, &[]);
    assert!(
        told.as_str().expect("text").ends_with(": 0 visits"),
        "{told}"
    );

    let downloads = directory();
    browser.keep_downloads_in(downloads.path());
    browser.click("[data-csv]");
    let kept = downloaded(&downloads.path().join("visits.csv"));
    let mut lines = kept.lines();
    assert_eq!(
        lines.next(),
        Some("\u{feff}When,s1.example.com,s2.example.com,All")
    );
    let total = |line: &str| {
        line.rsplit(',')
            .next()
            .and_then(|it| it.parse::<u64>().ok())
    };
    assert_eq!(lines.filter_map(total).sum::<u64>(), 13);

    // A time of one's own, in which there was nothing.
    browser.choose("#s-range", "other");
    shown(&browser);
    browser.choose("#s-until", "2026-01-08T00:00");
    browser.text_with("[role=alert]", "since must be before until");
    browser.choose("#s-since", "2026-01-01T00:00");
    browser.find("[data-empty]");
    browser.assert_accessible();
    browser.assert_sound(&["status of 400"]);
}

#[test]
fn the_first_hours_of_a_campaign_are_shown_by_the_minute() {
    let scene = Scene::with_taps();
    let stack = &scene.stack;
    let browser = browser(stack, Looks::default());
    let page = format!("/console/campaigns/{}", scene.campaign);
    open(&browser, &page, "Sign in");
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "Campaign Spring");
    shown(&browser);
    let choice = |name: &str| {
        let script = "return document.querySelector(arguments[0]).value";
        browser.run(script, &[json!(format!("#s-{name}"))])
    };
    assert_eq!(["range", "step"].map(choice), ["1", "minute"]);
    browser.click("[data-table]");
    assert_eq!(sums(&browser), json!([["Person", 3], ["All", 3]]));
    // Half an hour up to now, of which the API has the minutes with visits.
    let rows = "return [...document.querySelectorAll('[data-numbers] tbody tr')].map((row) => \
                [row.dataset.begin.replace('.000', ''), Number(row.cells[row.cells.length - 1].textContent)])";
    let rows = browser.run(rows, &[]);
    let rows = rows.as_array().expect("rows");
    assert!((30..=33).contains(&rows.len()), "{}", rows.len());
    let path = format!("/v1/campaigns/{}/stats?interval=minute", scene.campaign);
    let stats = stack.api("GET", &path, None).json();
    let intervals = stats["intervals"].as_array().expect("intervals");
    let visited: Vec<Value> = intervals
        .iter()
        .map(|it| json!([it["begin"], it["total"]]))
        .collect();
    let is_visited = |row: &&Value| row[1] != json!(0);
    assert_eq!(
        rows.iter().filter(is_visited).cloned().collect::<Vec<_>>(),
        visited
    );
    // The axis has times of the person's zone, and the keyboard reaches each minute.
    let ticks = "const time = new Intl.DateTimeFormat('en', { hour: 'numeric', minute: '2-digit' }); \
        const times = new Set([...document.querySelectorAll('[data-begin]')].map((row) => \
        time.format(new Date(row.dataset.begin)))); \
        const texts = [...document.querySelectorAll('.statistics .plot svg text')].map((it) => it.textContent); \
        const ticks = texts.filter((text) => text.includes(':')); \
        return [ticks.length, ticks.every((text) => times.has(text))]";
    let ticks = browser.run(ticks, &[]);
    assert!(
        ticks[0].as_u64() >= Some(2) && ticks[1] == json!(true),
        "{ticks}"
    );
    let begin = &visited[0][0];
    let place = rows.iter().position(|row| row[0] == *begin);
    let back = rows.len() - 1 - place.expect("a minute with visits");
    let keys: String = std::iter::once(END)
        .chain((0..back).map(|_| LEFT))
        .collect();
    browser.press(".statistics .plot", &keys);
    let said = "return document.querySelector('.statistics .plot').getAttribute('aria-valuetext')";
    let said = browser.run(said, &[]);
    let expected = format!("{} visit", visited[0][1]);
    assert!(said.as_str().expect("text").contains(&expected), "{said}");
    browser.assert_accessible();

    // Values are counted by the hour; minutes are those of today.
    choose_split(&browser, "country");
    assert_eq!(["range", "step"].map(choice), ["1", "hour"]);
    for page in ["/console/links/plain?by=country", "/console/statistics"] {
        open(&browser, page, "");
        shown(&browser);
        browser.choose("#s-step", "minute");
        shown(&browser);
        let choices = ["range", "step", "by"].map(choice);
        assert_eq!(choices, ["today", "minute", "class"], "{page}");
        browser.assert_accessible();
    }
    browser.assert_sound(&[]);
}

#[test]
fn statistics_speak_chinese_and_fit_a_phone() {
    let scene = Scene::with_taps();
    let stack = &scene.stack;
    let looks = Looks::phone("zh-CN");
    let browser = browser(stack, looks);
    open(&browser, "/console/statistics?by=device", "登录");
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "统计");
    shown(&browser);
    let devices = json!([["手机", "8"], ["电脑", "3"], ["其他", "2"]]);
    assert_eq!(legend(&browser), devices);
    browser.click("[data-table]");
    browser.find("[data-numbers]");
    browser.assert_fits();
    browser.assert_accessible();
    browser.choose("#s-step", "minute");
    shown(&browser);
    browser.text_with("#s-step option:checked", "分钟");
    browser.assert_fits();
    browser.assert_accessible();
    choose_split(&browser, "country");
    assert_eq!(legend(&browser), json!([["奥地利", "13"]]));
    browser.click("[data-menu]");
    browser.click("[data-language=en]");
    browser.text_with("h1", "Statistics");
    shown(&browser);
    assert_eq!(legend(&browser), json!([["Austria", "13"]]));
    open(&browser, "/console/links/plain", "Link plain");
    shown(&browser);
    browser.assert_fits();
    browser.assert_sound(&[]);
}

#[test]
fn domains_are_shown_as_each_nginx_has_them_and_a_fall_is_told() {
    let scene = Scene::with_taps();
    let stack = &scene.stack;
    let browser = browser(stack, Looks::default());
    open(&browser, "/console/domains", "Sign in");
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "Domains");
    let row = |domain: &str| format!("[data-domain='{domain}']");
    // The first request of the page has reported the domains; they are stored a moment later.
    until("nginx is heard", SOON, || {
        browser.open("/console/domains");
        browser.text_with("h1", "");
        browser.has("[data-node]")
    });
    let said = browser.text_with(&row("s1.example.com"), "Active");
    assert!(
        said.contains("http://s1.example.com") && said.contains('7'),
        "{said}"
    );
    let said = browser.text_with(&row("s2.example.com"), "Serving");
    assert!(said.contains('6'), "{said}");
    assert!(browser.has(&format!("{} .bars rect", row("s1.example.com"))));
    assert!(!browser.has("[data-fell]"));
    browser.assert_accessible();

    // Another nginx has a table of its own.
    let headers = [
        ("X-Shortlink-Node", "edge2"),
        ("X-Shortlink-Base", "https://s2.example.com weight=3"),
        ("X-Shortlink-Domains", "s2.example.com,s1.example.com"),
        ("X-Shortlink-States", "ar"),
        ("X-Api-Key", &*stack.sidecar.key),
    ];
    let direct = http::send(stack.sidecar.port, "GET", "/v1/domains", &headers);
    assert_eq!(direct.status, 200);
    // The page looks again by itself.
    until("both nodes are shown", SOON, || {
        browser.has("[data-node=edge2]")
    });
    let said = browser.text_with(&row("s1.example.com"), "edge2");
    assert!(said.contains("Retired"), "{said}");
    browser.text_with(&row("s2.example.com"), "weight 3");

    past::fill_minutes(&Sql::of(stack, None), "s1.example.com", 120, 8);
    open(&browser, "/console/domains", "Domains");
    browser.text_with(
        "[data-fell]",
        "s1.example.com fell from 122 to 1 visits per minute at",
    );
    browser.text_with("[data-fell]", "domains.conf");
    browser.assert_accessible();
    let line = format!("{} .fell", row("s1.example.com"));
    assert!(browser.has(&line));
    browser.assert_sound(&[]);
}
