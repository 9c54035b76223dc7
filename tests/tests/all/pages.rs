//! The pages for visitors of a link that does not exist or is gone.

use std::fs;

use serde_json::json;
use shortlink_tests::http::{self, Response};
use shortlink_tests::stack::{Stack, text};

fn get(stack: &Stack, host: &str, path: &str, language: &str) -> Response {
    let headers = [("Host", host), ("Accept-Language", language)];
    http::send(stack.nginx.public_port, "GET", path, &headers)
}

fn body(answer: &Response) -> String {
    String::from_utf8(answer.body.clone()).expect("text")
}

/// A link that was revoked, and what its path is.
fn revoked(stack: &Stack) -> String {
    let link = stack.create(&json!({ "longUrl": "https://target.example/" }));
    let path = format!("/{}", text(&link, "shortCode"));
    assert_eq!(stack.follow(&path[1..]).status, 302);
    let answer = stack.api("DELETE", &format!("/v1/links{path}"), None);
    assert!(matches!(answer.status, 200 | 204), "{answer:?}");
    path
}

#[test]
fn people_are_told_in_their_language() {
    let mut stack = Stack::start();
    let gone = revoked(&stack);
    for (path, status, titles) in [
        (
            "/nosuchone",
            404,
            ["This link does not exist", "链接不存在", "連結不存在"],
        ),
        (
            &*gone,
            410,
            [
                "This link is no longer available",
                "链接已失效",
                "連結已失效",
            ],
        ),
    ] {
        for (language, title) in [
            ("", titles[0]),
            ("tlh", titles[0]),
            ("zh-CN,zh;q=0.9,en;q=0.8", titles[1]),
            ("zh-Hant-TW,zh;q=0.9", titles[2]),
        ] {
            let answer = get(&stack, "localhost", path, language);
            assert_eq!(answer.status, status, "{path} {language}");
            assert_eq!(
                answer.header("content-type"),
                Some("text/html; charset=utf-8")
            );
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            let policy = answer.header("content-security-policy").expect("a policy");
            assert!(policy.starts_with("default-src 'none'"), "{policy}");
            let page = body(&answer);
            assert!(
                page.contains(&format!("<title>{title}</title>")),
                "{language}: {page}"
            );
            assert!(!page.contains("<script") && page.len() < 1000, "{page}");
        }
    }
    // The same when only the sidecar knows, whose answers are for programs.
    stack.redis.kill();
    for (path, status) in [("/0000000H", 404), (&*gone, 410)] {
        let answer = get(&stack, "localhost", path, "de-AT");
        assert_eq!(answer.status, status, "{}", body(&answer));
        assert!(
            body(&answer).contains("<html lang=\"de\""),
            "{}",
            body(&answer)
        );
    }
}

#[test]
fn a_domain_may_have_pages_of_its_own() {
    let stack = Stack::start();
    let gone = revoked(&stack);
    let table =
        "shortlink_domains {\na.example active;\n*.b.example serving;\nc.example retired;\n}\n";
    fs::write(stack.nginx.file("domains.conf"), table).expect("domains.conf");
    stack.nginx.reload();
    for (file, text) in [
        ("a.example/410.html", "gone from a"),
        ("a.example/404.fr.html", "rien chez a"),
        ("a.example/index.html", "welcome to a"),
        ("b.example/410.de.html", "weg von b"),
        ("b.example/favicon.ico", "an icon"),
        ("c.example/410.html", "c has moved"),
    ] {
        let path = stack.nginx.file("pages").join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a page");
    }
    for (host, path, language, status, part) in [
        ("a.example", &*gone, "de", 410, "gone from a"),
        (
            "a.example",
            "/nosuchone",
            "fr-CA, en;q=0.5",
            404,
            "rien chez a",
        ),
        ("a.example", "/nosuchone", "en", 404, "does not exist"),
        ("a.example", "/", "en", 200, "welcome to a"),
        ("x.b.example", &gone, "de", 410, "weg von b"),
        ("x.b.example", &gone, "en", 410, "no longer available"),
        ("y.b.example", "/favicon.ico", "en", 200, "an icon"),
        (
            "y.b.example",
            "/",
            "en",
            200,
            "This address serves short links",
        ),
        ("y.b.example", "/", "de-AT", 200, "leitet Kurzlinks weiter"),
        ("y.b.example", "/", "zh-Hant-TW", 200, "此網址用於短連結"),
        // Other files have no URL.
        ("y.b.example", "/index.en.html", "en", 404, "does not exist"),
        ("a.example", "/favicon.ico", "en", 204, ""),
        ("a.example", "/apple-touch-icon.png", "en", 204, ""),
        ("c.example", "/", "en", 410, "c has moved"),
        ("c.example", &gone, "en", 410, "c has moved"),
        (
            "a.example",
            "/robots.txt",
            "en",
            200,
            "User-agent: *\nDisallow: /\n",
        ),
        ("a.example", "/robots.txt", "en", 200, "agent: WhatsApp\n"),
        ("a.example", "/robots.txt", "en", 200, "\nDisallow:\n"),
        // Pages are only for these answers, and other files have no URL.
        (
            "a.example",
            "/pages/a.example/410.html",
            "en",
            404,
            "does not exist",
        ),
        ("a.example", "/404.en.html", "en", 404, "does not exist"),
        (
            "a.example",
            "/",
            "../../../../etc/passwd",
            200,
            "welcome to a",
        ),
    ] {
        let answer = get(&stack, host, path, language);
        assert_eq!(answer.status, status, "{host}{path}");
        let page = body(&answer);
        assert!(page.contains(part), "{host}{path} {language}: {page}");
    }
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn phones_find_the_apps_of_a_domain() {
    let stack = Stack::start();
    let table =
        "shortlink_domains {\na.example active;\n*.b.example serving;\nc.example retired;\n}\n";
    fs::write(stack.nginx.file("domains.conf"), table).expect("domains.conf");
    stack.nginx.reload();
    const IOS: &str = "/.well-known/apple-app-site-association";
    const ANDROID: &str = "/.well-known/assetlinks.json";
    let ios = r#"{"applinks":{"details":[{"appIDs":["T.com.a"],"components":[{"/":"/*"}]}]}}"#;
    let android = r#"[{"relation":["delegate_permission/common.handle_all_urls"],
        "target":{"namespace":"web","site":"https://b.example"}}]"#;
    let write = |file: &str, text: &str| {
        let path = stack.nginx.file("pages").join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    write(&format!("a.example{IOS}"), ios);
    write(&format!("b.example{ANDROID}"), android);
    write(&ANDROID[1..], "[]");
    for (host, path, text) in [
        ("a.example", IOS, ios),
        ("a.example", ANDROID, "[]"),
        ("x.b.example", ANDROID, android),
    ] {
        let answer = get(&stack, host, path, "en");
        assert_eq!(
            (answer.status, answer.location()),
            (200, None),
            "{host}{path}"
        );
        assert_eq!(
            answer.header("Content-Type"),
            Some("application/json"),
            "{host}{path}"
        );
        assert_eq!(body(&answer), text, "{host}{path}");
    }
    assert_eq!(get(&stack, "x.b.example", IOS, "en").status, 404);
    assert_eq!(get(&stack, "c.example", ANDROID, "en").status, 410);

    // The check reads the same files.
    let file = stack.nginx.file("domains.conf");
    let arguments = ["domains", "check", "--json", file.to_str().expect("a path")];
    let checked = stack.sidecar.run(&arguments);
    let found: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert_eq!(found["domains"][0]["apps"], serde_json::json!(["iOS"]));
    assert_eq!(found["domains"][1]["apps"], serde_json::json!(["Android"]));
    let concerns = found["concerns"].to_string();
    assert!(
        concerns.contains("assetlinks.json is no list of statements"),
        "{concerns}"
    );
}
