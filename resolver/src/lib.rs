//! The edge as a state machine without I/O.
//!
//! Bytes and the time are passed in, bytes and answers come out; nginx' event loop is somebody
//! else's business (`ngx-module/`), which is why everything here can be tested byte by byte.
//!
//! - [`path`]: the code that a request's path names.
//! - [`edge`]: answers requests for codes from what is kept, or asks Redis. Its parts are [`cache`]
//!   (what is kept), [`lookups`] (who waits for what), [`topology`] (which server is asked), and
//!   for each server a [connection](LinkError) with its [`breaker`].
//! - [`resp`]: the codec of Redis' protocol; [`sentinel`] and [`slots`] read what servers say of
//!   each other.
//! - [`answer`]: what a reply means for the visitor; a link of a campaign needs two.
//! - [`language`]: which language a visitor reads.
//! - [`limit`] and [`counters`]: who asks for too much that does not exist, and what is counted;
//!   both in memory that worker processes share.
//! - [`visits`]: what was answered, on its way to Redis.
#![forbid(unsafe_code)]

pub mod answer;
mod breaker;
pub mod cache;
mod campaign;
mod connection;
pub mod counters;
pub mod edge;
pub mod endpoint;
mod handshake;
pub mod hash;
mod key;
pub mod language;
pub mod limit;
pub mod lookups;
mod nodes;
pub mod path;
pub mod resp;
pub mod sentinel;
pub mod slots;
mod topology;
pub mod visits;

pub use answer::{Answer, MissReason, Reading, Said};
pub use cache::CacheSettings;
pub use connection::LinkError;
pub use counters::{Outcome, Source};
pub use edge::{Completion, Edge, EdgeSettings, LookUp, Notice, Now, Tick};
pub use endpoint::Endpoint;
pub use handshake::{Credentials, Tracking};
pub use key::Key;
pub use lookups::Ticket;
pub use nodes::{Address, NodeId, Purpose};
pub use path::{PathCode, Refusal};
pub use topology::{NodeSettings, TopologySettings};
pub use visits::{Recorded, VisitSettings};
/// The words that the edge shares with the sidecar.
pub use vocabulary;
