//! The cache of workers, with a real Redis: coherent, and served while Redis is away.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::http::{self, Connection};
use shortlink_tests::metrics::Page;
use shortlink_tests::nginx::{NginxOptions, REAL_BUDGET};
use shortlink_tests::stack::{Stack, StackOptions};
use shortlink_tests::wait::{SOON, pass, until};

const TARGET: &str = "https://example.com/target";

fn stack(cache: &str, budget: &'static str) -> Stack {
    Stack::with(&StackOptions {
        nginx: NginxOptions {
            replace: vec![
                (
                    "shortlink_check luhn body=7 alphabet=base62;",
                    "shortlink_check none;".to_owned(),
                ),
                (
                    "shortlink_cache 32m stale=60s;",
                    format!("shortlink_cache {cache};"),
                ),
                // One worker, so that what it has read before is known.
                ("worker_processes 2", "worker_processes 1".to_owned()),
            ],
            budget,
            ..NginxOptions::default()
        },
        ..StackOptions::default()
    })
}

/// The number of records that workers have read. Redis also counts their readings of the generation.
fn gets(stack: &Stack) -> u64 {
    let page = http::get(stack.nginx.internal_port, "/edge/metrics");
    let page = Page::read(&String::from_utf8_lossy(&page.body));
    page.sum("shortlink_redis_replies_total") as u64
}

fn edge(stack: &Stack, code: &str) -> (u16, String) {
    let answer = stack.follow(code);
    let edge = answer.header("X-Edge").unwrap_or_default().to_owned();
    (answer.status, edge)
}

#[test]
fn what_is_asked_for_again_is_kept_until_it_changes() {
    let stack = stack("1m", "2s");
    let record = |status: &str| format!("1 {status} 1 0 {TARGET}");
    stack.redis.set_record("one", &record("302"));
    let gets = || gets(&stack);
    let before = gets();
    assert_eq!(edge(&stack, "one"), (302, "redirect/redis".to_owned()));
    assert_eq!(edge(&stack, "one"), (302, "redirect/redis".to_owned()));
    for _ in 0..10 {
        assert_eq!(edge(&stack, "one"), (302, "redirect/cache".to_owned()));
    }
    assert_eq!(gets() - before, 2);

    stack.redis.set_record("one", &record("307"));
    until("the change is seen", SOON, || {
        edge(&stack, "one") == (307, "redirect/redis".to_owned())
    });
    stack.redis.set_record("one", "1 410 2");
    until("the revocation is seen", SOON, || {
        stack.follow("one").status == 410
    });
    // A revoked link, an unknown one, and no record at all.
    until("410 is cached", SOON, || {
        edge(&stack, "one") == (410, "gone/cache".to_owned())
    });
    stack.redis.set_record("one", &stack.redis.negative());
    until("404 is cached", SOON, || {
        edge(&stack, "one") == (404, "unknown/cache".to_owned())
    });
    stack.redis.set_record("one", &record("302"));
    until("the link is back", SOON, || edge(&stack, "one").0 == 302);
    until("and cached", SOON, || {
        edge(&stack, "one").1 == "redirect/cache"
    });
    stack.redis.command(&["FLUSHALL"]);
    until("the cache is empty", SOON, || {
        edge(&stack, "one").1 == "miss/fallback"
    });
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}

#[test]
fn nothing_is_kept_where_the_cache_is_off() {
    let stack = stack("off", "2s");
    stack
        .redis
        .set_record("one", &format!("1 302 1 0 {TARGET}"));
    let before = gets(&stack);
    for _ in 0..5 {
        assert_eq!(edge(&stack, "one"), (302, "redirect/redis".to_owned()));
    }
    assert_eq!(gets(&stack) - before, 5);
    assert_eq!(stack.redis.calls("client|tracking"), 0);
}

#[test]
fn what_is_kept_is_served_stale_for_a_while() {
    let mut stack = stack("1m stale=5s", REAL_BUDGET);
    let code = stack.link(TARGET);
    until("it is cached", SOON, || {
        edge(&stack, &code).1 == "redirect/cache"
    });
    stack.redis.kill();
    until("it is stale", SOON, || {
        edge(&stack, &code) == (302, "redirect/stale".to_owned())
    });
    until("it is too old", SOON, || {
        let (status, edge) = edge(&stack, &code);
        assert_eq!(status, 302);
        edge == "unavailable/fallback"
    });
    stack.redis.start_again();
    until("it is cached again", SOON, || {
        edge(&stack, &code).1 == "redirect/cache"
    });
}

#[test]
fn a_redis_that_hangs_is_noticed_though_nobody_asks_it() {
    let stack = stack("1m stale=20s", REAL_BUDGET);
    let code = stack.link(TARGET);
    until("it is cached", SOON, || {
        edge(&stack, &code).1 == "redirect/cache"
    });
    stack.redis.hang();
    // The visitors request only cached links: without a heartbeat the worker would never know.
    let begin = Instant::now();
    until("it is stale", SOON, || {
        edge(&stack, &code) == (302, "redirect/stale".to_owned())
    });
    // One heartbeat and the time after which a connection counts as hanging, and then some.
    let waited = begin.elapsed();
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    stack.redis.go_on();
    until("it is cached again", SOON, || {
        edge(&stack, &code).1 == "redirect/cache"
    });
}

#[test]
fn a_user_who_may_not_track_is_served_without_a_cache() {
    let stack = stack("1m", "2s");
    stack
        .redis
        .set_record("one", &format!("1 302 1 0 {TARGET}"));
    let setup = [
        "ACL",
        "SETUSER",
        "default",
        "-client|tracking",
        "-client|caching",
    ];
    stack.redis.command(&setup);
    stack.nginx.reload_with(1);
    for _ in 0..5 {
        assert_eq!(edge(&stack, "one"), (302, "redirect/redis".to_owned()));
    }
    assert!(
        stack
            .nginx
            .error_log()
            .contains("does not notify of changes")
    );
}

#[test]
fn a_burst_for_one_code_is_one_get() {
    let stack = stack("1m", "5s");
    stack
        .redis
        .set_record("one", &format!("1 302 1 0 {TARGET}"));
    assert_eq!(edge(&stack, "one").0, 302);
    let before = gets(&stack);
    stack.redis.hang();
    let mut visitors = Vec::new();
    for _ in 0..50 {
        let mut visitor = Connection::open(stack.nginx.public_port).expect("a connection");
        visitor
            .send(&http::request("GET", "/one", &[], b""))
            .expect("sent");
        visitors.push(visitor);
    }
    // All of them have reached nginx before Redis answers.
    pass(Duration::from_millis(100));
    stack.redis.go_on();
    for mut visitor in visitors {
        let answer = visitor.receive("GET").expect("an answer").expect("one");
        assert_eq!((answer.status, answer.location()), (302, Some(TARGET)));
    }
    assert_eq!(gets(&stack) - before, 1);
}

/// Changes links again and again while they are read, with the number of the change in the target.
#[test]
fn no_answer_is_older_than_the_bound_under_a_thousand_changes_a_second() {
    const LINKS: usize = 20;
    /// The longest time after Redis has confirmed a change for an older answer: a message's way, on
    /// a machine with two cores that are both busy.
    const BOUND: Duration = Duration::from_millis(500);
    let stack = stack("1m", "5s");
    let record = |version: u64| format!("1 302 1 0 https://example.com/{version}");
    for link in 0..LINKS {
        stack.redis.set_record(&format!("link{link}"), &record(0));
    }
    // For each link the changes that Redis has confirmed, and when.
    let confirmed: Vec<Mutex<Vec<(Instant, u64)>>> =
        (0..LINKS).map(|_| Mutex::new(Vec::new())).collect();
    let done = AtomicBool::new(false);
    let (mut reads, mut from_cache, mut changes) = (0u64, 0u64, 0u64);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (stack, confirmed, done) = (&stack, &confirmed, &done);
                scope.spawn(move || {
                    let mut connection =
                        Connection::open(stack.nginx.public_port).expect("a connection");
                    let (mut reads, mut from_cache) = (0u64, 0u64);
                    while !done.load(Ordering::Relaxed) {
                        let link = (reads as usize * 7 + reader) % LINKS;
                        // nginx closes a connection after a thousand requests.
                        if reads % 900 == 899 {
                            connection =
                                Connection::open(stack.nginx.public_port).expect("a connection");
                        }
                        let least = {
                            let confirmed = confirmed[link].lock().expect("a lock");
                            let old = confirmed.iter().rev().find(|(at, _)| at.elapsed() > BOUND);
                            old.map_or(0, |(_, version)| *version)
                        };
                        let request = http::request("GET", &format!("/link{link}"), &[], b"");
                        connection.send(&request).expect("sent");
                        let answer = connection.receive("GET").expect("an answer").expect("one");
                        let location = answer.location().expect("a redirect");
                        let version = location.rsplit('/').next().expect("a version");
                        let version: u64 = version.parse().expect("a number");
                        assert!(
                            version >= least,
                            "link{link}: {version} is older than {least}"
                        );
                        reads += 1;
                        let edge = answer.header("X-Edge");
                        from_cache += u64::from(edge == Some("redirect/cache"));
                    }
                    (reads, from_cache)
                })
            })
            .collect();
        let begin = Instant::now();
        let mut version = 0;
        while begin.elapsed() < Duration::from_secs(4) || (changes <= 500 && begin.elapsed() < SOON)
        {
            version += 1;
            // Some links change often, some seldom, so that there is something to be kept.
            let link = match version % 10 {
                0 => (version as usize / 10) % LINKS,
                _ => version as usize % 3,
            };
            stack
                .redis
                .set_record(&format!("link{link}"), &record(version));
            let mut confirmed = confirmed[link].lock().expect("a lock");
            confirmed.push((Instant::now(), version));
            changes += 1;
            drop(confirmed);
            // A thousand a second.
            let due = Duration::from_millis(version);
            if let Some(ahead) = due.checked_sub(begin.elapsed()) {
                pass(ahead);
            }
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            let (read, cached) = reader.join().expect("a reader");
            reads += read;
            from_cache += cached;
        }
    });
    assert!(changes > 500, "{changes} changes");
    assert!(
        from_cache > reads / 10,
        "{from_cache} of {reads} from the cache"
    );
    // At rest everything is what was written last.
    for (link, confirmed) in confirmed.iter().enumerate() {
        let last = confirmed
            .lock()
            .expect("a lock")
            .last()
            .map_or(0, |last| last.1);
        until("the last change is seen", SOON, || {
            let answer = stack.follow(&format!("link{link}"));
            answer.location() == Some(&format!("https://example.com/{last}"))
        });
    }
}
