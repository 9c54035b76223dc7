//! Links in the console as marketers use them: many at once, with UTM parameters, in a campaign, and as QR codes.

use serde_json::json;
use shortlink_tests::browser::Looks;
use shortlink_tests::console::{Console, made};
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

#[test]
fn links_are_chosen_tried_and_changed_together() {
    let stack = Stack::start();
    for code in ["a1", "a2", "a3"] {
        let link = json!({"longUrl": "https://example.com/", "customSlug": code, "tags": ["x"]});
        stack.create(&link);
    }
    stack.create(&json!({"longUrl": "https://example.com/", "customSlug": "other"}));
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    let agree = |tried: &str, done: &str| {
        browser.text_with("[data-tried]", tried);
        browser.assert_accessible();
        browser.click("dialog [data-yes]");
        browser.text_with("dialog [data-revoked]", done);
        browser.click("dialog button");
        until("the dialog is gone", SOON, || !browser.has("dialog"));
    };
    console.open("/console/links", "Links");
    browser.click("[data-pick][value=a1]");
    browser.click("[data-pick][value=a2]");
    browser.text_with(".bulk", "2 selected");
    browser.assert_accessible();
    assert!(!browser.has("[data-matching]"));
    browser.click("[data-bulk=pause]");
    agree("2 links will change", "2 links changed");
    browser.find("[data-code=a1] [data-state=paused]");
    until("the edge knows", SOON, || stack.follow("a2").status == 410);
    assert_eq!(stack.follow("a3").status, 302);

    console.open("/console/links?tag=x", "Links");
    browser.click("[data-pick-all]");
    browser.click("[data-matching]");
    browser.text_with(".bulk", "All that match");
    browser.click("[data-bulk=change]");
    browser.fill("dialog #f-longUrl", "nonsense");
    browser.click("dialog form .main");
    browser.text_with("dialog #w-longUrl", "Target");
    browser.assert_accessible();
    browser.fill("dialog #f-longUrl", "www.example.com/new");
    browser.click("dialog form .main");
    agree("3 links will change", "3 links changed");
    until("the edge knows", SOON, || {
        stack.follow("a3").location() == Some("https://www.example.com/new")
    });
    assert_eq!(
        stack.follow("other").location(),
        Some("https://example.com/")
    );

    // The QR code of one of them, in the colours of a brand.
    browser.click("[data-qr=a3]");
    let dark = |colour: &str| {
        let script = "const field = document.querySelector('#qr-dark'); field.value = arguments[0]; \
                      field.dispatchEvent(new Event('input'))";
        browser.run(script, &[json!(colour)]);
    };
    browser.find("[data-png]:not([disabled])");
    browser.assert_accessible();
    dark("#cccccc");
    browser.text_with("[data-fault]", "phones need at least 4.5");
    assert!(browser.has("[data-png][disabled]") && browser.has("[data-svg][disabled]"));
    dark("#0f5c55");
    browser.find("[data-png]:not([disabled])");
    // A module of a corner mark has that colour in the picture, and the margin is white.
    let script = "const canvas = document.querySelector('dialog canvas'); const { width } = canvas; \
                  const pixels = [...canvas.getContext('2d').getImageData(0, width / 2, width, 1).data]; \
                  return [width, pixels.slice(0, 3), pixels.some((_, at) => at % 4 === 0 \
                  && pixels[at] === 15 && pixels[at + 1] === 92 && pixels[at + 2] === 85)]";
    let picture = browser.run(script, &[]);
    assert_eq!(picture, json!([1024, [255, 255, 255], true]));
    let drawing = console.download("[data-svg]", "a3.svg");
    assert!(
        drawing.starts_with("<svg") && drawing.contains("#0f5c55"),
        "{drawing}"
    );
    browser.click("dialog button");
    browser.assert_sound(&["status of 422"]);
}

#[test]
fn a_link_gets_utm_parameters_or_the_values_of_its_campaign() {
    let stack = Stack::start();
    let body = json!({"name": "Spring", "longUrl": "https://example.com/?m={member}"});
    let campaign = text(
        &stack.api("POST", "/v1/campaigns", Some(&body)).json(),
        "id",
    );
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::phone("en"));
    let browser = &console.browser;
    console.open("/console/new", "New link");
    browser.fill("#f-longUrl", "shop.example.com/x?a=1");
    browser.text_with("main form", "https:// will be added.");
    browser.click("details:nth-of-type(2) > summary");
    browser.fill("[name='utm.source']", "sms");
    browser.fill("[name='utm.medium']", "text");
    browser.run(
        "localStorage.setItem('shortlink-utm', JSON.stringify([{ source: 'before' }]))",
        &[],
    );
    browser.fill("#utm-name", "Offers");
    browser.click("[data-save-template]");
    browser.find("#utm-template");
    browser.assert_accessible();
    browser.assert_fits();
    browser.click("form .main");
    let code = made(browser);
    let target = "https://shop.example.com/x?a=1&utm_source=sms&utm_medium=text";
    assert_eq!(stack.follow(&code).location(), Some(target));

    // All users have the template, and that which this browser has had.
    let templates = stack.api("GET", "/v1/utm-templates", None).json();
    assert_eq!(templates["templates"][0]["name"], "Offers");
    assert_eq!(
        templates["templates"][1]["utm"],
        json!({"source": "before"})
    );
    console.open("/console/new", "New link");
    browser.find("#utm-template");
    browser.choose("#utm-template", "0");
    let source = "return document.querySelector(\"[name='utm.source']\").value";
    assert_eq!(browser.run(source, &[]), json!("sms"));
    browser.fill("#f-tags", "stays");
    browser.choose("#of-campaign", &campaign);
    browser.fill("#f-parameters-member", "7");
    // The short URL as it will be.
    browser.fill("#f-customSlug", "member7");
    browser.text_with("[data-short]", "/member7 (");
    browser.click("form .main");
    assert_eq!(made(browser), "member7");
    assert_eq!(
        stack.follow("member7").location(),
        Some("https://example.com/?m=7")
    );
    let link = stack.api("GET", "/v1/links/member7", None).json();
    assert_eq!(link["tags"], json!(["stays"]));
    browser.assert_sound(&[]);
}

/// Fields and texts have one time zone, which stays chosen: times that its clocks skip or show twice included.
#[test]
fn moments_are_read_and_shown_in_the_chosen_time_zone() {
    let stack = Stack::start();
    let console = Console::enter(&stack, &stack.sidecar.key, Looks::default());
    let browser = &console.browser;
    let zone = |name: &str| {
        let zone = json!({"timezoneId": name});
        browser.cdp("Emulation.setTimezoneOverride", &zone);
    };
    zone("Asia/Shanghai");
    console.open("/console", "Overview");
    let value = |selector: &str| {
        let script = "return document.querySelector(arguments[0]).value";
        browser.find(selector);
        browser.run(script, &[json!(selector)])
    };
    assert_eq!(value("[data-zone]"), json!("Asia/Shanghai"));
    browser.choose("[data-zone]", "Europe/Berlin");
    browser.assert_accessible();
    let path = "/v1/links/zoned";
    let slug = json!({"longUrl": "https://example.com/", "customSlug": "zoned"});
    stack.create(&slug);
    for (typed, moment, shown) in [
        ("2030-01-15T12:00", "2030-01-15T11:00:00Z", "12:00 PM"),
        ("2030-07-15T12:00", "2030-07-15T10:00:00Z", "12:00 PM"),
        ("2030-03-31T02:30", "2030-03-31T01:30:00Z", "3:30 AM"),
        ("2030-10-27T02:30", "2030-10-27T00:30:00Z", "2:30 AM"),
        ("2030-10-27T03:30", "2030-10-27T02:30:00Z", "3:30 AM"),
    ] {
        console.open("/console/links/zoned/change", "Change link");
        browser.text_with("label[for=f-validUntil]", "Europe/Berlin");
        browser.choose("#f-validUntil", typed);
        browser.click("form .main");
        browser.text_with("h1", "Link zoned");
        let link = stack.api("GET", path, None).json();
        assert_eq!(text(&link, "validUntil"), moment, "{typed}");
        let time = format!("main time[datetime='{moment}']");
        browser.text_with(&time, shown);
    }
    browser.choose("[data-zone]", "Asia/Tehran");
    browser.text_with("main time[datetime='2030-10-27T02:30:00Z']", "6:00 AM");
    console.open("/console/statistics?range=7&step=day", "Statistics");
    assert_eq!(value("[data-zone]"), json!("Asia/Tehran"));
    // The zone of the browser is followed again once it is chosen.
    browser.choose("[data-zone]", "Asia/Shanghai");
    browser.text_with("h1", "Statistics");
    zone("America/New_York");
    console.open("/console/links/zoned", "Link zoned");
    assert_eq!(value("[data-zone]"), json!("America/New_York"));
    browser.assert_sound(&[]);
}
