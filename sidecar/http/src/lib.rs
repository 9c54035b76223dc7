//! The HTTP interface. Only this module depends on axum.
#![forbid(unsafe_code)]

mod apart;
mod app;
mod audit;
mod auth;
mod batch;
mod bulk;
mod calendar;
mod campaign_links;
mod campaigns;
mod clicks;
mod codespace;
mod connections;
mod console;
mod conversions;
mod cursor;
mod docs;
mod domains;
mod explain;
mod extract;
mod feed;
mod health;
mod idempotency;
mod keys;
mod link_members;
mod links;
mod live;
mod metrics;
mod observe;
mod openapi;
mod operation;
mod people;
mod precondition;
mod problem;
mod proxy;
mod qr;
mod query;
mod rate_headers;
mod reports;
mod requests;
mod resolve;
mod router;
mod rows;
mod search;
mod stalls;
mod stats;
mod utm_templates;
mod variants;
mod visits;
mod webhooks;
mod wire;
mod words;

pub use app::{App, OpenId};
pub use batch::conversions::ConversionCounters;
pub use console::SignInCounters;
pub use proxy::ProxySecret;
pub use requests::{AnswerCounters, Requests};
pub use router::serve;
pub use webhooks::describe_visit;

#[cfg(test)]
mod tests;
