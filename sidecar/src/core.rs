//! What the service is about: links, their codes and targets, who may touch them and has, and who
//! follows them.
//!
//! Nothing here knows HTTP, SQL or Redis. Storage and delivery are reached through the traits of
//! [`ports`]; the time and random numbers are handed in.

pub mod annotation;
pub mod announcement;
pub mod api_key;
pub mod audit;
pub mod campaign;
pub mod codes;
pub mod link;
pub mod ports;
pub mod query;
pub mod records;
pub mod service;
pub mod short_url;
pub mod target;
pub mod visit;
