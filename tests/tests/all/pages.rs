//! The pages for visitors who are not redirected: of the domain itself, of a link that does not exist, is gone or cannot
//! be opened now.

use std::collections::HashSet;
use std::fs;

use serde_json::json;
use shortlink_tests::browser::{Browser, Looks};
use shortlink_tests::http::{self, Response};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::stack::{Stack, StackOptions, text};

use crate::domains::set_domains;

fn get(stack: &Stack, host: &str, path: &str, language: &str) -> Response {
    let headers = [("Host", host), ("Accept-Language", language)];
    http::send(stack.nginx.public_port, "GET", path, &headers)
}

fn body(answer: &Response) -> String {
    String::from_utf8(answer.body.clone()).expect("text")
}

/// The part of a page between two texts.
fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = page
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before}: {page}"));
    rest.split_once(after).expect(after).0
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
            ("zh-HK", titles[2]),
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
            assert!(!page.contains("<script") && page.len() < 1500, "{page}");
            // Without a brand there is nothing of one, and no directive of the page is left.
            assert!(
                !page.contains("<footer") && !page.contains("<img"),
                "{page}"
            );
            assert!(!page.contains("<!--") && !page.contains("(none)"), "{page}");
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
    set_domains(
        &stack,
        "a.example active;\n*.b.example serving;\nc.example retired;",
    );
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
        ("y.b.example", "/page.html", "en", 404, "does not exist"),
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
        ("a.example", "/404.fr.html", "en", 404, "does not exist"),
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
fn each_language_has_each_text() {
    let limit =
        "rate=60r/m burst=100 network_rate=20r/s network_burst=2000 exempt=$shortlink_exempt";
    let mut stack = Stack::with(&StackOptions {
        nginx: NginxOptions {
            replace: vec![(limit, "rate=1r/m burst=1".to_owned())],
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    });
    set_domains(
        &stack,
        "brand Acme imprint=https://www.acme.example/imprint;\na.example active;\nb.example retired;",
    );
    let conf = fs::read_to_string(stack.nginx.file("pages.conf")).expect("pages.conf");
    let languages: Vec<&str> = between(&conf, "shortlink_languages ", ";")
        .split(' ')
        .collect();
    assert_eq!(languages.len(), 20);
    while get(&stack, "a.example", "/nosuchone", "").status == 404 {}
    let mut seen = HashSet::new();
    let mut imprints = HashSet::new();
    let mut look = |stack: &Stack, host: &str, path: &str, status: u16| {
        for language in &languages {
            let answer = get(stack, host, path, language);
            assert_eq!(answer.status, status, "{host}{path} {language}");
            let page = body(&answer);
            let direction = if ["ar", "ur"].contains(language) {
                "rtl"
            } else {
                "ltr"
            };
            let html = format!("<html lang=\"{language}\" dir=\"{direction}\">");
            assert!(page.contains(&html), "{page}");
            let title = between(&page, "<h1>", "</h1>");
            let text = between(&page, "<p>", "</p>");
            assert_eq!(between(&page, "<title>", "</title>"), title);
            for text in [title, text] {
                // A text that is missing is empty, or the name of the host.
                assert!(text.len() > 5 && text != host, "{page}");
                assert!(
                    seen.insert(text.to_owned()),
                    "{language} has {text:?} of another page"
                );
            }
            imprints.insert((
                (*language).to_owned(),
                between(&page, "imprint\">", "<").to_owned(),
            ));
        }
    };
    look(&stack, "a.example", "/", 200);
    look(&stack, "b.example", "/", 410);
    // Limited visitors have the page of links that cannot be opened now.
    look(&stack, "a.example", "/nosuchtwo", 429);
    stack
        .nginx
        .edit("shortlink.conf", "rate=1r/m burst=1", "off");
    stack.nginx.reload();
    look(&stack, "a.example", "/nosuchone", 404);
    let english = imprints.iter().filter(|(_, text)| text == "Legal notice");
    assert_eq!(english.count(), 1);
    assert_eq!(imprints.len(), languages.len());

    // Without the page, answers keep their status.
    let file = stack.nginx.file("pages/page.html");
    let page = fs::read(&file).expect("a page");
    fs::remove_file(&file).expect("a page");
    stack.nginx.reload();
    let plain = |stack: &Stack, host: &str, path: &str, status: u16| {
        let answer = get(stack, host, path, "en");
        let is_told_to_wait = answer.header("retry-after").is_some();
        assert_eq!(
            (answer.status, is_told_to_wait),
            (status, status == 503),
            "{host}{path}"
        );
        assert!(!body(&answer).contains("<footer>"), "{host}{path}");
    };
    plain(&stack, "a.example", "/nosuchone", 404);
    plain(&stack, "b.example", "/", 410);
    fs::write(&file, page).expect("a page");
    stack.nginx.reload();

    // Also if no part can decide whether there is a link.
    stack.sidecar.kill();
    stack.redis.kill();
    let answer = get(&stack, "a.example", "/nosuchthree", "ur-PK, en;q=0.5");
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("2"))
    );
    let page = body(&answer);
    assert!(page.contains("<html lang=\"ur\" dir=\"rtl\">"), "{page}");
    assert!(seen.contains(between(&page, "<h1>", "</h1>")), "{page}");
    assert!(page.contains("<bdi>Acme</bdi>"), "{page}");

    fs::remove_file(&file).expect("a page");
    stack.nginx.reload();
    plain(&stack, "a.example", "/nosuchthree", 503);
}

#[test]
fn pages_show_the_brand_of_their_domain() {
    let stack = Stack::start();
    let gone = revoked(&stack);
    let logo = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"/>";
    fs::write(stack.nginx.file("the logo.svg"), logo).expect("a logo");
    let brands = "brand \"A&B <\\\"短\\\">\" \"logo=the logo.svg\" imprint=https://a.example/i?a=1&b=\\\" \
                  site=https://www.a.example/;\nbrand Other imprint=http://b.example/;\nbrand Bare;\n";
    set_domains(
        &stack,
        &format!(
            "{brands}a.example active;\n*.b.example serving brand=Other;\nc.example serving brand=Bare;\n\
             d.example serving brand=off;\ne.example retired;\nf.example serving home=https://www.f.example/?from=f;"
        ),
    );
    let name = "A&amp;B &lt;&quot;短&quot;&gt;";
    let image = format!("<img src=\"/.logo\" alt=\"{name}\">");
    let site = format!("<footer><a href=\"https://www.a.example/\"><bdi>{name}</bdi></a>");
    let imprint = "<a href=\"https://a.example/i?a=1&amp;b=&quot;\">Impressum</a>";
    for (host, path, status) in [
        ("a.example", "/", 200),
        ("a.example", "/nosuchone", 404),
        ("a.example", &*gone, 410),
        ("e.example", &*gone, 410),
        ("e.example", "/", 410),
    ] {
        let answer = get(&stack, host, path, "de");
        assert_eq!(answer.status, status, "{host}{path}");
        let page = body(&answer);
        for part in [&*image, &site, imprint] {
            assert!(page.contains(part), "{host}{path} has no {part}: {page}");
        }
        let logo_of = get(&stack, host, "/.logo", "de");
        assert_eq!((logo_of.status, &*body(&logo_of)), (200, logo));
        assert_eq!(logo_of.header("content-type"), Some("image/svg+xml"));
        let policy = logo_of.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
    }
    for (host, footer) in [
        (
            "x.b.example",
            "<footer><bdi>Other</bdi>\n<a href=\"http://b.example/\">Legal notice</a>",
        ),
        ("c.example", "<footer><bdi>Bare</bdi>"),
        ("d.example", "</main>"),
    ] {
        let page = body(&get(&stack, host, "/nosuchone", "en"));
        assert!(page.contains(footer), "{host}: {page}");
        assert!(!page.contains("<img") && !page.contains("(none)"), "{page}");
        assert_eq!(page.contains("<footer"), host != "d.example", "{page}");
        assert_eq!(get(&stack, host, "/.logo", "en").status, 404);
    }
    let answer = get(&stack, "f.example", "/", "en");
    let target = Some("https://www.f.example/?from=f");
    assert_eq!((answer.status, answer.location()), (302, target));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(get(&stack, "f.example", "/nosuchone", "en").status, 404);

    // A swap of the domain takes its brand along.
    set_domains(
        &stack,
        &format!("{brands}a.example serving;\nnew.example active brand=Other;"),
    );
    let page = body(&get(&stack, "new.example", &gone, "en"));
    assert!(page.contains("<bdi>Other</bdi>"), "{page}");
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);

    // The check knows the brands, too.
    let file = stack.nginx.file("domains.conf");
    fs::remove_file(stack.nginx.file("the logo.svg")).expect("a logo");
    let arguments = ["domains", "check", "--json", file.to_str().expect("a path")];
    let checked = stack.sidecar.run(&arguments);
    let found: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert_eq!(found["domains"][1]["brand"], json!("Other"));
    let concerns = found["concerns"].to_string();
    assert!(
        concerns.contains("the logo.svg can't be read"),
        "{concerns}"
    );
}

#[test]
fn pages_are_accessible_and_fit_a_phone() {
    let stack = Stack::start();
    let gone = revoked(&stack);
    let logo = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"300\"><rect width=\"1200\" \
                height=\"300\" fill=\"#135\"/></svg>";
    fs::write(stack.nginx.file("logo.svg"), logo).expect("a logo");
    set_domains(
        &stack,
        "brand \"Subsidiaries of Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch\" \
         logo=logo.svg imprint=https://www.example.com/imprint site=https://www.example.com/;\n\
         127.0.0.1 active;",
    );
    for (language, width) in [("en", 1280), ("ur", 360), ("th", 360)] {
        let directory = stack.directory().join(format!("browser-{language}"));
        let looks = Looks { width, language };
        let browser = Browser::start(&directory, stack.nginx.public_port, looks);
        for path in ["/", "/nosuchone", &*gone] {
            browser.open(path);
            browser.assert_fits();
            browser.assert_accessible();
            let script =
                "return [document.images[0].naturalWidth > 0, document.documentElement.lang]";
            assert_eq!(browser.run(script, &[]), json!([true, language]));
        }
        browser.assert_sound(&["404", "410"]);
    }
}

#[test]
fn phones_find_the_apps_of_a_domain() {
    let stack = Stack::start();
    set_domains(
        &stack,
        "a.example active;\n*.b.example serving;\nc.example retired;",
    );
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
        concerns.contains("assetlinks.json is not a list of statements"),
        "{concerns}"
    );
}
