//! Announcements of short domains by nginx: the latest of each node.

use jiff::SignedDuration;
use shortlink_core::announcement::Announcement;
use shortlink_core::ports::MAX_NODES;
use shortlink_core::testing::moment;

use crate::in_every_store;
use crate::testing::*;

in_every_store! {
    the_latest_that_each_node_says_is_kept_until_it_is_silent_for_long,
}

async fn the_latest_that_each_node_says_is_kept_until_it_is_silent_for_long(fixture: Fixture) {
    let store = &*fixture.store;
    let begin = moment("2026-06-01T12:00:00Z");
    let say = async |node: &str, states: &str, minutes: i64| {
        let said = Announcement::new(
            node,
            "https://a.example",
            "a.example,b.example",
            states,
            "Acme,",
        );
        let now = begin + SignedDuration::from_mins(minutes);
        let forget_before = now - SignedDuration::from_mins(60);
        let noted = store.note_domains(&said, now, forget_before).await;
        noted.expect("a store")
    };
    let known = async || {
        let heard = store.list_domains().await.expect("a store");
        let minutes = |at: jiff::Timestamp| at.duration_since(begin).as_mins();
        let text = |it: &shortlink_core::announcement::Heard| {
            let said = &it.announcement;
            assert_eq!(said.names, "a.example,b.example");
            assert_eq!(said.bases, "https://a.example");
            assert_eq!(said.brands, "Acme,");
            let (changed, heard) = (minutes(it.changed_at), minutes(it.heard_at));
            format!("{} {} {changed} {heard}", said.node, said.states)
        };
        heard.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(known().await, [""; 0]);
    assert!(say("edge2", "as", 0).await);
    assert!(say("edge1", "as", 1).await);
    assert!(say("edge1", "as", 5).await);
    assert_eq!(known().await, ["edge1 as 1 5", "edge2 as 0 0"]);
    assert!(say("edge1", "sa", 6).await);
    // A late announcement is older.
    assert!(say("edge1", "as", 4).await);
    assert_eq!(known().await, ["edge1 sa 6 6", "edge2 as 0 0"]);
    assert!(say("edge1", "sa", 61).await);
    assert_eq!(known().await, ["edge1 sa 6 61"]);
    for other in 1..MAX_NODES {
        assert!(say(&format!("other{other}"), "as", 62).await);
    }
    // One more has no place, and takes none from those that are known.
    assert!(!say("one more", "as", 62).await);
    assert!(say("edge1", "as", 63).await);
    assert_eq!(known().await.len() as u64, MAX_NODES);
    // One that has been silent for some minutes makes way.
    assert!(say("one more", "as", 68).await);
    assert_eq!(known().await.len() as u64, MAX_NODES);
    assert!(!known().await.iter().any(|it| it.starts_with("other1 ")));
}
