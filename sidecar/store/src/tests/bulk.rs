//! Bulk jobs: every selected link is changed once, whatever cuts a job off.

use std::collections::HashMap;
use std::num::NonZeroU64;

use jiff::SignedDuration;
use shortlink_core::bulk::{BulkAction, BulkJob, BulkOutcome, BulkState, NewBulkJob, Selection};
use shortlink_core::link::{Change, Edit, Link, UploadId};
use shortlink_core::ports::AuditListing;
use shortlink_core::revised::Revised;
use shortlink_core::testing::{changed_by, link, moment};
use vocabulary::Code;

use crate::testing::*;
use crate::{BulkCreated, Store, in_every_store};

in_every_store! {
    a_job_changes_each_selected_link_once,
    a_list_of_codes_has_a_result_for_each,
    a_trial_changes_nothing,
    processes_that_share_a_job_do_no_step_twice,
    a_cancelled_job_does_no_further_step,
    an_idempotency_key_creates_one_job,
    old_jobs_are_forgotten_with_their_results,
    a_link_that_never_changed_waits_no_longer_once_it_is_published_again,
}

fn new(action: BulkAction, selection: Selection) -> NewBulkJob {
    NewBulkJob {
        key_id: "key".to_owned(),
        action,
        own: None,
        selection,
        change: Change::default(),
        is_trial: false,
        idempotency: None,
        created_at: moment(NOW),
    }
}

fn upload() -> UploadId {
    UploadId::new(7)
}

/// Stores links of an upload, and one that belongs to none; returns the codes of the former.
async fn of_upload(store: &Store, count: usize) -> Vec<Code> {
    let links: Vec<Link> = (0..count)
        .map(|number| Link {
            upload: Some(upload()),
            tags: vec!["spring".to_owned()],
            ..link(&format!("u{number:04}"))
        })
        .collect();
    let codes = links.iter().map(|link| link.code).collect();
    for some in links.chunks(100) {
        store.create_links(some.to_vec()).await.expect("a store");
    }
    create(store, link("other")).await;
    codes
}

async fn started(store: &Store, new: NewBulkJob) -> BulkJob {
    match store.create_bulk_job(new).await.expect("a store") {
        BulkCreated::Job(job) => *job,
        BulkCreated::Different => panic!("a job of another request"),
    }
}

/// Does all steps of a job; returns their number.
async fn run(store: &Store, id: u64) -> u32 {
    let mut steps = 0;
    loop {
        steps += 1;
        let step = store.step_bulk_job(id, moment(REVOKED_AT)).await;
        if step.expect("a store").is_last {
            return steps;
        }
    }
}

async fn results(store: &Store, id: u64) -> Vec<(Code, BulkOutcome)> {
    let (mut after, mut all) = (0, Vec::new());
    while let Some((last, some)) = store.bulk_results(id, after, 2).await.expect("a store") {
        assert!(last > after);
        after = last;
        all.extend(some);
    }
    all
}

async fn job(store: &Store, id: u64) -> BulkJob {
    let found = store.find_bulk_job(id).await.expect("a store");
    found.expect("a job")
}

async fn find(store: &Store, code: &Code) -> Link {
    let found = store.find_link(code).await.expect("a store");
    found.expect("a link")
}

async fn a_job_changes_each_selected_link_once(fixture: Fixture) {
    let store = &*fixture.store;
    let codes = of_upload(store, 250).await;
    revoke(store, codes[3].as_str()).await;
    let change = Change {
        max_visits: Some(NonZeroU64::new(5)),
        tags: Some(vec!["autumn".to_owned()]),
        ..Change::default()
    };
    for (selection, changed, unchanged) in [
        // The job takes the tag from its links, and still finds all of them.
        (Selection::Tag("spring".to_owned()), 249, 0),
        (Selection::Upload(upload()), 0, 249),
    ] {
        let request = NewBulkJob {
            change: change.clone(),
            ..new(BulkAction::Change, selection)
        };
        let id = started(store, request).await.id;
        // A link that is created while the job waits for its turn is none of its links.
        let later = Link {
            upload: Some(upload()),
            tags: vec!["spring".to_owned()],
            created_at: moment(NOW) + SignedDuration::from_millis(1),
            ..link(&format!("later{changed}"))
        };
        create(store, later).await;
        assert!(run(store, id).await > 3);
        let job = job(store, id).await;
        assert_eq!(job.state, BulkState::Done);
        assert_eq!(job.selected, Some(250));
        let counts = job.counts;
        assert_eq!(
            (counts.changed, counts.unchanged, counts.failed),
            (changed, unchanged, 1)
        );
        let found = results(store, id).await;
        assert_eq!(found.len(), 250);
        let by_code: HashMap<Code, BulkOutcome> = found.into_iter().collect();
        assert_eq!(by_code.len(), 250);
        assert_eq!(by_code[&codes[3]], BulkOutcome::Revoked);
    }
    let changed = find(store, &codes[0]).await;
    assert_eq!(
        (changed.revision, changed.tags),
        (2, vec!["autumn".to_owned()])
    );
    assert_eq!(changed.max_visits, NonZeroU64::new(5));
    let history = store
        .link_history(&codes[0], None, 10)
        .await
        .expect("a store");
    assert_eq!(history.expect("a link").len(), 1);
    for left in ["other", "later249", "later0"] {
        assert_eq!(find(store, &code(left)).await.revision, 1, "{left}");
    }
}

async fn a_list_of_codes_has_a_result_for_each(fixture: Fixture) {
    let store = &*fixture.store;
    let mut codes = of_upload(store, 150).await;
    codes.insert(70, code("nobody"));
    let request = new(BulkAction::Revoke, Selection::Codes(codes.clone()));
    let id = started(store, request).await.id;
    run(store, id).await;
    let found = results(store, id).await;
    let order: Vec<Code> = found.iter().map(|(code, _)| *code).collect();
    assert_eq!(order, codes);
    assert_eq!(found[70].1, BulkOutcome::Unknown);
    let job = job(store, id).await;
    assert_eq!((job.counts.changed, job.counts.failed), (150, 1));
    for (code, _) in found
        .iter()
        .filter(|(_, outcome)| *outcome == BulkOutcome::Changed)
    {
        assert!(find(store, code).await.revoked_at.is_some());
    }
}

async fn a_trial_changes_nothing(fixture: Fixture) {
    let store = &*fixture.store;
    let codes = of_upload(store, 5).await;
    let request = NewBulkJob {
        is_trial: true,
        ..new(BulkAction::Revoke, Selection::Upload(upload()))
    };
    let id = started(store, request).await.id;
    run(store, id).await;
    assert_eq!(job(store, id).await.counts.changed, 5);
    assert_eq!(results(store, id).await.len(), 5);
    for code in &codes {
        assert_eq!(find(store, code).await.revision, 1);
    }
}

async fn processes_that_share_a_job_do_no_step_twice(fixture: Fixture) {
    let store = &*fixture.store;
    of_upload(store, 500).await;
    let request = new(BulkAction::Pause, Selection::Upload(upload()));
    let id = started(store, request).await.id;
    // As two processes do whose clocks differ about the claim.
    tokio::join!(run(store, id), run(store, id), run(store, id));
    let mut codes: Vec<String> = results(store, id)
        .await
        .iter()
        .map(|it| it.0.to_string())
        .collect();
    assert_eq!(codes.len(), 500);
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len(), 500);
    assert_eq!(job(store, id).await.counts.changed, 500);
    let listing = AuditListing {
        subject: Some(format!("job:{id}")),
        limit: 10,
        ..AuditListing::default()
    };
    let entries = store.list_audit(&listing).await.expect("a store").items;
    let actions: Vec<&str> = entries.iter().map(|it| &*it.action).collect();
    assert_eq!(actions, ["job.finish", "job.create"]);
}

async fn a_cancelled_job_does_no_further_step(fixture: Fixture) {
    let store = &*fixture.store;
    let codes = of_upload(store, 150).await;
    let request = new(BulkAction::Revoke, Selection::Codes(codes));
    let id = started(store, request).await.id;
    store.step_bulk_job(id, moment(NOW)).await.expect("a store");
    for _ in 0..2 {
        let ended = store.end_bulk_job(id, BulkState::Cancelled, None, None, moment(NOW));
        let ended = ended.await.expect("a store").expect("a job");
        assert_eq!(ended.state, BulkState::Cancelled);
    }
    assert_eq!(run(store, id).await, 1);
    let job = job(store, id).await;
    assert_eq!(
        (job.counts.changed, job.finished_at),
        (100, Some(moment(NOW)))
    );
    assert_eq!(store.next_bulk_job(0).await.expect("a store"), None);
}

async fn an_idempotency_key_creates_one_job(fixture: Fixture) {
    let store = &*fixture.store;
    let request = |key_id: &str, digest| NewBulkJob {
        key_id: key_id.to_owned(),
        idempotency: Some(("again".to_owned(), [digest; 32])),
        ..new(BulkAction::Revoke, Selection::Tag("spring".to_owned()))
    };
    let first = started(store, request("key", 1)).await;
    assert_eq!(started(store, request("key", 1)).await, first);
    let second = started(store, request("other", 1)).await.id;
    assert_ne!(second, first.id);
    let different = store.create_bulk_job(request("key", 2)).await;
    assert_eq!(different.expect("a store"), BulkCreated::Different);
    let plain = || new(BulkAction::Revoke, Selection::Tag("spring".to_owned()));
    assert_ne!(
        started(store, plain()).await.id,
        started(store, plain()).await.id
    );
    // Jobs take turns.
    let next = async |after| {
        store
            .next_bulk_job(after)
            .await
            .expect("a store")
            .expect("a job")
            .id
    };
    assert_eq!(next(first.id).await, second);
    assert_eq!(next(first.id + 100).await, first.id);
}

async fn old_jobs_are_forgotten_with_their_results(fixture: Fixture) {
    let store = &*fixture.store;
    let codes = of_upload(store, 150).await;
    let old = started(store, new(BulkAction::Pause, Selection::Codes(codes)))
        .await
        .id;
    run(store, old).await;
    let running = started(store, new(BulkAction::Pause, Selection::Upload(upload())))
        .await
        .id;
    let before = moment("2100-01-01T00:00:00Z");
    while store.forget_bulk_jobs(before).await.expect("a store") {}
    assert_eq!(store.find_bulk_job(old).await.expect("a store"), None);
    assert!(results(store, old).await.is_empty());
    assert_eq!(job(store, running).await.state, BulkState::Running);
}

async fn a_link_that_never_changed_waits_no_longer_once_it_is_published_again(fixture: Fixture) {
    let store = &*fixture.store;
    let codes = of_upload(store, 2).await;
    settle(store, vec![waiting(store).await.receipt], moment(NOW)).await;
    assert_eq!(count_waiting(store, 9).await, 0);
    let id = started(store, new(BulkAction::Resume, Selection::Upload(upload())))
        .await
        .id;
    let mut receipts = Vec::new();
    loop {
        let step = store.step_bulk_job(id, moment(NOW)).await.expect("a store");
        receipts.push(step.receipt);
        if step.is_last {
            break;
        }
    }
    let at = moment(NOW);
    let by = changed_by("key");
    let resume = Box::new(move |link: Link| link.resume(at));
    let resumed = store.edit_link(&codes[0], &by, resume);
    let resumed = resumed.await.expect("a store").expect("a link");
    assert!(matches!(resumed.edit, Edit::Unchanged(_)));
    receipts.push(resumed.receipt);
    assert_eq!(count_waiting(store, 9).await, 2);
    settle(store, receipts, moment(NOW)).await;
    assert_eq!(fixture.waiting().await, [""; 0]);
    assert_eq!(count_waiting(store, 9).await, 0);
}
