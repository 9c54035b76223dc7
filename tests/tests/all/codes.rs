//! Codes that users choose, and the texts that lead to them.

use serde_json::json;
use shortlink_tests::http::{self, Response};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::wait::{SOON, until};

const TARGET: &str = "https://www.example.com/sale";

/// Creates a link of a custom code; the answer.
fn create(stack: &Stack, code: &str) -> Response {
    let body = json!({ "longUrl": TARGET, "customSlug": code });
    stack.api("POST", "/v1/links", Some(&body))
}

/// Follows a path; the status and the source of the answer.
fn follow(stack: &Stack, path: &str) -> (u16, String) {
    let answer = stack.follow(path);
    (
        answer.status,
        answer.header("X-Edge").unwrap_or_default().to_owned(),
    )
}

/// Has Redis forget the record of a code.
fn forget(stack: &Stack, code: &str) {
    stack.redis.command(&["del", &format!("sl:l:{code}")]);
}

fn visits(stack: &Stack, code: &str) -> serde_json::Value {
    let link = stack.api("GET", &format!("/v1/links/{code}"), None);
    link.json()["visits"]["total"].clone()
}

#[test]
fn a_custom_code_has_hyphens_and_underscores_and_64_characters() {
    let stack = Stack::start();
    let long = format!("{}-{}", "Long".repeat(8), "code".repeat(7) + "xyz");
    assert_eq!(long.len(), 64);
    // The first has the length of issued codes.
    for code in [
        "sale-26x",
        "spring-sale",
        "Spring_Sale-2026",
        "-",
        "A-1",
        &long,
    ] {
        assert_eq!(create(&stack, code).status, 201, "{code}");
        for _ in 0..3 {
            let (status, edge) = follow(&stack, code);
            assert_eq!(status, 302, "{code}");
            assert!(
                ["redirect/redis", "redirect/cache"].contains(&&*edge),
                "{code}: {edge}"
            );
        }
        let explained = stack
            .api("GET", &format!("/v1/links/{code}/explain"), None)
            .json();
        assert_eq!(explained["answer"]["status"], 302, "{explained}");
    }
    for wrong in [
        "spring sale",
        "sale.x",
        "größe",
        &format!("{long}x"),
        "Spring26",
    ] {
        let refused = create(&stack, wrong);
        assert_eq!(refused.status, 422, "{wrong}");
        assert_eq!(
            refused.json()["errors"][0]["pointer"],
            "/customSlug",
            "{wrong}"
        );
    }
    // Their visits are stored, and a revocation arrives at all workers.
    until("visits are counted", SOON, || visits(&stack, &long) == 3);
    let revoked = stack.api("DELETE", &format!("/v1/links/{long}"), None);
    assert_eq!(revoked.status, 200);
    until("it is gone", SOON, || follow(&stack, &long).0 == 410);
}

#[test]
fn text_behind_a_code_leads_to_it_unless_the_whole_is_a_code() {
    let stack = Stack::start();
    let issued = stack.link(TARGET);
    assert_eq!(create(&stack, "spring-sale").status, 201);
    assert_eq!(create(&stack, "spring-sale-x").status, 201);
    assert_eq!(create(&stack, "sale").status, 201);
    let glued = [
        format!("{issued}-STOP"),
        format!("{issued}_回T退订"),
        format!("{issued}--"),
        format!("{issued}-a-b-c-d-e"),
        format!("{issued}-{}", "x".repeat(80)),
        "spring-sale%E3%80%82".to_owned(),
        "spring-sale-STOP".to_owned(),
        "spring-sale-STOP-x".to_owned(),
        "sale-STOP".to_owned(),
    ];
    stack.wait_until_redis_is_current();
    // Only SQL knows that a custom code is not the whole; from then on Redis does.
    for path in &glued[6..] {
        assert_eq!(
            follow(&stack, path),
            (302, "miss/fallback".to_owned()),
            "{path}"
        );
    }
    for path in &glued {
        let (status, edge) = follow(&stack, path);
        assert_eq!(status, 302, "{path}");
        assert!(
            ["redirect/redis", "redirect/cache"].contains(&&*edge),
            "{path}: {edge}"
        );
    }
    // Each is a visit of the link.
    until("visits are counted", SOON, || {
        visits(&stack, &issued) == 5 && visits(&stack, "spring-sale") == 5
    });
    // The whole is first: its revocation is not hidden by the link of a part.
    assert_eq!(follow(&stack, "spring-sale-x").0, 302);
    stack.api("DELETE", "/v1/links/spring-sale-x", None);
    until("it is gone", SOON, || {
        follow(&stack, "spring-sale-x").0 == 410
    });
    assert_eq!(follow(&stack, "spring-sale").0, 302);
    stack.api("DELETE", &format!("/v1/links/{issued}"), None);
    until("glued text changes nothing", SOON, || {
        follow(&stack, &format!("{issued}-STOP")).0 == 410
    });
    for unknown in [
        "nothing-here",
        "spring-x",
        &format!("{}x-STOP", &issued[..7]),
    ] {
        for _ in 0..4 {
            assert_eq!(follow(&stack, unknown).0, 404, "{unknown}");
        }
    }
    // A code that was unknown a moment ago.
    assert_eq!(create(&stack, "nothing-here").status, 201);
    until("it is known", SOON, || {
        follow(&stack, "nothing-here").0 == 302
    });

    // The fallback finds the same link, and nginx counts its visit.
    forget(&stack, "sale");
    let answer = stack.follow("sale-STOP");
    assert_eq!(answer.header("X-Edge"), Some("miss/fallback"));
    assert_eq!(
        (answer.status, answer.header("X-Shortlink-Code")),
        (302, None)
    );
    until("visits are counted", SOON, || visits(&stack, "sale") == 3);
    let explained = stack.api("GET", "/v1/links/sale-STOP/explain", None).json();
    assert_eq!(explained["followedCode"], "sale", "{explained}");
}

fn twins_are_refused(stack: &Stack) {
    assert_eq!(create(stack, "Spring-Sale").status, 201);
    assert_eq!(create(stack, "SALE").status, 201);
    for twin in ["spring-sale", "SPRING-SALE", "sale", "Sale", "SALE"] {
        let refused = create(stack, twin);
        assert_eq!(refused.status, 409, "{twin}");
    }
    // Among the rows of one request, too.
    let rows = json!([
        { "longUrl": TARGET, "customSlug": "New-1" },
        { "longUrl": TARGET, "customSlug": "new-1" },
        { "longUrl": TARGET },
    ]);
    let answer = stack.api("POST", "/v1/links/batch", Some(&rows));
    let statuses = String::from_utf8_lossy(&answer.body)
        .matches("\"status\":201")
        .count();
    assert_eq!(statuses, 2, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(follow(stack, "spring-sale").0, 404);
    assert_eq!(follow(stack, "Spring-Sale").0, 302);
}

#[test]
fn no_two_custom_codes_differ_only_by_case() {
    twins_are_refused(&Stack::start());
    let directory = shortlink_tests::stack::directory();
    let postgres = Postgres::start(directory.path());
    twins_are_refused(&Stack::on(&postgres));
}

#[test]
fn custom_codes_are_found_in_any_case_where_nginx_and_sidecar_ignore_it() {
    let stack = Stack::with(&StackOptions {
        sidecar: "[codes]\nignore_case = true".to_owned(),
        nginx: NginxOptions {
            replace: vec![(
                "shortlink_check luhn body=7 alphabet=base62;",
                "shortlink_check luhn body=7 ignore_case;".to_owned(),
            )],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    stack.wait_until_redis_is_current();
    let issued = stack.link(TARGET);
    for code in ["spring-sale", "sale", "Own-Case"] {
        assert_eq!(create(&stack, code).status, 201, "{code}");
    }
    // Once SQL has said that there is no such code, the edge finds those in lower case by itself.
    for path in ["SPRING-SALE", "Spring-Sale-STOP", "Sale", "SALE"] {
        assert_eq!(
            follow(&stack, path),
            (302, "miss/fallback".to_owned()),
            "{path}"
        );
    }
    for path in ["SPRING-SALE", "Spring-Sale-STOP", "Sale", "SALE", "sale"] {
        until("the edge finds it", SOON, || {
            let (status, edge) = follow(&stack, path);
            assert_eq!(status, 302, "{path}");
            edge.starts_with("redirect/")
        });
    }
    // The others are found through the fallback, in their own case by the edge.
    let (status, edge) = follow(&stack, "OWN-CASE");
    assert_eq!((status, &*edge), (302, "miss/fallback"));
    assert_eq!(
        follow(&stack, "Own-Case"),
        (302, "redirect/redis".to_owned())
    );
    until("visits count for the link", SOON, || {
        visits(&stack, "Own-Case") == 2
    });
    let explained = stack.api("GET", "/v1/links/OWN-CASE/explain", None).json();
    assert_eq!(explained["followedCode"], "Own-Case", "{explained}");
    // No link has a second record.
    for spelling in ["SALE", "own-case"] {
        let record = stack.redis.record(spelling);
        assert!(
            record.is_none_or(|it| it.starts_with("1 404")),
            "{spelling}"
        );
    }
    // An issued code has one case.
    let other = if issued == issued.to_ascii_lowercase() {
        issued.to_ascii_uppercase()
    } else {
        issued.to_ascii_lowercase()
    };
    assert_eq!(follow(&stack, &other).0, 404);

    // A revocation is pushed to all spellings, however often they were asked before.
    for _ in 0..4 {
        assert_eq!(follow(&stack, "SPRING-SALE").0, 302);
    }
    stack.api("DELETE", "/v1/links/spring-sale", None);
    until("it is gone", SOON, || {
        follow(&stack, "SPRING-SALE").0 == 410
    });
    stack.api("DELETE", "/v1/links/Own-Case", None);
    assert_eq!(follow(&stack, "own-case").0, 410);
    // A link that is created in another case of a code that was unknown.
    assert_eq!(follow(&stack, "LATER-ON").0, 404);
    assert_eq!(follow(&stack, "LATER-ON").0, 404);
    assert_eq!(create(&stack, "later-on").status, 201);
    until("it is known", SOON, || follow(&stack, "LATER-ON").0 == 302);
    assert_eq!(http::get(stack.nginx.public_port, "/LATER-ON/").status, 302);
    assert_eq!(create(&stack, "Later-On").status, 409);
}

#[test]
fn codes_of_other_services_arrive_as_they_are() {
    let stack = Stack::start();
    let long = "l".repeat(30) + "_" + &"L".repeat(33);
    let files = [
        (
            "yourls.csv",
            format!(
                "keyword,url,title,timestamp,ip,clicks\n\
                     spring-sale,{TARGET},,,,1\nspring_8,{TARGET},,,,1\n"
            ),
            vec!["spring-sale", "spring_8"],
        ),
        (
            "shlink.csv",
            format!(
                "createdAt,domain,shortCode,shortUrl,longUrl,title,tags,visits\n\
                     2024-01-01T00:00:00+00:00,s.test,{long},https://s.test/{long},{TARGET},,,1\n"
            ),
            vec![&*long],
        ),
        (
            "kutt.ndjson",
            format!(
                "{{\"address\":\"My-Link_1\",\"target\":\"{TARGET}\"}}\n\
                     {{\"address\":\"my-link_1\",\"target\":\"{TARGET}\"}}\n"
            ),
            // The links are in use: both stay.
            vec!["My-Link_1", "my-link_1"],
        ),
        (
            "dub.csv",
            format!("Short link,Destination URL\nhttps://dub.test/launch-2026,{TARGET}\n"),
            vec!["launch-2026"],
        ),
        (
            "bitly.ndjson",
            format!(
                "{{\"id\":\"bit.test/Spring-Sale_26\",\"link\":\"https://bit.test/Spring-Sale_26\",\
                     \"long_url\":\"{TARGET}\"}}\n"
            ),
            vec!["Spring-Sale_26"],
        ),
    ];
    for (name, content, codes) in &files {
        let path = stack.directory().join(name);
        std::fs::write(&path, content).expect("a file");
        stack
            .sidecar
            .run_ok(&["import", path.to_str().expect("a path")]);
        for code in codes {
            let answer = stack.follow(code);
            assert_eq!(
                (answer.status, answer.location()),
                (302, Some(TARGET)),
                "{name}: {code}"
            );
        }
    }
    // They count when new codes are chosen, and an export has them.
    assert_eq!(create(&stack, "SPRING-SALE").status, 409);
    let exported = stack.sidecar.run_ok(&["export", "--format", "ndjson"]);
    let codes = files.iter().flat_map(|(.., codes)| codes);
    for code in codes {
        assert!(
            exported.contains(&format!("\"{code}\"")),
            "{code}: {exported}"
        );
    }
}
