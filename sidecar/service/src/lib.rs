//! Services: the operations behind the API, the command line and the background jobs.
#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod behaviour;
pub mod bulk;
pub mod campaigns;
pub mod clicks;
pub mod codes;
pub mod codespace;
pub mod domains;
pub mod drift;
pub mod explain;
pub mod feed;
pub mod housekeeping;
pub mod import;
pub mod issue;
pub mod jobs;
pub mod keys;
pub mod links;
pub mod live;
pub mod new_link;
pub mod outbox;
mod overtake;
mod patience;
pub mod rebuild;
pub mod reclassify;
pub mod reconcile;
pub mod refill;
pub mod repeat;
pub mod replica;
pub mod resolve;
pub mod retention;
pub mod sessions;
pub mod skip;
pub mod sweep;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod unvisited;
pub mod uploads;
pub mod visits;
pub mod webhooks;
