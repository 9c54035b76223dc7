//! Guessing does not pay: addresses and networks over their limit of misses learn nothing, and
//! all others notice nothing.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use shortlink_tests::http::{self, Connection, Response};
use shortlink_tests::nginx::NginxOptions;
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::visitor::Visitor;
use shortlink_tests::wait::{SOON, until};

use crate::sight::{metric, metrics};

const TARGET: &str = "https://example.com/target";
const SHIPPED: &str = "shortlink_miss_limit rate=60r/m burst=100 network_rate=20r/s \
                       network_burst=2000 exempt=$shortlink_exempt;";
/// The address of a visitor is what a header says.
const REALIP: &str = "set_real_ip_from 127.0.0.1;\nreal_ip_header X-Visitor;";
/// A right check character and no link.
const UNKNOWN: &str = "nosuchone";

/// A stack with this line in place of the shipped limit.
fn limited(line: &str) -> Stack {
    limited_and(line, Vec::new())
}

fn limited_and(line: &str, more: Vec<(&'static str, String)>) -> Stack {
    let mut replace = vec![(SHIPPED, format!("{REALIP}\n{line}"))];
    replace.extend(more);
    Stack::with(&StackOptions {
        nginx: NginxOptions {
            replace,
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    })
}

fn follow_from(stack: &Stack, visitor: &str, code: &str) -> Response {
    http::send(
        stack.nginx.public_port,
        "GET",
        &format!("/{code}"),
        &[("X-Visitor", visitor)],
    )
}

fn status(stack: &Stack, visitor: &str, code: &str) -> u16 {
    follow_from(stack, visitor, code).status
}

/// A code without a link that no test has requested before: a cache that knows it makes it free.
fn guess() -> String {
    static GUESSES: AtomicU32 = AtomicU32::new(0);
    format!("guess{:06}", GUESSES.fetch_add(1, Ordering::Relaxed))
}

/// Guesses until an address is limited: returns how many guesses were answered 404.
fn guess_until_limited(stack: &Stack, visitor: &str) -> u32 {
    guess_below(stack, visitor, "")
}

/// The same below a folder.
fn guess_below(stack: &Stack, visitor: &str, folder: &str) -> u32 {
    for number in 0..1000 {
        match status(stack, visitor, &format!("{folder}{}", guess())) {
            404 => {}
            429 => return number,
            other => panic!("{other}"),
        }
    }
    panic!("{visitor} was never limited")
}

/// Makes both workers cache a link.
fn make_cached(stack: &Stack, code: &str) {
    until("both workers have it in their caches", SOON, || {
        (0..40).all(|_| {
            follow_from(stack, "203.0.113.1", code).header("X-Edge") == Some("redirect/cache")
        })
    });
}

#[test]
fn a_limited_address_learns_of_no_link_that_is_not_cached_for_others() {
    let stack = limited("shortlink_miss_limit rate=1r/m burst=9;");
    let cached = stack.link(TARGET);
    make_cached(&stack, &cached);
    let fresh = stack.link(TARGET);
    assert_eq!(guess_until_limited(&stack, "192.0.2.7"), 10);
    let gets = stack.redis.reads();
    // Live or not, with a right check character or not: the same answer, and neither Redis nor SQL is asked.
    for code in [fresh.as_str(), UNKNOWN, "Ab3xK9q0"] {
        let refused = follow_from(&stack, "192.0.2.7", code);
        assert_eq!(refused.status, 429, "{code}");
        assert_eq!(refused.header("X-Edge"), Some("limited/none"));
        assert!(refused.header("Retry-After").is_some());
    }
    assert_eq!(stack.redis.reads(), gets);
    assert_eq!(status(&stack, "192.0.2.7", &cached), 302);
    // Others behind another address see everything.
    assert_eq!(status(&stack, "192.0.2.8", &fresh), 302);
    assert_eq!(status(&stack, "192.0.2.8", UNKNOWN), 404);
    // A whole /64 is one address.
    for number in 0..10 {
        let visitor = format!("2001:db8:1:2::{number}");
        assert_eq!(status(&stack, &visitor, &format!("other{number}")), 404);
    }
    assert_eq!(status(&stack, "2001:db8:1:2:ffff::1", UNKNOWN), 429);
    assert_eq!(status(&stack, "2001:db8:1:3::1", UNKNOWN), 404);
    // It survives a reload.
    stack.nginx.reload();
    assert_eq!(status(&stack, "192.0.2.7", UNKNOWN), 429);
    assert_eq!(status(&stack, "192.0.2.8", &cached), 302);

    let text = metrics(&stack);
    let count = |name: &str| metric(&text, name);
    assert!(count(r#"shortlink_requests_total{outcome="limited",source="none"}"#) >= 6);
    assert_eq!(
        count(r#"shortlink_limit_reached_total{scope="address"}"#),
        2
    );
    assert_eq!(
        count(r#"shortlink_limit_reached_total{scope="network"}"#),
        0
    );
    assert_eq!(count("shortlink_limited_redirects_total"), 1);
    assert!(count("shortlink_misses_charged_total") >= 20);
}

#[test]
fn after_the_limit_an_address_gets_one_miss_per_interval_and_every_live_link_before_it() {
    let stack = limited("shortlink_miss_limit rate=1r/s burst=3;");
    let live: Vec<String> = (0..20).map(|_| stack.link(TARGET)).collect();
    assert!(guess_until_limited(&stack, "192.0.2.7") >= 4);
    // An address that stops is not limited any more: nothing has to be forgotten first.
    until("a live link is answered again", SOON, || {
        status(&stack, "192.0.2.7", &live[0]) == 302
    });
    for code in &live {
        assert_eq!(status(&stack, "192.0.2.7", code), 302);
    }
    // One miss more, and it is limited again, unless this machine took longer than a second for it.
    assert!(guess_until_limited(&stack, "192.0.2.7") >= 1);
}

#[test]
fn a_network_is_limited_by_the_misses_of_all_its_addresses() {
    let stack =
        limited("shortlink_miss_limit rate=1r/m burst=9 network_rate=2r/m network_burst=29;");
    let live = stack.link(TARGET);
    for number in 0..30 {
        let v6 = format!("2001:db8:7:{number}::1");
        assert_eq!(status(&stack, &v6, &guess()), 404);
        let v4 = format!("198.51.100.{}", number + 1);
        assert_eq!(status(&stack, &v4, &guess()), 404);
    }
    for visitor in ["2001:db8:7:ffff::1", "198.51.100.200"] {
        assert_eq!(status(&stack, visitor, UNKNOWN), 429);
        assert_eq!(status(&stack, visitor, &live), 429);
    }
    for visitor in ["2001:db8:8::1", "198.51.101.200"] {
        assert_eq!(status(&stack, visitor, UNKNOWN), 404);
        assert_eq!(status(&stack, visitor, &live), 302);
    }
    let text = metrics(&stack);
    let name = r#"shortlink_limit_reached_total{scope="network"}"#;
    assert_eq!(metric(&text, name), 2);
}

#[test]
fn exempt_addresses_are_neither_limited_nor_charged() {
    let stack = limited(
        "geo $office { default \"\"; 192.0.2.7 office; 192.0.2.9 0; }\n\
         shortlink_miss_limit rate=1r/m burst=2 exempt=$office;",
    );
    for _ in 0..30 {
        assert_eq!(status(&stack, "192.0.2.7", &guess()), 404);
    }
    // Empty and 0 are no exemptions.
    assert_eq!(guess_until_limited(&stack, "192.0.2.8"), 3);
    assert_eq!(guess_until_limited(&stack, "192.0.2.9"), 3);
}

#[test]
fn a_location_has_a_limit_of_its_own_or_none() {
    let location = |name: &str, limit: &str| {
        format!(
            "location /{name}/ {{ rewrite ^/{name}/(.*)$ /$1 break; shortlink; \
             shortlink_fallback @sidecar; shortlink_miss_limit {limit}; }}\n"
        )
    };
    let locations = [
        location("open", "off"),
        location("tight", "rate=1r/m burst=2"),
        location("same", "burst=9 rate=1r/m strict"),
    ];
    let named = "location @page {";
    let stack = limited_and(
        "shortlink_miss_limit rate=1r/m burst=9;",
        vec![(named, format!("{}{named}", locations.concat()))],
    );
    for _ in 0..30 {
        let code = format!("open/{}", guess());
        assert_eq!(status(&stack, "192.0.2.7", &code), 404);
    }
    // Limits with other values count for themselves.
    assert_eq!(guess_below(&stack, "192.0.2.7", "tight/"), 3);
    assert_eq!(guess_until_limited(&stack, "192.0.2.7"), 10);
    // One with the same values counts with the others.
    let link = stack.link(TARGET);
    assert_eq!(status(&stack, "192.0.2.8", &format!("same/{link}")), 302);
    assert_eq!(status(&stack, "192.0.2.7", &format!("same/{link}")), 429);
    assert_eq!(status(&stack, "192.0.2.7", &format!("open/{link}")), 302);
    // Addresses stay limited in all of them over a reload.
    stack.nginx.reload();
    for folder in ["", "tight/", "same/"] {
        let code = format!("{folder}{}", guess());
        assert_eq!(status(&stack, "192.0.2.7", &code), 429, "{folder}");
    }
}

/// Load balancers whose visitors nginx can't distinguish must not lock them all out.
#[test]
fn private_addresses_are_exempt_in_the_shipped_configuration() {
    let stack = limited(SHIPPED);
    for visitor in [
        "127.0.0.1",
        "10.1.2.3",
        "172.31.0.1",
        "100.64.0.9",
        "fd00::1",
    ] {
        for _ in 0..110 {
            assert_eq!(status(&stack, visitor, &guess()), 404, "{visitor}");
        }
    }
    assert!(guess_until_limited(&stack, "203.0.113.9") >= 101);
}

#[test]
fn a_strict_limit_answers_nothing_to_those_who_go_on() {
    let stack = limited("shortlink_miss_limit rate=1r/m burst=4 strict;");
    let cached = stack.link(TARGET);
    make_cached(&stack, &cached);
    assert_eq!(guess_until_limited(&stack, "192.0.2.7"), 5);
    let gets = stack.redis.reads();
    for code in [cached.as_str(), UNKNOWN, "Ab3xK9q0"] {
        assert_eq!(status(&stack, "192.0.2.7", code), 429);
    }
    assert_eq!(stack.redis.reads(), gets);
    assert_eq!(status(&stack, "192.0.2.8", &cached), 302);
}

/// 5,000 phones behind one address of a carrier, in as little time as this machine needs: each opens
/// its live link, and five per mille mistype their code or have an old one.
#[test]
fn five_thousand_phones_behind_one_address_are_not_limited() {
    const PHONES: usize = 5000;
    const THREADS: usize = 8;
    let stack = limited(SHIPPED);
    let codes = stack.sidecar.sample(PHONES, &[]);
    stack.sidecar.run_ok(&["rebuild"]);
    let dead = stack.link(TARGET);
    stack.api("DELETE", &format!("/v1/links/{dead}"), None);
    let port = stack.nginx.public_port;
    let open = |phones: &[String], first: usize| {
        let mut visitor = Visitor::new(port);
        let mut missed = 0;
        for (number, code) in (first..).zip(phones) {
            let from = [("X-Visitor", "198.51.100.7")];
            let mut get = |code: &str| visitor.get(&format!("/{code}"), &from).status;
            if number % 200 == 0 {
                // Their check characters are wrong, or no link has them.
                let mistyped = format!("typo{number:04}");
                assert_eq!(get(&mistyped), 404, "phone {number}");
                missed += 1;
            }
            if number % 100 == 1 {
                assert_eq!(get(&dead), 410, "phone {number}");
            }
            assert_eq!(get(code), 302, "phone {number}");
        }
        missed
    };
    let missed: usize = thread::scope(|scope| {
        let chunks = codes.chunks(PHONES / THREADS).enumerate();
        let threads: Vec<_> = chunks
            .map(|(index, phones)| scope.spawn(move || open(phones, index * (PHONES / THREADS))))
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.map(|missed| missed.expect("none refused")).sum()
    });
    assert_eq!(missed, PHONES / 200);
    let text = metrics(&stack);
    let refused = r#"shortlink_requests_total{outcome="limited",source="none"}"#;
    assert_eq!(metric(&text, refused), 0);
    assert_eq!(
        metric(&text, "shortlink_misses_charged_total"),
        missed as u64
    );
}

#[test]
fn a_message_with_a_wrong_code_limits_no_address() {
    let stack = limited("shortlink_miss_limit rate=1r/m burst=29;");
    // Redis has the sidecar's answer after the first of them, and each worker after two more.
    for _ in 0..300 {
        assert_eq!(status(&stack, "192.0.2.7", UNKNOWN), 404);
    }
}

#[test]
fn links_that_only_sql_knows_are_no_misses() {
    let stack = limited("shortlink_miss_limit rate=1r/m burst=9;");
    for code in stack.sidecar.sample(100, &[]) {
        let answer = follow_from(&stack, "192.0.2.7", &code);
        assert_eq!(answer.status, 302);
    }
    assert!(guess_until_limited(&stack, "192.0.2.7") >= 9);
}

#[test]
fn a_miss_is_charged_when_its_client_goes_before_the_fallback_answers() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let stack = limited_and(
        "shortlink_miss_limit rate=1r/m burst=9;",
        vec![(
            "proxy_pass http://shortlink_sidecar/resolve/$shortlink_code;",
            format!("proxy_pass http://127.0.0.1:{port};"),
        )],
    );
    let fresh = stack.link(TARGET);
    let mut guesses = Vec::new();
    for _ in 0..10 {
        let path = format!("/{}", guess());
        let bytes = http::request("GET", &path, &[("X-Visitor", "192.0.2.7")], b"");
        let mut connection = Connection::open(stack.nginx.public_port).expect("nginx");
        connection.send(&bytes).expect("nginx");
        guesses.push(connection);
    }
    until("the misses are charged", SOON, || {
        metric(&metrics(&stack), "shortlink_misses_charged_total") == 10
    });
    drop(guesses);
    assert_eq!(status(&stack, "192.0.2.7", &fresh), 429);
    assert_eq!(status(&stack, "192.0.2.8", &fresh), 302);
}

/// A flood of guesses that reaches nginx before the first of them is answered.
#[test]
fn guesses_that_come_together_gain_nothing() {
    const GUESSES: usize = 200;
    let mut options = NginxOptions {
        budget: "10s",
        ..NginxOptions::default()
    };
    let line = format!("{REALIP}\nshortlink_miss_limit rate=1r/m burst=9;");
    options.replace = vec![(SHIPPED, line)];
    let stack = Stack::with(&StackOptions {
        nginx: options,
        ..StackOptions::default()
    });
    let fresh: Vec<String> = (0..20).map(|_| stack.link(TARGET)).collect();
    stack.redis.hang();
    let guesses = (0..GUESSES).map(|_| guess());
    let mut waiting: Vec<Connection> = guesses
        .chain(fresh)
        .map(|code| {
            let path = format!("/{code}");
            let bytes = http::request("GET", &path, &[("X-Visitor", "192.0.2.7")], b"");
            let mut connection = Connection::open(stack.nginx.public_port).expect("nginx");
            connection.send(&bytes).expect("nginx");
            connection
        })
        .collect();
    until("all wait", SOON, || {
        metric(&metrics(&stack), "shortlink_waiting_requests") == GUESSES as u64 + 20
    });
    stack.redis.go_on();
    let mut found: Vec<u16> = waiting
        .iter_mut()
        .map(|connection| {
            let answer = connection.receive("GET").expect("an answer");
            answer.expect("an answer").status
        })
        .collect();
    let live = found.split_off(GUESSES);
    assert!(live.iter().all(|&status| status == 429), "{live:?}");
    let answered = found.iter().filter(|&&status| status == 404).count();
    // Two workers may charge the last one at the same moment.
    assert!((10..=11).contains(&answered), "{answered}");
}

#[test]
fn without_redis_the_fallback_decides_and_its_misses_are_charged() {
    let mut stack = limited("shortlink_miss_limit rate=1r/m burst=9;");
    let live = stack.sidecar.sample(30, &[]);
    stack.redis.kill();
    for code in &live {
        assert_eq!(status(&stack, "192.0.2.7", code), 302);
    }
    assert!(guess_until_limited(&stack, "192.0.2.7") >= 10);
    assert_eq!(status(&stack, "192.0.2.7", &live[0]), 429);
    assert_eq!(status(&stack, "192.0.2.8", &live[0]), 302);
}
