//! `/metrics`: counters of this process and the state of the service, for Prometheus.
//!
//! Every counter is present from the start with 0, so that an alert on a rate sees the first event.

mod domains;
mod process;
mod text;
mod webhooks;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use shortlink_core::durations::DATABASE;
use shortlink_core::ports::StoreError;
use shortlink_service::jobs::JOBS;

use super::app::{App, SharedApp};
use super::health::{behind, is_writable, overdue};
use super::operation::{NO_STORE, operations, text_of};
use text::{Text, metrics};

/// The time limit for all database queries except that of the backlog.
const DATABASE_LIMIT: Duration = Duration::from_secs(2);

operations! {
    get "/metrics", "getMetrics", "Reports metrics of this process for Prometheus", show {
        .answer(200, "The metrics in Prometheus' text format.", [text_of("text/plain")]).with(["Cache-Control"])
    }
}

/// `GET /metrics`. Omits values that are currently unavailable.
async fn show(State(app): State<SharedApp>) -> impl IntoResponse {
    let mut text = Text::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    metrics! { text;
        gauge "shortlink_sidecar_info", "Version of the sidecar; the value is 1.", |it| it.add(&version, 1);
        gauge "shortlink_clock_seconds", "Clock of this machine, in seconds since 1970."
            = app.clock.now().as_duration().as_secs_f64();
    }
    process::add(&mut text);
    requests(&app, &mut text);
    jobs(&mut text);
    visits(&app, &mut text).await;
    webhooks::messages(&app, &mut text);
    let (overdue, writable) = tokio::join!(overdue(&app), is_writable(&app));
    let waiting = overdue.map(|overdue| overdue.rows);
    metrics! { text;
        gauge "shortlink_database_up", "Whether the database responds: 1 or 0." = u8::from(waiting.is_some());
        gauge "shortlink_database_writable", "Whether the database takes changes: 1 or 0." = u8::from(writable);
    }
    replica(&app, &mut text);
    let responds = tokio::time::timeout(DATABASE_LIMIT, app.store.clickhouse_responds());
    let clickhouse = responds.await.unwrap_or(Some(false));
    if let Some(is_up) = clickhouse {
        metrics! { text;
            gauge "shortlink_clickhouse_up", "Whether ClickHouse responds, if it stores visits: 1 or 0."
                = u8::from(is_up);
        }
    }
    if let Some(waiting) = waiting {
        metrics! { text;
            gauge "shortlink_outbox_waiting",
                "Links and campaigns not published to Redis for over 2 seconds, counted up to 100000." = waiting;
        }
        let asked = database(&app, clickhouse.is_some(), &mut text);
        let asked = tokio::time::timeout(DATABASE_LIMIT, asked).await;
        if let Ok(Err(error)) = asked {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the database does not report all figures"
            );
        }
    }
    // Last, so that it counts the queries above as well.
    metrics! { text;
        counter "shortlink_database_errors_total", "Database operations that failed." = shortlink_store::errors();
    }
    let headers = [
        (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"),
        NO_STORE,
    ];
    (headers, text.into_string())
}

/// Adds the counts of answers, and the durations of requests and of database queries. The names of durations are those
/// of OpenTelemetry.
fn requests(app: &App, text: &mut Text) {
    metrics! { text;
        counter "shortlink_answers_total",
            "Responses of this process to callers of the API and to visitors, by class of status.",
            |samples| {
                for (to, counts) in [("api", &app.answers.api), ("visitor", &app.answers.visitors)] {
                    for (class, count) in counts.by_class() {
                        samples.add(&[("to", to), ("status", class)], count);
                    }
                }
            };
        counter "shortlink_sign_ins_total",
            "Sign-ins at the console to this process, by means (key or person) and outcome.",
            |samples| {
                for (kind, outcome, count) in app.sign_in_counters.read() {
                    samples.add(&[("kind", kind), ("outcome", outcome)], count);
                }
            };
        gauge "http_server_active_requests", "Requests in progress."
            = app.requests.active.load(Ordering::Relaxed);
        histogram "http_server_request_duration_seconds", "Time until a response began, in seconds.",
            |samples| {
                for ((route, method, status), counted) in app.requests.durations.read() {
                    let status = status.to_string();
                    let labels = [
                        ("http_request_method", method),
                        ("http_route", &route),
                        ("http_response_status_code", &status),
                    ];
                    samples.add_durations(&labels, &counted);
                }
            };
        histogram "db_client_operation_duration_seconds",
            "Duration of database operations, with the wait for a connection, in seconds.",
            |samples| {
                for (operation, counted) in DATABASE.read() {
                    samples.add_durations(&[("db_operation_name", operation)], &counted);
                }
            };
    }
}

/// The jobs whose links or rows are counted.
const COUNTED: [&str; 3] = ["reconcile", "retention", "sweep"];

/// Adds the steps of background jobs.
fn jobs(text: &mut Text) {
    let results = JOBS.results();
    metrics! { text;
        histogram "shortlink_job_duration_seconds",
            "Duration of the steps of background jobs of this process, in seconds.",
            |samples| {
                for (job, counted) in JOBS.steps.read() {
                    samples.add_durations(&[("job", job)], &counted);
                }
            };
        counter "shortlink_job_failures_total", "Steps of background jobs of this process that failed.",
            |samples| {
                for (job, of) in &results {
                    samples.add(&[("job", job)], of.failures);
                }
            };
        counter "shortlink_job_items_total",
            "Links or rows that this process has compared (reconcile), shortened, deleted or freed (sweep) or deleted (retention).",
            |samples| {
                for (job, of) in results.iter().filter(|(job, _)| COUNTED.contains(job)) {
                    samples.add(&[("job", job)], of.items);
                }
            };
        gauge "shortlink_job_lanes",
            "Lanes of a background job that this process holds; 1 for a job without lanes.",
            |samples| {
                for (job, held) in JOBS.lanes() {
                    samples.add(&[("job", job)], held);
                }
            };
        gauge "shortlink_job_last_success_seconds",
            "Time of the last successful step of a background job of this process, in seconds since 1970.",
            |samples| {
                for (job, of) in &results {
                    if let Some(at) = of.succeeded_at {
                        samples.add(&[("job", job)], at.as_duration().as_secs_f64());
                    }
                }
            };
    }
}

/// Adds the counts of visits and the state of their live feed.
async fn visits(app: &App, text: &mut Text) {
    let counters = &app.visit_counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    metrics! { text;
        counter "shortlink_visits_kept_total", "Visits that this process stored in the database."
            = count(&counters.stored);
        counter "shortlink_visits_repeated_total", "Visits delivered again after they were stored."
            = count(&counters.repeated);
        counter "shortlink_visits_quarantined_total",
            "Visits that could not be read and were put into quarantine." = count(&counters.quarantined);
        counter "shortlink_visits_ahead_total",
            "Visits reported from the future, and stored with the time of their arrival." = count(&counters.ahead);
        counter "shortlink_visits_erased_late_total",
            "Visits dropped because they arrived after an erasure that concerns them." = count(&counters.erased);
        counter "shortlink_receipts_total", "Delivery receipts that this process accepted."
            = count(&counters.receipts);
        counter "shortlink_visits_forgotten_total", "Visits deleted at the end of their retention."
            = count(&counters.forgotten);
        counter "shortlink_conversions_total",
            "Rows of conversions that this process was sent, by outcome: counted, repeated or refused.",
            |samples| {
                for (outcome, count) in app.conversions.read() {
                    samples.add(&[("outcome", outcome)], count);
                }
            };
        counter "shortlink_links_ended_total",
            "Links that expired because they reached their maximum of visits." = count(&counters.ended);
        counter "shortlink_domain_visits_total",
            "Visits that this process stored in the database, by short domain.",
            |samples| {
                for (domain, count) in counters.domains() {
                    samples.add(&[("domain", &domain)], count);
                }
            };
    }
    if let Some(live) = &app.live {
        metrics! { text;
            gauge "shortlink_live_listeners", "Clients of the live feed of visits." = live.listeners();
        }
    }
    let seen = app.publisher.inspect().await;
    metrics! { text;
        gauge "shortlink_redis_up", "Whether Redis responds to this process: 1 or 0."
            = u8::from(seen.is_ok());
    }
    if let Ok((_, seen)) = seen {
        let (generation, _) = seen.standing.unwrap_or_default();
        let behind = behind(app, &seen).await;
        metrics! { text;
            gauge "shortlink_redis_generation",
                "Number of data sets that Redis has had, modulo 2^20; it rises when Redis may have lost writes."
                = generation % (1 << 20);
            gauge "shortlink_redis_behind",
                "Earlier changes that Redis may lack because its data set is older, or another one."
                = behind.changes;
            gauge "shortlink_redis_comparing",
                "Whether a comparison is still to find what else a new data set in Redis lacks: 1 or 0."
                = u8::from(behind.is_incomplete);
        }
    }
    if let Some(queue) = &app.visit_queue
        && let Ok(depth) = queue.depth().await
    {
        let age = depth.oldest.map_or(0.0, |oldest| {
            let age = app.clock.now().duration_since(oldest);
            age.as_secs_f64().max(0.0)
        });
        metrics! { text;
            gauge "shortlink_visit_queue_batches",
                "Batches of visits in Redis that are not stored in the database." = depth.batches;
            gauge "shortlink_visit_queue_age_seconds",
                "Age of the oldest batch of visits that is not stored, in seconds." = age;
        }
    }
}

/// Adds the state of the replica of the database, if it has one.
fn replica(app: &App, text: &mut Text) {
    let Some(replica) = &app.replica else { return };
    let standing = replica.standing();
    metrics! { text;
        gauge "shortlink_replica_up", "Whether the replica of the database responds: 1 or 0."
            = u8::from(standing.is_up);
        gauge "shortlink_replica_max_lag_seconds",
            "Age of the replica's data from which it is not read (database.replica_max_lag_s), in seconds."
            = replica.max_lag().as_secs_f64();
        counter "shortlink_replica_reads_total",
            "Database operations that the replica has performed, by use: listings (and exports and statistics) or visitors.",
            |samples| {
                samples.add(&[("use", "listings")], standing.listings);
                samples.add(&[("use", "visitors")], standing.visitors);
            };
    }
    if let Some(lag) = standing.lag {
        metrics! { text;
            gauge "shortlink_replica_lag_seconds",
                "Upper bound of the age of the replica's data, in seconds." = lag.as_secs_f64();
        }
    }
}

/// Adds the values that only the database has.
async fn database(app: &App, has_clickhouse: bool, text: &mut Text) -> Result<(), StoreError> {
    if has_clickhouse {
        metrics! { text;
            gauge "shortlink_clickhouse_waiting_batches",
                "Batches of visits in the database that ClickHouse does not have." = app.store.count_batches().await?;
        }
    }
    metrics! { text;
        gauge "shortlink_visit_quarantine_entries",
            "Visits that could not be read and are in quarantine." = app.store.count_quarantine().await?;
    }
    webhooks::state(app, text).await?;
    domains::blocks(app, text).await?;
    let usage = app.codespace.usage().await?;
    let lengths: Vec<String> = usage.iter().map(|it| it.length.to_string()).collect();
    let all = || lengths.iter().zip(&usage);
    metrics! { text;
        gauge "shortlink_codes_used", "Links, by length of their codes.", |samples| {
            for (length, usage) in all() {
                samples.add(&[("length", length)], usage.links);
            }
        };
        gauge "shortlink_codes_capacity",
            "Links that get codes of a length before longer codes are issued, by length.",
            |samples| {
                for (length, usage) in all() {
                    if let Some(capacity) = usage.capacity {
                        samples.add(&[("length", length)], capacity);
                    }
                }
            };
        gauge "shortlink_pool_codes",
            "Codes in the pool, by length and status: unused, used, or void (taken by a link).",
            |samples| {
                for (length, usage) in all() {
                    let pool = &usage.pool;
                    for (status, count) in [("unused", pool.unused), ("used", pool.used), ("void", pool.void)] {
                        samples.add(&[("length", length), ("status", status)], count);
                    }
                }
            };
        gauge "shortlink_pool_low", "Number of unused codes below which the pool is refilled."
            = app.codespace.pool.low;
    }
    Ok(())
}
