//! The command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::domain::api_key::{ApiKey, Scope};
use crate::domain::ports::KeyStore;
use crate::store::{self, StoreOptions};
use crate::{lifecycle, telemetry};

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
    /// Makes, lists and revokes API keys.
    #[command(subcommand)]
    Keys(KeysCommand),
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Makes a key and prints it: the one time that it can be seen.
    Create {
        /// What the key is for.
        #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
        name: String,
        /// What the key allows: links:write, links:read or admin. May be repeated.
        #[arg(long = "scope", required = true, value_name = "SCOPE")]
        scopes: Vec<Scope>,
    },
    /// Lists all keys.
    List,
    /// Revokes a key; it counts no more from the next request on.
    Revoke {
        /// The key's id, as `keys list` shows it.
        id: String,
    },
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
                let applied = store::migrate(&config.database, &lifecycle::code_key()?).await?;
                eprintln!("shortlink: the schema is up to date (migrations applied: {applied})");
                Ok(())
            }
            Command::Keys(command) => {
                let options = StoreOptions {
                    max_connections: 1,
                    ..config.database
                };
                let store = store::open(&options).await?;
                let done = command.run(&*store).await;
                store.close().await;
                done
            }
        }
    }
}

impl KeysCommand {
    async fn run(self, store: &dyn KeyStore) -> anyhow::Result<()> {
        let now = SystemClock.now();
        match self {
            Self::Create { name, scopes } => {
                let mut rng = lifecycle::random()?;
                let (key, text) = ApiKey::generate(name, unique(&scopes), now, &mut rng);
                store.create_key(&key).await?;
                eprintln!(
                    "shortlink: key {} for {:?} with {}; it is not shown again",
                    key.id,
                    key.name,
                    scope_names(&key)
                );
                print(&format!("{text}\n"))
            }
            Self::List => print(&table(&store.list_keys().await?)),
            Self::Revoke { id } => {
                if !store.revoke_key(&id, now).await? {
                    anyhow::bail!("there is no key {id:?}; `shortlink keys list` shows all");
                }
                eprintln!("shortlink: key {id} is revoked");
                Ok(())
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

fn unique(scopes: &[Scope]) -> Vec<Scope> {
    Scope::ALL
        .into_iter()
        .filter(|scope| scopes.contains(scope))
        .collect()
}

fn scope_names(key: &ApiKey) -> String {
    let names: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    names.join(",")
}

/// A table with columns as wide as what stands in them.
fn table(keys: &[ApiKey]) -> String {
    let header = ["ID", "NAME", "SCOPES", "CREATED", "REVOKED"].map(str::to_owned);
    let rows = keys.iter().map(|key| {
        [
            key.id.clone(),
            key.name.escape_debug().to_string(),
            scope_names(key),
            key.created_at.to_string(),
            key.revoked_at
                .map_or_else(|| "-".to_owned(), |moment| moment.to_string()),
        ]
    });
    let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max();
            line.push_str(&format!("{cell:<width$}  ", width = width.unwrap_or(0)));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
