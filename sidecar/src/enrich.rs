//! What visits are enriched with that comes from files: rules by which user agents are read, and
//! databases of where addresses are.
//!
//! [`agents`] and [`geo`] implement the traits that [`crate::core::visit::Enrichment`] is made
//! with. Neither waits for anything when it is asked: the rules are part of the program, and
//! databases are held in memory and looked after in the background.

pub mod agents;
pub mod geo;
mod maxmind;
mod watched;
mod xdb;
