//! Every answered redirect is recorded as what it was; `visits_faults` has what happens when something
//! is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use shortlink_tests::http::{self, Connection};
use shortlink_tests::site::{ONE, Site, SiteOptions};
use shortlink_tests::visits::{Account, Visit, batches, names, visits};
use shortlink_tests::wait::{SOON, until};
use vocabulary::visit::VisitMethod;

/// The stream where there is one.
pub(super) const STREAM: &str = "sl:v:{0}";

pub(super) const SERVER: &str = "location / { shortlink; shortlink_fallback @fallback; }
                      location @fallback { return 404; }
                      location = /metrics { shortlink_status; }";

/// A site that records visits and caches links, so that it redirects without Redis too.
pub(super) fn site(parameters: &str) -> Site {
    site_with(parameters, SERVER, "")
}

/// The same with workers that wait ten seconds for Redis where they have to.
pub(super) fn patient_site(parameters: &str) -> Site {
    connected(&SiteOptions {
        visits: parameters,
        server: SERVER,
        cache: "1m stale=10m",
        ..SiteOptions::default()
    })
}

pub(super) fn site_with(parameters: &str, server: &str, http: &str) -> Site {
    connected(&SiteOptions {
        visits: parameters,
        server,
        http,
        cache: "1m stale=10m",
        budget: "1s",
        ..SiteOptions::default()
    })
}

fn connected(options: &SiteOptions<'_>) -> Site {
    let site = Site::with(options);
    until("the worker is connected", SOON, || {
        site.redis
            .command(&["CLIENT", "LIST"])
            .contains("name=shortlink-edge")
    });
    site
}

pub(super) fn account(site: &Site) -> Account {
    let page = http::get(site.nginx.public_port, "/metrics");
    Account::of(&String::from_utf8(page.body).expect("text"))
}

pub(super) fn stored(site: &Site) -> Vec<Visit> {
    visits(site.redis.port, STREAM)
}

/// Waits until so many different visits stand in the stream, and checks that there are no more.
pub(super) fn wait_for_names(site: &Site, count: usize) -> BTreeSet<(u64, u64)> {
    until(&format!("{count} visits are stored"), SOON, || {
        names(site.redis.port, STREAM).len() >= count
    });
    let names = names(site.redis.port, STREAM);
    assert_eq!(names.len(), count);
    names
}

/// Follows the code `one` so often on one connection.
pub(super) fn follow(site: &Site, count: usize) {
    follow_on(site.nginx.public_port, count);
}

pub(super) fn follow_on(port: u16, count: usize) {
    let request = http::request("GET", "/one", &[("User-Agent", "a phone")], b"");
    let mut connection = Connection::open(port).expect("a connection");
    for number in 0..count {
        if number % 900 == 899 {
            connection = Connection::open(port).expect("a connection");
        }
        connection.send(&request).expect("sent");
        let answer = connection.receive("GET").expect("read").expect("an answer");
        assert_eq!((answer.status, answer.location()), (302, Some(ONE)));
    }
}

#[test]
fn a_visit_has_all_that_is_known_of_it() {
    let site = site("on interval=10ms");
    let agent = "Mozilla/5.0 (a phone)";
    site.send(
        "GET",
        "/one。",
        &[
            ("Host", "S.example.com:8080"),
            ("User-Agent", agent),
            ("Referer", "https://example.com/page"),
            ("Accept-Language", "zh-CN,zh;q=0.9"),
            ("Purpose", "preview"),
            ("Sec-Purpose", "prefetch;prerender"),
        ],
    );
    site.send("HEAD", "/two", &[("Purpose", "prefetch")]);
    site.send("GET", "/gone", &[]);
    // None of these is one.
    for path in ["/nolink", "/nosuchone", "/~", "/"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    assert_eq!(site.send("POST", "/one", &[]).status, 405);
    wait_for_names(&site, 3);
    let found = stored(&site);
    let first = &found[0];
    assert_eq!((first.status, first.method), (302, VisitMethod::Get));
    let texts = first
        .texts
        .each_ref()
        .map(|text| String::from_utf8_lossy(text));
    assert_eq!(
        texts,
        [
            "one",
            "s.example.com",
            "127.0.0.1",
            agent,
            "https://example.com/page",
            "zh-CN,zh;q=0.9",
            "prefetch;prerender"
        ]
    );
    assert!(first.time_ms > 1_700_000_000_000);
    assert_eq!((found[1].status, found[1].method), (301, VisitMethod::Head));
    assert_eq!(found[1].texts[6], b"prefetch");
    assert_eq!(found[1].texts[3], b"");
    assert_eq!((found[2].status, found[2].code()), (410, "gone".to_owned()));
    let sequences: Vec<u64> = found.iter().map(|visit| visit.id.1).collect();
    assert_eq!(sequences, [0, 1, 2]);
    until("they are counted as stored", SOON, || {
        account(&site).stored == 3
    });
    assert_eq!(account(&site).held, 0);
    site.assert_ends_sound(&[]);
}

#[test]
fn visits_leave_in_batches_and_the_last_at_the_end() {
    let mut site = site("on batch=100 interval=60s");
    follow(&site, 250);
    wait_for_names(&site, 200);
    let shape = |site: &Site| -> Vec<usize> {
        let batches = batches(site.redis.port, STREAM);
        batches.iter().map(Vec::len).collect()
    };
    assert_eq!(shape(&site), [100, 100]);
    assert_eq!(site.redis.calls("xadd"), 2);
    until("they are counted as stored", SOON, || {
        account(&site).stored == 200
    });
    let told = account(&site);
    assert_eq!((told.total, told.stored, told.held), (250, 200, 50));
    site.nginx.quit();
    assert_eq!(shape(&site), [100, 100, 50]);
    assert_eq!(site.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn a_batch_is_full_by_bytes_too_and_old_after_its_interval() {
    let site = site("on batch=10000 bytes=1k interval=300ms");
    let begin = Instant::now();
    follow(&site, 1);
    wait_for_names(&site, 1);
    assert!(begin.elapsed() >= Duration::from_millis(250));
    let agent = "x".repeat(400);
    until("a batch is full", SOON, || {
        for _ in 0..3 {
            site.send("GET", "/one", &[("User-Agent", &agent)]);
        }
        let batches = batches(site.redis.port, STREAM);
        batches.iter().any(|batch| batch.len() == 3)
    });
}

#[test]
fn what_the_fallback_answers_is_recorded_as_the_visitor_got_it() {
    let site = site_with(
        "on interval=10ms",
        "location / { shortlink; shortlink_fallback @fallback; }
         location /moved { shortlink; shortlink_fallback @moved; error_page 404 =302 /elsewhere; }
         location @fallback { proxy_pass http://127.0.0.1:INTERNAL_PORT; }
         location @moved { return 410; }
         location = /elsewhere { return 200; }
         location /plain { return 302 /one; }
         location /unknown { rewrite ^ /nolink break; shortlink; error_page 404 =302 /plain; }",
        "server {
             listen 127.0.0.1:INTERNAL_PORT;
             location /redirected { return 307 https://example.com/x; }
             location /dead { return 410; }
             location /broken { return 500; }
             location / { return 404; }
         }",
    );
    for (path, status) in [
        ("/redirected", 307),
        ("/dead", 410),
        ("/broken", 500),
        ("/other", 404),
        ("/movedx", 410),
        // A wrong check character, which an error page makes a redirect.
        ("/movedfar", 302),
        ("/plain", 302),
        ("/unknown", 302),
    ] {
        assert_eq!(site.get(path).status, status, "{path}");
    }
    site.get("/one");
    wait_for_names(&site, 4);
    let found = stored(&site);
    let found: BTreeMap<String, u16> = found.iter().map(|v| (v.code(), v.status)).collect();
    let expected = [
        ("dead", 410),
        ("movedx", 410),
        ("one", 302),
        ("redirected", 307),
    ];
    let expected = expected.map(|(code, status)| (code.to_owned(), status));
    assert_eq!(found, expected.into());
}

#[test]
fn subrequests_and_internal_redirects_make_no_second_visit() {
    let site = site_with(
        "on interval=10ms",
        "location / { shortlink; error_page 410 /shown; }
         location = /shown { return 200 gone; }
         location /mirrored { mirror /two; rewrite ^ /one break; shortlink; }
         location /page { ssi on; ssi_types *; root html; }",
        "log_subrequest on; access_log logs/all.log;",
    );
    site.write("html/page", "<!--# include virtual=\"/one\" -->.");
    assert_eq!(site.get("/mirrored").status, 302);
    assert_eq!(site.get("/page").status, 200);
    assert_eq!(site.get("/gone").status, 410);
    assert_eq!(site.get("/one").status, 302);
    // Logged they all are: the mirror, the page with what it includes, and the others.
    site.log("all.log", 6);
    wait_for_names(&site, 3);
    let found: Vec<_> = stored(&site).iter().map(Visit::code).collect();
    assert_eq!(found, ["one", "gone", "one"]);
}

/// One worker records in the order of the answers: each unwanted visit would come before the last wanted one.
#[test]
fn visits_are_recorded_where_they_are_wanted() {
    let site = site_with(
        "on interval=10ms",
        "location / { shortlink; }
         location /off { shortlink_visits off; rewrite ^/off/(.*) /$1 break; shortlink; }
         location /some {
             shortlink_visits on if=$counted;
             if ($arg_by = probe) { shortlink_visits off; }
             rewrite ^/some/(.*) /$1 break;
             shortlink;
         }
         location /asked {
             shortlink_visits off;
             rewrite ^/asked/(.*) /$1 break;
             shortlink;
             shortlink_fallback @fallback;
         }
         location @fallback { shortlink_visits on; return 302 https://example.com/; }",
        "map $shortlink_outcome$arg_from $counted { default 0; redirect 1; redirectoffice \"\"; }",
    );
    for path in [
        "/off/one",
        "/off/gone",
        "/asked/two",
        "/asked/nosuchone",
        "/some/gone",
        "/some/one?from=office",
        "/some/one?by=probe",
    ] {
        assert!(matches!(site.get(path).status, 301 | 302 | 410), "{path}");
    }
    for path in ["/some/two", "/one"] {
        assert!(matches!(site.get(path).status, 301 | 302), "{path}");
    }
    wait_for_names(&site, 2);
    let found: Vec<_> = stored(&site).iter().map(Visit::code).collect();
    assert_eq!(found, ["two", "one"]);
}

#[test]
fn a_location_records_visits_that_no_other_does() {
    let site = site_with(
        "off",
        "location / { shortlink; }
         location /on/ { shortlink_visits on; rewrite ^/on/(.*) /$1 break; shortlink; }",
        "",
    );
    assert_eq!(site.get("/one").status, 302);
    assert_eq!(site.get("/on/two").status, 301);
    wait_for_names(&site, 1);
    assert_eq!(stored(&site)[0].code(), "two");
}

#[test]
fn a_link_that_is_gone_is_recorded_as_such_whatever_the_visitor_is_shown() {
    let site = site_with(
        "on interval=10ms",
        "location / { shortlink; error_page 410 =302 https://example.com/ended; }
         location /other { rewrite ^ /gone break; shortlink; error_page 410 =200 /shown; }
         location = /shown { return 200 gone; }",
        "",
    );
    assert_eq!(site.get("/gone").status, 302);
    assert_eq!(site.get("/other").status, 200);
    wait_for_names(&site, 2);
    let found: Vec<_> = stored(&site).iter().map(|it| it.status).collect();
    assert_eq!(found, [410, 410]);
}

#[test]
fn an_address_is_what_realip_says_and_nothing_that_a_visitor_says() {
    let spoofed = [
        ("X-Forwarded-For", "192.0.2.66"),
        ("X-Real-IP", "192.0.2.67"),
    ];
    let site = site("on interval=10ms");
    site.send("GET", "/one", &spoofed);
    wait_for_names(&site, 1);
    assert_eq!(stored(&site)[0].client(), "127.0.0.1");
    let trusting = site_with(
        "on interval=10ms",
        SERVER,
        "set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;",
    );
    trusting.send("GET", "/one", &spoofed);
    trusting.send("GET", "/one", &[("X-Forwarded-For", "2001:db8::7")]);
    wait_for_names(&trusting, 2);
    let clients: Vec<_> = stored(&trusting).iter().map(Visit::client).collect();
    assert_eq!(clients, ["192.0.2.66", "2001:db8::7"]);
}

#[test]
fn whatever_stands_in_headers_is_bounded_and_kept_as_it_is() {
    let site = site_with(
        "on interval=10ms",
        &format!("large_client_header_buffers 4 128k;\n{SERVER}"),
        "",
    );
    let long = "x".repeat(64 << 10);
    site.send("GET", "/one", &[("User-Agent", &long), ("Referer", &long)]);
    let mut request = b"GET /one HTTP/1.1\r\nHost: localhost\r\nUser-Agent: ".to_vec();
    request.extend_from_slice(b"\xff\xfe\x80 \"quoted\"\t\xe4\xb8");
    request.extend_from_slice(b"\r\nUser-Agent: second\r\nAccept-Language: \xff\r\n\r\n");
    let answer = http::try_send(site.nginx.public_port, "GET", &request).expect("an answer");
    assert!(matches!(answer.status, 302 | 400), "{answer:?}");
    site.send(
        "GET",
        "/one",
        &[("Accept-Language", &long), ("Sec-Purpose", &long)],
    );
    let count = if answer.status == 302 { 3 } else { 2 };
    wait_for_names(&site, count);
    let found = stored(&site);
    assert_eq!(
        (found[0].texts[3].len(), found[0].texts[4].len()),
        (512, 512)
    );
    let last = &found[count - 1];
    assert_eq!((last.texts[5].len(), last.texts[6].len()), (128, 32));
    if count == 3 {
        assert_eq!(found[1].texts[3], b"\xff\xfe\x80 \"quoted\"\t\xe4\xb8");
        assert_eq!(found[1].texts[5], b"\xff");
    }
    site.assert_sound(&[]);
}

#[test]
fn workers_spread_over_streams() {
    let site = Site::with(&SiteOptions {
        visits: "on interval=10ms streams=8",
        server: SERVER,
        cache: "1m stale=10m",
        workers: 4,
        ..SiteOptions::default()
    });
    for _ in 0..60 {
        follow(&site, 2);
    }
    let keys = || -> Vec<usize> {
        let keys = (0..8).map(|shard| format!("sl:v:{{{shard}}}"));
        keys.map(|key| names(site.redis.port, &key).len()).collect()
    };
    until("all are stored", SOON, || {
        keys().iter().sum::<usize>() == 120
    });
}
