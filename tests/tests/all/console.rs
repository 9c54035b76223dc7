//! The console, as users see it: in a browser, through nginx' internal server.

use serde_json::json;
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::console::{copy, made};
use shortlink_tests::http::{self, Connection};
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::wait::{SOON, until};

pub(super) fn browser(stack: &Stack, looks: Looks) -> Browser {
    let directory = stack.directory().join(format!("browser-{}", ports::free()));
    Browser::start(&directory, stack.nginx.internal_port, looks)
}

pub(super) fn sign_in(browser: &Browser, key: &str) {
    browser.fill("#key", key);
    browser.click("form .main");
}

/// Opens a page and waits for its heading.
pub(super) fn open(browser: &Browser, path: &str, heading: &str) {
    browser.open(path);
    browser.text_with("h1", heading);
}

/// Clicks on what can be done with a link, and agrees or not.
fn act(browser: &Browser, what: &str, agrees: bool) {
    browser.click(&format!("[data-act={what}]"));
    browser.find("dialog[open]");
    browser.assert_accessible();
    let answer = if agrees {
        "[data-yes]"
    } else {
        ":not([data-yes])"
    };
    browser.click(&format!("dialog button{answer}"));
    until("the dialog is gone", SOON, || !browser.has("dialog"));
}

#[test]
fn nginx_stores_nothing_for_strangers_and_knows_its_names() {
    let stack = Stack::start();
    let port = stack.nginx.internal_port;
    let begin = |length: &str, headers: &[(&str, &str)]| {
        let mut connection = Connection::open(port).expect("nginx listens");
        let length = [("Content-Length", length), ("Content-Type", "text/csv")];
        let headers = [&length[..], headers].concat();
        let head = http::request("POST", "/console/batch", &headers, b"");
        connection.send(&head).expect("a connection");
        connection.send(b"longUrl\n").expect("a connection");
        connection
    };
    // The answer comes before the body, of which there is no more.
    for (length, key, status) in [
        ("4000000", "", 401),
        ("4000000", "slk_wrong", 401),
        ("9000000", &*stack.sidecar.key, 413),
    ] {
        let mut connection = begin(length, &[("X-Api-Key", key)]);
        let answer = connection.receive("POST").expect("an answer");
        assert_eq!(answer.expect("an answer").status, status, "{length} {key}");
    }
    let rows = b"longUrl\nhttps://example.com/\n";
    let headers = [
        ("X-Api-Key", &*stack.sidecar.key),
        ("Content-Type", "text/csv"),
    ];
    let whole = http::request("POST", "/console/batch", &headers, rows);
    let answer = http::try_send(port, "POST", &whole).expect("an answer");
    assert_eq!(answer.status, 200);

    for (host, status) in [
        ("localhost:8081", 200),
        ("127.0.0.1", 200),
        ("10.0.0.7:8081", 200),
        ("[::1]:8081", 200),
        ("edge1.internal", 200),
        ("nginx", 200),
        ("rebound.example.com", 421),
        ("127.0.0.1.nip.example", 421),
    ] {
        for path in ["/edge/metrics", "/metrics", "/console"] {
            let answer = http::send(port, "GET", path, &[("Host", host)]);
            assert_eq!(answer.status, status, "{host}{path}");
        }
    }
}

#[test]
fn people_make_follow_find_change_pause_and_revoke_links() {
    let stack = Stack::start();
    let browser = browser(&stack, Looks::default());
    open(&browser, "/console", "Sign in");
    browser.assert_accessible();
    browser.assert_sound(&[]);
    sign_in(&browser, "slk_wrong");
    browser.text_with("[role=alert]", "This key is not valid");
    browser.assert_accessible();
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "Overview");
    browser.text_with("[data-card='overview.links']", "Create your first link");
    browser.assert_accessible();
    browser.assert_sound(&["status of 401"]);
    open(&browser, "/console", "Overview");
    assert_loads_little(&browser);
    // The page stays where it is, whichever entry of the navigation is current.
    let place = || {
        let script = "const { left, top } = document.querySelector('main').getBoundingClientRect(); \
                      return [left, top]";
        browser.run(script, &[])
    };
    let first = place();
    for (path, heading) in [
        ("/console/campaigns", "Campaigns"),
        ("/console/keys", "API keys"),
    ] {
        open(&browser, path, heading);
        assert_eq!(place(), first, "{path}");
    }

    browser.click(".top a[href='/console/new']");
    browser.text_with("h1", "New link");
    browser.assert_accessible();
    browser.fill("#f-longUrl", "nonsense");
    browser.click("form .main");
    browser.text_with("#w-longUrl", "Target");
    let focused = browser.run("return document.activeElement.id", &[]);
    assert_eq!(focused, json!("f-longUrl"));
    browser.assert_accessible();
    browser.fill("#f-longUrl", "https://www.example.com/spring?m=1");
    browser.fill("#f-tags", "spring, sms");
    browser.click("form .main");
    let code = made(&browser);
    let copied = browser.run(
        "return document.querySelector('[data-copy]').dataset.copy",
        &[],
    );
    assert!(copied.as_str().is_some_and(|url| url.ends_with(&code)));
    until("the QR code is drawn", SOON, || {
        let script = "return document.querySelector('.qr').naturalWidth > 0";
        browser.run(script, &[]) == json!(true)
    });
    copy(&browser);
    browser.assert_accessible();
    assert_eq!(stack.follow(&code).status, 302);

    stack.create(&json!({"longUrl": "https://example.com/", "customSlug": "other", "tags": ["x"]}));
    open(&browser, "/console", "Overview");
    browser.find(&format!(
        "[data-card='overview.links'] [data-code='{code}']"
    ));
    browser.assert_accessible();
    open(&browser, "/console/links", "Links");
    let row = format!("[data-code='{code}']");
    assert!(browser.has(&row) && browser.has("[data-code=other]"));
    browser.assert_accessible();
    browser.click("main summary");
    browser.fill("#by-tag", "spring");
    browser.click(".filters button");
    until("the other link is filtered out", SOON, || {
        browser.has(&row) && !browser.has("[data-code=other]")
    });
    assert_eq!(browser.path(), "/console/links?tag=spring");
    browser.assert_accessible();
    for (text, found) in [
        ("sms", "[data-found=tag]"),
        (
            &*format!("https://s.example.com/{code}?utm=1"),
            "[data-found=shortCode]",
        ),
        ("example.com/spr", "[data-found=longUrl]"),
    ] {
        browser.fill("[name=look]", text);
        browser.click("[role=search] button");
        browser.text_with("h1", &format!("Search: {text}"));
        assert!(browser.has(&format!("{found} {row}")), "{text}");
    }
    browser.assert_accessible();
    browser.fill("[name=look]", "https://www.example.com/autumn");
    browser.click("[role=search] button");
    browser.text_with("main", "No link or campaign found.");
    browser.click("main a");
    browser.find("[data-rule=unknown]");
    browser.run("history.go(-2)", &[]);
    browser.click(&format!("{row} a"));
    browser.text_with("h1", &format!("Link {code}"));
    browser.click("[data-engineers] summary");
    browser.find("[data-rule=live][data-agreement=same]");
    browser.text_with(
        "[data-rule]",
        "1 302 1 0 https://www.example.com/spring?m=1",
    );
    browser.assert_accessible();

    act(&browser, "pause", false);
    assert!(browser.has("[data-rule=live]"));
    act(&browser, "pause", true);
    browser.find("[data-rule=paused]");
    until("the edge knows", SOON, || stack.follow(&code).status == 410);
    act(&browser, "resume", true);
    browser.find("[data-rule=live]");
    browser.click("[data-act=change]");
    browser.text_with("h1", "Change link");
    browser.assert_accessible();
    browser.fill("#f-longUrl", "https://www.example.com/summer");
    browser.click("form .main");
    browser.click("[data-engineers] summary");
    browser.text_with("[data-rule]", "https://www.example.com/summer");
    browser.text_with(".steps", "https://www.example.com/spring?m=1");
    until("the edge knows", SOON, || {
        stack.follow(&code).location() == Some("https://www.example.com/summer")
    });
    act(&browser, "revoke", true);
    browser.find("[data-rule=revoked]");
    assert!(!browser.has("[data-act]"));
    until("the edge knows", SOON, || stack.follow(&code).status == 410);
    browser.assert_accessible();

    open(&browser, "/console/links/nosuch", "No link nosuch");
    browser.find("[data-rule=unknown]");
    browser.assert_accessible();
    open(&browser, "/console/elsewhere", "Page not found");
    browser.click("[data-leave]");
    browser.text_with("h1", "Sign in");
    open(&browser, "/console/links", "Sign in");
    browser.assert_sound(&["status of 422", "status of 404", "status of 409"]);
}

/// Checks that few bytes are read for the first page of a session; the other pages are read later.
fn assert_loads_little(browser: &Browser) {
    let script = "const [{ startTime: shown }] = performance.getEntriesByName('first-page'); \
                  return performance.getEntries().filter((it) => it.encodedBodySize && it.startTime < shown) \
                  .reduce((sum, it) => sum + it.encodedBodySize, 0)";
    let bytes = browser.run(script, &[]).as_u64().expect("a number");
    assert!((20_000..60_000).contains(&bytes), "{bytes} bytes");
}

#[test]
fn links_are_shown_a_page_at_a_time() {
    let stack = Stack::start();
    for number in 0..30 {
        stack.create(&json!({
            "longUrl": "https://example.com/", "customSlug": format!("code{number}"),
        }));
    }
    let browser = browser(&stack, Looks::default());
    open(&browser, "/console/links", "Sign in");
    sign_in(&browser, &stack.sidecar.key);
    browser.find("[data-code=code29]");
    let rows = || {
        let script = "return document.querySelectorAll('[data-code]').length";
        browser.run(script, &[])
    };
    assert_eq!(rows(), json!(25));
    browser.click("a[rel=next]");
    browser.find("[data-code=code0]");
    assert_eq!(rows(), json!(5));
    assert!(!browser.has("a[rel=next]"));
    browser.run("history.back()", &[]);
    browser.find("[data-code=code29]");
    browser.assert_sound(&[]);
}

#[test]
fn campaigns_are_found_paused_and_revoked_with_all_their_links() {
    let stack = Stack::start();
    let body = json!({"name": "Spring", "longUrl": "https://example.com/?m={member}"});
    let made = stack.api("POST", "/v1/campaigns", Some(&body));
    assert_eq!(made.status, 201);
    let id = text(&made.json(), "id");
    stack.create(&json!({
        "campaignId": id, "customSlug": "member", "parameters": {"member": "7"},
    }));
    let browser = browser(&stack, Looks::default());
    open(&browser, "/console/campaigns", "Sign in");
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "Campaigns");
    browser.assert_accessible();
    browser.click(&format!("[data-campaign='{id}'] a"));
    browser.text_with("h1", "Campaign Spring");
    browser.text_with("main", "https://example.com/?m={member}");
    browser.text_with("main", "No visits in this period");
    browser.assert_accessible();
    assert_eq!(stack.follow("member").status, 302);
    act(&browser, "pause", true);
    browser.find("[data-state=paused]");
    until("the edge knows", SOON, || {
        stack.follow("member").status == 410
    });
    open(&browser, "/console/links/member", "Link member");
    browser.find("[data-rule=campaign-paused][data-agreement=same]");
    browser.click(&format!("a[href='/console/campaigns/{id}']"));
    act(&browser, "resume", true);
    until("the edge knows", SOON, || {
        stack.follow("member").status == 302
    });
    // The page as it is after that.
    browser.find("[data-act=pause]");
    browser.click("main section a");
    browser.find("[data-code=member]");
    open(
        &browser,
        &format!("/console/campaigns/{id}"),
        "Campaign Spring",
    );
    act(&browser, "revoke", true);
    browser.find("[data-state=revoked]");
    assert!(!browser.has("[data-act]"));
    browser.assert_sound(&[]);
}

#[test]
fn how_the_service_is_shows() {
    let mut stack = Stack::start();
    let code = stack.link("https://example.com/");
    let browser = browser(&stack, Looks::default());
    open(&browser, "/console/service", "Sign in");
    sign_in(&browser, &stack.sidecar.key);
    browser.find("[data-health=ready]");
    browser.assert_accessible();
    open(&browser, "/console", "Overview");
    assert!(!browser.has("[data-concern]"));
    stack.redis.kill();
    open(&browser, "/console", "Overview");
    browser.click("[data-concern=redis] a");
    browser.find("[data-health=degraded]");
    browser.assert_accessible();
    // The page shows the data of SQL without Redis too.
    open(&browser, &format!("/console/links/{code}"), &code);
    browser.find("[data-rule=live][data-agreement=unknown]");
    browser.assert_accessible();
    browser.assert_sound(&[]);
}

#[test]
fn it_speaks_chinese_and_fits_a_phone() {
    let stack = Stack::start();
    let link = json!({
        "longUrl": format!("https://example.com/{}", "long".repeat(60)),
        "customSlug": "phone", "tags": ["春天"], "note": "备注",
    });
    stack.create(&link);
    let looks = Looks::phone("zh-CN");
    let browser = browser(&stack, looks);
    open(&browser, "/console", "登录");
    browser.assert_fits();
    browser.assert_accessible();
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "概览");
    for (path, heading) in [
        ("/console", "概览"),
        ("/console/links", "短链接"),
        ("/console/search?q=phone", "搜索：phone"),
        ("/console/links?state=live", "短链接"),
        ("/console/new", "新建短链接"),
        ("/console/links/phone", "短链接 phone"),
        ("/console/campaigns", "活动"),
        ("/console/service", "服务"),
        ("/console/domains", "域名"),
        ("/console/links/phone/change", "更改短链接 phone"),
    ] {
        open(&browser, path, heading);
        browser.assert_fits();
        browser.assert_accessible();
    }
    // Another language is chosen, and stays.
    browser.click("[data-menu]");
    browser.assert_fits();
    browser.assert_accessible();
    browser.click("[data-language=en]");
    browser.text_with("h1", "Change link phone");
    open(&browser, "/console", "Overview");
    let language = browser.run("return document.documentElement.lang", &[]);
    assert_eq!(language, json!("en"));
    browser.assert_sound(&[]);
}

#[test]
fn what_goes_wrong_is_said_and_can_be_gone_on_from() {
    let stack = Stack::start();
    stack.create(&json!({"longUrl": "https://example.com/", "customSlug": "abc"}));
    let reader = stack.sidecar.make_key(&["links:read"]);
    let browser = browser(&stack, Looks::default());
    open(&browser, "/console/links/abc", "Sign in");
    sign_in(&browser, &reader);
    // Where they wanted to go.
    browser.text_with("h1", "Link abc");
    assert!(!browser.has("a[href='/console/new']") && !browser.has("[data-act]"));
    browser.text_with(
        "main",
        "This needs the permission to read visits and statistics (stats:read).",
    );
    open(&browser, "/console/new", "New link");
    browser.text_with(
        "main",
        "This needs the permission to create, change and revoke links (links:write).",
    );

    browser.set_offline(true);
    browser.click("nav a[href='/console/links']");
    browser.text_with("[role=alert]", "The service can't be reached");
    browser.set_offline(false);
    browser.click("[role=alert] button");
    browser.find("[data-code=abc]");
    open(
        &browser,
        "/console/links?cursor=nonsense",
        "This did not work",
    );
    browser.text_with("[role=alert]", "nextCursor");
    browser.assert_accessible();

    // A user without the right to read comes to a page that the key may use.
    browser.click("[data-leave]");
    browser.text_with("h1", "Sign in");
    open(&browser, "/console", "Sign in");
    sign_in(&browser, &stack.sidecar.make_key(&["links:write"]));
    browser.text_with("h1", "Overview");
    browser.click("main a[href='/console/new']");
    browser.text_with("h1", "New link");
    browser.click("[data-leave]");
    browser.text_with("h1", "Sign in");
    open(&browser, "/console/links?cursor=nonsense", "Sign in");

    // The link is changed meanwhile.
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("[role=alert]", "nextCursor");
    open(&browser, "/console/links/abc/change", "Change link abc");
    let change = json!({"note": "mine"});
    assert_eq!(
        stack.api("PATCH", "/v1/links/abc", Some(&change)).status,
        200
    );
    browser.fill("#f-note", "theirs");
    // A session that ends meanwhile takes nothing of the form.
    let sign_out = "return fetch('/console/session', \
                    { method: 'DELETE', headers: { 'X-Shortlink-Console': '1' } }).then((it) => it.ok)";
    assert_eq!(browser.run(sign_out, &[]), json!(true));
    browser.click("form .main");
    browser.text_with("[role=alert]", "Your session has ended");
    sign_in(&browser, &stack.sidecar.key);
    browser.text_with("h1", "Change link abc");
    let note = "return document.querySelector('#f-note').value";
    assert_eq!(browser.run(note, &[]), json!("theirs"));
    browser.click("form .main");
    browser.text_with("[role=alert]", "This link was changed meanwhile");

    let id = stack.sidecar.key.split('_').nth(1).expect("an id");
    stack.sidecar.run_ok(&["keys", "revoke", id]);
    until("the session has ended", SOON, || {
        browser.open("/console/links/abc");
        browser.text_with("h1", "");
        browser.has("#key")
    });
    browser.assert_sound(&[
        "status of 400",
        "status of 401",
        "status of 412",
        "ERR_INTERNET_DISCONNECTED",
    ]);
}

#[test]
fn a_session_counts_at_every_sidecar_and_ends_with_its_key_at_once() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let stack = Stack::on(&postgres);
    let other = stack.sidecar.start_beside(ports::free());
    let body = json!({"apiKey": stack.sidecar.key}).to_string();
    let headers = [
        ("Content-Type", "application/json"),
        ("X-Shortlink-Console", "1"),
    ];
    let request = http::request("POST", "/console/session", &headers, body.as_bytes());
    let answer = http::try_send(stack.nginx.internal_port, "POST", &request);
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 201);
    let cookie = answer.header("Set-Cookie").expect("a cookie");
    let (cookie, attributes) = cookie.split_once(';').expect("attributes");
    // nginx says that this was http.
    assert!(!attributes.contains("Secure"), "{attributes}");
    let statuses = || {
        [stack.nginx.internal_port, other.port]
            .map(|port| http::send(port, "GET", "/v1/links", &[("Cookie", cookie)]).status)
    };
    assert_eq!(statuses(), [200, 200]);
    let id = stack.sidecar.key.split('_').nth(1).expect("an id");
    other.run_ok(&["keys", "revoke", id]);
    until("it opens nothing", SOON, || statuses() == [401, 401]);
    assert!(!stack.sidecar.log().contains(&stack.sidecar.key));
}
