//! A client of the API: knows HTTP, where the service is and with which key it is asked. It knows
//! nothing of links; what is asked and how answers are shown is for the commands.

mod failure;
mod pages;
mod settings;
mod transport;

pub(super) use failure::{Failure, Problem};
pub(super) use pages::Pager;
pub(super) use settings::{ClientArguments, DEFAULT_SERVER};
pub(super) use transport::{Client, Upload};
