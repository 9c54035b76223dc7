//! The nouns of the service and the rules that hold for them: links, their codes and targets,
//! campaigns, API keys and visits.
//!
//! Nothing here knows HTTP, SQL or Redis; the time and random numbers are handed in.
#![forbid(unsafe_code)]

pub mod annotation;
pub mod announcement;
pub mod api_key;
pub mod audit;
pub mod blocks;
pub mod bulk;
pub mod campaign;
pub mod causes;
pub mod clock;
pub mod codes;
pub mod conversion;
pub mod durations;
pub mod ended;
pub mod link;
pub mod message;
pub mod named;
pub mod plan;
pub mod ports;
pub mod query;
pub mod receipt;
pub mod records;
pub mod revised;
pub mod search;
pub mod short_url;
pub mod sign_in;
pub mod store_error;
pub mod target;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
pub mod variants;
pub mod visit;
pub mod webhook;

/// Boxes the future of an `async` function. Without it, every crate that awaits the function compiles its body again.
pub use async_recursion::async_recursion as boxed;
