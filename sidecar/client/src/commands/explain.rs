//! `shortlink links explain`

use clap::Args;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::session::Session;
use super::show::{block, elements, member};
use super::values::{CodeText, moment};
use crate::Failure;

#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Code or short URL.
    code: CodeText,
    /// The visitor's User-Agent.
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,
    /// The visitor's Accept-Language, such as de-AT,en;q=0.5.
    #[arg(long, value_name = "TEXT")]
    language: Option<String>,
    /// The visitor's country such as DE, or its region such as US-CA.
    #[arg(long, value_name = "COUNTRY")]
    country: Option<String>,
    /// The visitor's IP address, which decides the share of a percentage.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// The visitor's query, without the question mark.
    #[arg(long, value_name = "QUERY")]
    query: Option<String>,
    /// Time of the visit, such as 2030-12-31T23:59:59Z, or a day (UTC). Default: now.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    time: Option<String>,
}

/// Explains the answer to a code.
pub(super) async fn run(session: &Session, asked: &ExplainArguments) -> Result<(), Failure> {
    let parts = [
        ("userAgent", &asked.user_agent),
        ("language", &asked.language),
        ("country", &asked.country),
        ("address", &asked.address),
        ("query", &asked.query),
        ("time", &asked.time),
    ];
    let given = parts
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let query = Serializer::new(String::new()).extend_pairs(given).finish();
    let path = asked.code.path(&format!("/explain?{query}"));
    session.get(path.trim_end_matches('?'), describe).await
}

/// The explanation of an answer as text.
fn describe(explanation: &Value) -> String {
    let lines = block(
        explanation,
        &[
            ("code", "/shortCode"),
            ("answer", "/answer/status"),
            ("because of", "/answer/rule"),
            ("by", "/answer/source"),
            ("leads to", "/answer/location"),
            ("by member", "/answer/pointer"),
            ("instead of", "/answer/insteadOf"),
            ("variant", "/answer/variant"),
            ("is preview", "/answer/preview"),
            ("SQL: state", "/database/state"),
            ("SQL: revision", "/database/revision"),
            ("SQL: record", "/database/record"),
            ("Redis waits", "/database/waits"),
            ("Redis holds", "/redis/holds"),
            ("Redis: record", "/redis/record"),
            ("agreement", "/agreement"),
            ("campaign", "/campaign/campaignId"),
            ("its name", "/campaign/name"),
            ("its state", "/campaign/state"),
            ("its record agrees", "/campaign/agrees"),
            ("checked", "/checkedAt"),
        ],
    );
    let rules = elements(explanation, "rules").iter().enumerate();
    let rules = rules.map(|(place, rule)| {
        let effect = match rule.get("unmet").and_then(Value::as_str) {
            Some(unmet) => format!("not met: {unmet}"),
            None => member(rule, "/outcome"),
        };
        let target = member(rule, "/longUrl");
        format!("rule {place}  {effect}  {target}\n")
    });
    lines + &rules.collect::<String>()
}
