//! Access logs of requests to a location with `shortlink`.

use shortlink_tests::site::{ONE, Site, SiteOptions};
use shortlink_tests::workspace;
use vocabulary::CodeRules;

/// A code whose check character is wrong.
fn wrong_check() -> String {
    let right = CodeRules::default().complete(b"aaaaaaa").expect("a code");
    let last = if right.as_str().ends_with('a') {
        'b'
    } else {
        'a'
    };
    format!("aaaaaaa{last}")
}

#[test]
fn a_log_can_tell_everything_that_the_edge_knows() {
    let site = Site::with(&SiteOptions {
        http: "log_format edge '$request_method $status $shortlink_code $shortlink_target '
                               '$shortlink_outcome $shortlink_source $shortlink_domain_state '
                               '$shortlink_active_base $shortlink_domain_names';
               access_log logs/edge.log edge;",
        server: "location / { shortlink; shortlink_fallback @fallback; }
                 location /own/ { rewrite ^/own/(.*)$ /$1 break; shortlink; }
                 location /other { return 204; }
                 location @fallback { return 302 https://example.com/fallback; }",
        ..SiteOptions::default()
    });
    let wrong = wrong_check();
    let mut expected = Vec::new();
    let base = format!("http://localhost:{}", site.nginx.public_port);
    for (method, host, path, line) in [
        (
            "GET",
            "localhost",
            "/one",
            format!("302 one {ONE} redirect redis active"),
        ),
        (
            "HEAD",
            "127.0.0.1",
            "/one,",
            format!("302 one {ONE} redirect redis serving"),
        ),
        (
            "GET",
            "LOCALHOST.",
            "/one",
            format!("302 one {ONE} redirect redis active"),
        ),
        (
            "GET",
            "other",
            "/gone?x=1",
            "410 gone - gone redis unknown".to_owned(),
        ),
        (
            "GET",
            "localhost",
            "/nolink",
            "404 nolink - unknown redis active".to_owned(),
        ),
        (
            "GET",
            "localhost",
            "/~",
            "404 - - malformed none active".to_owned(),
        ),
        (
            "GET",
            "localhost",
            &format!("/{wrong}"),
            "404 - - wrong_check none active".to_owned(),
        ),
        (
            "POST",
            "localhost",
            "/one",
            "405 - - method none active".to_owned(),
        ),
        (
            "GET",
            "localhost",
            "/nosuchone",
            "302 nosuchone - miss fallback active".to_owned(),
        ),
        (
            "GET",
            "localhost",
            "/own/nosuchone",
            "404 nosuchone - miss redis active".to_owned(),
        ),
        (
            "GET",
            "localhost",
            "/other",
            "204 - - - - active".to_owned(),
        ),
    ] {
        site.send(method, path, &[("Host", host)]);
        expected.push(format!("{method} {line} {base} localhost,127.0.0.1"));
    }
    assert_eq!(site.log("edge.log", expected.len()), expected);
    site.assert_sound(&[]);
}

#[test]
fn a_log_without_an_answer_from_redis_says_so() {
    let mut site = Site::with(&SiteOptions {
        http: "log_format edge '$status $shortlink_code $shortlink_outcome $shortlink_source';
               access_log logs/edge.log edge;",
        server: "location / { shortlink; }",
        ..SiteOptions::default()
    });
    site.redis.kill();
    for _ in 0..3 {
        let answer = site.get("/one");
        assert_eq!(answer.status, 503);
        assert_eq!(answer.header("Retry-After"), Some("2"));
    }
    assert_eq!(site.log("edge.log", 3), ["503 one unavailable none"; 3]);
}

#[test]
fn a_log_can_be_kept_for_some_outcomes_only() {
    let site = Site::with(&SiteOptions {
        http: "log_format short '$shortlink_code';
               map $shortlink_outcome $strange { default 1; redirect 0; }
               map $shortlink_source $of_redis { redis 1; }",
        server: "access_log logs/strange.log short if=$strange;
                 access_log logs/redis.log short if=$of_redis;
                 access_log logs/$shortlink_outcome.log short;
                 location / { shortlink; }",
        ..SiteOptions::default()
    });
    for path in ["/one", "/gone", "/~", "/two", "/nolink"] {
        site.get(path);
    }
    assert_eq!(site.log("strange.log", 3), ["gone", "-", "nolink"]);
    assert_eq!(site.log("redis.log", 4), ["one", "gone", "two", "nolink"]);
    assert_eq!(site.log("redirect.log", 2), ["one", "two"]);
    assert_eq!(site.log("malformed.log", 1), ["-"]);
}

#[test]
fn a_log_can_have_networks_in_place_of_addresses() {
    let page = workspace().join("docs/src/operations/monitoring.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let map = page
        .split("```nginx\n")
        .find(|block| block.starts_with("map $remote_addr "));
    let (map, _) = map
        .and_then(|block| block.split_once("```"))
        .expect("the map");
    let site = Site::with(&SiteOptions {
        http: &format!(
            "{map} set_real_ip_from 127.0.0.1; real_ip_header X-Visitor;
             log_format network '$client_network $shortlink_code'; access_log logs/network.log network;"
        ),
        server: "location / { shortlink; }",
        ..SiteOptions::default()
    });
    let mut expected = Vec::new();
    for (address, network) in [
        ("203.0.113.97", "203.0.113.0"),
        ("2001:db8:a:b:c:d:e:f", "2001:db8:a::"),
        ("2001:db8:a::97", "2001:db8:a::"),
        ("2001:db8::a:b:97", "2001:db8::"),
        ("2001::97", "2001::"),
        ("::97", "-"),
    ] {
        site.send("GET", "/one", &[("X-Visitor", address)]);
        expected.push(format!("{network} one"));
    }
    assert_eq!(site.log("network.log", expected.len()), expected);
}
