//! Redis is emptied again and again while links are created and visited.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::chance::Chance;
use shortlink_tests::made::{Made, make_batch};
use shortlink_tests::stack::Stack;
use shortlink_tests::visitor::Visitor;
use shortlink_tests::wait::{OverAtEnd, SOON, pass, until};

/// Number of times that Redis is emptied, and the longest pause between two of them.
const FLUSHES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(60);

#[test]
fn no_live_link_is_denied_while_redis_is_emptied_again_and_again() {
    let stack = Stack::start();
    let over = AtomicBool::new(false);
    let is_over = || over.load(Ordering::SeqCst);
    let made: Mutex<Vec<Made>> = Mutex::default();
    let (redis, cache, fallback) = <(AtomicU64, AtomicU64, AtomicU64)>::default();
    let delayed = AtomicU64::new(0);
    let count = || made.lock().expect("no holder panics").len();
    thread::scope(|scope| {
        let _over = OverAtEnd(&over);
        for client in 0..2 {
            let (stack, made) = (&stack, &made);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over() {
                        return;
                    }
                    let target = |row| format!("https://example.com/{client}/{number}/{row}");
                    let targets: Vec<String> = (0..20).map(target).collect();
                    let headers = [("X-Api-Key", &*stack.sidecar.key)];
                    let batch = make_batch(stack.nginx.internal_port, &headers, &targets);
                    assert_eq!((batch.made.len(), batch.refused), (20, Vec::new()));
                    let mut made = made.lock().expect("no holder panics");
                    made.extend(batch.made.into_iter().map(|(_, made)| made));
                }
            });
        }
        until("there are links", SOON, || count() > 0);
        for client in 0..3 {
            let (stack, made) = (&stack, &made);
            let (redis, cache, fallback) = (&redis, &cache, &fallback);
            let delayed = &delayed;
            scope.spawn(move || {
                let mut visitor = Visitor::new(stack.nginx.public_port);
                let mut chance = Chance::default();
                while !is_over() {
                    let link = {
                        let made = made.lock().expect("no holder panics");
                        // One prefers the newest links, one the same few links.
                        let some = match client {
                            0 => made.len().saturating_sub(20)..made.len(),
                            1 => 0..made.len().min(20),
                            _ => 0..made.len(),
                        };
                        let place = chance.below(some.len() as u64) as usize;
                        made[some.start + place].clone()
                    };
                    let path = format!("/{}", link.code);
                    let mut answer = visitor.get(&path, &[]);
                    // A request while the machine stalls is answered 503, never denied.
                    while answer.status == 503 && !is_over() {
                        delayed.fetch_add(1, Ordering::SeqCst);
                        answer = visitor.get(&path, &[]);
                    }
                    if is_over() {
                        return;
                    }
                    let found = (answer.status, answer.location());
                    assert_eq!(found, (302, Some(&*link.target)), "{}", link.code);
                    let counter = match answer.header("X-Edge") {
                        Some("redirect/redis") => redis,
                        Some("redirect/cache") => cache,
                        _ => fallback,
                    };
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut chance = Chance::default();
        let mut flush = |longest| {
            stack.redis.command(&["FLUSHALL"]);
            pass(chance.time_below(longest));
        };
        (0..FLUSHES).for_each(|_| flush(PAUSE));
        // A slow machine needs longer pauses to fill Redis again.
        let mut longest = PAUSE;
        let answered = || [&redis, &cache, &fallback].map(|it| it.load(Ordering::SeqCst));
        let deadline = Instant::now() + SOON;
        while answered().iter().any(|count| *count <= 20) {
            assert!(
                Instant::now() < deadline,
                "from Redis, cache and SQL: {:?}",
                answered()
            );
            flush(longest);
            longest = (longest * 2).min(Duration::from_secs(2));
        }
    });
    let answered = [redis, cache, fallback].map(AtomicU64::into_inner);
    println!(
        "{} links, visits from Redis, cache and SQL: {answered:?}",
        count()
    );
    let delayed = delayed.into_inner();
    assert!(delayed <= 30, "{delayed} answers were 503");
    assert_eq!(stack.nginx.complaints(&[]), [""; 0]);
}
