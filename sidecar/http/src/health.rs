//! `/healthz` and `/readyz`

use std::error::Error;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_core::ports::{Behind, DataSet, Overdue};
use shortlink_service::outbox;

use super::app::{App, SharedApp};
use super::codespace::NumbersBody;
use super::operation::{NO_STORE, operations};
use super::words;

/// The time limit of a database check. Redis has its own.
const DATABASE_LIMIT: Duration = Duration::from_secs(1);

/// State of the process.
#[derive(Serialize, JsonSchema)]
struct Alive {
    /// `alive`
    status: &'static str,
}

/// Availability of the service's dependencies.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReadinessReport")]
struct Ready {
    #[schemars(with = "words::Readiness")]
    status: &'static str,
    checks: Checks,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReadinessChecks")]
struct Checks {
    #[schemars(with = "words::DatabaseState")]
    database: &'static str,
    #[schemars(with = "words::UpOrDown")]
    redis: &'static str,
    outbox: OutboxCheck,
    /// Numbers of permuted codes of the lengths that are issued, as they were up to ten seconds ago; `null` if the
    /// database does not respond.
    codes: Option<CodesCheck>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CodesCheck")]
struct CodesCheck {
    #[serde(flatten)]
    numbers: NumbersBody,
    /// Set while many numbers are used or burnt. The service is ready nevertheless.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OutboxCheck")]
struct OutboxCheck {
    /// Number of links and campaigns whose publication to Redis is overdue; counted up to 100,000. `null`
    /// if the database does not respond.
    waiting: Option<u32>,
    /// The time since which the oldest of them waits, by the clock of the sidecar that stored it.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    /// Number of earlier changes that Redis may lack because its data set is older, or another one. They are being
    /// published again.
    behind: u64,
    /// Set while Redis has a data set that may lack more than these changes. A comparison with the database is under
    /// way and finds them.
    comparing: bool,
}

operations! {
    get "/healthz", "isAlive", "Checks that the process runs", alive {
        .answers::<Alive>(200, "The process runs.").with(["Cache-Control"])
    }
    get "/readyz", "isReady", "Checks the dependencies of the service", ready {
        .answers::<Ready>(200, "The database is available.").with(["Cache-Control"])
        .answers::<Ready>(503, "The database is unavailable.").with(["Cache-Control"])
    }
}

/// `GET /healthz`: the process runs.
async fn alive() -> impl IntoResponse {
    ([NO_STORE], Json(Alive { status: "alive" }))
}

/// `GET /readyz`: reports whether the dependencies are available. Without Redis the service works,
/// only slower; without the database it does not. With a database that takes no changes, it still answers visitors.
async fn ready(State(app): State<SharedApp>) -> impl IntoResponse {
    let (overdue, writable, seen) =
        tokio::join!(overdue(&app), is_writable(&app), app.publisher.inspect());
    let behind = match (&overdue, &seen) {
        (Some(_), Ok((_, seen))) => behind(&app, seen).await,
        _ => Behind::default(),
    };
    let codes = match &overdue {
        Some(_) => codes(&app).await,
        None => None,
    };
    let waiting = overdue.map(|overdue| overdue.rows);
    let (status, database) = match (waiting, writable, &seen) {
        (None, ..) => ("unavailable", "down"),
        (Some(_), false, _) => ("degraded", "read-only"),
        (Some(0), true, Ok(_)) if behind == Behind::default() => ("ready", "up"),
        _ => ("degraded", "up"),
    };
    let since = overdue.and_then(|overdue| Timestamp::from_millisecond(overdue.since?).ok());
    let body = Ready {
        status,
        checks: Checks {
            database,
            redis: if seen.is_ok() { "up" } else { "down" },
            outbox: OutboxCheck {
                waiting,
                since,
                behind: behind.changes,
                comparing: behind.is_incomplete,
            },
            codes,
        },
    };
    let code = if waiting.is_some() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, [NO_STORE], Json(body))
}

/// Returns the use of codes; `None` if the database does not answer.
async fn codes(app: &App) -> Option<CodesCheck> {
    let summary = tokio::time::timeout(DATABASE_LIMIT, app.codespace.summary()).await;
    let summary = summary.ok()?.ok()?;
    Some(CodesCheck {
        numbers: NumbersBody::new(summary.numbers),
        warning: summary.warning,
    })
}

/// Returns whether the database takes changes.
pub(super) async fn is_writable(app: &SharedApp) -> bool {
    let writable = app.store.check_writable().await;
    if let Err(error) = &writable {
        tracing::error!(error = error as &dyn Error, "the database takes no changes");
    }
    writable.is_ok()
}

/// Returns what a data set may lack; nothing if the database does not answer.
pub(super) async fn behind(app: &App, seen: &DataSet) -> Behind {
    let behind = tokio::time::timeout(DATABASE_LIMIT, app.store.behind(seen));
    behind
        .await
        .map_or(Behind::default(), Result::unwrap_or_default)
}

/// Returns what is overdue for Redis; `None` if the database does not answer.
pub(super) async fn overdue(app: &SharedApp) -> Option<Overdue> {
    let count = outbox::overdue(&app.store, &*app.clock);
    match tokio::time::timeout(DATABASE_LIMIT, count).await {
        Ok(Ok(waiting)) => Some(waiting),
        Ok(Err(error)) => {
            tracing::error!(error = &error as &dyn Error, "the database is not ready");
            None
        }
        Err(_elapsed) => {
            let limit_ms = DATABASE_LIMIT.as_millis();
            tracing::error!(limit_ms, "the database does not answer in time");
            None
        }
    }
}
