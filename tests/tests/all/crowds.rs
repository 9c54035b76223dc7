//! A key that may only read statistics takes nothing from visitors, whatever it asks for and however often.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shortlink_tests::http;
use shortlink_tests::ports;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, StackOptions, directory};

/// Requests under way at a time.
const CROWD: usize = 24;

/// The time for which the crowd asks.
const RUSH: Duration = Duration::from_secs(8);

/// The longest that ninety-nine of a hundred visitors wait, on a machine that other tests load as well.
const PATIENCE: Duration = Duration::from_millis(900);

/// Filters that no visit matches, periods far away, and statistics of all hours by a dimension with many values.
const EXPENSIVE: [&str; 6] = [
    "/v1/visits?limit=1&class=scanner",
    "/v1/visits?limit=1&since=2030-01-01T00:00:00Z",
    "/v1/visits?limit=1&until=2026-09-22T00:00:01Z&class=bot",
    "/v1/visits?limit=1000&class=preview",
    "/v1/stats?since=2024-10-01T00:00:00Z&until=2026-11-30T00:00:00Z&interval=hour&by=country",
    "/v1/stats?since=2024-10-01T00:00:00Z&until=2026-11-30T00:00:00Z&by=referrer",
];

/// Three hundred thousand visits of many days, and a million counts.
fn fill(sql: &Sql<'_>) {
    let (link, days) = match sql {
        Sql::File(_) => (
            "link_id",
            "INSERT INTO visit_days SELECT at / 86400000, min(id), max(id) FROM visits GROUP BY 1;",
        ),
        Sql::Server(_) => ("campaign_id", ""),
    };
    sql.query(&format!(
        "INSERT INTO visit_agents VALUES (1, 'an agent', NULL, NULL, NULL, NULL, 'phone', NULL, 99999); \
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 299999) \
         INSERT INTO visits (at, code, host, agent_id, method, status, class, reason, ruleset, {link}) \
         SELECT 1790000000000 + CAST(i AS bigint) * 17000, 'c', 's.example.com', 1, 'GET', 302, 'human', 'browser', 1, i \
         FROM n; {days} \
         WITH RECURSIVE h(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM h WHERE i < 19199) \
         INSERT INTO visit_hours SELECT 0, 'total', 498600 - i, '', 'human', 7 FROM h; \
         WITH RECURSIVE h(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM h WHERE i < 9999), \
         v(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM v WHERE j < 49) \
         INSERT INTO visit_hours SELECT 0, 'country', 498600 - i, 'C' || j, 'human', 7 FROM h CROSS JOIN v; \
         WITH RECURSIVE h(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM h WHERE i < 499), \
         v(j) AS (SELECT 0 UNION ALL SELECT j + 1 FROM v WHERE j < 999) \
         INSERT INTO visit_hours SELECT 0, 'referrer', 498600 - i, j || '.example', 'human', 7 \
         FROM h CROSS JOIN v;"
    ));
}

/// Follows links until the crowd has asked enough; returns how long each visitor waited.
fn visit(stack: &Stack, links: &[(String, String)], is_over: &AtomicBool) -> Vec<Duration> {
    let mut waits = Vec::new();
    for (code, target) in links.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        let answer = stack.follow(code);
        waits.push(begun.elapsed());
        let found = (answer.status, answer.location());
        assert_eq!(found, (302, Some(&**target)), "{code}");
        assert_eq!(answer.header("X-Edge"), Some("unavailable/fallback"));
    }
    waits
}

/// The CPU time of a process's threads with a name, in hundredths of a second.
fn ticks_of(name: &str, pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let stats = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("stat")).ok());
    let ticks = stats.filter_map(|stat| {
        let (of_name, others) = stat.rsplit_once(") ")?;
        let times = others.split(' ').skip(11).take(2);
        let ticks: u64 = times.map(|it| it.parse::<u64>().expect("a number")).sum();
        of_name.ends_with(&format!("({name}")).then_some(ticks)
    });
    ticks.sum()
}

fn visitors_are_answered_while_a_key_crowds(postgres: Option<&Postgres>) {
    // nginx never finds Redis: every visitor needs the fallback.
    let stack = Stack::with(&StackOptions {
        redis_port_of_nginx: Some(ports::free()),
        database: postgres.map(Postgres::url),
        ..StackOptions::default()
    });
    fill(&Sql::of(&stack, postgres));
    let links: Vec<_> = (0..20)
        .map(|n| format!("https://example.com/{n}"))
        .map(|target| (stack.link(&target), target))
        .collect();
    let key = stack.sidecar.make_key(&["stats:read"]);
    let port = stack.nginx.internal_port;
    let is_over = AtomicBool::new(false);
    let end = Instant::now() + RUSH;
    let (mut waits, asked) = thread::scope(|scope| {
        let crowd: Vec<_> = (0..CROWD)
            .map(|place| {
                let key = &key;
                scope.spawn(move || {
                    let mut asked = 0;
                    for path in EXPENSIVE.iter().cycle().skip(place) {
                        if Instant::now() >= end {
                            return asked;
                        }
                        let request = http::request("GET", path, &[("X-Api-Key", key)], b"");
                        // Whether they are answered is their own affair.
                        asked += usize::from(http::try_send(port, "GET", &request).is_ok());
                    }
                    unreachable!("paths are cycled")
                })
            })
            .collect();
        let visitors: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| visit(&stack, &links, &is_over)))
            .collect();
        let asked = crowd.into_iter().map(|it| it.join().expect("a caller"));
        let asked: usize = asked.sum();
        is_over.store(true, Ordering::Relaxed);
        let waits = visitors
            .into_iter()
            .flat_map(|it| it.join().expect("a visitor who is answered right"));
        (waits.collect::<Vec<_>>(), asked)
    });
    waits.sort_unstable();
    let of_hundred = |percent| waits[(waits.len() - 1) * percent / 100];
    let (half, slow) = (of_hundred(50), of_hundred(99));
    println!(
        "{} visits beside {asked} requests: {half:?}, 99 %: {slow:?}",
        waits.len()
    );
    assert!(asked > 0);
    // Their threads have read and answered all of them, and not only accepted connections.
    let ticks = ticks_of("visitors", stack.sidecar.pid());
    assert!(ticks >= 5, "{ticks}");
    assert!(waits.len() > 100, "{}", waits.len());
    assert!(slow < PATIENCE, "{half:?}, {slow:?}");
}

#[test]
fn visitors_are_answered_while_a_key_crowds_sqlite() {
    visitors_are_answered_while_a_key_crowds(None);
}

#[test]
fn visitors_are_answered_while_a_key_crowds_postgres() {
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    visitors_are_answered_while_a_key_crowds(Some(&postgres));
}
