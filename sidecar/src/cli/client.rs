//! A client of the API: HTTP, the service's address and the API key. It does not depend on links;
//! the commands build requests and print answers.

mod failure;
mod pages;
mod settings;
mod transport;

pub(super) use failure::{Failure, Problem};
pub(super) use pages::Pager;
pub(super) use settings::{ClientArguments, DEFAULT_SERVER};
pub(super) use transport::{Client, Upload};
