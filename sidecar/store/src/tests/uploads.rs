//! Links of uploads.

use jiff::SignedDuration;
use shortlink_core::link::{Link, UploadId};
use shortlink_core::ports::{Listing, Position};
use shortlink_core::testing::{link, moment};

use super::targets::plan;
use crate::db::Statement;
use crate::sql::sql;
use crate::testing::*;
use crate::{Scheme, in_every_store, listing};

in_every_store! {
    uploads_that_share_moments_are_told_apart,
    a_moment_is_forgotten_with_its_last_link,
}

/// A link of an upload, created so many milliseconds after the first.
fn of(upload: u64, code: &str, millisecond: i64) -> Link {
    let created_at = moment("2026-01-01T00:00:00Z") + SignedDuration::from_millis(millisecond);
    Link {
        upload: Some(UploadId::new(upload)),
        created_at,
        updated_at: created_at,
        ..link(code)
    }
}

/// The links of an upload, read by pages of two, and checked to be in order.
async fn listed(fixture: &Fixture, upload: u64) -> Vec<String> {
    let mut listing = Listing {
        upload: Some(UploadId::new(upload)),
        limit: 2,
        ..Listing::default()
    };
    let mut codes = Vec::new();
    loop {
        let page = fixture.store.list_links(&listing).await.expect("a store");
        let Some(last) = page.last() else {
            break;
        };
        assert!(page.is_sorted_by_key(|link| std::cmp::Reverse(link.created_at)));
        listing.after = Some(Position {
            created_at: last.created_at,
            code: last.code,
        });
        codes.extend(page.iter().map(|link| link.code.to_string()));
    }
    codes.sort_unstable();
    codes
}

async fn uploads_that_share_moments_are_told_apart(fixture: Fixture) {
    let links = [
        of(1, "abc", 0),
        of(2, "abd", 0),
        of(1, "abf", 0),
        link("abg"),
        of(1, "abh", 5),
        of(2, "abi", 5),
    ];
    let created = fixture.store.create_links(links.to_vec()).await;
    assert!(created.expect("a store").taken.is_empty());
    // Another part with the same creation time, in which a code is taken.
    let links = vec![of(1, "abj", 5), of(3, "abc", 6)];
    let created = fixture.store.create_links(links).await.expect("a store");
    assert_eq!(created.taken, [1]);
    assert_eq!(listed(&fixture, 1).await, ["abc", "abf", "abh", "abj"]);
    assert_eq!(listed(&fixture, 2).await, ["abd", "abi"]);
    assert_eq!(listed(&fixture, 3).await, Vec::<String>::new());
}

async fn a_moment_is_forgotten_with_its_last_link(fixture: Fixture) {
    let now = moment("2026-02-01T00:00:00Z");
    let links = vec![of(1, "abc", 0), of(1, "abd", 0), of(2, "abf", 0)];
    fixture.store.create_links(links).await.expect("a store");
    for (code_text, moments) in [("abc", 2), ("abf", 1), ("abd", 0)] {
        let links = vec![(code(code_text), 1)];
        let deleted = fixture.store.delete_links(links, now).await;
        assert_eq!(deleted.expect("a store"), 1, "{code_text}");
        assert_eq!(
            fixture.count("upload_moments").await,
            moments,
            "{code_text}"
        );
        let left = if moments == 0 { 0 } else { 1 };
        assert_eq!(listed(&fixture, 1).await.len(), left, "{code_text}");
    }
}

#[tokio::test]
async fn postgres_reads_the_links_of_the_moments_of_an_upload_only() {
    let fixture = Fixture::new(Scheme::Postgres).await;
    // Of an upload that many links have, the planner likes to look among all.
    for part in 0..10 {
        let links = (0..300).map(|number| of(1, &format!("p{part}n{number}"), part));
        let created = fixture.store.create_links(links.collect()).await;
        created.expect("a store");
    }
    fixture.execute("ANALYZE").await;
    let filter = Listing {
        upload: Some(UploadId::new(1)),
        limit: 50,
        ..Listing::default()
    };
    let (last, most) = ((i64::MAX, i64::MAX), i64::MAX);
    let mut page = Statement::new(Scheme::Postgres, sql!("SELECT code FROM "));
    listing::query(&mut page, &filter, last, None);
    let mut reach = Statement::new(Scheme::Postgres, sql!("SELECT "));
    listing::reach(&mut reach, &filter, last, 50);
    for (statement, values) in [(page, "1, 1, 50"), (reach, "1, 49")] {
        let values = format!("{most}, {most}, {most}, {values}");
        let plan = plan(&fixture, &statement, &values).await;
        assert!(plan.contains("upload_moments_pkey"), "{plan}");
        assert!(
            plan.contains("(created_at = upload_moments.link_created_at)"),
            "{plan}"
        );
        assert!(plan.contains("Nested Loop"), "{plan}");
        assert!(!plan.contains("Seq Scan"), "{plan}");
    }
}
