//! Previews of links and campaigns, from nginx and from the fallback.

use std::thread;

use serde_json::json;
use shortlink_tests::http::{self, Response};
use shortlink_tests::stack::{Stack, text};
use shortlink_tests::wait::{SOON, until};
use vocabulary::preview::is_preview_agent;

/// Programs of messengers that show links, as they name themselves.
const MESSENGERS: [&str; 24] = [
    // iMessage.
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_11_1) AppleWebKit/601.2.4 (KHTML, like Gecko) Version/9.0.1 \
     Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0",
    "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
    "Twitterbot/1.0",
    // WhatsApp, and Signal.
    "WhatsApp/2.23.20.0",
    "WhatsApp/2.24.13.77 A",
    "WhatsApp/2",
    "TelegramBot (like TwitterBot)",
    "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
    "Slack-ImgProxy (+https://api.slack.com/robots)",
    "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
    "LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)",
    "Mozilla/5.0 (Windows NT 6.1; WOW64) SkypeUriPreview Preview/0.5 skype-url-preview@microsoft.com",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/110.0.5481.100 \
     Safari/537.36 Teams/1.0 MicrosoftPreview/2.0",
    "Viber/13.3.0.4 CFNetwork/1121.2.2 Darwin/19.3.0",
    "facebookexternalhit/1.1;line-poker/1.0",
    "facebookexternalhit/1.1; kakaotalk-scrap/1.0; +https://devtalk.kakao.com/t/scrap/33984",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/56.0.2924.87 Safari/537.36 \
     Google (+https://developers.google.com/+/web/snippet/)",
    "Mozilla/5.0 (Linux; Android 14) GoogleMessages/20240612",
    "Mozilla/5.0 (Windows NT 6.1; WOW64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/41.0.2272.118 \
     Safari/537.36 Snap URL Preview Service; bot; snapchat; https://developers.snap.com/robots",
    "Mozilla/5.0 (compatible; Pinterestbot/1.0; +https://www.pinterest.com/bot.html)",
    "Mozilla/5.0 (compatible; ZaloBot/1.0)",
    "Mozilla/5.0 (compatible; vkShare; +http://vk.com/dev/Share)",
    "WeChatShareExtensionNew/8.0.49.33 CFNetwork/1494.0.7 Darwin/23.4.0",
    "Mozilla/5.0 (compatible; redditbot/1.0; +http://www.reddit.com/feedback)",
];

/// Those of persons, and of programs that show nothing.
const OTHERS: [&str; 8] = [
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
     Version/17.5 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile \
     Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
     Mobile/15E148 Safari Line/14.9.0",
    "Mozilla/5.0 (Linux; Android 13; SM-S911N; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 \
     Chrome/116.0.0.0 Mobile Safari/537.36;KAKAOTALK 2410340",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
     Mobile/15E148 [LinkedInApp]/9.29.8962",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Teams/1.6.00.12303 \
     Chrome/102.0.5005.197 Electron/19.1.8 Safari/537.36",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "curl/8.5.0",
];

fn ask(stack: &Stack, method: &str, path: &str, agent: &str) -> Response {
    let headers = [("User-Agent", agent), ("Host", "localhost")];
    let answer = http::send(
        stack.nginx.public_port,
        method,
        &format!("/{path}"),
        &headers,
    );
    for name in ["X-Shortlink-Preview", "X-Shortlink-Click"] {
        assert_eq!(answer.header(name), None, "{agent}");
    }
    answer
}

/// Makes Redis forget a link, so that the fallback answers the next visitor.
fn forget(stack: &Stack, code: &str) {
    stack.redis.command(&["DEL", &format!("sl:l:{code}")]);
}

fn page(answer: &Response) -> String {
    assert_eq!(answer.status, 200);
    for (name, value) in [
        ("Content-Type", Some("text/html; charset=utf-8")),
        ("Cache-Control", Some("no-store")),
        ("X-Robots-Tag", Some("noindex")),
        ("Referrer-Policy", Some("no-referrer")),
        ("Location", None),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    String::from_utf8(answer.body.clone()).expect("UTF-8")
}

#[test]
fn messengers_get_the_page_and_all_others_the_redirect() {
    let stack = Stack::shared();
    let body = json!({
        "longUrl": "https://example.com/a?b=1&c=2", "preview": {
            "title": "\"><script>alert(1)</script>", "description": "Größe & 50% <b>",
            "image": "https://e.example/a.png?b=1&c=2",
        },
    });
    let code = text(&stack.create(&body), "shortCode");
    let first = page(&ask(stack, "GET", &code, MESSENGERS[0]));
    let port = stack.nginx.public_port;
    let escaped = "&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;";
    for part in [
        format!("<title>{escaped}</title>"),
        format!("<meta property=\"og:title\" content=\"{escaped}\">"),
        "<meta property=\"og:description\" content=\"Größe &amp; 50% &lt;b&gt;\">".to_owned(),
        "<meta property=\"og:image\" content=\"https://e.example/a.png?b=1&amp;c=2\">".to_owned(),
        format!("<meta property=\"og:url\" content=\"http://localhost:{port}/{code}\">"),
        "<meta name=\"twitter:card\" content=\"summary_large_image\">".to_owned(),
        "content=\"0; url=https://example.com/a?b=1&amp;c=2\"".to_owned(),
        "<a href=\"https://example.com/a?b=1&amp;c=2\">".to_owned(),
    ] {
        assert!(first.contains(&part), "{part}: {first}");
    }
    assert!(!first.contains("<script"), "{first}");
    // From the cache and, after each deletion, from the fallback: the same page.
    for round in 0..2 {
        for agent in MESSENGERS {
            if round == 1 {
                forget(stack, &code);
            }
            let answer = ask(stack, "GET", &code, agent);
            assert_eq!(page(&answer), first, "round {round}: {agent}");
            if round == 1 {
                forget(stack, &code);
            }
            let head = ask(stack, "HEAD", &code, agent);
            assert_eq!(
                head.header("Content-Length"),
                answer.header("Content-Length")
            );
            assert_eq!(page(&head), "");
        }
        for agent in OTHERS {
            if round == 1 {
                forget(stack, &code);
            }
            for method in ["GET", "HEAD"] {
                let answer = ask(stack, method, &code, agent);
                assert_eq!(answer.status, 302, "round {round}: {agent}");
                assert_eq!(answer.location(), Some("https://example.com/a?b=1&c=2"));
                assert_eq!(answer.body, b"");
            }
        }
    }
    // Text behind the code is not part of the short URL.
    for is_forgotten in [false, true] {
        if is_forgotten {
            forget(stack, &code);
        }
        let glued = ask(
            stack,
            "GET",
            &format!("{code}-STOP?to={code}"),
            MESSENGERS[0],
        );
        assert_eq!(page(&glued), first, "{is_forgotten}");
    }
    let other = ask(
        stack,
        "GET",
        &stack.link("https://example.com/"),
        MESSENGERS[0],
    );
    assert_eq!(other.status, 302);
}

/// A messenger that obeys it must be let in, and no search engine.
#[test]
fn robots_txt_allows_preview_agents_only() {
    let stack = Stack::shared();
    let answer = http::get(stack.nginx.public_port, "/robots.txt");
    let robots = String::from_utf8(answer.body).expect("UTF-8");
    let (allowed, rest) = robots.split_once("\nDisallow:\n").expect("a group");
    let names = allowed
        .lines()
        .map(|line| line.strip_prefix("User-agent: ").expect("a name"));
    for name in names.clone() {
        assert!(is_preview_agent(format!("{name}/1").as_bytes()), "{name}");
    }
    assert!(names.count() > 15);
    assert_eq!(rest, "\nUser-agent: *\nDisallow: /\n");
}

#[test]
fn one_change_of_a_campaign_changes_the_previews_of_all_its_links() {
    let stack = Stack::shared();
    let campaign = json!({
        "name": "Spring", "longUrl": "https://shop.example.com/{code}?m={member}", "clickId": "sl",
        "rules": [{ "device": ["ios"], "longUrl": "https://apps.example.com/{member}" }],
        "preview": { "title": "Spring", "image": "https://e.example/spring.png" },
    });
    let campaign = stack.api("POST", "/v1/campaigns", Some(&campaign)).json();
    let path = format!("/v1/campaigns/{}", text(&campaign, "id"));
    let codes = ["a", "b"].map(|member| {
        let link = json!({
            "campaignId": text(&campaign, "id"), "parameters": { "member": member },
        });
        (member, text(&stack.create(&link), "shortCode"))
    });
    let check = |title: &str, begin: &dyn Fn(&str, &str) -> String| {
        codes.iter().all(|(member, code)| {
            let page = page(&ask(stack, "GET", code, "WhatsApp/2.23.20.0"));
            let target = format!("<a href=\"{}", begin(member, code));
            page.contains(&target) && page.contains(&format!("<title>{title}</title>"))
        })
    };
    let before =
        |member: &str, code: &str| format!("https://shop.example.com/{code}?m={member}&amp;sl=");
    assert!(check("Spring", &before));
    let change = json!({
        "longUrl": "https://new.example.com/{member}", "preview": { "title": "Summer" },
    });
    assert_eq!(stack.api("PATCH", &path, Some(&change)).status, 200);
    let after = |member: &str, _: &str| format!("https://new.example.com/{member}?sl=");
    until("the campaign has changed", SOON, || check("Summer", &after));
    for (_, code) in &codes {
        forget(stack, code);
    }
    assert!(check("Summer", &after));
    let change = json!({ "preview": null });
    assert_eq!(stack.api("PATCH", &path, Some(&change)).status, 200);
    until("the campaign has no preview", SOON, || {
        let answers = codes
            .iter()
            .map(|(_, code)| ask(stack, "GET", code, "WhatsApp/2"));
        answers.map(|it| it.status).all(|status| status == 302)
    });
}

#[test]
fn visits_of_messengers_are_recorded_as_previews_with_status_200() {
    let mut stack = Stack::start();
    let body = json!({
        "longUrl": "https://example.com/", "preview": { "title": "Sale" }, "maxVisits": 1,
    });
    let code = text(&stack.create(&body), "shortCode");
    let person = OTHERS[0];
    // From Redis, from the cache, from the fallback, and from the fallback without Redis.
    for _ in 0..2 {
        page(&ask(&stack, "GET", &code, "WhatsApp/2"));
    }
    forget(&stack, &code);
    page(&ask(&stack, "GET", &code, "WhatsApp/2"));
    let path = format!("/v1/links/{code}");
    let count = || stack.api("GET", &path, None).json()["visits"].clone();
    until("the visits are stored", SOON, || count()["total"] == 3);
    assert_eq!(count()["human"], 0);
    assert_eq!(stack.api("GET", &path, None).json()["state"], "live");
    let stats = format!("{path}/stats?by=status");
    let stats = stack.api("GET", &stats, None).json();
    assert_eq!(stats["visits"]["preview"], 3);
    let statuses = stats["by"]["status"].as_array().expect("a list");
    assert_eq!(statuses.len(), 1, "{statuses:?}");
    assert_eq!(statuses[0]["value"], "200");
    let agent = "/explain?userAgent=WhatsApp/2";
    let explained = stack.api("GET", &format!("{path}{agent}"), None).json();
    let answer = &explained["answer"];
    assert_eq!(
        (&answer["status"], &answer["preview"]),
        (&json!(200), &json!(true))
    );
    // The one visit of a person ends the link, also for messengers.
    assert_eq!(ask(&stack, "GET", &code, person).status, 302);
    until("the link has expired", SOON, || {
        ask(&stack, "GET", &code, "WhatsApp/2").status == 410
    });
    let body = json!({ "longUrl": "https://example.com/", "preview": { "title": "Sale" } });
    let code = text(&stack.create(&body), "shortCode");
    stack.redis.kill();
    thread::scope(|scope| {
        let asked = (0..4).map(|_| scope.spawn(|| page(&ask(&stack, "GET", &code, "WhatsApp/2"))));
        let pages: Vec<_> = asked.map(|it| it.join().expect("a page")).collect();
        assert!(
            pages
                .iter()
                .all(|page| page.contains("<title>Sale</title>"))
        );
    });
    assert_eq!(ask(&stack, "GET", &code, person).status, 302);
}
