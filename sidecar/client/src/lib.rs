//! A client of the API, and the commands that use it.
//!
//! - [`Client`], [`Pager`]: requests with the service's address and the API key, and listings in pages. They know
//!   nothing of links.
//! - [`commands`]: build requests from the command line and print answers.
//! - [`columns`], [`output`], [`progress`]: tables, texts and progress of every command.
//! - [`input`], [`rows`]: reads and writes files.
#![forbid(unsafe_code)]

pub mod columns;
pub mod commands;
mod failure;
pub mod input;
pub mod output;
mod pages;
pub mod progress;
pub mod rows;
mod settings;
mod transport;

pub use failure::{Failure, Problem};
pub use pages::Pager;
pub use settings::{ClientArguments, DEFAULT_SERVER};
pub use transport::{Client, Upload};
