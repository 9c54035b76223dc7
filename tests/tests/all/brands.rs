//! Two brands share one nginx: each has its own domains, links, sidecar, database and Redis.

use std::fs;

use serde_json::{Value, json};
use shortlink_tests::http::{self, Response};
use shortlink_tests::ports;
use shortlink_tests::redis::Redis;
use shortlink_tests::sidecar::{Sidecar, api};
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};

use crate::domains_tls::{ask, make_certificate, set_domains, turn_on_tls};

/// The second brand beside that of a stack.
struct Brand {
    sidecar: Sidecar,
    _redis: Redis,
    internal_port: u16,
}

impl Brand {
    /// Adds the brand to the nginx of a stack: copies of its files, with the name of the brand.
    fn beside(stack: &Stack) -> Self {
        let directory = stack.directory();
        let redis = Redis::start(&directory.join("brand-redis"), ports::free());
        let sidecar = Sidecar::start(
            &directory.join("brand-sidecar"),
            ports::free(),
            redis.port,
            "",
        );
        let internal_port = ports::free();
        let nginx = &stack.nginx;
        let copy = |name: &str, changes: &[(&str, String)]| {
            let mut text = fs::read_to_string(nginx.file(name)).expect("a configuration");
            for (from, to) in changes {
                assert!(text.contains(from), "{name} has no {from:?}");
                text = text.replace(from, to);
            }
            let copy = nginx.file(&format!("brand-{name}"));
            fs::write(copy, text).expect("a configuration");
        };
        let upstream = || ("shortlink_sidecar", "brand_sidecar".to_owned());
        copy(
            "public.conf",
            &[
                upstream(),
                (" default_server reuseport", String::new()),
                (
                    "server_name _;",
                    format!(
                        "server_name brand.example new.brand.example;\n\
                         include brand-domains.conf;\n\
                         listen 127.0.0.1:{} ssl; shortlink_certificates;",
                        nginx.tls_port
                    ),
                ),
                ("include tls.conf;", String::new()),
                ("shortlink;", "shortlink brand;".to_owned()),
            ],
        );
        let (old, new) = (nginx.internal_port, internal_port);
        let domains = format!("listen 127.0.0.1:{new};\n    include brand-domains.conf;");
        copy(
            "internal.conf",
            &[
                upstream(),
                (&format!("listen 127.0.0.1:{old};"), domains),
                (
                    &format!("listen 127.0.0.1:{old} default_server"),
                    format!("listen 127.0.0.1:{new} default_server"),
                ),
            ],
        );
        let added = format!(
            "shortlink_redis brand {{ server 127.0.0.1:{}; heartbeat 100ms; budget 2s; }}\n\
             upstream brand_sidecar {{ server 127.0.0.1:{} max_fails=0; keepalive 32; }}\n\
             include brand-public.conf;\ninclude brand-internal.conf;\ninclude public.conf;",
            redis.port, sidecar.port
        );
        nginx.edit("shortlink.conf", "include public.conf;", &added);
        Self {
            sidecar,
            _redis: redis,
            internal_port,
        }
    }

    fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        api(self.internal_port, &self.sidecar.key, method, path, body)
    }
}

/// Writes the table of the second brand.
fn set_brand_domains(stack: &Stack, table: &str) {
    let lines = "certificate live/*/fullchain.pem;\ncertificate_key live/*/privkey.pem;";
    let text = format!("shortlink_domains {{\n{lines}\n{table}\n}}\n");
    fs::write(stack.nginx.file("brand-domains.conf"), text).expect("a table");
}

#[test]
fn two_brands_share_one_nginx_and_nothing_else() {
    let stack = Stack::start();
    let live = stack.nginx.file("live");
    for name in ["a.example", "brand.example", "new.brand.example"] {
        make_certificate(&live, &[name], 90);
    }
    set_domains(&stack.nginx, "a.example active;");
    turn_on_tls(&stack.nginx);
    set_brand_domains(&stack, "brand.example active;\nnew.brand.example serving;");
    let brand = Brand::beside(&stack);
    let tested = stack.nginx.test_configuration();
    let said = String::from_utf8(tested.stderr).expect("text");
    assert!(tested.status.success(), "{said}");
    let (table, certificates) = ("include brand-domains.conf;", "shortlink_certificates;");
    let swap = |one, other| {
        stack.nginx.edit("brand-public.conf", one, "HERE");
        stack.nginx.edit("brand-public.conf", other, one);
        stack.nginx.edit("brand-public.conf", "HERE", other);
    };
    swap(table, certificates);
    let said = String::from_utf8(stack.nginx.test_configuration().stderr).expect("text");
    let reason = "\"shortlink_domains\" must stand before \"shortlink_certificates\" of its server";
    assert!(said.contains(reason), "{said}");
    swap(certificates, table);
    stack.nginx.reload();

    // One code in both, and each sidecar knows the domains of its brand only.
    let link = |target: &str| json!({ "longUrl": target, "customSlug": "offer" });
    let first = stack.create(&link("https://a.example.com/"));
    let second = brand.api("POST", "/v1/links", Some(&link("https://b.example.com/")));
    assert_eq!(second.status, 201);
    assert_eq!(text(&first, "shortUrl"), "https://a.example/offer");
    let short_url = |answer: &Response| text(&answer.json(), "shortUrl");
    assert_eq!(short_url(&second), "https://brand.example/offer");
    let follow = |host: &str| {
        let headers = [("Host", host)];
        let answer = http::send(stack.nginx.public_port, "GET", "/offer", &headers);
        (answer.status, answer.location().map(str::to_owned))
    };
    let (to_first, to_second) = (
        (302, Some("https://a.example.com/".to_owned())),
        (302, Some("https://b.example.com/".to_owned())),
    );
    assert_eq!(follow("a.example"), to_first);
    assert_eq!(follow("brand.example"), to_second);
    assert_eq!(follow("new.brand.example"), to_second);
    let file = |name: &str| live.join(name).join("fullchain.pem");
    for (host, expected) in [
        ("a.example", "https://a.example.com/"),
        ("brand.example", "https://b.example.com/"),
    ] {
        let answer = ask(stack.nginx.tls_port, host, "/offer", &file(host));
        // The version of HTTP between them is of the port before nginx 1.25.1, and of the server since.
        let answer = answer.expect("the certificate of the brand");
        assert!(
            answer.starts_with("302 ") && answer.ends_with(expected),
            "{answer}"
        );
    }

    // A swap of one brand's domain concerns the other one no more than a revocation does.
    set_brand_domains(&stack, "brand.example retired;\nnew.brand.example active;");
    stack.nginx.reload();
    let read = brand.api("GET", "/v1/links/offer", None);
    assert_eq!(short_url(&read), "https://new.brand.example/offer");
    let read = stack.api("GET", "/v1/links/offer", None);
    assert_eq!(short_url(&read), "https://a.example/offer");
    assert_eq!(follow("brand.example").0, 410);
    assert_eq!(follow("a.example"), to_first);
    assert_eq!(stack.api("DELETE", "/v1/links/offer", None).status, 200);
    until("the revocation is seen", SOON, || {
        follow("a.example").0 == 410
    });
    assert_eq!(follow("new.brand.example"), to_second);

    // Each sidecar counts the visits of its brand.
    until("the visits of the brand are counted", SOON, || {
        let stats = brand.api("GET", "/v1/links/offer/stats", None).json();
        stats["visits"]["total"] == 4
    });
    // nginx -t logs its refusal there, too, since some version.
    assert_eq!(stack.nginx.complaints(&["must stand before"]), [""; 0]);
}
