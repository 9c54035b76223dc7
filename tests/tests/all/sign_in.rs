//! People sign in to the console at a provider of OpenID Connect.

use serde_json::{Value, json};
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::console::{Console, made};
use shortlink_tests::http;
use shortlink_tests::openid::{OpenIdProvider, Person};
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::sidecar::api;
use shortlink_tests::stack::{Stack, directory, text};
use shortlink_tests::wait::{SOON, until};

fn browser(stack: &Stack) -> Browser {
    let directory = stack.directory().join(format!("browser-{}", ports::free()));
    Browser::start(&directory, stack.nginx.internal_port, Looks::default())
}

/// Signs in at the provider's form.
fn sign_in(browser: &Browser, name: &str) {
    browser.click("[data-provider]");
    browser.fill("#login", name);
    browser.click("#enter");
}

/// Signs out here and at the provider.
fn sign_out(browser: &Browser) {
    browser.click("[data-leave]");
    browser.click("[name=logout]");
    browser.find("[data-provider]");
}

#[test]
fn people_have_the_role_of_their_groups_and_their_names_are_in_the_history() {
    let mut stack = Stack::start();
    let provider = OpenIdProvider::of(&mut stack, OpenIdProvider::issuer);
    let ann = |groups: Value| {
        provider.set_people(&json!({"ann": {
            "name": "Ann Lee", "email": "ann@example.com", "email_verified": true, "groups": groups,
        }}));
    };
    let browser = browser(&stack);
    browser.open("/console/campaigns?state=live");
    browser.text_with("[data-provider]", "Sign in with Example");
    browser.find("#key");
    browser.assert_accessible();
    browser.assert_sound(&[]);
    browser.click("[data-provider]");
    browser.click("#cancel");
    browser.text_with("[data-reason=cancelled]", "You cancelled the sign-in.");
    browser.assert_accessible();

    ann(json!(["staff"]));
    browser.open("/console/campaigns?state=live");
    sign_in(&browser, "ann");
    browser.text_with("h1", "Campaigns");
    assert_eq!(browser.path(), "/console/campaigns?state=live");
    browser.text_with(".who b", "Ann Lee");
    assert!(!browser.has(".top a[href='/console/new']"));
    sign_out(&browser);

    ann(json!(["staff", "marketing"]));
    sign_in(&browser, "ann");
    browser.click(".top a[href='/console/new']");
    browser.fill("#f-longUrl", "https://example.com/");
    browser.click("form .main");
    let code = made(&browser);
    browser.open(&format!("/console/links/{code}"));
    browser.text_with(".facts", "Ann Lee");
    browser.click("[data-act=pause]");
    browser.click("dialog [data-yes]");
    browser.text_with(".steps", "Ann Lee");
    browser.assert_accessible();

    let admin = stack.sidecar.make_key(&["admin"]);
    let asked = |path: &str| api(stack.nginx.internal_port, &admin, "GET", path, None).json();
    let link = asked(&format!("/v1/links/{code}"));
    let id = text(&link, "createdBy");
    let log = asked(&format!("/v1/audit?keyId={id}"));
    let entries = log["entries"].as_array().expect("entries");
    let actions: Vec<&str> = entries
        .iter()
        .filter_map(|it| it["action"].as_str())
        .collect();
    let expected = [
        "link.pause",
        "session.begin",
        "person.change",
        "session.end",
        "session.begin",
        "person.create",
    ];
    assert_eq!(actions, expected);
    assert!(entries.iter().all(|it| it["keyName"] == json!("Ann Lee")));
    assert!(!asked("/v1/keys").to_string().contains("Ann Lee"));
    let status = |path: &str| api(stack.nginx.internal_port, &admin, "GET", path, None).status;
    assert_eq!(status(&format!("/v1/keys/{id}")), 404);

    // An operator sees the person in the console, and ends their sessions.
    let console = Console::enter(&stack, &admin, Looks::default());
    console.open("/console/people", "People");
    let row = format!("[data-person='{id}']");
    console.browser.text_with(&row, "ann@example.com");
    console.browser.text_with(&row, "Marketer");
    console.browser.assert_accessible();
    let end_sessions = || {
        console.open("/console/people", "People");
        console
            .browser
            .click(&format!("{row} [data-act=end-sessions]"));
        console.agree("They have to sign in again.");
        until("no session is left", SOON, || {
            asked(&format!("/v1/people/{id}"))["sessions"] == json!(0)
        });
    };
    // A form that is half filled in when the session ends is so after the sign-in.
    browser.open("/console/new");
    browser.fill("#f-longUrl", "https://example.com/half");
    browser.fill("#f-tags", "a, b");
    end_sessions();
    browser.click("form.fields .main");
    browser.text_with("[role=alert]", "Your session has ended.");
    browser.click("[data-provider]");
    browser.text_with("h1", "New link");
    let tags = "return document.querySelector('#f-tags')?.value";
    until("it is filled in", SOON, || {
        browser.run(tags, &[]) == json!("a, b")
    });
    browser.click("form.fields .main");
    let half = format!("/v1/links/{}", made(&browser));
    assert_eq!(text(&asked(&half), "longUrl"), "https://example.com/half");
    browser.open("/console/new");
    browser.text_with("h1", "New link");
    assert_eq!(browser.run(tags, &[]), json!(""), "it is filled in once");

    end_sessions();
    browser.click("nav a[href='/console/links']");
    browser.text_with("[role=alert]", "Your session has ended.");

    ann(json!(["guests"]));
    browser.click("[data-provider]");
    let fault = browser.text_with("[data-reason=no-role]", "None of your groups has a role");
    assert!(fault.contains("guests"), "{fault}");
    assert_eq!(asked(&format!("/v1/people/{id}"))["role"], Value::Null);
    browser.open("/console");
    browser.find("[data-provider]");
    assert!(!browser.has("[data-reason]"), "a fault is shown once");
}

#[test]
fn no_forged_token_and_no_foreign_return_lets_anybody_in() {
    let mut stack = Stack::start();
    let mut provider = OpenIdProvider::of(&mut stack, OpenIdProvider::forger);
    let port = stack.sidecar.port;
    for (fault, reason) in [
        ("", None),
        ("skewed", None),
        ("texts", None),
        ("signature", Some("token")),
        ("key", Some("token")),
        ("audience", Some("token")),
        ("audiences", Some("token")),
        ("party", Some("token")),
        ("issuer", Some("token")),
        ("expired", Some("token")),
        ("old", Some("token")),
        ("future", Some("token")),
        ("nonce", Some("token")),
        ("none", Some("token")),
        ("secret", Some("token")),
        ("groupless", Some("no-groups")),
    ] {
        provider.set_fault(fault);
        let entered = Person::new().enter(port, &provider);
        assert_eq!(entered.as_deref(), reason, "{fault}");
    }
    provider.set_fault("");

    // The return of another sign-in, of none, and the same once more.
    let (mut one, mut other) = (Person::new(), Person::new());
    let back = one.leave_for(port, &provider);
    other.leave_for(port, &provider);
    assert_eq!(other.return_by(port, &back).as_deref(), Some("state"));
    assert_eq!(
        Person::new().return_by(port, &back).as_deref(),
        Some("state")
    );
    let cookies = one.cookies.clone();
    assert_eq!(one.return_by(port, &back), None);
    let mut again = Person::new();
    again.cookies = cookies;
    let reason = again.return_by(port, &back);
    assert_eq!(reason.as_deref(), Some("provider-refused"));
    let (mut visitor, path) = (
        Person::new(),
        "/console/sign-in/callback?error=access_denied",
    );
    assert_eq!(visitor.return_by(port, path).as_deref(), Some("state"));

    // The provider is killed, and comes back with other keys.
    let mut visitor = Person::new();
    let back = visitor.leave_for(port, &provider);
    provider.kill();
    let reason = visitor.return_by(port, &back);
    assert_eq!(reason.as_deref(), Some("provider-away"));
    let body = json!({"apiKey": stack.sidecar.key}).to_string();
    let headers = [
        ("X-Shortlink-Console", "1"),
        ("Content-Type", "application/json"),
    ];
    let key = http::request("POST", "/console/session", &headers, body.as_bytes());
    let answer = http::try_send(port, "POST", &key).expect("an answer");
    assert_eq!(answer.status, 201);
    provider.start_again();
    assert_eq!(Person::new().enter(port, &provider), None);

    // One address has ten attempts.
    let mut visitor = Person::new();
    for _ in 0..10 {
        visitor.send(port, "GET", "/console/sign-in/start");
    }
    let refused = visitor.send(port, "GET", "/console/sign-in/start");
    assert_eq!(refused.location(), Some("/console"));
    assert_eq!(visitor.reason(port).as_deref(), Some("limited"));

    let log = stack.sidecar.log();
    assert!(log.contains("a sign-in failed"), "{log}");
    for secret in ["the secret of the client", "verifier", "eyJ"] {
        assert!(!log.contains(secret), "the log has {secret}");
    }
}

#[test]
fn the_operator_ends_sessions_and_blocks_people_at_every_sidecar() {
    let directory = directory();
    let postgres = Postgres::start(&directory.path().join("postgres"));
    let mut stack = Stack::on(&postgres);
    let provider = OpenIdProvider::of(&mut stack, OpenIdProvider::forger);
    let beside = stack.sidecar.start_beside(ports::free());
    let ports = [stack.sidecar.port, beside.port];
    let cli = |arguments: &[&str]| stack.sidecar.run_ok(&[&["people"], arguments].concat());
    // The provider leads back to another sidecar.
    let mut visitor = Person::new();
    let back = visitor.leave_for(ports[0], &provider);
    assert_eq!(visitor.return_by(ports[1], &back), None);
    let session = visitor.session(ports[0]).expect("a session");
    assert_eq!(session["keyName"], json!("Mallory"));
    assert_eq!(session["scopes"], json!(["admin"]));
    let id = text(&session, "keyId");
    let listed: Value = serde_json::from_str(&cli(&["list", "--json"])).expect("JSON");
    assert_eq!(listed["people"][0]["id"], json!(id));
    assert_eq!(listed["people"][0]["role"], json!("admin"));

    cli(&["end-sessions", &id]);
    for port in ports {
        assert_eq!(visitor.session(port), None);
    }
    assert_eq!(visitor.enter(ports[0], &provider), None);
    assert!(visitor.session(ports[1]).is_some());
    cli(&["block", &id]);
    for port in ports {
        assert_eq!(visitor.session(port), None);
    }
    let entered = visitor.enter(ports[0], &provider);
    assert_eq!(entered.as_deref(), Some("blocked"));
    // A manager of keys who is no administrator changes no administrator.
    let manager = stack.sidecar.make_key(&["keys:admin"]);
    let unblock = format!("/v1/people/{id}/unblock");
    let answer = api(ports[0], &manager, "POST", &unblock, None);
    assert_eq!(answer.status, 403);
    let admin = stack.sidecar.make_key(&["admin"]);
    let answer = api(ports[0], &admin, "POST", &unblock, None);
    assert_eq!(
        (answer.status, &answer.json()["state"]),
        (200, &json!("active"))
    );
    // The old session does not come back.
    assert_eq!(visitor.session(ports[1]), None);

    assert_eq!(visitor.enter(ports[0], &provider), None);
    let cookies = visitor.cookies.clone();
    let out = visitor.send(ports[0], "DELETE", "/console/session");
    assert_eq!(out.status, 204, "the forger has no page to sign out");
    visitor.cookies = cookies;
    for port in ports {
        assert_eq!(visitor.session(port), None);
    }
}
