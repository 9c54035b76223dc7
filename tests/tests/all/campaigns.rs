//! Links of campaigns, validity windows and forwarded queries, with a real Redis.

use shortlink_tests::calendar::now;
use shortlink_tests::cluster::Cluster;
use shortlink_tests::http::{self, Response};
use shortlink_tests::nginx::{Nginx, NginxOptions};
use shortlink_tests::ports;
use shortlink_tests::redis::Redis;
use shortlink_tests::site::{Site, SiteOptions};
use shortlink_tests::stack::directory;
use shortlink_tests::wait::{SOON, until};
use std::path::Path;

/// Requests without an answer from Redis get 599.
const SERVER: &str = "add_header X-Edge \"$shortlink_outcome/$shortlink_source\" always;
    add_header X-Target \"$shortlink_target\" always;
    location / { shortlink; shortlink_fallback @fallback max_fails=0; }
    location @fallback { return 599; }";

/// A site that keeps things, or does not.
fn site(cache: &str) -> Site {
    Site::with(&SiteOptions {
        server: SERVER,
        cache,
        ..SiteOptions::default()
    })
}

fn set_campaign(site: &Site, record: &str) {
    site.redis.command(&["SET", "sl:c:4f", record]);
}

fn location(answer: &Response) -> (u16, &str) {
    (answer.status, answer.location().unwrap_or_default())
}

fn edge(answer: &Response) -> &str {
    answer.header("X-Edge").unwrap_or_default()
}

/// Requests a link until it is cached with its campaign.
fn warm(site: &Site, code: &str) {
    until("it is cached", SOON, || {
        edge(&site.get(code)).ends_with("/cache")
    });
}

/// Only nginx, with other servers than one Redis.
fn nginx(directory: &Path, redis: &str) -> Nginx {
    let options = NginxOptions {
        replace: vec![
            (
                "shortlink_check luhn body=7 alphabet=base62;",
                "shortlink_check none;".to_owned(),
            ),
            (
                "shortlink_cache 32m stale=60s;",
                "shortlink_cache 1m;".to_owned(),
            ),
            ("worker_processes 2", "worker_processes 1".to_owned()),
        ],
        redis: Some(redis.to_owned()),
        budget: "5s",
    };
    let ports = (ports::free(), ports::free());
    Nginx::start(&directory.join("nginx"), ports, 0, ports::free(), &options)
}

#[test]
fn a_link_of_a_campaign_leads_where_its_template_says() {
    for cache in ["off", "1m"] {
        let site = site(cache);
        set_campaign(
            &site,
            "1 307 3 0 https://shop.example.com/{1}/p?m={0}&c={code}#{code}",
        );
        site.redis.set_record("compact", "c4f M%C3%BCller%26Co&a.b");
        site.redis.set_record("longer", "1 C4f 9 0 x&y&z");
        let compact = "https://shop.example.com/a.b/p?m=M%C3%BCller%26Co&c=compact#compact";
        let longer = "https://shop.example.com/y/p?m=x&c=longer#longer";
        for _ in 0..4 {
            for (path, target) in [("/compact", compact), ("/longer", longer)] {
                for method in ["GET", "HEAD"] {
                    let answer = site.send(method, path, &[]);
                    assert_eq!(location(&answer), (307, target));
                    assert_eq!(answer.header("X-Target"), Some(target));
                    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
                    assert!(answer.body.is_empty());
                }
            }
        }
        let source = if cache == "off" { "redis" } else { "cache" };
        let expected = format!("redirect/{source}");
        assert_eq!(edge(&site.get("/compact")), expected);
        site.assert_ends_sound(&[]);
    }
}

#[test]
fn what_redis_holds_of_campaigns_is_not_trusted() {
    for cache in ["off", "1m"] {
        let site = site(cache);
        site.redis.set_record("link", "c4f a&b");
        let long = format!("1 302 1 0 https://e.com/{}{{0}}", "x".repeat(8192 - 14));
        let missed = [
            "1 302 1 0 https://e.com/{2}",
            "1 302 1 0 https://{0}/",
            "1 302 1 0 https://e.com{0}/",
            "1 302 1 0 https://{0}@e.com/",
            "1 302 1 0 https://e.com:{0}/",
            "1 302 1 0 https://e.com/{",
            "1 302 1 0 https://e.com/}",
            "1 302 1 0 https://e.com/{16}",
            "1 302 1 0 https://e.com/{x}",
            "1 302 1 0 https://e.com/{{0}}",
            "1 302 1 0 javascript:alert({0})",
            "1 302 1 0 //e.com/{0}",
            "1 302 1 0 https://e.com/{0}\r\nSet-Cookie: a=b",
            "1 302 1 0 https://e.com/{0}\n",
            "1 302 1 0 https://e.com/ {0}",
            "1 302 1 0 https://e.com/\u{fc}{0}",
            "1 C4f 2 0 a",
            "c4f a",
            "1 404 0",
            "1 302 1 9-8 https://e.com/",
            "",
            &long,
        ];
        for record in missed {
            set_campaign(&site, record);
            until(record, SOON, || site.get("/link").status == 599);
            // Also from the cache.
            for _ in 0..2 {
                let answer = site.get("/link");
                assert_eq!(
                    (answer.status, edge(&answer)),
                    (599, "miss/fallback"),
                    "{record}"
                );
            }
            set_campaign(&site, "1 302 1 0 https://e.com/{1}");
            until("it is well again", SOON, || {
                location(&site.get("/link")) == (302, "https://e.com/b")
            });
        }
        site.redis.command(&["DEL", "sl:c:4f"]);
        until("nothing is there", SOON, || site.get("/link").status == 599);
        site.redis.command(&["RPUSH", "sl:c:4f", "x"]);
        until("another type is there", SOON, || {
            site.get("/link").status == 599
        });
        site.redis.command(&["DEL", "sl:c:4f"]);
        set_campaign(&site, "1 302 1 0 https://e.com/{0}");
        for record in [
            "c4f a b",
            "c4f a/b",
            "c4f %",
            "c4f a\r\nX: y",
            "c04f a",
            "1 C4f 1 0",
        ] {
            site.redis.set_record("other", record);
            until(record, SOON, || site.get("/other").status == 599);
        }
        site.assert_ends_sound(&[]);
    }
}

#[test]
fn one_write_retargets_pauses_resumes_and_ends_a_campaign_for_links_that_are_kept() {
    let site = site("1m");
    set_campaign(&site, "1 302 1 0 https://e.com/old?{0}");
    let links: Vec<String> = (0..20).map(|number| format!("link{number}")).collect();
    for link in &links {
        site.redis.set_record(link, &format!("c4f {link}"));
    }
    let paths: Vec<String> = links.iter().map(|link| format!("/{link}")).collect();
    for path in &paths {
        warm(&site, path);
    }
    let gets = || site.redis.reads();
    let change = |record: &str, status: u16, target: &str| {
        let before = gets();
        set_campaign(&site, record);
        until("the change is seen", SOON, || {
            site.get(&paths[0]).status == status
        });
        for (link, path) in links.iter().zip(&paths) {
            let answer = site.get(path);
            assert_eq!(answer.status, status);
            let expected = (status != 410).then(|| format!("{target}{link}"));
            assert_eq!(answer.location().map(str::to_owned), expected);
            assert!(edge(&answer).ends_with("/cache"), "{}", edge(&answer));
        }
        assert_eq!(gets() - before, 1, "only the campaign was read");
    };
    let new = "1 308 2 0 https://new.example/{0}";
    change(new, 308, "https://new.example/");
    change("1 410 3", 410, "");
    let again = "1 302 4 0 https://e.com/again?{0}";
    change(again, 302, "https://e.com/again?");
    let in_a_while = now() + 6;
    let ends = format!("1 301q 6 {in_a_while} https://e.com/last?{{0}}");
    change(&ends, 301, "https://e.com/last?");
    let before = gets();
    until("it ends", SOON, || site.get(&paths[0]).status == 410);
    assert!(now() >= in_a_while);
    assert_eq!(gets(), before, "only by the clock");
    site.assert_ends_sound(&[]);
}

#[test]
fn a_link_and_a_campaign_begin_and_end_by_the_clock() {
    for cache in ["off", "1m"] {
        let site = site(cache);
        let (since, until_second) = (now() + 3, now() + 9);
        let window = format!("{since}-{until_second}");
        set_campaign(&site, "1 302 1 0 https://e.com/{0}");
        let other = format!("1 302 1 {window} https://e.com/{{0}}");
        site.redis.command(&["SET", "sl:c:5", &other]);
        site.redis
            .set_record("plain", &format!("1 302 1 {window} https://e.com/a"));
        site.redis
            .set_record("link", &format!("1 C4f 1 {window} a"));
        site.redis.set_record("member", "c5 a");
        site.redis
            .set_record("open", &format!("1 302 1 {since}- https://e.com/a"));
        let paths = ["/plain", "/link", "/member", "/open"];
        for path in paths {
            for _ in 0..3 {
                let answer = site.get(path);
                assert!(
                    answer.status == 404 || now() >= since,
                    "{path}: {}",
                    answer.status
                );
            }
        }
        for path in paths {
            until("it begins", SOON, || {
                location(&site.get(path)) == (302, "https://e.com/a")
            });
            // nginx looks at its clock when events come.
            assert!(now() >= since, "{path}");
            assert_eq!(site.get(path).status, 302);
        }
        for path in &paths[..3] {
            until("it ends", SOON, || site.get(path).status == 410);
            assert!(now() >= until_second, "{path}");
        }
        assert_eq!(site.get("/open").status, 302);
        // Whatever its campaign says, a link that is over is over.
        site.redis.command(&["DEL", "sl:c:4f"]);
        assert_eq!(site.get("/link").status, 410);
        site.assert_ends_sound(&[]);
    }
}

#[test]
fn the_visitor_s_query_is_passed_on_where_the_record_says_so() {
    let site = site("1m");
    for (code, target) in [
        ("plain", "https://e.com/p"),
        ("query", "https://e.com/p?x=1"),
        ("anchor", "https://e.com/p?x=1#top"),
        ("bare", "https://e.com#top?no"),
    ] {
        site.redis.set_record(code, &format!("1 302q 1 0 {target}"));
    }
    site.redis
        .set_record("without", "1 302 1 0 https://e.com/p");
    set_campaign(&site, "1 302q 1 0 https://e.com/{0}#{code}");
    site.redis.set_record("member", "c4f a");
    for (path, target) in [
        ("/plain", "https://e.com/p"),
        ("/plain?", "https://e.com/p"),
        ("/plain?a=b&c=%20d", "https://e.com/p?a=b&c=%20d"),
        ("/query?a=b", "https://e.com/p?x=1&a=b"),
        ("/anchor?a=b", "https://e.com/p?x=1&a=b#top"),
        ("/bare?a=b?c", "https://e.com?a=b?c#top?no"),
        ("/without?a=b", "https://e.com/p"),
        ("/member?utm=1", "https://e.com/a?utm=1#member"),
        ("/plain?{0}{code}", "https://e.com/p?{0}{code}"),
        ("/plain?//evil.example/", "https://e.com/p?//evil.example/"),
        // Characters that a URL can't have are encoded.
        ("/plain?\u{fc}", "https://e.com/p?%C3%BC"),
    ] {
        for _ in 0..3 {
            for method in ["GET", "HEAD"] {
                let answer = site.send(method, path, &[]);
                assert_eq!(location(&answer), (302, target), "{path}");
                assert_eq!(answer.header("X-Target"), Some(target));
            }
        }
    }
    // Too long together, and just not.
    let head = format!("https://e.com/{}?", "p".repeat(7_000));
    site.redis.set_record("long", &format!("1 302q 1 0 {head}"));
    let room = 8192 - head.len();
    for (length, is_passed_on) in [(room, true), (room + 1, false)] {
        let query = "q".repeat(length);
        let answer = site.get(&format!("/long?{query}"));
        let query = if is_passed_on { &*query } else { "" };
        assert_eq!(location(&answer), (302, &*format!("{head}{query}")));
    }
    site.assert_ends_sound(&[]);
}

#[test]
fn campaigns_are_counted_and_what_is_wrong_with_them_is_said() {
    let site = Site::with(&SiteOptions {
        server: "location / { shortlink; }
                 location = /metrics { shortlink_status; }",
        cache: "1m",
        ..SiteOptions::default()
    });
    set_campaign(&site, "1 302 1 0 https://e.com/{0}");
    site.redis.set_record("link", "c4f a");
    warm(&site, "/link");
    let text = || String::from_utf8(site.get("/metrics").body).expect("text");
    until("it is counted", SOON, || {
        let text = text();
        let has = |line: &str| text.lines().any(|found| found == line);
        // The first time it is not cached; the second time it is, while the link is not.
        has("shortlink_campaign_lookups_total{result=\"miss\"} 1")
            && has("shortlink_campaign_lookups_total{result=\"hit\"} 2")
    });
    // Without a fallback the target of such a link is unknown.
    set_campaign(&site, "1 302 1 0 https://{0}/");
    until("it is refused", SOON, || site.get("/link").status == 503);
    set_campaign(&site, "1 302 1 0 https://e.com/{1}");
    until("it is logged", SOON, || {
        assert_eq!(site.get("/link").status, 503);
        let log = site.nginx.error_log();
        log.contains("the value in Redis for the campaign 4f is not a record")
            && log.contains("the link link lacks parameters")
    });
    site.assert_ends_sound(&[]);
}

#[test]
fn in_a_cluster_a_campaign_may_be_on_another_node_than_its_links_and_move() {
    let directory = directory();
    let path = directory.path();
    let cluster = Cluster::start(path);
    let lines = format!(
        "cluster 127.0.0.1:{};\nheartbeat 100ms;",
        cluster.nodes[0].port
    );
    let nginx = nginx(path, &lines);
    let codes: Vec<String> = (0..30).map(|number| format!("code{number}")).collect();
    for (number, code) in codes.iter().enumerate() {
        let campaign = ["4f", "5", "zz"][number % 3];
        cluster.command(&[
            "SET",
            &format!("sl:l:{code}"),
            &format!("c{campaign} {number}"),
        ]);
    }
    let set = |campaign: &str, target: &str| {
        let record = format!("1 302 1 0 {target}");
        cluster.command(&["SET", &format!("sl:c:{campaign}"), &record]);
    };
    for campaign in ["4f", "5", "zz"] {
        set(campaign, &format!("https://e.com/{campaign}/{{0}}"));
    }
    let follow = |code: &str| http::get(nginx.public_port, &format!("/{code}"));
    for _ in 0..3 {
        for (number, code) in codes.iter().enumerate() {
            let campaign = ["4f", "5", "zz"][number % 3];
            let target = format!("https://e.com/{campaign}/{number}");
            assert_eq!(location(&follow(code)), (302, &*target));
        }
    }
    assert_eq!(edge(&follow("code0")), "redirect/cache");
    let (owner, other) = cluster.owner_and_other("sl:c:4f");
    let slot = cluster.slot("sl:c:4f");
    let of_others = codes.iter().step_by(3);
    let of_others = of_others.filter(|code| {
        let (of_link, _) = cluster.owner_and_other(&format!("sl:l:{code}"));
        of_link.port != owner.port
    });
    assert!(
        of_others.count() > 0,
        "a link is on another node than its campaign"
    );
    set("4f", "https://e.com/new/{0}");
    until("the change is seen", SOON, || {
        location(&follow("code0")) == (302, "https://e.com/new/0")
    });

    // The campaign's slot is on its way, and then at its new place.
    let (from_id, to_id) = (Cluster::id(owner), Cluster::id(other));
    other.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
    owner.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    let port = other.port.to_string();
    for key in owner
        .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])
        .lines()
    {
        owner.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }
    for _ in 0..3 {
        assert_eq!(location(&follow("code0")), (302, "https://e.com/new/0"));
        assert_eq!(location(&follow("code3")), (302, "https://e.com/new/3"));
    }
    for node in [other, owner] {
        node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
    }
    for _ in 0..3 {
        assert_eq!(location(&follow("code0")), (302, "https://e.com/new/0"));
    }
    until("it is cached", SOON, || {
        edge(&follow("code0")) == "redirect/cache"
    });
    cluster.command(&["SET", "sl:c:4f", "1 410 9"]);
    until("the pause is seen", SOON, || follow("code3").status == 410);
    // Without proof that Redis is current nginx asks the sidecar, which is not there.
    assert_eq!(nginx.complaints(&["connect()"]), [""; 0]);
}

#[test]
fn changes_of_campaigns_are_told_to_everybody_where_redis_is_to_remember_nothing() {
    let directory = directory();
    let redis = Redis::start(&directory.path().join("redis"), ports::free());
    let lines = format!("server 127.0.0.1:{};\ntracking broadcast;", redis.port);
    let nginx = nginx(directory.path(), &lines);
    redis.command(&["SET", "sl:c:4f", "1 302 1 0 https://e.com/{0}"]);
    redis.set_record("link", "c4f a");
    let follow = || http::get(nginx.public_port, "/link");
    until("it is cached", SOON, || edge(&follow()) == "redirect/cache");
    redis.command(&["SET", "sl:c:4f", "1 302 1 0 https://e.com/new/{0}"]);
    until("the change is seen", SOON, || {
        location(&follow()) == (302, "https://e.com/new/a")
    });
    until("it is cached", SOON, || edge(&follow()) == "redirect/cache");
    redis.set_record("link", "c4f b");
    until("the change is seen", SOON, || {
        location(&follow()) == (302, "https://e.com/new/b")
    });
    assert_eq!(nginx.complaints(&[]), [""; 0]);
}

#[test]
fn campaigns_are_served_as_they_were_while_redis_is_away() {
    let mut site = site("1m stale=60s");
    set_campaign(&site, "1 302 1 0 https://e.com/{0}");
    site.redis.set_record("link", "c4f a");
    warm(&site, "/link");
    site.redis.kill();
    until("it is served stale", SOON, || {
        edge(&site.get("/link")) == "redirect/stale"
    });
    assert_eq!(location(&site.get("/link")), (302, "https://e.com/a"));
    site.redis.start_again();
    set_campaign(&site, "1 302 2 0 https://e.com/new/{0}");
    until("it is read again", SOON, || {
        location(&site.get("/link")) == (302, "https://e.com/new/a")
    });
}
