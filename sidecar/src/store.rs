//! Where links, the outbox and API keys are kept. Nothing outside of this module knows SQL.

mod defaults;
mod past;
pub mod sqlite;
