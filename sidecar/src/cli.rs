//! The command line.

mod keys;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::{Parser, Subcommand};
use secrecy::ExposeSecret;

use crate::config::Config;
use crate::domain::ports::Store;
use crate::store::sqlite::SqliteStore;
use crate::{lifecycle, telemetry};
use keys::KeysCommand;

/// Short links for companies that send SMS: issues codes, keeps links, publishes them to Redis.
#[derive(Debug, Parser)]
#[command(name = "shortlink", version)]
pub struct Cli {
    /// The configuration file. Every setting has a default; the environment outranks the file.
    #[arg(long, env = "SHORTLINK_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the API and the fallback resolver until SIGTERM or SIGINT.
    Serve,
    /// Brings the database's schema up to date, making the database where there is none.
    Migrate,
    /// Makes, lists, rotates and revokes API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
}

impl Cli {
    /// Does what the command line says.
    ///
    /// # Errors
    /// When it can't be done; the error is for whoever has typed the command.
    pub async fn run(self) -> anyhow::Result<()> {
        // An empty variable means the same as none.
        let file = self.config.filter(|path| !path.as_os_str().is_empty());
        let config = Config::load(file.as_deref(), environment())?;
        telemetry::start(&config.log);
        match self.command {
            Command::Serve => Ok(lifecycle::serve(config).await?),
            Command::Migrate => {
                let url = config.database.url.expose_secret();
                let applied = SqliteStore::migrate(url, &lifecycle::code_key()?).await?;
                eprintln!("shortlink: the schema is up to date (migrations applied: {applied})");
                Ok(())
            }
            Command::Keys(command) => {
                let url = config.database.url.expose_secret();
                let store: Arc<dyn Store> = Arc::new(SqliteStore::open(url, 1).await?);
                let done = command.run(&store).await;
                store.close().await;
                done
            }
        }
    }
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
