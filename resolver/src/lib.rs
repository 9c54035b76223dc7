//! The edge as a state machine without I/O.
//!
//! Bytes and the time are passed in, bytes and answers come out; nginx' event loop is somebody
//! else's business (`ngx-module/`), which is why everything here can be tested byte by byte.
//!
//! - [`path`]: the code that a request's path names.
//! - [`client`]: requests for records, pipelined on one connection to Redis; its parts are
//!   [`resp`] (the protocol's codec) and [`queue`] (who waits for which reply).
//! - [`answer`]: what a reply means for the visitor.
//! - [`domains`]: the short domains and their states.
#![forbid(unsafe_code)]

pub mod answer;
pub mod client;
pub mod domains;
pub mod path;
pub mod queue;
pub mod resp;

pub use answer::{Answer, MissReason};
pub use client::{Client, ClientSettings, Completion, LinkError, Tick, Unavailable};
pub use path::{PathCode, Refusal};
pub use queue::Ticket;
/// The words that the edge shares with the sidecar.
pub use vocabulary;
