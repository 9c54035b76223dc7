//! Services: the operations behind the API, the command line and the background jobs.

pub mod access;
pub mod audit;
pub mod campaigns;
pub mod codes;
pub mod codespace;
pub mod domains;
pub mod drift;
pub mod explain;
pub mod import;
pub mod issue;
pub mod keys;
pub mod links;
pub mod live;
pub mod new_link;
mod patience;
pub mod rebuild;
pub mod reclassify;
pub mod reconcile;
pub mod refill;
pub mod repeat;
pub mod resolve;
pub mod retention;
pub mod sessions;
pub mod skip;
pub mod sweep;
pub mod unvisited;
pub mod visits;
