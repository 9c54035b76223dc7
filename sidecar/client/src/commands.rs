//! Commands that speak to a running service, over its API. They need neither its configuration nor
//! its database nor any of its secrets.

mod campaigns;
mod codespace;
mod conversions;
pub mod domains;
mod explain;
mod export;
mod filters;
pub mod follow;
mod import;
mod jobs;
mod links;
mod members;
mod messages;
mod receipts;
mod search;
mod session;
mod show;
mod stats;
mod utm_templates;
mod values;
mod variants;
mod webhooks;

use std::process::ExitCode;

use async_recursion::async_recursion as boxed;
use clap::{Args, Subcommand};

use crate::{ClientArguments, Failure};
use session::Session;

/// Commands that use the API.
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Create, show, change and list links of a running service, over its API.
    Links(Remote<links::LinksCommand>),
    /// Create, show, change and list campaigns of a running service, over its API.
    Campaigns(Remote<campaigns::CampaignsCommand>),
    /// Replace the URLs of messages by short links of a running service, over its API.
    Messages(Remote<messages::MessagesCommand>),
    /// Report and count conversions of links of a running service, over its API.
    Conversions(Remote<conversions::ConversionsCommand>),
    /// Store delivery receipts of messages in a running service, over its API.
    Receipts(Remote<receipts::ReceiptsCommand>),
    /// Change many links of a running service in the background, over its API.
    Jobs(Remote<jobs::JobsCommand>),
    /// Send events of a running service to endpoints, over its API.
    Webhooks(Remote<webhooks::WebhooksCommand>),
    /// Show and change the templates of UTM parameters that all users of a running service share, over its API.
    UtmTemplates(Remote<utm_templates::UtmTemplatesCommand>),
    /// Find links and campaigns of a running service by any text, over its API: a code, a short URL, an external id, a
    /// tag, words of targets and notes, or the beginning of one of these.
    ///
    /// Exit codes: 0 done, 1 failed or refused by the service, 2 invalid command line or client
    /// settings.
    Search {
        /// The text.
        text: String,
        #[command(flatten)]
        /// The service.
        client: ClientArguments,
    },
    /// Show visit statistics of a running service, over its API.
    Stats(Remote<stats::StatsCommand>),
    /// Show how many codes of each length a running service uses, over its API.
    ///
    /// Exit codes: 0 done, 1 failed or refused by the service, 2 invalid command line or client
    /// settings.
    Codespace {
        #[command(flatten)]
        /// The service.
        client: ClientArguments,
    },
    /// Decode codes, over the API of a running service.
    Codes(Remote<codespace::CodesCommand>),
}

/// A group of commands that ask the same service.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit codes: 0 done, 1 failed or refused by the service, 2 invalid command line, input file or client \
settings.")]
pub struct Remote<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    client: ClientArguments,
}

impl RemoteCommand {
    /// Runs the command; returns the exit code.
    #[boxed(?Send)]
    pub async fn run(self) -> ExitCode {
        self.attempt()
            .await
            .unwrap_or_else(|failure| failure.tell())
    }

    async fn attempt(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Links(Remote { command, client }) => {
                return command.run(&Session::new(&client)?).await;
            }
            Self::Messages(Remote { command, client }) => {
                return command.run(&Session::new(&client)?).await;
            }
            Self::Conversions(Remote { command, client }) => {
                return command.run(&Session::new(&client)?).await;
            }
            Self::Receipts(Remote { command, client }) => {
                return command.run(&Session::new(&client)?).await;
            }
            Self::Jobs(Remote { command, client }) => {
                return command.run(&Session::new(&client)?).await;
            }
            Self::Campaigns(Remote { command, client }) => {
                command.run(&Session::new(&client)?).await?;
            }
            Self::Stats(Remote { command, client }) => command.run(&Session::new(&client)?).await?,
            Self::Webhooks(Remote { command, client }) => {
                command.run(&Session::new(&client)?).await?;
            }
            Self::UtmTemplates(Remote { command, client }) => {
                command.run(&Session::new(&client)?).await?;
            }
            Self::Codes(Remote { command, client }) => command.run(&Session::new(&client)?).await?,
            Self::Search { text, client } => search::run(&Session::new(&client)?, &text).await?,
            Self::Codespace { client } => codespace::run(&Session::new(&client)?).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
