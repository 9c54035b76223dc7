//! What the service is about: links, their codes and targets, and who may touch them.
//!
//! Nothing here knows HTTP, SQL or Redis. Storage and delivery are reached through the traits of
//! [`ports`]; the time and random numbers are handed in.

pub mod api_key;
pub mod codes;
pub mod link;
pub mod ports;
pub mod records;
pub mod service;
pub mod target;
