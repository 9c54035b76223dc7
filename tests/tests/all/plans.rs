//! Plans at the edge: the target for each visitor, and those instead of 410 and 404.

use crate::visits::STREAM;
use shortlink_tests::calendar::now;
use shortlink_tests::http::Response;
use shortlink_tests::site::{Site, SiteOptions};
use shortlink_tests::visits::visits;
use shortlink_tests::wait::{SOON, until};

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Safari/604.1";
const ANDROID: &str = "Mozilla/5.0 (Linux; Android 14; K) Chrome/120.0 Mobile Safari/537.36";

/// Requests without an answer from Redis get 599.
const SERVER: &str = "add_header X-Edge \"$shortlink_outcome/$shortlink_source\" always;
    add_header X-Chosen \"$shortlink_variant/$shortlink_place\" always;
    location / { shortlink; shortlink_fallback @fallback max_fails=0; }
    location @fallback { return 599; }";

fn site(cache: &str) -> Site {
    Site::with(&SiteOptions {
        http: "shortlink_country $arg_cc $arg_region;",
        server: SERVER,
        cache,
        visits: "on interval=10ms",
        ..SiteOptions::default()
    })
}

/// A plan of these sections.
fn plan(sections: &[(char, &str)]) -> String {
    let text = |(letter, text): &(char, &str)| format!("{letter}{}:{text}", text.len());
    sections.iter().map(text).collect()
}

fn ask(site: &Site, path: &str, agent: &str, languages: &str) -> Response {
    let headers = [("User-Agent", agent), ("Accept-Language", languages)];
    site.send("GET", path, &headers)
}

fn location(answer: &Response) -> (u16, &str) {
    (answer.status, answer.location().unwrap_or_default())
}

const RULES: [(char, &str); 6] = [
    ('T', "https://e.com/"),
    ('R', "d=i;l=de;v=app https://apps.e.com/de"),
    ('R', "d=ia https://apps.e.com/"),
    ('R', "c=AT,US-CA https://e.com/near"),
    ('R', "q=src=a%20d https://e.com/ad"),
    ('R', "t=1000-2000 https://e.com/past"),
];

#[test]
fn each_visitor_gets_the_target_of_the_first_rule_that_fits() {
    for cache in ["off", "1m"] {
        let site = site(cache);
        let plan = plan(&RULES);
        site.redis.set_record("plan", &format!("2 302q 1 0 {plan}"));
        for _ in 0..3 {
            for (query, agent, languages, target) in [
                ("", IPHONE, "de-AT,en;q=0.5", "https://apps.e.com/de"),
                ("", IPHONE, "en", "https://apps.e.com/"),
                ("?x=1", ANDROID, "de", "https://apps.e.com/?x=1"),
                ("?cc=AT", "curl", "de", "https://e.com/near?cc=AT"),
                (
                    "?cc=us&region=CA",
                    "",
                    "",
                    "https://e.com/near?cc=us&region=CA",
                ),
                ("?cc=US&region=NY", "", "", "https://e.com/?cc=US&region=NY"),
                ("?src=a+d", "", "", "https://e.com/ad?src=a+d"),
                ("", "", "", "https://e.com/"),
            ] {
                let answer = ask(&site, &format!("/plan{query}"), agent, languages);
                assert_eq!(location(&answer), (302, target), "{query} {agent}");
            }
        }
        let answer = ask(&site, "/plan?cc=US&region=CA", IPHONE, "de");
        assert_eq!(answer.header("X-Chosen"), Some("app/US-CA"));
        let source = if cache == "off" { "redis" } else { "cache" };
        assert_eq!(
            answer.header("X-Edge"),
            Some(&*format!("redirect/{source}"))
        );
        until("the visit names its rule", SOON, || {
            let visits = visits(site.redis.port, STREAM);
            visits
                .iter()
                .filter(|visit| visit.variant == b"app")
                .count()
                >= 4
        });
        site.assert_ends_sound(&[]);
    }
}

#[test]
fn shares_of_visitors_are_always_the_same() {
    let site = site("1m");
    let plan = plan(&[
        ('T', "https://e.com/"),
        ('R', "s=0.0-5000;v=a https://e.com/a"),
    ]);
    site.redis.set_record("split", &format!("2 302 1 0 {plan}"));
    let target = |agent: usize| {
        let answer = ask(&site, "/split", &agent.to_string(), "");
        answer.location().expect("a target").to_owned()
    };
    let first: Vec<String> = (0..200).map(target).collect();
    let again: Vec<String> = (0..200).map(target).collect();
    assert_eq!(first, again);
    // Seven standard deviations.
    let count = first.iter().filter(|it| it.ends_with("/a")).count();
    assert!((50..150).contains(&count), "{count}");
}

#[test]
fn links_that_are_not_live_lead_to_the_target_instead() {
    for cache in ["off", "1m"] {
        let site = site(cache);
        let plan = plan(&[
            ('T', "https://e.com/"),
            ('E', "https://e.com/over"),
            ('N', "https://e.com/soon"),
        ]);
        let (end, begin) = (now() + 2, now() + 1_000);
        for (code, validity) in [
            ("live", "0".to_owned()),
            ("over", "1000".to_owned()),
            ("ends", end.to_string()),
            ("soon", format!("{begin}-")),
        ] {
            let record = format!("2 301q 1 {validity} {plan}");
            site.redis.set_record(code, &record);
        }
        for _ in 0..3 {
            assert_eq!(location(&site.get("/live")), (301, "https://e.com/"));
            assert_eq!(
                location(&site.get("/over?a=b")),
                (302, "https://e.com/over")
            );
            assert_eq!(location(&site.get("/soon")), (302, "https://e.com/soon"));
        }
        until("it has ended", SOON, || {
            location(&site.get("/ends")) == (302, "https://e.com/over")
        });
    }
}

#[test]
fn links_of_a_campaign_have_its_plan() {
    for cache in ["off", "1m"] {
        let site = site(cache);
        let campaign = |sections: &[(char, &str)]| {
            let record = format!("2 302 {} 0 {}", now(), plan(sections));
            site.redis.command(&["SET", "sl:c:4f", &record]);
        };
        campaign(&[
            ('T', "https://e.com/{0}"),
            ('R', "d=i https://apps.e.com/?c={code}&m={0}"),
            ('E', "https://e.com/over?m={0}"),
        ]);
        site.redis.set_record("link", "c4f abc");
        site.redis.set_record("over", "1 C4f 1 1000 abc");
        site.redis
            .set_record("early", &format!("1 C4f 1 {}- abc", now() + 1_000));
        for _ in 0..3 {
            let answer = ask(&site, "/link", IPHONE, "");
            let app = "https://apps.e.com/?c=link&m=abc";
            assert_eq!(location(&answer), (302, app));
            assert_eq!(location(&site.get("/link")), (302, "https://e.com/abc"));
            let over = "https://e.com/over?m=abc";
            assert_eq!(location(&site.get("/over")), (302, over));
            assert_eq!(site.get("/early").status, 404);
        }
        // One write changes all of its links.
        campaign(&[('T', "https://e.com/2"), ('N', "https://e.com/soon")]);
        until("the change has come", SOON, || {
            location(&ask(&site, "/link", IPHONE, "")) == (302, "https://e.com/2")
        });
        assert_eq!(site.get("/over").status, 410);
        assert_eq!(location(&site.get("/early")), (302, "https://e.com/soon"));
    }
}

#[test]
fn a_plan_that_can_not_be_read_is_a_miss() {
    let site = site("1m");
    for (code, rest) in [
        ("unknown", "T14:https://e.com/X1:a"),
        ("condition", "T14:https://e.com/R18:z=1 https://e.com/1"),
        ("script", "T14:https://e.com/R12:d=i js:alert()"),
        ("later", "T14:https://e.com/E2:js"),
        ("cut", "T14:https://e.com/E99:https://e.com/"),
    ] {
        site.redis.set_record(code, &format!("2 302 1 0 {rest}"));
        for _ in 0..3 {
            assert_eq!(site.get(&format!("/{code}")).status, 599, "{code}");
        }
    }
}
