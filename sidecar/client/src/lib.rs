//! A client of the API, and the commands that use it.
//!
//! - [`Client`], [`Pager`]: requests with the service's address and the API key, and listings in pages. They know
//!   nothing of links.
//! - [`commands`]: build requests from the command line and print answers.
//! - [`columns`], [`output`], [`counted_read`]: tables, texts and progress of every command.
#![forbid(unsafe_code)]

pub mod columns;
pub mod commands;
pub mod counted_read;
mod failure;
pub mod output;
mod pages;
mod settings;
mod transport;

pub use failure::{Failure, Problem};
pub use pages::Pager;
pub use settings::{ClientArguments, DEFAULT_SERVER};
pub use transport::{Client, Upload};
