//! `shortlink webhooks`

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::links::confirm;
use super::members::{Changes, Options, Webhook, put};
use super::session::Session;
use super::show::{block, member};
use super::values::moment;
use crate::Failure;

/// Commands for webhooks.
#[derive(Debug, Subcommand)]
pub enum WebhooksCommand {
    /// Create a webhook, and print its secret.
    Create(Box<CreateArguments>),
    /// Show a webhook.
    Get(OneWebhook),
    /// List all webhooks.
    List,
    /// Change a webhook.
    ///
    /// Changes only the members that are given.
    Change(Box<ChangeArguments>),
    /// Pause a webhook: its events wait until it is resumed.
    Pause(OneWebhook),
    /// Resume a paused webhook.
    Resume(OneWebhook),
    /// Give a webhook a new secret, and print it.
    Rotate {
        #[command(flatten)]
        webhook: OneWebhook,
        /// Number of seconds for which the old secret signs messages too: at most 2592000 (30 days).
        #[arg(long, value_name = "NUMBER", default_value_t = 86_400)]
        overlap: u32,
    },
    /// Send a test message to the endpoint of a webhook.
    Test(OneWebhook),
    /// Deliver events again that were stored since a time, with their original ids.
    Replay {
        #[command(flatten)]
        webhook: OneWebhook,
        /// Time such as 2030-12-31T23:59:59Z, or a day (UTC).
        #[arg(long, value_name = "TIME", value_parser = moment)]
        since: String,
    },
    /// List the latest attempts to deliver messages, the latest first.
    Attempts {
        #[command(flatten)]
        webhook: OneWebhook,
        /// Maximum number of attempts.
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: u64,
    },
    /// Delete a webhook.
    Delete {
        #[command(flatten)]
        webhook: OneWebhook,
        /// Delete without asking for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct OneWebhook {
    /// Id of the webhook.
    #[arg(value_parser = webhook_id)]
    id: String,
}

#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Name of the webhook: 1 to 100 characters.
    name: String,
    /// Endpoint that messages are sent to: an https URL.
    url: String,
    #[command(flatten)]
    options: Options<Webhook>,
}

#[derive(Debug, Args)]
#[command(override_usage = "shortlink webhooks change [OPTIONS] <ID>",
    group = Options::<Webhook>::one_of(["name", "url", "cleared"]))]
pub struct ChangeArguments {
    #[command(flatten)]
    webhook: OneWebhook,
    /// New name: 1 to 100 characters.
    #[arg(long)]
    name: Option<String>,
    /// New endpoint: an https URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    changes: Changes<Webhook>,
}

/// Reads an id, which becomes a part of a path.
fn webhook_id(text: &str) -> Result<String, String> {
    let is_id = !text.is_empty()
        && text
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'_');
    let id = is_id.then(|| text.to_owned());
    id.ok_or_else(|| "must be an id such as wh_0123456789abcdef".to_owned())
}

impl WebhooksCommand {
    /// Runs the command.
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let send = async |method, path: &str, members| {
            session.send(method, path, &[], members, describe).await
        };
        match self {
            Self::Create(arguments) => {
                let mut members = Map::new();
                put(&mut members, "name", Some(&arguments.name));
                put(&mut members, "url", Some(&arguments.url));
                arguments.options.add_to(&mut members);
                send(Method::POST, "/v1/webhooks", Some(members)).await
            }
            Self::Get(webhook) => session.get(&webhook.path(""), describe).await,
            Self::List => session.get("/v1/webhooks", table).await,
            Self::Change(arguments) => {
                let mut members = Map::new();
                put(&mut members, "name", arguments.name.as_ref());
                put(&mut members, "url", arguments.url.as_ref());
                arguments.changes.add_to(&mut members);
                send(Method::PATCH, &arguments.webhook.path(""), Some(members)).await
            }
            Self::Pause(webhook) => send(Method::POST, &webhook.path("/pause"), None).await,
            Self::Resume(webhook) => send(Method::POST, &webhook.path("/resume"), None).await,
            Self::Rotate { webhook, overlap } => {
                let members = Map::from_iter([("overlapSeconds".to_owned(), json!(overlap))]);
                send(Method::POST, &webhook.path("/rotate"), Some(members)).await
            }
            Self::Test(webhook) => {
                let (method, path) = (Method::POST, webhook.path("/test"));
                session.send(method, &path, &[], None, attempt).await
            }
            Self::Replay { webhook, since } => {
                let members = Map::from_iter([("since".to_owned(), json!(since))]);
                send(Method::POST, &webhook.path("/replay"), Some(members)).await
            }
            Self::Attempts { webhook, limit } => {
                let table = [
                    ("AT", "/at"),
                    ("MESSAGE", "/messageId"),
                    ("EVENTS", "/events"),
                    ("ATTEMPT", "/attempt"),
                    ("STATUS", "/status"),
                    ("MS", "/durationMs"),
                    ("ERROR", "/error"),
                ];
                let (path, right) = (webhook.path("/attempts"), &[2, 3, 4, 5]);
                session
                    .list(&path, Vec::new(), Some(limit), &table, right, |_, _| {})
                    .await
            }
            Self::Delete { webhook, yes } => {
                if !yes {
                    let id = &webhook.id;
                    confirm(&format!(
                        "Events that wait for the webhook {id} are no longer delivered."
                    ))?;
                }
                send(Method::DELETE, &webhook.path(""), None).await
            }
        }
    }
}

impl OneWebhook {
    fn path(&self, action: &str) -> String {
        format!("/v1/webhooks/{}{action}", self.id)
    }
}

/// All webhooks as text, each on a line.
fn table(answer: &Value) -> String {
    let webhooks = answer["webhooks"].as_array().into_iter().flatten();
    let lines = webhooks.map(|it| {
        let [id, state, name, url] = ["/id", "/state", "/name", "/url"].map(|at| member(it, at));
        format!("{id}  {state:<8}{name}  {url}\n")
    });
    lines.collect()
}

/// A webhook as text.
fn describe(webhook: &Value) -> String {
    block(
        webhook,
        &[
            ("id", "/id"),
            ("name", "/name"),
            ("endpoint", "/url"),
            ("secret", "/secret"),
            ("events", "/events"),
            ("clicks", "/clicks"),
            ("campaigns", "/campaignIds"),
            ("tags", "/tags"),
            ("classes", "/classes"),
            ("events of a message", "/maxBatch"),
            ("state", "/state"),
            ("paused because", "/pausedReason"),
            ("paused at", "/pausedAt"),
            ("failing since", "/failingSince"),
            ("oldest event since", "/waitingSince"),
            ("delivered", "/delivered"),
            ("old secret until", "/previousSecretUntil"),
            ("created", "/createdAt"),
            ("updated", "/updatedAt"),
        ],
    )
}

/// An attempt as text.
fn attempt(attempt: &Value) -> String {
    block(
        attempt,
        &[
            ("message", "/messageId"),
            ("delivered", "/delivered"),
            ("status", "/status"),
            ("error", "/error"),
            ("milliseconds", "/durationMs"),
        ],
    )
}
