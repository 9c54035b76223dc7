//! What can be asked of the service.

pub mod audit;
pub mod codespace;
pub mod drift;
pub mod issue;
pub mod keeper;
pub mod links;
pub mod rebuild;
pub mod resolve;
pub mod sweep;
