//! Metrics of webhooks.

use std::sync::atomic::Ordering;

use shortlink_core::ports::StoreError;
use shortlink_core::webhook::{PauseReason, Webhook};

use super::text::{Text, metrics};
use crate::app::App;

/// Adds the counts of this process.
pub(super) fn messages(app: &App, text: &mut Text) {
    let counters = &app.webhooks.counters;
    let results = [
        ("delivered", &counters.delivered),
        ("refused", &counters.refused),
        ("failed", &counters.failed),
    ];
    metrics! { text;
        counter "shortlink_webhook_messages_total",
            "Messages that this process has sent to endpoints of webhooks, by result: delivered, refused (another status than 200 to 299) or failed (no answer).",
            |samples| {
                for (result, count) in results {
                    samples.add(&[("result", result)], count.load(Ordering::Relaxed));
                }
            };
        counter "shortlink_webhook_events_total", "Events that this process has delivered to webhooks."
            = counters.events.load(Ordering::Relaxed);
    }
}

/// Adds the state of all webhooks, which the database has.
pub(super) async fn state(app: &App, text: &mut Text) -> Result<(), StoreError> {
    let webhooks = app.store.list_webhooks().await?;
    let now = app.clock.now();
    let count = |of: &dyn Fn(&Webhook) -> bool| webhooks.iter().filter(|it| of(it)).count() as u64;
    let runs = |it: &Webhook| it.paused.is_none();
    let active = count(&|it| runs(it) && it.failing_since.is_none());
    let failing = count(&|it| runs(it) && it.failing_since.is_some());
    let paused = PauseReason::ALL.map(|reason| {
        let count = count(&|it| it.paused.is_some_and(|(of, _)| of == reason));
        (reason.name(), count)
    });
    let waiting = webhooks.iter().filter(|it| runs(it));
    let oldest = waiting.filter_map(|it| it.waiting_since).min();
    let lag = oldest.map_or(0.0, |oldest| now.duration_since(oldest).as_secs_f64());
    metrics! { text;
        gauge "shortlink_webhooks",
            "Webhooks, by state: active, failing (the last attempt for an event has failed), or paused with a reason: requested, failing (for three days) or gone (answered 410).",
            |samples| {
                samples.add(&[("state", "active"), ("reason", "")], active);
                samples.add(&[("state", "failing"), ("reason", "")], failing);
                for (reason, count) in paused {
                    samples.add(&[("state", "paused"), ("reason", reason)], count);
                }
            };
        gauge "shortlink_webhook_lag_seconds",
            "Age of the oldest event that waits for a webhook that is not paused, in seconds; 0 if none waits."
            = lag.max(0.0);
    }
    Ok(())
}
