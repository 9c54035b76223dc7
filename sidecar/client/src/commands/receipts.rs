//! `shortlink receipts`

use std::process::ExitCode;

use clap::Subcommand;

use super::import::{self, ImportArguments, Rows};
use super::session::Session;
use crate::Failure;

/// Commands for delivery receipts.
#[derive(Debug, Subcommand)]
pub enum ReceiptsCommand {
    /// Store the delivery receipt of each row of a CSV or NDJSON file.
    #[command(after_long_help = import::about(Rows::Receipts))]
    Import(ImportArguments),
}

impl ReceiptsCommand {
    /// Runs the command.
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Failure> {
        let Self::Import(arguments) = self;
        import::run(session, arguments, Rows::Receipts).await
    }
}
