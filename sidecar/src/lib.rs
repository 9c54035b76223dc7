//! The program `shortlink`: its command line, its configuration, and the process that serves.
//!
//! - [`cli`]: the command line. Commands that call a running service are in `shortlink_client`.
//! - [`config`]: the settings of the process.
//! - [`lifecycle`]: assembles the parts of the service, and starts and stops them.
//! - [`telemetry`]: its log.
//! - [`transfer`]: reads and writes files of links.
//! - [`random`]: secret random numbers.
#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod lifecycle;
pub mod random;
pub mod telemetry;
pub mod transfer;
