//! Domains are swapped in one file.

use serde_json::json;
use shortlink_tests::http::{self, Connection};
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, eventually};

pub(super) fn follow(stack: &Stack, host: &str, code: &str) -> Option<u16> {
    let mut connection = Connection::open(stack.nginx.public_port).expect("a connection");
    let headers = [("Host", host)];
    connection
        .send(&http::request("GET", &format!("/{code}"), &headers, b""))
        .expect("sent");
    connection
        .receive("GET")
        .expect("read")
        .map(|answer| answer.status)
}

pub(super) fn set_domains(stack: &Stack, table: &str) {
    let text = format!("shortlink_domains {{\n{table}\n}}\n");
    std::fs::write(stack.nginx.file("domains.conf"), text).expect("domains.conf");
    let tested = stack.nginx.test_configuration();
    assert!(
        tested.status.success(),
        "{}",
        String::from_utf8_lossy(&tested.stderr)
    );
    stack.nginx.reload();
}

#[test]
fn a_swap_is_an_edit_and_a_reload() {
    let stack = Stack::start();
    set_domains(&stack, "a.example.com active;");
    let first = stack.create(&json!({ "longUrl": "https://target.example/" }));
    let code = text(&first, "shortCode");
    assert_eq!(
        text(&first, "shortUrl"),
        format!("https://a.example.com/{code}")
    );
    assert_eq!(follow(&stack, "a.example.com", &code), Some(302));
    assert_eq!(follow(&stack, "b.example.com", &code), None);

    // Blocked: b takes over, a still serves.
    set_domains(
        &stack,
        "a.example.com serving;\nb.example.com active scheme=http port=8443;",
    );
    let second = stack.create(&json!({ "longUrl": "https://target.example/" }));
    let second_code = text(&second, "shortCode");
    assert_eq!(
        text(&second, "shortUrl"),
        format!("http://b.example.com:8443/{second_code}")
    );
    // The same link, asked for again, is on the active domain too.
    let read = stack.api("GET", &format!("/v1/links/{code}"), None).json();
    assert_eq!(
        text(&read, "shortUrl"),
        format!("http://b.example.com:8443/{code}")
    );
    for host in ["a.example.com", "b.example.com"] {
        for code in [&code, &second_code] {
            assert_eq!(follow(&stack, host, code), Some(302), "{host}");
        }
    }

    // Given up: a answers 410 for everything, and no link may lead to it even now.
    set_domains(&stack, "a.example.com retired;\nb.example.com active;");
    assert_eq!(follow(&stack, "a.example.com", &code), Some(410));
    assert_eq!(follow(&stack, "a.example.com", "nosuchone"), Some(410));
    assert_eq!(follow(&stack, "b.example.com", &code), Some(302));
    let own = json!({ "longUrl": "https://a.example.com/x" });
    assert_eq!(stack.api("POST", "/v1/links", Some(&own)).status, 422);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn several_active_domains_share_new_links_and_some_are_bound() {
    let stack = Stack::start();
    let body = json!({ "name": "spring", "longUrl": "https://target.example/{code}" });
    let campaign = stack.api("POST", "/v1/campaigns", Some(&body)).json();
    let campaign = text(&campaign, "id");
    let base_of = |link: &serde_json::Value| {
        let (base, code) = (text(link, "shortUrl"), text(link, "shortCode"));
        base.strip_suffix(&format!("/{code}"))
            .expect("a code")
            .to_owned()
    };
    let domains = format!(
        "A.example.com active weight=3;\nb.example.com active;\n*.c.example.com serving;\n\
         länk.example serving;\nvip.example.com active scheme=http campaign={campaign};\n\
         crm.example.com active key=nosuchkey;"
    );
    set_domains(&stack, &domains);
    let mut on_a = 0;
    for number in 0..60 {
        let link = stack.create(&json!({ "longUrl": format!("https://target.example/{number}") }));
        let base = base_of(&link);
        assert!(
            ["https://a.example.com", "https://b.example.com"].contains(&&*base),
            "{base}"
        );
        on_a += u32::from(base == "https://a.example.com");
        // The same however it is asked for.
        let read = stack.api(
            "GET",
            &format!("/v1/links/{}", text(&link, "shortCode")),
            None,
        );
        assert_eq!(base_of(&read.json()), base);
    }
    // 45 of 60, and six standard deviations.
    assert!((25..60).contains(&on_a), "{on_a} of 60");
    let link = stack.create(&json!({ "campaignId": campaign }));
    assert_eq!(base_of(&link), "http://vip.example.com");
    let code = text(&link, "shortCode");
    for host in [
        "a.example.com",
        "crm.example.com",
        "x.y.c.example.com",
        "xn--lnk-qla.example",
    ] {
        assert_eq!(follow(&stack, host, &code), Some(302), "{host}");
    }
    assert_eq!(follow(&stack, "c.example.com", &code), None);
    // No link may lead to a host below a wildcard.
    let own = json!({ "longUrl": "https://z.c.example.com/x" });
    assert_eq!(stack.api("POST", "/v1/links", Some(&own)).status, 422);
    let key = text(&link, "createdBy");
    let swapped = domains.replace("key=nosuchkey", &format!("key={key}"));
    set_domains(&stack, &swapped);
    let link = stack.create(&json!({ "longUrl": "https://target.example/k" }));
    assert_eq!(base_of(&link), "https://crm.example.com");
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn a_retired_domain_answers_what_its_line_says() {
    let stack = Stack::start();
    let code = stack.link("https://target.example/");
    std::fs::write(stack.nginx.file("gone.html"), "<h1>We have moved</h1>").expect("a page");
    std::fs::create_dir_all(stack.nginx.file("acme/.well-known/acme-challenge")).expect("a place");
    let proof = stack.nginx.file("acme/.well-known/acme-challenge/token");
    std::fs::write(proof, "it is ours").expect("a proof");
    set_domains(
        &stack,
        "a.example.com active;\nb.example.com retired target=https://www.example.com/?from=b;\n\
         c.example.com retired page=gone.html port=8443;\nd.example.com retired;",
    );
    let get = |host: &str, path: &str| {
        http::send(stack.nginx.public_port, "GET", path, &[("Host", host)])
    };
    for path in [&*format!("/{code}"), "/", "/robots.txt"] {
        let answer = get("b.example.com", path);
        assert_eq!(answer.status, 302, "{path}");
        assert_eq!(answer.location(), Some("https://www.example.com/?from=b"));
        let answer = get("c.example.com", path);
        assert_eq!(answer.status, 410, "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.body, b"<h1>We have moved</h1>");
        assert_eq!(get("d.example.com", path).status, 410, "{path}");
    }
    // The pages have no other URL, and a certificate can still be renewed.
    assert_eq!(get("a.example.com", "/.retired").status, 404);
    for host in [
        "a.example.com",
        "b.example.com",
        "c.example.com",
        "d.example.com",
    ] {
        let answer = get(host, "/.well-known/acme-challenge/token");
        assert_eq!(answer.body, b"it is ours", "{host}");
    }
    assert_eq!(get("a.example.com", &format!("/{code}")).status, 302);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn every_domain_is_announced_with_its_state_however_many_there_are() {
    let stack = Stack::start();
    let domains = || stack.api("GET", "/v1/domains", None).json();
    let told = |count: usize| {
        eventually("nginx is heard", SOON, || {
            let told = domains();
            let node = &told["nodes"][0];
            (node["domains"] == json!(count)).then_some(told)
        })
    };
    set_domains(
        &stack,
        "a.example.com active weight=2 port=8443;\n*.b.example.com serving;\nold.example retired;",
    );
    let few = told(3);
    assert_eq!(few["nodes"].as_array().map(Vec::len), Some(1));
    let states: Vec<_> = few["domains"].as_array().expect("domains").iter().collect();
    let said = |it: &serde_json::Value| (it["domain"].clone(), it["announced"][0]["state"].clone());
    assert_eq!(
        states.into_iter().map(said).collect::<Vec<_>>(),
        [
            (json!("a.example.com"), json!("active")),
            (json!("*.b.example.com"), json!("serving")),
            (json!("old.example"), json!("retired")),
        ]
    );
    let base = &few["domains"][0]["announced"][0];
    assert_eq!(base["baseUrl"], "https://a.example.com:8443");
    assert_eq!(base["weight"], 2);

    // A thousand are reported one by one, and the number of the rest.
    let mut table = "a.example.com active;".to_owned();
    for number in 0..1199 {
        table.push_str(&format!("\ndomain{number}.example.com serving;"));
    }
    set_domains(&stack, &table);
    let many = told(1200);
    assert_eq!(many["nodes"][0]["notTold"], 200);
    assert_eq!(many["domains"].as_array().map(Vec::len), Some(1000));
    // None of them may be led to.
    let own = json!({ "longUrl": "https://domain1198.example.com/x" });
    assert_eq!(stack.api("POST", "/v1/links", Some(&own)).status, 422);
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn without_nginx_the_sidecar_knows_no_domain() {
    let stack = Stack::start();
    let body = json!({ "longUrl": "https://target.example/" });
    let port = stack.sidecar.port;
    let made =
        shortlink_tests::sidecar::api(port, &stack.sidecar.key, "POST", "/v1/links", Some(&body));
    assert_eq!(made.status, 201);
    assert!(made.json()["shortUrl"].is_null());
    // A client of the API can't pass a domain of its own through nginx.
    let headers = [
        ("X-Api-Key", &*stack.sidecar.key),
        ("Content-Type", "application/json"),
        ("X-Shortlink-Base", "https://evil.example"),
        ("X-Shortlink-Domains", ""),
    ];
    let request = http::request("POST", "/v1/links", &headers, body.to_string().as_bytes());
    let made = http::try_send(stack.nginx.internal_port, "POST", &request).expect("an answer");
    assert!(text(&made.json(), "shortUrl").starts_with("http://localhost:"));
}
