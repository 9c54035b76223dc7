//! What can be asked of the service.

pub mod import;
pub mod issue;
pub mod links;
pub mod resolve;
