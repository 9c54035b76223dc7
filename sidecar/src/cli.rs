//! The command line.

mod audit;
mod check_keys;
mod doctor;
mod domains;
mod keys;
mod manual;
mod nginx_conf;
mod people;
mod rebuild;
mod reclassify;
mod sample;
mod skip;
mod transfer;
mod visits;
mod workbench;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};
use rand::RngExt;
use shortlink_client::commands::{self, RemoteCommand};
use shortlink_client::output::print;
use shortlink_core::clock::SystemClock;
use shortlink_core::codes::numbering::CodeKey;
use shortlink_core::ports::Publisher;
use shortlink_publisher::RedisPublisher;
use shortlink_store::{self as store, Store, StoreOptions};

use crate::config::Config;

use crate::{lifecycle, random, telemetry};
use check_keys::CheckKeysCommand;
use domains::DomainsCommand;
use keys::KeysCommand;
use people::PeopleCommand;
use visits::VisitsCommand;

/// Short links for companies that send SMS: issue codes, store links and publish them to Redis.
#[derive(Debug, Parser)]
#[command(name = "shortlink", version)]
pub struct Cli {
    /// Configuration file. Every setting has a default; environment variables override the file.
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
    /// Check everything that the service needs, on this machine and around it.
    ///
    /// Prints the next step for each warning and each failure. Changes nothing.
    ///
    /// Exit codes: 0 no check failed (there may be warnings), 1 a check failed.
    Doctor(doctor::DoctorArguments),
    /// List, add, activate and remove check keys, which nginx and the sidecar share in a file.
    #[command(subcommand)]
    CheckKeys(CheckKeysCommand),
    /// Print the completion script for a shell.
    Completion {
        /// Shell that runs the script.
        #[arg(value_enum)]
        shell: manual::Shell,
    },
    /// Write the manual pages to a directory.
    #[command(hide = true)]
    Man {
        /// Output directory. It is created if it is missing.
        directory: PathBuf,
    },
}

/// Commands that work on this machine, with the sidecar's own configuration.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API and the fallback resolver until SIGTERM or SIGINT.
    Serve,
    /// Apply pending schema migrations to the database.
    ///
    /// Creates the file of a SQLite database if it is missing. A PostgreSQL database must exist.
    /// Several processes can run this at the same time.
    Migrate,
    /// Create, list, rotate and revoke API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// List people who sign in to the console, end their sessions, block and unblock them.
    #[command(subcommand)]
    People(PeopleCommand),
    /// Import links from CSV, TSV or NDJSON into the database, with their codes.
    ///
    /// Reads files of another service and of `shortlink export`.
    Import(transfer::ImportCommand),
    /// Export all links from the database as CSV, TSV or NDJSON.
    ///
    /// The service can be running.
    Export(transfer::ExportCommand),
    /// Write the records of all links from the database to Redis.
    ///
    /// The service can be running. The next run resumes an interrupted one.
    ///
    /// Exit codes: 0 all records are in Redis, 1 failed or interrupted.
    Rebuild {
        /// Start from the beginning instead of resuming an interrupted run.
        #[arg(long)]
        restart: bool,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Skip the codes that may have been issued since a backup of the database.
    ///
    /// Run this after the database was restored from the backup and before a sidecar uses it, so that no code is issued
    /// a second time. Each further run skips the same number of codes again.
    SkipCodes {
        /// Upper bound of the number of links created since the backup: 1 to 1000000000000. A bound
        /// that is too high only costs codes.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..=skip::MOST))]
        links: u64,
    },
    /// Compare the database with Redis, in both directions.
    ///
    /// Exit codes: 0 no drift, or --repair has repaired all of it; 1 failed or interrupted; 2 drift
    /// remains.
    Audit(audit::AuditArguments),
    /// Classify stored visits again by the rules of this version.
    ///
    /// Corrects the statistics accordingly. The service can be running. The next run completes an
    /// interrupted one.
    ///
    /// Exit codes: 0 done, 1 failed or interrupted, 2 --dry-run has found visits that would change.
    Reclassify(reclassify::ReclassifyArguments),
    /// Export visits, or print them as they are stored.
    #[command(subcommand)]
    Visits(VisitsCommand),
    /// Check the configuration of the short domains, or list them as each nginx uses them.
    #[command(subcommand)]
    Domains(DomainsCommand),
    /// Create links in the database only, not in Redis, for benchmarks and tests.
    #[command(hide = true)]
    MakeSampleLinks {
        /// Number of links.
        #[arg(long)]
        count: usize,
        /// Print the codes.
        #[arg(long)]
        print_codes: bool,
        /// Number of days since the links expired. Default: they do not expire.
        #[arg(long)]
        expired_days_ago: Option<u16>,
    },
}

/// The whole program. It stands in the library and not in the binary, so that the compiler generates the code of
/// everything that is generic or asynchronous once.
#[tokio::main]
pub async fn main() -> ExitCode {
    match Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            // One line, causes included.
            let message = format!("{error:#}");
            let lines: Vec<&str> = message.lines().map(str::trim).collect();
            eprintln!("shortlink: {}", lines.join(" "));
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    /// Does what the command line says.
    ///
    /// Answers with what the program ends with.
    ///
    /// # Errors
    /// If the command fails; the error is written for the user who typed it.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        // An empty variable means the same as none.
        let file = self.config.filter(|path| !path.as_os_str().is_empty());
        let command = match self.command {
            // A client of a service needs none of the service's settings.
            AnyCommand::Remote(command) => return Ok(command.run().await),
            AnyCommand::Completion { shell } => {
                print(&manual::completion(shell, Cli::command()))?;
                return Ok(ExitCode::SUCCESS);
            }
            AnyCommand::Man { directory } => {
                manual::write(&directory, Cli::command())?;
                return Ok(ExitCode::SUCCESS);
            }
            // The file may be what the configuration lacks.
            AnyCommand::CheckKeys(command) => {
                command.run()?;
                return Ok(ExitCode::SUCCESS);
            }
            AnyCommand::Doctor(arguments) => return doctor::run(file, &arguments).await,
            AnyCommand::Local(command) => match *command {
                Command::Domains(DomainsCommand::List { client }) => {
                    return Ok(commands::domains::run(&client).await);
                }
                Command::Visits(VisitsCommand::Follow(arguments)) => {
                    return Ok(commands::follow::run(&arguments).await);
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
                let applied = store::migrate(
                    &config.database,
                    &CodeKey::new(random::generator()?.random()),
                )
                .await?;
                eprintln!("shortlink: the schema is up to date (migrations applied: {applied})");
                Ok(ExitCode::SUCCESS)
            }
            Command::Keys(command) => {
                with_store(&config, async |store| command.run(store).await).await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::People(command) => {
                with_store(&config, async |store| command.run(store).await).await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Import(command) => {
                let (redis, clock) = (&config.redis, Arc::new(SystemClock));
                let publisher = RedisPublisher::new(redis, config.links.negative_ttl_s, clock)?;
                let publisher: Arc<dyn Publisher> = Arc::new(publisher);
                with_store(&config, async |store| {
                    command.run(&config, Arc::clone(store), publisher).await
                })
                .await
            }
            Command::Export(command) => {
                with_store(&config, async |store| command.run(store).await).await
            }
            Command::Rebuild { restart, json } => {
                rebuild::run(&config, restart, json).await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::SkipCodes { links } => {
                with_store(&config, async |store| {
                    skip::run(&config, store, links).await
                })
                .await?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Audit(arguments) => audit::run(&config, arguments).await,
            Command::Reclassify(arguments) => reclassify::run(&config, arguments).await,
            Command::Visits(command) => command.run(&config).await,
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

/// Opens the database for a command, which does one thing at a time, and closes it behind the
/// command.
async fn with_store<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Arc<Store>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let options = StoreOptions {
        max_connections: 1,
        ..config.database.clone()
    };
    let store = store::open(&options).await?;
    let done = command(&store).await;
    store.close().await;
    done
}

/// The variables that are text; no setting is anything else.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
