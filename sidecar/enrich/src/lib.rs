//! Enrichment of visits from data sets: the rules that parse user agents, and the databases that
//! locate addresses.
//!
//! [`agents`] and [`geo`] implement the traits that [`shortlink_core::visit::Enrichment`] is made
//! with. Neither blocks: the rules are part of the program, and databases are held in memory and
//! reloaded in the background.
#![forbid(unsafe_code)]

pub mod agents;
pub mod geo;
mod maxmind;
mod watched;
mod xdb;
