//! The command line.

mod audit;
mod client;
mod columns;
mod display;
mod doctor;
mod domains;
mod keys;
mod manual;
mod rebuild;
mod reclassify;
mod remote;
mod sample;
mod skip;
mod transfer;
mod workbench;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use secrecy::ExposeSecret;

use crate::config::Config;
use crate::domain::ports::{Publisher, Store};
use crate::publisher::RedisPublisher;
use crate::store::{self, StoreOptions};
use crate::{lifecycle, telemetry};
use domains::DomainsCommand;
use keys::KeysCommand;
use remote::RemoteCommand;

/// Short links for companies that send SMS: issues codes, keeps links, publishes them to Redis.
#[derive(Debug, Parser)]
#[command(name = "shortlink", version)]
pub struct Cli {
    /// The configuration file. Every setting has a default; the environment outranks the file.
    #[arg(long, env = "SHORTLINK_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: AnyCommand,
}

#[derive(Debug, Subcommand)]
enum AnyCommand {
    #[command(flatten)]
    Local(Box<Command>),
    #[command(flatten)]
    Remote(Box<RemoteCommand>),
    /// Looks at everything that the service needs on this machine and around it, and says of what is
    /// wrong what to do. Changes nothing. Ends with 0 when nothing has failed, else with 1.
    Doctor(doctor::DoctorArguments),
    /// Prints what has a shell complete the words of this program's command lines.
    Completion {
        /// The shell.
        #[arg(value_enum)]
        shell: manual::Shell,
    },
    /// Writes the manual's pages into a directory.
    #[command(hide = true)]
    Man {
        /// The directory; made if it is not there.
        directory: PathBuf,
    },
}

/// What is done on this machine, with the sidecar's own configuration.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the API and the fallback resolver until SIGTERM or SIGINT.
    Serve,
    /// Brings the database's schema up to date, making the database where there is none.
    Migrate,
    /// Makes, lists, rotates and revokes API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Imports links of another service, or of `shortlink export`: CSV or NDJSON.
    Import(transfer::ImportCommand),
    /// Exports all links as CSV or NDJSON, while the service runs or not.
    Export(transfer::ExportCommand),
    /// Writes the records of all links from the database into Redis, while everything serves. A
    /// run that was interrupted is gone on with.
    Rebuild {
        /// Begins anew instead of going on.
        #[arg(long)]
        restart: bool,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// After the database was restored from a backup, and before anybody serves from it: has no code
    /// given again that may have been given since the backup was made.
    SkipCodes {
        /// At most how many links were made since the backup. More than there were costs codes, but
        /// nothing else.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=skip::MOST))]
        links: u64,
    },
    /// Compares the database with Redis, both ways. Ends with 0 when there is no drift, 2 when there
    /// is, 1 when that is not known.
    Audit(audit::AuditArguments),
    /// Classifies stored visits again by the rules of this version, and corrects what is counted of
    /// them, while everything serves. Ends with 0 when that is done, 1 when it is not, and after
    /// --dry-run with 2 when something would change.
    Reclassify(reclassify::ReclassifyArguments),
    /// Looks at the short domains that nginx is told of.
    #[command(subcommand)]
    Domains(DomainsCommand),
    /// Makes links that are in the database alone, for benchmarks and tests.
    #[command(hide = true)]
    MakeSampleLinks {
        /// How many.
        #[arg(long)]
        count: usize,
        /// Prints the codes.
        #[arg(long)]
        print_codes: bool,
        /// Makes them so that they have expired so many days ago.
        #[arg(long)]
        expired_days_ago: Option<u16>,
    },
}

impl Cli {
    /// Does what the command line says.
    ///
    /// Answers with what the program ends with.
    ///
    /// # Errors
    /// When it can't be done; the error is for whoever has typed the command.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        // An empty variable means the same as none.
        let file = self.config.filter(|path| !path.as_os_str().is_empty());
        let command = match self.command {
            // Whoever asks a service needs none of its settings.
            AnyCommand::Remote(command) => return Ok(command.run().await),
            AnyCommand::Completion { shell } => {
                print(&manual::completion(shell, Cli::command()))?;
                return Ok(ExitCode::SUCCESS);
            }
            AnyCommand::Man { directory } => {
                manual::write(&directory, Cli::command())?;
                return Ok(ExitCode::SUCCESS);
            }
            AnyCommand::Doctor(arguments) => return doctor::run(file, &arguments).await,
            AnyCommand::Local(command) => match *command {
                Command::Domains(DomainsCommand::List { client }) => {
                    return Ok(remote::domains::run(&client).await);
                }
                command => command,
            },
        };
        let config = Config::load(file.as_deref(), environment())?;
        telemetry::start(&config.log);
        match command {
            Command::Serve => {
                lifecycle::serve(config).await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Migrate => {
                let applied = store::migrate(&config.database, &lifecycle::code_key()?).await?;
                eprintln!("shortlink: the schema is up to date (migrations applied: {applied})");
                Ok(ExitCode::SUCCESS)
            }
            Command::Keys(command) => {
                let store = open(&config).await?;
                let done = command.run(&store).await;
                store.close().await;
                done.map(|()| ExitCode::SUCCESS)
            }
            Command::Import(command) => {
                let store = open(&config).await?;
                let publisher: Arc<dyn Publisher> = Arc::new(RedisPublisher::new(
                    config.redis.url.expose_secret(),
                    &config.redis.topology,
                    config.redis.prefix.clone(),
                    config.redis.timeout,
                    config.links.negative_ttl_s,
                )?);
                let done = command.run(&config, Arc::clone(&store), publisher).await;
                store.close().await;
                done
            }
            Command::Export(command) => {
                let store = open(&config).await?;
                let done = command.run(&*store).await;
                store.close().await;
                done
            }
            Command::Rebuild { restart, json } => {
                rebuild::run(&config, restart, json).await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::SkipCodes { links } => {
                let store = open(&config).await?;
                let done = skip::run(&config, &store, links).await;
                store.close().await;
                done.map(|()| ExitCode::SUCCESS)
            }
            Command::Audit(arguments) => audit::run(&config, arguments).await,
            Command::Reclassify(arguments) => reclassify::run(&config, arguments).await,
            Command::Domains(command) => command.run(&config).await,
            Command::MakeSampleLinks {
                count,
                print_codes,
                expired_days_ago,
            } => {
                sample::run(&config, count, print_codes, expired_days_ago).await?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Opens the database for a command, which does one thing at a time.
async fn open(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let options = StoreOptions {
        max_connections: 1,
        ..config.database.clone()
    };
    Ok(store::open(&options).await?)
}

/// The variables that are text; no setting is anything else.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}
