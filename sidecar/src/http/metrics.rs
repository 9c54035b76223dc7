//! `/metrics`: what is counted of this process, in the text format of Prometheus.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;

use super::SharedApp;

/// `GET /metrics`. What can't be asked now is left out.
pub(super) async fn show(State(app): State<SharedApp>) -> impl IntoResponse {
    let mut text = String::new();
    let counters = &app.visit_counters;
    for (name, help, counter) in [
        (
            "shortlink_visits_stored_total",
            "Visits that this process has stored.",
            &counters.stored,
        ),
        (
            "shortlink_visits_repeated_total",
            "Visits that came again and were stored before.",
            &counters.repeated,
        ),
        (
            "shortlink_visits_quarantined_total",
            "What came as a visit, could not be read and is in quarantine.",
            &counters.quarantined,
        ),
        (
            "shortlink_visits_forgotten_total",
            "Visits that were deleted since they were old.",
            &counters.forgotten,
        ),
        (
            "shortlink_links_ended_total",
            "Links that were ended since they had been visited often enough.",
            &counters.ended,
        ),
    ] {
        add(
            &mut text,
            name,
            "counter",
            help,
            counter.load(Ordering::Relaxed) as f64,
        );
    }
    if let Some(live) = &app.live {
        add(
            &mut text,
            "shortlink_live_listeners",
            "gauge",
            "How many listen to the live feed of visits.",
            live.listeners() as f64,
        );
    }
    if let Some(queue) = &app.visit_queue
        && let Ok(depth) = queue.depth().await
    {
        add(
            &mut text,
            "shortlink_visit_queue_batches",
            "gauge",
            "Batches of visits in Redis that are not stored.",
            depth.batches as f64,
        );
        let age = depth.oldest.map_or(0.0, |oldest| {
            app.clock
                .now()
                .duration_since(oldest)
                .as_secs_f64()
                .max(0.0)
        });
        add(
            &mut text,
            "shortlink_visit_queue_age_seconds",
            "gauge",
            "For how long the oldest of them has been there.",
            age,
        );
    }
    let headers = [
        (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, text)
}

fn add(text: &mut String, name: &str, kind: &str, help: &str, value: f64) {
    // Into a string nothing fails.
    let _ = writeln!(
        text,
        "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
    );
}
