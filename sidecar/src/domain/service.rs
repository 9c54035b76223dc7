//! What can be asked of the service.

pub mod links;
pub mod resolve;
