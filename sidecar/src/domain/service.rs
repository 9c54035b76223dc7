//! What can be asked of the service.

pub mod campaigns;
pub mod issue;
pub mod links;
pub mod repeat;
pub mod resolve;
