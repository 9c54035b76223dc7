//! What can be asked of the service.

pub mod access;
pub mod keys;
pub mod links;
pub mod resolve;
