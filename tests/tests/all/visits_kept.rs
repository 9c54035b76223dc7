//! Later stages of visits and their counts: they are classified again, deleted, and links without
//! any expire.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use shortlink_tests::chance::Chance;
use shortlink_tests::http;
use shortlink_tests::postgres::Postgres;
use shortlink_tests::sql::Sql;
use shortlink_tests::stack::{Stack, StackOptions, directory, text};
use shortlink_tests::wait::{OverAtEnd, SOON, pass, until};

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 \
    (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1";
const WHATSAPP: &str = "WhatsApp/2.23.20.0 A";
const BOT: &str = "examplebot/1.0";

/// Number of times that `shortlink reclassify` is killed.
const KILLS: u64 = 6;

/// Runs a test on a SQLite file and on a PostgreSQL.
fn on_both(options: &StackOptions, test: impl Fn(Stack, Option<&Postgres>)) {
    test(Stack::with(options), None);
    let directory = directory();
    let postgres = Postgres::start(directory.path());
    let options = StackOptions {
        database: Some(postgres.url()),
        ..options.clone()
    };
    test(Stack::with(&options), Some(&postgres));
}

fn follow(stack: &Stack, code: &str, agent: &str) -> u16 {
    let path = format!("/{code}");
    let headers = [("User-Agent", agent)];
    http::send(stack.nginx.public_port, "GET", &path, &headers).status
}

/// The column that identifies the link of a count.
fn link_column(sql: &Sql<'_>) -> &'static str {
    match sql {
        Sql::File(_) => "link_id",
        Sql::Server(_) => "code",
    }
}

/// A link's value in that column, as an expression.
fn link_key(sql: &Sql<'_>, code: &str) -> String {
    match sql {
        Sql::File(_) => format!("(SELECT id FROM links WHERE code = '{code}')"),
        Sql::Server(_) => format!("'{code}'"),
    }
}

/// Everything that is counted by class, as it is stored and as it would be counted from the visits.
fn counts(sql: &Sql<'_>) -> (String, String) {
    let link = link_column(sql);
    let kept = format!("SELECT {link}, hour, class, visits FROM visit_link_hours ORDER BY 1, 2, 3");
    let from_visits = format!(
        "SELECT {link}, at / 3600000, class, count(*) FROM visits \
         GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    );
    let links = (sql.query(&kept), sql.query(&from_visits));
    let kept = "SELECT campaign_id, dimension, hour, value, class, visits FROM visit_hours \
         ORDER BY 1, 2, 3, 4, 5";
    let hours = (
        sql.query(kept),
        sql.query(&hours_of_visits("ORDER BY 1, 2, 3, 4, 5")),
    );
    let kept = "SELECT campaign_id, minute, class, visits FROM visit_minutes";
    let minutes = (sql.query(kept), sql.query(&minutes_of_visits()));
    // Collations differ.
    let sorted = |text: String| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    (
        [links.0, hours.0, minutes.0].map(sorted).join("\n\n"),
        [links.1, hours.1, minutes.1].map(sorted).join("\n\n"),
    )
}

/// Counts visits by minute as the sidecar does, by SQL.
fn minutes_of_visits() -> String {
    let of = |campaign, filter| {
        format!(
            "SELECT {campaign} AS campaign, at / 60000 AS minute, class, count(*) FROM visits WHERE {filter} \
             GROUP BY 1, 2, 3"
        )
    };
    let campaigns = of("campaign_id", "campaign_id IS NOT NULL");
    format!("{} UNION ALL {campaigns}", of("0", "true"))
}

/// Counts visits by hour as the sidecar does, by SQL.
fn hours_of_visits(end: &str) -> String {
    let dimensions = [
        ("total", "''"),
        ("domain", "host"),
        ("country", "coalesce(country, '')"),
        ("device", "device"),
        ("browser", "coalesce(browser, '')"),
        ("os", "coalesce(os, '')"),
        ("referrer", "coalesce(referrer_host, '')"),
        ("network", "coalesce(isp, '')"),
        ("status", "CAST(status AS text)"),
    ];
    let mut parts = Vec::new();
    for (campaign, filter) in [("0", "true"), ("campaign_id", "campaign_id IS NOT NULL")] {
        for (name, value) in dimensions {
            parts.push(format!(
                "SELECT {campaign} AS campaign, '{name}' AS dimension, at / 3600000 AS hour, \
                 {value} AS value, class, count(*) FROM visits \
                 JOIN visit_agents ON visit_agents.id = agent_id WHERE {filter} \
                 GROUP BY 1, 2, 3, 4, 5"
            ));
        }
    }
    format!(
        "SELECT * FROM ({}) AS counted {end}",
        parts.join(" UNION ALL ")
    )
}

/// Turns the stored visits into those of older rules, forty times as many, and counts them so: the
/// rules had only one class of visitors, and another name for one browser.
fn grow_old(sql: &Sql<'_>) {
    let link = link_column(sql);
    let mut columns = "at, code, host, client, visitor, agent_id, referrer, referrer_host, \
         language, method, status, purpose, country, province, city, isp, class, reason, ruleset, \
         campaign_id"
        .to_owned();
    if link != "code" {
        columns = format!("{columns}, {link}");
    }
    let recounted = hours_of_visits("");
    let many_people = sql.bytes(5, 4096);
    sql.query(&format!(
        "BEGIN; \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 39) \
         INSERT INTO visits ({columns}) SELECT {columns} FROM visits CROSS JOIN n; \
         INSERT INTO visit_agents SELECT 1, user_agent, 'Netscape', NULL, NULL, NULL, 'tv', NULL, seen_day \
         FROM visit_agents WHERE user_agent = '{IPHONE}'; \
         UPDATE visits SET agent_id = 1 WHERE agent_id IN \
         (SELECT id FROM visit_agents WHERE user_agent = '{IPHONE}'); \
         UPDATE visits SET class = 'human', reason = 'old', ruleset = 0; \
         DELETE FROM visit_link_hours; DELETE FROM visit_hours; DELETE FROM visit_minutes; \
         INSERT INTO visit_link_hours SELECT {link}, at / 3600000, class, count(*), max(at) \
         FROM visits GROUP BY 1, 2, 3; \
         INSERT INTO visit_hours {recounted}; \
         INSERT INTO visit_minutes {}; \
         UPDATE visit_sketches SET registers = {many_people}, visitors = NULL; \
         COMMIT;",
        minutes_of_visits()
    ));
}

#[test]
fn visits_are_classified_again_while_others_are_stored_and_whatever_is_killed() {
    on_both(&StackOptions::default(), |stack, postgres| {
        let sql = Sql::of(&stack, postgres);
        let campaign = serde_json::json!({ "name": "Spring", "longUrl": "https://e.example/{m}" });
        let id = text(
            &stack.api("POST", "/v1/campaigns", Some(&campaign)).json(),
            "id",
        );
        let member = serde_json::json!({ "campaignId": id, "parameters": { "m": "1" } });
        let codes = [
            text(&stack.create(&member), "shortCode"),
            stack.link("https://example.com/"),
        ];
        for turn in 0..240 {
            let agent = [IPHONE, WHATSAPP, BOT][turn % 3];
            assert_eq!(follow(&stack, &codes[turn % 2], agent), 302);
        }
        let stored = || sql.number("SELECT count(*) FROM visits");
        until("the visits are stored", SOON, || stored() == 240);
        grow_old(&sql);
        let (kept, counted) = counts(&sql);
        assert_eq!(kept, counted);

        let rehearsal = stack.sidecar.run(&["reclassify", "--dry-run"]);
        let said = String::from_utf8_lossy(&rehearsal.stdout).into_owned();
        assert_eq!(rehearsal.status.code(), Some(2), "{said}");
        assert!(said.contains("9,600 would change"), "{said}");
        for line in [
            "human, for another reason or agent: 3,200",
            "human to preview: 3,200",
            "human to bot: 3,200",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        let none = ["reclassify", "--dry-run", "--until", "2020-01-01"];
        assert!(stack.sidecar.run_ok(&none).contains("0 would change"));
        let wrong = stack.sidecar.run(&["reclassify", "--since", "yesterday"]);
        assert!(!wrong.status.success());

        let (is_over, followed) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let _over = OverAtEnd(&is_over);
            scope.spawn(|| {
                for turn in 0.. {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let agent = [IPHONE, WHATSAPP, BOT][turn % 3];
                    assert_eq!(follow(&stack, &codes[turn % 2], agent), 302);
                    followed.fetch_add(1, Ordering::SeqCst);
                    pass(Duration::from_millis(2));
                }
            });
            let mut chance = Chance::default();
            let log = stack.directory().join("reclassify.log");
            let left = || sql.number("SELECT count(*) FROM visits WHERE ruleset = 0");
            let mut before = left();
            let mut cut_off = 0;
            for kill in 0..KILLS {
                let mut process = stack.sidecar.begin(&["reclassify"], &log);
                // Once it has done something, the first time at once, and then at any moment.
                until("some are classified", SOON * 2, || {
                    before == 0 || left() < before
                });
                if kill > 0 {
                    pass(chance.time_below(Duration::from_millis(300)));
                }
                process.kill();
                before = left();
                cut_off += u64::from(before > 0);
            }
            println!("cut off with something left: {cut_off} of {KILLS}");
            assert!(cut_off > 0);
            // Two at once find everything.
            let mut other = stack.sidecar.begin(&["reclassify"], &log);
            stack.sidecar.run_ok(&["reclassify"]);
            assert_eq!(other.wait(SOON * 3).code(), Some(0));
            assert_eq!(left(), 0);
        });
        let all = 9600 + followed.load(Ordering::SeqCst);
        until("all visits are stored", SOON, || stored() == all as i64);
        let again = stack.sidecar.run_ok(&["reclassify", "--dry-run"]);
        assert!(again.contains("0 would change"), "{again}");
        let (kept, counted) = counts(&sql);
        assert_eq!(kept, counted);
        let stats = stack.api("GET", "/v1/stats", None).json();
        assert_eq!(stats["visits"]["total"], all);
        // There was one telephone; a day may have ended meanwhile.
        let people = sql.number("SELECT count(DISTINCT visitor) FROM visits WHERE class = 'human'");
        let days = stats["visitors"].as_array().expect("days").clone();
        let visitors = days
            .iter()
            .map(|day| day["visitors"].as_i64().expect("a number"));
        assert_eq!(visitors.sum::<i64>(), people, "{days:?}");
    });
}

/// Days on which visits were recorded, the last of them yesterday.
fn record(sql: &Sql<'_>, days: i64) {
    sql.query(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {days}), \
         now(hour) AS (SELECT {} / 3600) \
         INSERT INTO visit_hours SELECT 0, 'total', hour - 24 * i, '', 'bot', 1 FROM n, now",
        match sql {
            Sql::Server(_) => "extract(epoch FROM now())::bigint",
            Sql::File(_) => "CAST(strftime('%s', 'now') AS INTEGER)",
        }
    ));
}

#[test]
fn links_that_nobody_visits_expire() {
    let options = StackOptions {
        sidecar: "[visits]\nexpire_unvisited_after_days = 30\n\
                  [upkeep]\nsweep_every_s = 1\nreconcile_per_s = 0\nrebuild = false\n"
            .to_owned(),
        ..StackOptions::default()
    };
    on_both(&options, |stack, postgres| {
        let sql = Sql::of(&stack, postgres);
        let [quiet, seen] = [0, 1].map(|_| stack.link("https://example.com/"));
        assert_eq!(follow(&stack, &seen, WHATSAPP), 302);
        until("the visit is stored", SOON, || {
            sql.number("SELECT count(*) FROM visits") == 1
        });
        let day: i64 = 24 * 60 * 60 * 1000;
        sql.query(&format!(
            "UPDATE links SET created_at = created_at - {0}, updated_at = updated_at - {0}",
            100 * day
        ));
        // Made a hundred days ago; but nothing was recorded then.
        let young = stack.link("https://example.com/");
        assert_eq!(follow(&stack, &quiet, BOT), 302);
        until("the visit is stored", SOON, || {
            sql.number("SELECT count(*) FROM visits") == 2
        });
        sql.query(&format!(
            "UPDATE visit_link_hours SET last_at = last_at - {} WHERE {} = {}",
            90 * day,
            link_column(&sql),
            link_key(&sql, &quiet)
        ));
        record(&sql, 30);
        let state = |code: &str| {
            let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
            text(&link, "state")
        };
        until("the link expires", SOON, || state(&quiet) == "expired");
        until("nginx knows", SOON, || follow(&stack, &quiet, BOT) == 410);
        for code in [&seen, &young] {
            assert_eq!(state(code), "live", "{code}");
            assert_eq!(follow(&stack, code, BOT), 302);
        }
        let path = format!("/v1/links/{quiet}/history");
        let history = stack.api("GET", &path, None).json();
        let changes = history["history"].as_array().expect("changes");
        assert_eq!(changes.len(), 1, "{history}");
    });
}

#[test]
fn old_counts_are_forgotten_and_links_keep_their_totals() {
    on_both(&StackOptions::default(), |mut stack, postgres| {
        let sql = Sql::of(&stack, postgres);
        let code = stack.link("https://example.com/");
        assert_eq!(follow(&stack, &code, IPHONE), 302);
        until("the visit is stored", SOON, || {
            sql.number("SELECT count(*) FROM visits") == 1
        });
        stack.sidecar.kill();
        let link = link_key(&sql, &code);
        // Of 2020, and of five weeks ago.
        sql.query(&format!(
            "INSERT INTO visit_link_hours VALUES ({link}, 438300, 'human', 5, 1577880000000), \
             ({link}, 438301, 'bot', 2, 1577883600000); \
             INSERT INTO visit_hours VALUES (0, 'total', 438300, '', 'human', 5); \
             INSERT INTO visit_sketches (campaign_id, day, registers) VALUES (0, 18262, {}); \
             INSERT INTO visit_domain_minutes SELECT minute - 60 * 24 * 36, host, 9 \
             FROM visit_domain_minutes",
            sql.bytes(1, 4096)
        ));
        stack.sidecar.start_again();
        for (table, old) in [
            ("visit_domain_minutes", "visits = 9"),
            ("visit_link_hours", "hour IN (438300, 438301)"),
            ("visit_hours", "hour = 438300"),
            ("visit_sketches", "day = 18262"),
        ] {
            until(table, SOON, || {
                sql.number(&format!("SELECT count(*) FROM {table} WHERE {old}")) == 0
            });
        }
        let link = stack.api("GET", &format!("/v1/links/{code}"), None).json();
        assert_eq!(
            (&link["visits"]["total"], &link["visits"]["human"]),
            (&8.into(), &6.into())
        );
        let path = format!("/v1/links/{code}/stats");
        let stats = stack.api("GET", &path, None).json();
        assert_eq!(stats["visits"]["total"], 1, "{stats}");
        assert_eq!(sql.number("SELECT count(*) FROM visit_domain_minutes"), 1);
    });
}
