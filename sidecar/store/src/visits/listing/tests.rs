use secrecy::ExposeSecret;
use shortlink_core::testing::moment;
use shortlink_core::visit::Visit;
use shortlink_core::visit::class::Class;
use sqlx::{AssertSqlSafe, Row as _};

use super::*;
use crate::db::Text;
use crate::in_every_store;
use crate::testing::{Fixture, connect, keep, visit};
use crate::visits::erasure::{OF_A_CAMPAIGN, OF_A_DAY, OF_SOME_LINKS};

in_every_store! {
    pages_of_a_filter_have_every_visit_once_and_end_after_so_many,
    a_period_is_found_without_a_walk_to_it,
}

/// The days that visits are on.
const DAYS: [&str; 4] = ["2026-05-29", "2026-05-30", "2026-05-31", "2026-06-01"];

/// Sixty visits a day, of which few are of scanners, and some of the first day that are stored last.
async fn fill(fixture: &Fixture) -> Vec<Visit> {
    let days = DAYS.iter().flat_map(|day| [*day; 60]).chain([DAYS[0]; 5]);
    let visits = days.enumerate().map(|(n, day)| {
        let at = format!("{day}T{:02}:00:00Z", n % 24);
        let mut visit = visit(n as u64, ["abc", "abd", "x"][n % 3], &at);
        if n % 50 == 7 {
            visit.classification.class = Class::Scanner;
        }
        visit
    });
    let visits: Vec<Visit> = visits.collect();
    for some in visits.chunks(25) {
        keep(&fixture.store, some.to_vec()).await;
    }
    visits
}

async fn page(store: &Store, listing: &VisitListing, most: u32) -> Listed<KeptVisit> {
    let args = (listing.clone(), most);
    let page = store.read("list visits", args, |db, (listing, most)| {
        Box::pin(list(db, listing, *most))
    });
    page.await.expect("a working store")
}

/// All pages of a listing, each of which examines at most so many visits; and their number.
async fn walk(store: &Store, listing: &VisitListing, most: u32) -> (Vec<KeptVisit>, usize) {
    let (mut all, mut listing) = (Vec::new(), listing.clone());
    for pages in 1.. {
        let Listed { items, read_to } = page(store, &listing, most).await;
        let is_full = items.len() >= listing.limit as usize;
        assert!(!is_full || read_to.is_none());
        let last = items.last().map(|last| last.number);
        listing.before = if is_full { last } else { read_to };
        all.extend(items);
        if listing.before.is_none() {
            return (all, pages);
        }
    }
    unreachable!("pages end")
}

async fn pages_of_a_filter_have_every_visit_once_and_end_after_so_many(fixture: Fixture) {
    let visits = fill(&fixture).await;
    let at = |text: &str| Some(moment(text));
    let moments = [
        None,
        at("2026-05-30T00:00:00Z"),
        at("2026-05-31T07:00:00Z"),
        at("2027-01-01T00:00:00Z"),
        at("2020-01-01T00:00:00Z"),
    ];
    for code in [None, Some("abd"), Some("nobody")] {
        for class in [None, Some(Class::Scanner), Some(Class::Bot)] {
            for (since, until) in moments.iter().flat_map(|it| moments.map(|to| (*it, to))) {
                let listing = VisitListing {
                    code: code.map(crate::testing::code),
                    class,
                    since,
                    until,
                    before: None,
                    limit: 20,
                };
                let matches = |visit: &&Visit| {
                    code.is_none_or(|code| visit.code == code)
                        && class.is_none_or(|class| visit.classification.class == class)
                        && since.is_none_or(|since| visit.at >= since)
                        && until.is_none_or(|until| visit.at < until)
                };
                let expected = visits.iter().filter(matches);
                let mut expected: Vec<_> = expected.map(|visit| (&*visit.code, visit.at)).collect();
                let (found, pages) = walk(&fixture.store, &listing, 10).await;
                assert!(found.is_sorted_by(|one, next| one.number > next.number));
                let mut found: Vec<_> = found.iter().map(|it| (&*it.code, it.at)).collect();
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "{listing:?}");
                assert!(pages <= visits.len() / 10 + 1, "{pages}: {listing:?}");
            }
        }
    }
}

async fn a_period_is_found_without_a_walk_to_it(fixture: Fixture) {
    fill(&fixture).await;
    let of_day = |since: &str, until: &str| VisitListing {
        class: Some(Class::Bot),
        since: Some(moment(since)),
        until: Some(moment(until)),
        limit: 20,
        ..VisitListing::default()
    };
    // The sixty visits of a day, ten at a time.
    let second = of_day("2026-05-30T05:00:00Z", "2026-05-31T00:00:00Z");
    assert_eq!(walk(&fixture.store, &second, 10).await, (Vec::new(), 7));
    // Days without visits cost nothing.
    for (since, until) in [
        ("2026-06-02T00:00:00Z", "2026-06-09T00:00:00Z"),
        ("2026-01-01T00:00:00Z", "2026-05-29T00:00:00Z"),
    ] {
        let none = of_day(since, until);
        assert_eq!(walk(&fixture.store, &none, 10).await, (Vec::new(), 1));
    }
}

/// Statements of listings: of all visits and of a link, for a position and for a period.
async fn statements(fixture: &Fixture) -> Vec<String> {
    let mut statements = Vec::new();
    for code in [None, Some(crate::testing::code("abd"))] {
        for (since, until) in [
            (None, None),
            (
                Some(moment("2026-05-30T00:00:00Z")),
                Some(moment("2026-05-30T12:00:00Z")),
            ),
        ] {
            let listing = VisitListing {
                code,
                class: Some(Class::Bot),
                since,
                until,
                before: Some(200),
                limit: 20,
            };
            let of_listing = fixture.store.read("statements", listing, |db, listing| {
                Box::pin(async move {
                    let walk = Walk::of(db, listing).await?.expect("a possible listing");
                    let select = walk.select(db.statement(SELECT), listing);
                    Ok([walk.reach(db, 10), select].map(|statement| literal(&statement)))
                })
            });
            statements.extend(of_listing.await.expect("a store"));
        }
    }
    statements
}

/// A statement with its values in place of its parameters.
fn literal(statement: &Statement<'_>) -> String {
    let values = statement.values.iter().enumerate().rev();
    values.fold(statement.text().to_owned(), |text, (place, value)| {
        let value = match value {
            Value::Number(Some(number)) => number.to_string(),
            Value::Text(Some(text)) => format!("'{text}'"),
            other => panic!("{other:?}"),
        };
        text.replace(&format!("${}", place + 1), &value)
    })
}

#[tokio::test]
async fn listings_of_sqlite_walk_an_index() {
    let fixture = Fixture::new(Scheme::Sqlite).await;
    fill(&fixture).await;
    let of_erasure = |sql| {
        let mut statement = Statement::new(Scheme::Sqlite, sql);
        let values = ["[5]".into(), 7_i64.into(), 9_i64.into(), 3_i64.into()];
        statement.values.extend(values);
        literal(&statement)
    };
    let all = "SEARCH visits USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)";
    let of_link = "USING INDEX visits_by_link (link_id=? AND rowid>? AND rowid<?)";
    let covered = "USING COVERING INDEX visits_by_link (link_id=? AND rowid>? AND rowid<?)";
    let found = "SEARCH visits USING INDEX visits_by_link (link_id=?)";
    let erased = "SEARCH visits USING INTEGER PRIMARY KEY (rowid=?)";
    let searches = [all, all, all, all, covered, of_link, covered, of_link];
    let listings = statements(&fixture).await.into_iter().zip(searches);
    let erasures = [
        (of_erasure(OF_SOME_LINKS), found),
        (of_erasure(OF_A_DAY), erased),
    ];
    for (statement, search) in listings.chain(erasures) {
        let text = format!("EXPLAIN QUERY PLAN {statement}");
        let plan = fixture.store.read("plan", text, |db, text| {
            Box::pin(async move {
                let detail = |row: &Row| row.get("detail");
                let plan: Vec<String> = db.all(Text::Built(text), &[], detail).await?;
                Ok(plan)
            })
        });
        let plan = plan.await.expect("a plan");
        assert!(plan.iter().any(|line| line.contains(search)), "{plan:?}");
        let sorts = plan.iter().any(|line| line.contains("TEMP B-TREE"));
        assert!(!sorts, "{plan:?}");
    }
}

#[tokio::test]
async fn listings_of_postgres_walk_an_index_of_the_days_that_they_need() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    fill(&fixture).await;
    let mut session = connect(fixture.options.url.expose_secret()).await;
    // As the pool has it, with statistics, and with none as on the first day.
    for prepare in ["SET enable_seqscan = off", "ANALYZE visits, visit_agents"] {
        let done = sqlx::raw_sql(prepare).execute(&mut session).await;
        done.expect("a good statement");
        for (place, statement) in statements(&fixture).await.iter().enumerate() {
            let explained = AssertSqlSafe(format!("EXPLAIN {statement}"));
            let rows = sqlx::raw_sql(explained).fetch_all(&mut session).await;
            let lines = rows.expect("a plan").into_iter();
            let plan: Vec<String> = lines.map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            let index = ["_pkey", "_code_id_idx"][place / 4];
            assert!(plan.contains(index), "{statement}\n{plan}");
            assert!(!plan.contains("Seq Scan"), "{statement}\n{plan}");
            let has_period = place % 4 >= 2;
            let other_days = ["visits_20260529", "visits_20260531", "visits_20260601"];
            let walks_others = other_days.iter().any(|day| plan.contains(day));
            assert_eq!(walks_others, !has_period, "{statement}\n{plan}");
        }
    }
}

#[tokio::test]
async fn erasures_of_postgres_read_an_index_of_the_days_that_they_need() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    fill(&fixture).await;
    let mut session = connect(fixture.options.url.expose_secret()).await;
    let time = |text: &str| Value::from(moment(text).as_millisecond());
    let (first, last) = (time("2026-05-30T00:00:00Z"), time("2026-05-30T12:00:00Z"));
    let number = |number: i64| Value::from(number);
    for prepare in ["SET enable_seqscan = off", "ANALYZE visits"] {
        let done = sqlx::raw_sql(prepare).execute(&mut session).await;
        done.expect("a good statement");
        for (sql, values) in [
            (
                OF_SOME_LINKS,
                vec!["{abd}".into(), last.clone(), number(10), first.clone()],
            ),
            (OF_A_DAY, vec!["{9}".into(), first.clone(), last.clone()]),
            (
                OF_A_CAMPAIGN,
                vec![
                    number(1),
                    number(99),
                    number(1),
                    last.clone(),
                    first.clone(),
                ],
            ),
        ] {
            let mut statement = Statement::new(Scheme::Postgres, sql);
            statement.values = values;
            let explained = AssertSqlSafe(format!("EXPLAIN {}", literal(&statement)));
            let rows = sqlx::raw_sql(explained).fetch_all(&mut session).await;
            let lines = rows.expect("a plan").into_iter();
            let plan: Vec<String> = lines.map(|row| row.get(0)).collect();
            let plan = plan.join("\n");
            assert!(plan.contains("visits_20260530"), "{plan}");
            for other in ["visits_20260529", "visits_20260531", "visits_20260601"] {
                assert!(!plan.contains(other), "{plan}");
            }
            assert!(!plan.contains("Seq Scan"), "{plan}");
        }
    }
}
