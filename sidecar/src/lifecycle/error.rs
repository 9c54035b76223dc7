//! Reasons why the service does not run.

use std::io;
use std::net::SocketAddr;

use shortlink_enrich::agents::AgentRulesError;
use shortlink_enrich::geo::GeoError;
use shortlink_publisher::UrlError;
use shortlink_store::OpenError;

use crate::random::RandomError;

/// A reason why the service does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can't be listened on.
    #[error("cannot listen on {address} (http.listen)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The database can't be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The rules for user agents can't be used.
    #[error(transparent)]
    Agents(#[from] AgentRulesError),
    /// A database of addresses can't be used.
    #[error(transparent)]
    Geo(#[from] GeoError),
    /// The URL of Redis can't be used.
    #[error(transparent)]
    Redis(#[from] UrlError),
    /// Signals can't be caught.
    #[error("cannot catch signals")]
    Signals {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The system's random generator failed.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// Connections can't be accepted any more.
    #[error("cannot serve any longer")]
    Serve {
        /// The cause.
        #[source]
        source: io::Error,
    },
}
