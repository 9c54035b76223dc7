//! `shortlink conversions`

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::import::{self, ImportArguments, Rows};
use super::members::put;
use super::session::Session;
use super::show::{elements, member, number, parse, percent};
use super::values::{CodeText, campaign_id};
use crate::columns::Columns;
use crate::output::print;
use crate::{Failure, Problem};

/// Commands for conversions.
#[derive(Debug, Subcommand)]
pub enum ConversionsCommand {
    /// Report a conversion of a link, such as an order. It is counted once, however often it is reported.
    Create(CreateArguments),
    /// Report that a conversion was refunded. It is counted once, however often it is reported.
    Refund(RefundArguments),
    /// Report the conversions of the rows of a CSV or NDJSON file.
    #[command(after_long_help = import::about(Rows::Conversions))]
    Import(ImportArguments),
    /// Show the conversions of all links of a campaign: their number, their rate and their values.
    Campaign {
        /// Id of the campaign.
        #[arg(value_parser = campaign_id)]
        id: String,
    },
    /// Show the conversions of a link.
    Link {
        /// Code or short URL of the link.
        code: CodeText,
    },
}

/// A conversion: its id, and its link.
#[derive(Debug, Args)]
struct NamedConversion {
    /// Your id of the conversion, such as the number of an order: 1 to 128 bytes of UTF-8.
    id: String,
    /// Code or short URL of the link.
    #[arg(long, value_name = "CODE", conflicts_with_all = ["external_id", "click_id"])]
    code: Option<CodeText>,
    /// Your id of the link.
    #[arg(long, value_name = "ID", required_unless_present_any = ["code", "click_id"])]
    external_id: Option<String>,
    /// Click id of the visit.
    #[arg(long, value_name = "ID", conflicts_with = "external_id")]
    click_id: Option<String>,
    /// Id of the campaign of the link, if links of several campaigns have the external id.
    #[arg(long, value_name = "ID", value_parser = campaign_id)]
    campaign: Option<String>,
}

impl NamedConversion {
    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        put(&mut members, "conversionId", Some(&self.id));
        let code = self.code.as_ref().map(|code| &code.0);
        put(&mut members, "shortCode", code);
        put(&mut members, "clickId", self.click_id.as_ref());
        put(&mut members, "externalId", self.external_id.as_ref());
        put(&mut members, "campaignId", self.campaign.as_ref());
        members
    }
}

#[derive(Debug, Args)]
pub struct CreateArguments {
    #[command(flatten)]
    named: NamedConversion,
    /// Value, such as 49.90.
    #[arg(long, value_name = "NUMBER", requires = "currency")]
    value: Option<String>,
    /// Currency of the value: three letters, such as EUR.
    #[arg(long, value_name = "LETTERS", requires = "value")]
    currency: Option<String>,
    /// Time of the conversion, such as 2030-12-31T23:59:59Z. Default: now.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
}

#[derive(Debug, Args)]
pub struct RefundArguments {
    #[command(flatten)]
    named: NamedConversion,
    /// Sum of all refunds, such as 9.90; with all, the conversion no longer counts.
    #[arg(long, value_name = "NUMBER", default_value = "all")]
    amount: String,
}

impl ConversionsCommand {
    /// Runs the command.
    pub(super) async fn run(self, session: &Session) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(arguments) => {
                let mut members = arguments.named.members();
                put(&mut members, "value", arguments.value.as_ref());
                put(&mut members, "currency", arguments.currency.as_ref());
                put(&mut members, "at", arguments.at.as_ref());
                report(session, members).await?;
            }
            Self::Refund(arguments) => {
                let mut members = arguments.named.members();
                put(&mut members, "refunded", Some(&arguments.amount));
                report(session, members).await?;
            }
            Self::Import(arguments) => {
                return import::run(session, arguments, Rows::Conversions).await;
            }
            Self::Campaign { id } => {
                let path = format!("/v1/campaigns/{id}/conversions");
                session.get(&path, describe_campaign).await?;
            }
            Self::Link { code } => session.get(&code.path("/conversions"), describe).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn report(session: &Session, members: Map<String, Value>) -> Result<(), Failure> {
    let body = json!([members]);
    let answer = session
        .client
        .send(Method::POST, "/v1/conversions", &[], Some(&body));
    // The client prefers an answer in lines, here one.
    let result = parse(&answer.await?)?;
    if let Some(problem) = result.get("problem") {
        let problem: Problem =
            serde_json::from_value(problem.clone()).map_err(anyhow::Error::new)?;
        return Err(Failure::Problem(problem));
    }
    let code = member(&result, "/shortCode");
    let text = match (session.json, member(&result, "/status") == "201") {
        (true, _) => format!("{result}\n"),
        (false, true) => format!("counted for the link {code}\n"),
        (false, false) => format!("counted before for the link {code}\n"),
    };
    Ok(print(&text)?)
}

/// The conversions of a campaign as text.
fn describe_campaign(counts: &Value) -> String {
    let rate = percent(&counts["conversionRate"]);
    let row = [
        number(&counts["clicked"]),
        number(&counts["converted"]),
        rate,
    ];
    let head = ["LINKS CLICKED", "LINKS CONVERTED", "CONVERSION RATE"];
    let table = Columns::new(head, &[0, 1, 2]).rows(&[row]);
    format!("{table}\n{}", describe(counts))
}

/// Conversions as text.
fn describe(counts: &Value) -> String {
    let values = elements(counts, "values").iter().map(|of| {
        [
            member(of, "/currency"),
            number(&of["conversions"]),
            member(of, "/value"),
        ]
    });
    let all = [
        "all".to_owned(),
        number(&counts["conversions"]),
        String::new(),
    ];
    let rows: Vec<[String; 3]> = [all].into_iter().chain(values).collect();
    Columns::new(["CURRENCY", "CONVERSIONS", "VALUE"], &[1, 2]).rows(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_shown_as_tables() {
        let counts = json!({
            "converted": 30, "clicked": 1_200, "conversionRate": 0.025, "conversions": 41,
            "values": [{"currency": "EUR", "conversions": 40, "value": "1249.5"}],
        });
        let text = describe_campaign(&counts);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|it| it.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["1,200", "30", "2.5%"]);
        assert_eq!(lines[4..], [vec!["all", "41"], vec!["EUR", "40", "1249.5"]]);
        let none = json!({"converted": 0, "clicked": 0, "conversionRate": null, "conversions": 0, "values": []});
        assert!(describe_campaign(&none).contains('-'));
    }
}
