//! The edge as a state machine without I/O.
//!
//! Bytes and the time are passed in, bytes and answers come out. nginx' event loop is in
//! `ngx-module/`, so everything here can be tested byte by byte.
//!
//! - [`path`]: the code that a request's path names.
//! - [`edge`]: answers requests for codes from the cache, or asks Redis. Its parts are [`cache`],
//!   [`lookups`] (pending requests), [`topology`] (routes to servers), and for each server a
//!   [connection](ConnectionError) with its [`breaker`].
//! - [`resp`]: the codec of Redis' protocol; [`sentinel`] and [`slots`] read what servers say of
//!   each other.
//! - [`edge`] takes bad news only from a connection with [authority](vocabulary::generation).
//! - [`answer`]: the record that a reply brings; [`vocabulary::judge`] makes an answer from it.
//! - [`fallback`]: the bounds of the fallback.
//! - [`limit`] and [`counters`]: the limit of requests for unknown codes, and the metrics; both in
//!   memory that worker processes share.
//! - [`visits`]: recorded visits, on their way to Redis.
#![forbid(unsafe_code)]

pub mod answer;
mod authority;
mod breaker;
pub mod cache;
mod campaign;
mod connection;
mod connection_error;
pub mod counters;
pub mod edge;
pub mod endpoint;
pub mod fallback;
mod handshake;
pub mod hash;
mod key;
pub mod limit;
pub mod lookups;
mod node_id;
mod nodes;
mod now;
pub mod path;
pub mod resp;
pub mod sentinel;
pub mod slots;
mod topology;
pub mod visits;

pub use answer::{Answer, Judgement, MissReason, Ruling};
pub use cache::CacheSettings;
pub use connection_error::ConnectionError;
pub use counters::{Outcome, Source};
pub use edge::{Completion, Edge, EdgeSettings, LookUp, Notice, Sources, Tick};
pub use endpoint::Endpoint;
pub use handshake::{Credentials, Tracking};
pub use key::Key;
pub use lookups::Ticket;
pub use node_id::NodeId;
pub use nodes::{Address, Purpose};
pub use now::Now;
pub use path::{PathCode, Refusal};
pub use topology::{NodeSettings, TopologySettings};
pub use visits::{Recorded, VisitSettings};
/// The words that the edge shares with the sidecar.
pub use vocabulary;
