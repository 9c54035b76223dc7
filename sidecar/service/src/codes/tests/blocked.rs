//! A code with a blocked word is skipped like a code that is taken.

use std::collections::HashSet;
use std::sync::Arc;

use shortlink_core::clock::Clock;
use shortlink_core::codes::blocklist::Blocklist;
use shortlink_core::codes::strategy::{CodePolicy, StrategyName};
use shortlink_core::link::{Change, Dedupe, Destination};
use shortlink_core::ports::{Delivery, Publisher};
use shortlink_core::target::Target;
use shortlink_core::testing::{ManualClock, MemoryPublisher};
use shortlink_store::testing::TemporaryStore;
use vocabulary::{Code, CodeRules};

use crate::issue::{Issuer, Parts};
use crate::new_link::{LinkError, NewLink, NoCode};
use crate::outbox::outbox;
use crate::testing::{leases, parts};

/// Blocks about a quarter of the codes of five characters.
fn blocklist() -> Blocklist {
    let letters = "abcdefghijkmnopqrstuvwxyz2689";
    let mut words = String::new();
    for first in "abcdx".chars() {
        for second in letters.chars() {
            for third in letters.chars() {
                words.extend([first, second, third, '\n']);
            }
        }
    }
    Blocklist::parse([&*words]).expect("words")
}

fn issuing(kept: &TemporaryStore, blocklist: Blocklist) -> Issuer {
    Issuer::start(drawing(kept, blocklist))
}

fn drawing(kept: &TemporaryStore, blocklist: Blocklist) -> Parts {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
    let publisher: Arc<dyn Publisher> = Arc::new(MemoryPublisher::default());
    let (outbox, _worker) = outbox(
        Arc::clone(&kept.store),
        Arc::clone(&publisher),
        Arc::clone(&clock),
    );
    let delivery: Arc<dyn Delivery> = Arc::new(outbox);
    let leases = leases(&kept.store, &CodeRules::default(), "test");
    Parts {
        blocklist,
        ..parts(
            &leases,
            &kept.store,
            &publisher,
            &delivery,
            &clock,
            &CodeRules::default(),
        )
    }
}

fn links(strategy: StrategyName, length: u8, count: usize) -> Vec<NewLink> {
    let new = |number| NewLink {
        destination: Destination::Target(Target::from_stored(format!(
            "https://example.com/{number}"
        ))),
        slug: None,
        policy: CodePolicy {
            strategy,
            lengths: (length, length),
        },
        settings: Change::default(),
        dedupe: Dedupe::Never,
        dedupe_among: None,
        created_by: "test".to_owned(),
        upload: None,
        has_quota: false,
    };
    (0..count).map(new).collect()
}

#[tokio::test]
async fn every_strategy_skips_blocked_codes_and_those_of_a_pool_that_was_filled_before() {
    for strategy in StrategyName::ALL {
        let kept = TemporaryStore::new().await;
        // Shorter codes of a sequence are too easy to guess.
        let length = if strategy == StrategyName::Sequence {
            7
        } else {
            4
        };
        // The process before had no list: its pool has blocked codes.
        let before = issuing(&kept, Blocklist::default());
        let first = before.create_all(links(strategy, length, 300)).await;
        let issuer = issuing(&kept, blocklist());
        let then = issuer.create_all(links(strategy, length, 300)).await;
        let code =
            |result: Result<crate::new_link::Stored, LinkError>| result.expect("a link").link.code;
        let first: Vec<Code> = first.into_iter().map(code).collect();
        let then: Vec<Code> = then.into_iter().map(code).collect();
        let list = blocklist();
        let blocked = first.iter().filter(|code| list.blocks(code)).count();
        assert!(blocked > 20, "{strategy}: {blocked}");
        assert!(!then.iter().any(|code| list.blocks(code)), "{strategy}");
        let all: HashSet<&Code> = first.iter().chain(&then).collect();
        assert_eq!(all.len(), 600, "{strategy}");
    }
}

#[tokio::test]
async fn blocked_codes_are_replaced_before_links_are_stored() {
    let kept = TemporaryStore::new().await;
    let parts = drawing(&kept, blocklist());
    for strategy in [StrategyName::Permuted, StrategyName::Hash] {
        let new = links(strategy, 7, 300);
        let new: Vec<(usize, &NewLink)> = new.iter().enumerate().collect();
        assert_eq!(parts.draw_for(&new, 0).await.links.len(), 300, "{strategy}");
    }
}

#[tokio::test]
async fn a_length_has_as_many_links_as_without_a_list() {
    let kept = TemporaryStore::new().await;
    let issuer = issuing(&kept, blocklist());
    // One code in two has a link (`parts`): of 62 * 62 codes, 1922.
    let results = issuer
        .create_all(links(StrategyName::Permuted, 2, 2000))
        .await;
    let created = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(created, 1922);
    for error in results.into_iter().filter_map(Result::err) {
        let LinkError::NoCode(reason) = error else {
            panic!("{error}");
        };
        assert!(matches!(*reason, NoCode::Full { .. }), "{reason}");
    }
}
