//! The sidecar of ngx-shortlink: issues codes over REST, stores links in SQL, publishes them to
//! Redis, and resolves codes that Redis does not know.
//!
//! SQL is authoritative; nginx reads Redis, which can be rebuilt from SQL. The parts:
//!
//! - [`api`]: links, campaigns and API keys as the API has them; each member is declared once.
//! - [`core`]: links, codes, targets, API keys and visits, and the rules that hold for them.
//! - [`service`]: the operations on them, on request and in the background.
//! - [`enrich`]: data from files that visits are enriched with.
//! - [`store`]: stores them in SQL. Nothing else knows SQL.
//! - [`publisher`]: writes them to Redis. Nothing else does.
//! - [`outbox`]: publishes every stored change to Redis, after failures as well.
//! - [`transfer`]: reads and writes files of links.
//! - `counted_read`: a reader for progress bars.
//! - `csv_parser`: records of comma-separated values, for files and the API.
//! - [`http`]: the API, the fallback resolver and the health checks. Nothing else knows axum.
//! - [`config`], [`cli`], [`telemetry`], [`lifecycle`], [`clock`]: the process around them.
//! - [`random`]: secret random numbers.
//! - [`jobs`], [`housekeeping`]: the runner of background jobs, and small jobs of every process.
//! - [`trace`], [`durations`]: for which request something is done, and how long it took.
#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod core;
mod counted_read;
mod csv_parser;
pub mod durations;
pub mod enrich;
pub mod housekeeping;
pub mod http;
pub mod jobs;
pub mod lifecycle;
pub mod outbox;
pub mod publisher;
pub mod random;
pub mod service;
pub mod store;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod transfer;
