//! The console's live feed, from the tap to the row.

use serde_json::{Value, json};
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::http;
use shortlink_tests::visits::put;
use shortlink_tests::wait::{SOON, until};
use vocabulary::visit::VisitId;

use super::console::{browser, open, sign_in};
use super::console_statistics::{DESKTOP, PHONE, PREVIEW, Scene};

const STREAM: &str = "sl:v:{0}";

/// A scene with a browser that looks at the feed.
fn looking(looks: Looks) -> (Scene, Browser) {
    let scene = Scene::with_taps();
    let browser = browser(&scene.stack, looks);
    browser.open("/console/live");
    sign_in(&browser, &scene.stack.sidecar.key);
    browser.find("[data-feed=live]");
    (scene, browser)
}

/// Returns the columns of the rows, from the top.
fn rows(browser: &Browser) -> Vec<Value> {
    let script = "return [...document.querySelectorAll('[data-visit]')].map((row) => \
                  [...row.cells].slice(1).map((cell) => cell.innerText.trim()))";
    let found = browser.run(script, &[]);
    found.as_array().cloned().unwrap_or_default()
}

fn count(browser: &Browser) -> usize {
    rows(browser).len()
}

/// Returns the number of listeners of the sidecar's feed.
fn listeners(scene: &Scene) -> String {
    let text = http::get(scene.stack.sidecar.port, "/metrics").body;
    let text = String::from_utf8(text).expect("text");
    let name = "shortlink_live_listeners ";
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.expect("a number").to_owned()
}

#[test]
fn visits_appear_while_they_happen_and_can_be_held() {
    let (scene, browser) = looking(Looks::default());
    browser.text_with("main", "No visits yet.");
    browser.assert_accessible();
    scene.tap("plain", "s1.example.com", PHONE, 1);
    until("it is shown", SOON, || count(&browser) == 1);
    scene.tap("member", "s2.example.com", DESKTOP, 1);
    until("it is shown", SOON, || count(&browser) == 2);
    let shown = rows(&browser);
    assert_eq!(
        shown[0],
        json!([
            "member\ns2.example.com",
            "Person",
            "Chrome 126.0.0.0 · Windows 10",
            "Austria",
            "Redirected"
        ])
    );
    assert_eq!(shown[1][0], "plain\ns1.example.com");
    browser.text_with("[data-rate]", "0.2 per second");
    browser.assert_accessible();

    // Held: what comes is counted, and shown when one goes on.
    browser.click("[data-pause]");
    scene.tap("plain", "s1.example.com", PREVIEW, 3);
    browser.text_with("[data-pause]", "Continue (3 new)");
    assert_eq!(count(&browser), 2);
    browser.press("[data-pause]", " ");
    until("they are shown", SOON, || count(&browser) == 5);
    assert_eq!(rows(&browser)[0][1], "Preview");

    // Filters stand in the address and in what is asked.
    browser.choose("#l-class", "human");
    browser.fill("#l-domain", "s2.example.com");
    browser.click(".choices button");
    assert_eq!(
        browser.path(),
        "/console/live?class=human&domain=s2.example.com"
    );
    browser.find("[data-feed=live]");
    until("the first feed has ended", SOON, || {
        listeners(&scene) == "1"
    });
    scene.tap("plain", "s1.example.com", PHONE, 2);
    scene.tap("plain", "s2.example.com", PREVIEW, 2);
    scene.tap("plain", "s2.example.com", PHONE, 1);
    until("only one is shown", SOON, || count(&browser) == 1);
    browser.fill("#l-code", "no code");
    browser.click(".choices button");
    browser.text_with("[role=alert]", "code must be a link's code");

    // A user who leaves the page leaves the feed.
    browser.click("nav a[href='/console/links']");
    browser.text_with("h1", "Links");
    until("the feed has no listener", SOON, || {
        listeners(&scene) == "0"
    });
    browser.assert_sound(&["status of 400"]);
}

#[test]
fn what_is_lost_is_connected_again_and_goes_on_where_it_was() {
    let (mut scene, browser) = looking(Looks::default());
    scene.tap("plain", "s1.example.com", PHONE, 1);
    until("it is shown", SOON, || count(&browser) == 1);
    // Stored visits are trimmed within seconds, unless another reader has read none; the browser may need longer.
    let command = ["XGROUP", "CREATE", STREAM, "another", "0"];
    scene.stack.redis.command(&command);
    scene.stack.nginx.stop();
    browser.find("[data-feed=waiting]");
    scene.stack.nginx.start_again();
    scene.tap("member", "s2.example.com", DESKTOP, 2);
    until("what came meanwhile is shown", SOON, || {
        count(&browser) == 3
    });
    browser.find("[data-feed=live]");
    assert!(!browser.has("[data-gap]"));

    // A key that is revoked ends it.
    let id = scene.stack.sidecar.key.split('_').nth(1).expect("an id");
    scene.stack.sidecar.run_ok(&["keys", "revoke", id]);
    browser.text_with("[role=alert]", "Your session has ended");
    until("the feed has no listener", SOON, || {
        listeners(&scene) == "0"
    });
    browser.assert_sound(&[
        "status of 401",
        "status of 502",
        "ERR_CONNECTION_REFUSED",
        "ERR_CONNECTION_RESET",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
    ]);
}

#[test]
fn a_flood_stays_in_bounds_and_fits_a_phone_in_chinese() {
    let looks = Looks::phone("zh-CN");
    let (scene, browser) = looking(looks);
    browser.text_with("h1", "实时访问");
    // More than the feed sends in a second, and than the page shows.
    for round in 0..5 {
        let names = (0..90).map(|sequence| VisitId {
            origin: 100 + round,
            sequence,
        });
        put(scene.stack.redis.port, STREAM, names, PHONE);
    }
    until("some are shown and the others counted", SOON, || {
        count(&browser) >= 90 && browser.has("[data-missed]:not(:empty)")
    });
    let mut round = 200;
    until("as many are shown as are to be", SOON, || {
        round += 1;
        let names = (0..50).map(|sequence| VisitId {
            origin: round,
            sequence,
        });
        put(scene.stack.redis.port, STREAM, names, DESKTOP);
        count(&browser) >= 200
    });
    assert_eq!(count(&browser), 200);
    browser.assert_fits();
    browser.assert_accessible();
    open(&browser, "/console/domains", "域名");
    browser.assert_fits();
    browser.assert_accessible();
    browser.assert_sound(&[]);
}
