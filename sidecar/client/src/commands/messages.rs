//! `shortlink messages`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};

use super::import::{self, ImportArguments, Rows, checked_key};
use super::members::{Link, Options, put};
use super::session::Session;
use super::show::{block, member, parse};
use crate::output::print;
use crate::{Failure, Problem};

/// The help of `--parameter`: a link has parameters only with a campaign, a text has variables without one as well.
const PARAMETER: &str =
    "Value of a variable of the text, or of a parameter of the campaign's target. Can be repeated";

/// Commands for the texts of messages.
#[derive(Debug, Subcommand)]
pub enum MessagesCommand {
    /// Replace the URLs of a text by new short links.
    Create(Box<CreateArguments>),
    /// Replace the URLs of each row of a CSV or NDJSON file by new short links.
    #[command(after_long_help = import::about(Rows::Messages))]
    Import(ImportArguments),
}

#[derive(Debug, Args)]
#[command(mut_arg("parameter", |option| option.help(PARAMETER)))]
pub struct CreateArguments {
    /// Text of the message. A name in braces, such as {name}, is a variable; `--parameter name=Ann` sets it.
    text: String,
    /// Id of the campaign of the links. Each URL of the text must be its target.
    #[arg(long, value_name = "ID")]
    campaign: Option<String>,
    /// Print only the text.
    #[arg(long, short)]
    quiet: bool,
    /// Idempotency-Key of the request: 1 to 255 visible ASCII characters. Repeated commands with
    /// the same key create the same links within 24 hours.
    #[arg(long, value_name = "KEY", value_parser = checked_key)]
    idempotency_key: Option<String>,
    #[command(flatten)]
    options: Options<Link>,
}

impl MessagesCommand {
    /// Runs the command.
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(arguments) => create(session, &arguments).await?,
            Self::Import(arguments) => {
                return import::run(session, arguments, Rows::Messages).await;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn create(session: &Session, arguments: &CreateArguments) -> Result<(), Failure> {
    session.either(arguments.quiet)?;
    let mut members = Map::new();
    put(&mut members, "text", Some(&arguments.text));
    put(&mut members, "campaignId", arguments.campaign.as_ref());
    arguments.options.add_to(&mut members);
    let key = arguments.idempotency_key.iter();
    let headers: Vec<_> = key.map(|key| ("Idempotency-Key", key.clone())).collect();
    let body = json!([members]);
    let answer = session
        .client
        .send(Method::POST, "/v1/messages", &headers, Some(&body));
    // The client prefers an answer in lines, here one.
    let result = parse(&answer.await?)?;
    if let Some(problem) = result.get("problem") {
        let problem: Problem =
            serde_json::from_value(problem.clone()).map_err(anyhow::Error::new)?;
        return Err(Failure::Problem(problem));
    }
    let Some(message) = result.get("message") else {
        return Err(Failure::Other(anyhow::anyhow!(
            "the service's answer has no message"
        )));
    };
    let text = match (session.json, arguments.quiet) {
        (true, _) => format!("{message}\n"),
        // Unlike other texts, as it is sent: with its line breaks.
        (_, true) => format!("{}\n", message["text"].as_str().unwrap_or_default()),
        _ => describe(message),
    };
    Ok(print(&text)?)
}

/// A message as text.
fn describe(message: &Value) -> String {
    let size = |of: &str| {
        let part = |name: &str| member(message, &format!("/{of}/{name}"));
        format!(
            "{} segments ({}, {})",
            part("segments"),
            part("encoding"),
            part("length")
        )
    };
    let lines = json!({
        "text": message["text"], "codes": message["codes"], "before": size("before"), "after": size("after"),
    });
    let labels = ["text", "codes", "before", "after"].map(|name| (name, format!("/{name}")));
    let labels = labels.each_ref().map(|(label, place)| (*label, &**place));
    block(&lines, &labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_shown_with_its_sizes() {
        let message = json!({
            "text": "Hi, https://s.example/abc", "codes": ["abc"],
            "before": { "encoding": "GSM-7", "length": 170, "segments": 2 },
            "after": { "encoding": "GSM-7", "length": 25, "segments": 1 },
        });
        let text = "text    Hi, https://s.example/abc\ncodes   abc\n\
                    before  2 segments (GSM-7, 170)\nafter   1 segments (GSM-7, 25)\n";
        assert_eq!(describe(&message), text);
    }
}
