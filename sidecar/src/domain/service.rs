//! What can be asked of the service.

pub mod access;
pub mod campaigns;
pub mod import;
pub mod issue;
pub mod keys;
pub mod links;
pub mod repeat;
pub mod resolve;
