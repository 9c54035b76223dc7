//! `/healthz` and `/readyz`

use std::error::Error;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_service::outbox::overdue;

use super::app::SharedApp;
use super::operation::{NO_STORE, operations};
use super::words;

/// The time limit of a database check. Redis has its own.
const DATABASE_LIMIT: Duration = Duration::from_secs(1);

/// The number up to which waiting links are counted.
const COUNT_LIMIT: u32 = 100_000;

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
    #[schemars(with = "words::UpOrDown")]
    database: &'static str,
    #[schemars(with = "words::UpOrDown")]
    redis: &'static str,
    outbox: OutboxCheck,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OutboxCheck")]
struct OutboxCheck {
    /// Number of links whose publication to Redis is overdue; counted up to 100,000. `null` if the
    /// database does not respond.
    waiting: Option<u32>,
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
/// only slower; without the database it does not.
async fn ready(State(app): State<SharedApp>) -> impl IntoResponse {
    let (waiting, redis) = tokio::join!(count_waiting(&app), app.publisher.incarnation());
    let status = match (&waiting, &redis) {
        (None, _) => "unavailable",
        (Some(0), Ok(_)) => "ready",
        _ => "degraded",
    };
    let up_or_down = |is_up| if is_up { "up" } else { "down" };
    let body = Ready {
        status,
        checks: Checks {
            database: up_or_down(waiting.is_some()),
            redis: up_or_down(redis.is_ok()),
            outbox: OutboxCheck { waiting },
        },
    };
    let code = if waiting.is_some() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (code, [NO_STORE], Json(body))
}

/// Returns the number of links whose publication to Redis is overdue; `None` if the database does
/// not answer.
pub(super) async fn count_waiting(app: &SharedApp) -> Option<u32> {
    let overdue = overdue(&*app.clock);
    let count = app.store.count_waiting(overdue, COUNT_LIMIT);
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
