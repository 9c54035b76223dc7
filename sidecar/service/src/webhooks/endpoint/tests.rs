use rand::SeedableRng;
use shortlink_core::ports::KeptVisit;
use shortlink_core::testing::moment;
use shortlink_core::visit::class::Class;
use shortlink_core::webhook::{Clicks, EndpointUrl, WebhookSettings};

use super::*;

const AT: &str = "2026-06-01T12:00:00Z";

fn webhook(max_batch: u32) -> Webhook {
    Webhook {
        id: "wh_1".to_owned(),
        settings: WebhookSettings {
            name: "test".to_owned(),
            url: EndpointUrl::from_stored("https://hooks.example.com/".to_owned()),
            events: EventType::ALL.to_vec(),
            clicks: Clicks::Each,
            campaigns: None,
            tags: None,
            classes: None,
            max_batch,
        },
        secret_version: 1,
        previous_until: None,
        created_at: moment(AT),
        created_by: "key".to_owned(),
        updated_at: moment(AT),
        revision: 1,
        paused: None,
        failing_since: None,
        waiting_since: None,
        delivered: 0,
        fence: 0,
        progress: Progress::default(),
    }
}

fn visit(number: i64, code: &str) -> ExportedVisit {
    ExportedVisit {
        visit: KeptVisit {
            number,
            at: moment(AT),
            code: code.to_owned(),
            class: "human".to_owned(),
            ..KeptVisit::default()
        },
        ..ExportedVisit::default()
    }
}

fn describe(ExportedVisit { visit, .. }: ExportedVisit) -> Option<Box<RawValue>> {
    RawValue::from_string(visit.number.to_string()).ok()
}

fn take(endpoint: &mut Endpoint, visits: &[(i64, &str)]) {
    for (number, code) in visits {
        endpoint.read.visits = *number;
        endpoint.take_visit(visit(*number, code), describe);
    }
}

const ACCEPTED: Result<Answer, SendError> = Ok(Answer {
    status: 200,
    retry_after: None,
});
const REFUSED: Result<Answer, SendError> = Ok(Answer {
    status: 500,
    retry_after: None,
});

fn end(endpoint: &mut Endpoint, ready: Ready, outcome: &Result<Answer, SendError>, at: Timestamp) {
    let mut rng = StdRng::seed_from_u64(1);
    endpoint.ended(
        ready.queue,
        ready.id,
        outcome,
        (at, Duration::ZERO),
        &mut rng,
    );
}

/// The time after every pause.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(7200)
}

#[tokio::test]
async fn one_message_of_a_link_is_under_way_at_a_time() {
    let mut endpoint = Endpoint::new(webhook(1));
    take(&mut endpoint, &[(1, "a"), (2, "b"), (3, "a")]);
    assert_ne!(queue_of("a"), queue_of("b"));
    let ready = endpoint.ready(Instant::now());
    let ids: Vec<&str> = ready.iter().map(|it| &*it.id).collect();
    assert_eq!(ids.len(), 2);
    assert!(endpoint.ready(later()).is_empty());
    for it in ready {
        end(&mut endpoint, it, &ACCEPTED, moment(AT));
    }
    let ready = endpoint.ready(Instant::now());
    assert_eq!(ready.len(), 1);
    assert_eq!(ready[0].id, click_id(3, moment(AT)));
    // Everything before the event that is under way is delivered.
    let news = endpoint.news();
    assert_eq!(news.progress.0[queue_of("a")].visits, 2);
    assert_eq!(news.progress.0[queue_of("b")].visits, 3);
    assert_eq!((news.events, news.attempts.len()), (2, 2));
}

#[tokio::test]
async fn what_was_delivered_before_a_restart_is_left_out() {
    let mut former = Endpoint::new(webhook(1));
    take(&mut former, &[(1, "a"), (2, "b"), (3, "a"), (4, "b")]);
    let ready = former.ready(Instant::now());
    let of_b = ready.into_iter().find(|it| it.queue == queue_of("b"));
    end(&mut former, of_b.expect("a message"), &ACCEPTED, moment(AT));
    let progress = former.news().progress;
    let mut endpoint = Endpoint::new(Webhook {
        progress,
        ..webhook(1)
    });
    assert_eq!(endpoint.read.visits, 0);
    take(&mut endpoint, &[(1, "a"), (2, "b"), (3, "a"), (4, "b")]);
    let mut ids: Vec<String> = endpoint
        .ready(later())
        .into_iter()
        .map(|it| it.id)
        .collect();
    ids.sort();
    assert_eq!(ids, [click_id(1, moment(AT)), click_id(4, moment(AT))]);
}

#[tokio::test]
async fn a_batch_is_repeated_as_it_was_and_has_the_id_of_its_events() {
    let mut endpoint = Endpoint::new(webhook(100));
    take(&mut endpoint, &[(1, "a"), (2, "a")]);
    let mut ready = endpoint.ready(Instant::now());
    let first = ready.pop().expect("a batch");
    assert!(ready.is_empty());
    let id = first.id.clone();
    assert_eq!(
        id,
        batch_id([&*click_id(1, moment(AT)), &*click_id(2, moment(AT))])
    );
    end(&mut endpoint, first, &REFUSED, moment(AT));
    take(&mut endpoint, &[(3, "a")]);
    assert!(endpoint.ready(Instant::now()).is_empty(), "a pause");
    assert!(endpoint.next_attempt().expect("a time") > Instant::now());
    let again = endpoint.ready(later()).pop().expect("a batch");
    assert_eq!((&again.id, again.events), (&id, 2));
    end(&mut endpoint, again, &ACCEPTED, moment(AT));
    let last = endpoint.ready(Instant::now()).pop().expect("a batch");
    assert_eq!(last.id, batch_id([&*click_id(3, moment(AT))]));
    assert!(
        last.body.starts_with(r#"{"type":"batch","id":"batch_"#),
        "{}",
        last.body
    );
    assert!(last.body.ends_with(r#""data":3}]}"#), "{}", last.body);
}

#[tokio::test]
async fn an_event_that_fails_for_three_days_pauses_its_webhook_through_restarts() {
    let mut endpoint = Endpoint::new(webhook(1));
    take(&mut endpoint, &[(1, "a"), (2, "b")]);
    let begun = moment(AT);
    let hours = |hours| begun + jiff::SignedDuration::from_hours(hours);
    let mut attempts = 0;
    for hour in [0, 1, 30] {
        for it in endpoint.ready(later()) {
            let outcome = if it.queue == queue_of("a") {
                REFUSED
            } else {
                ACCEPTED
            };
            attempts += usize::from(outcome == REFUSED);
            end(&mut endpoint, it, &outcome, hours(hour));
        }
    }
    assert_eq!(attempts, 3);
    let news = endpoint.news();
    assert_eq!((news.failing_since, news.pause), (Some(begun), None));
    let mut next = Endpoint::new(Webhook {
        progress: news.progress,
        failing_since: news.failing_since,
        ..webhook(1)
    });
    take(&mut next, &[(1, "a"), (2, "b"), (3, "b")]);
    // Another link succeeds meanwhile.
    for it in next.ready(later()) {
        let outcome = if it.queue == queue_of("a") {
            REFUSED
        } else {
            ACCEPTED
        };
        end(&mut next, it, &outcome, hours(71));
    }
    let news = next.news();
    assert_eq!((news.failing_since, news.pause), (Some(begun), None));
    let last = next.ready(later()).pop().expect("a message");
    end(&mut next, last, &REFUSED, hours(72));
    assert_eq!(next.news().pause, Some(PauseReason::Failing));
    assert!(next.ready(later()).is_empty());
}

#[tokio::test]
async fn failures_of_a_former_process_are_none_of_later_events() {
    let begun = moment(AT);
    let hours = |hours| begun + jiff::SignedDuration::from_hours(hours);
    let mut endpoint = Endpoint::new(Webhook {
        failing_since: Some(begun),
        ..webhook(1)
    });
    let mut late = visit(1, "a");
    late.visit.at = hours(96);
    endpoint.take_visit(late, describe);
    for (hour, pause) in [(97, None), (168, Some(PauseReason::Failing))] {
        let only = endpoint.ready(later()).pop().expect("a message");
        end(&mut endpoint, only, &REFUSED, hours(hour));
        let news = endpoint.news();
        assert_eq!((news.failing_since, news.pause), (Some(hours(96)), pause));
    }
}

#[tokio::test]
async fn an_endpoint_that_is_gone_gets_nothing_more() {
    let mut endpoint = Endpoint::new(webhook(1));
    take(&mut endpoint, &[(1, "a"), (2, "a")]);
    let gone = Ok(Answer {
        status: 410,
        retry_after: None,
    });
    let only = endpoint.ready(Instant::now()).pop().expect("a message");
    end(&mut endpoint, only, &gone, moment(AT));
    assert!(endpoint.is_leaving && endpoint.is_quiet());
    assert_eq!(endpoint.news().pause, Some(PauseReason::Gone));
}

#[tokio::test]
async fn filters_leave_out_visits_and_progress_passes_them() {
    let mut filtered = webhook(1);
    filtered.settings.tags = Some(vec!["x".to_owned()]);
    filtered.settings.classes = Some(vec![Class::Human]);
    let mut endpoint = Endpoint::new(filtered);
    let tagged = |number, tag: &str, class: &str| ExportedVisit {
        visit: KeptVisit {
            class: class.to_owned(),
            ..visit(number, "a").visit
        },
        tags: vec![tag.to_owned()],
        ..ExportedVisit::default()
    };
    endpoint.read.visits = 3;
    for visit in [
        tagged(1, "y", "human"),
        tagged(2, "x", "bot"),
        tagged(3, "x", "human"),
    ] {
        endpoint.take_visit(visit, describe);
    }
    let only = endpoint.ready(Instant::now()).pop().expect("a message");
    assert_eq!(only.id, click_id(3, moment(AT)));
    assert!(endpoint.has_news());
    assert_eq!(endpoint.news().progress.least().visits, 2);
    end(&mut endpoint, only, &ACCEPTED, moment(AT));
    assert_eq!(endpoint.news().progress.least().visits, 3);
    assert!(!endpoint.has_news());
}

#[tokio::test]
async fn a_refused_event_holds_up_others_only_once_many_wait() {
    let mut endpoint = Endpoint::new(webhook(1));
    let mut number = 0;
    while endpoint.has_room(1) {
        number += 1;
        take(&mut endpoint, &[(number, "a")]);
    }
    assert_eq!(number as usize, WINDOW);
    let first = endpoint.ready(Instant::now()).pop().expect("a message");
    end(&mut endpoint, first, &REFUSED, moment(AT));
    assert!(!endpoint.has_room(1));
}

#[tokio::test]
async fn large_events_fill_the_memory_of_a_webhook_before_many_wait() {
    let mut endpoint = Endpoint::new(webhook(1));
    let large = |_visit| RawValue::from_string(format!("\"{}\"", "x".repeat(1 << 20))).ok();
    let mut number = 0;
    while endpoint.has_room(1) {
        number += 1;
        endpoint.take_visit(visit(number, "a"), large);
    }
    assert_eq!(number, 16);
    let first = endpoint.ready(Instant::now()).pop().expect("a message");
    end(&mut endpoint, first, &REFUSED, moment(AT));
    assert!(!endpoint.has_room(1));
    let again = endpoint.ready(later()).pop().expect("a message");
    end(&mut endpoint, again, &ACCEPTED, moment(AT));
    assert!(endpoint.has_room(1));
}
