//! Starts real servers on free ports in temporary directories, for tests that look at the whole
//! from outside.
//!
//! - [`stack`]: Redis, sidecar and nginx together, as a user runs them.
//! - [`site`]: only nginx and Redis, with a server that the test writes itself.
//! - [`redis`], [`postgres`], [`sidecar`], [`nginx`]: one server each, to be stopped, killed and started again.
//! - [`cluster`]: several Redis servers that belong together; [`patroni`]: several PostgreSQL servers with automatic
//!   failover.
//! - [`proxy`]: a connection between two servers that can be cut, silenced, slowed down and sliced.
//! - [`explore`]: random faults, and a model that judges every answer.
//! - [`contract`]: the API's description of itself, and a check of answers against it.
//! - [`debian`]: a throw-away Debian, in which packages are installed.
//! - [`process`]: a process that never outlives the test.
//! - [`http`]: a client that sees and sends every byte; [`visitor`]: one that keeps its connection;
//!   [`tls`]: one that keeps its TLS sessions.
//! - [`browser`]: a real browser; [`openid`]: a provider at which its user signs in.
//! - [`feed`]: a client of the live feed of visits.
//! - [`visits`]: what the edge has recorded, as it stands in Redis.
//! - [`made`]: links by the million, as the API returns them.
//! - [`past`]: counts of visits that no test has the time for.
//! - [`metrics`]: a page of metrics, as Prometheus reads it.
//! - [`calendar`]: the time of day.
//! - [`chance`]: random moments.
//! - [`places`]: a database of places.
//! - [`wait`]: polling with a deadline; nothing here sleeps for a time that is hoped to be enough.
//!
//! The servers are those that `make build` leaves in `target/`, or that `SHORTLINK_BIN`,
//! `SHORTLINK_MODULE` and `SHORTLINK_NGINX` name; packages are those that `make deb` leaves (`SHORTLINK_DEB`).
#![forbid(unsafe_code)]

use std::env;
use std::path::{Path, PathBuf};

pub mod browser;
pub mod calendar;
pub mod chance;
pub mod clickhouse;
pub mod clock;
pub mod cluster;
pub mod console;
pub mod contract;
pub mod debian;
pub mod explore;
pub mod feed;
pub mod http;
pub mod made;
pub mod metrics;
pub mod nginx;
pub mod openid;
pub mod past;
pub mod patroni;
pub mod places;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod sidecar;
pub mod site;
pub mod sql;
pub mod stack;
pub mod tls;
pub mod visitor;
pub mod visits;
pub mod wait;

/// The root of the workspace.
///
/// # Panics
/// Never: this crate stands in a workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests stand in the workspace")
}

/// The file that `variable` names, or else `default` below the workspace.
fn artefact(variable: &str, default: &str) -> PathBuf {
    let path = env::var_os(variable).map_or_else(|| workspace().join(default), PathBuf::from);
    assert!(
        path.exists(),
        "{} is missing: `make build` makes it",
        path.display()
    );
    path
}
