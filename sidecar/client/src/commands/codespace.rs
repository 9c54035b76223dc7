//! `shortlink codespace`

use std::process::ExitCode;

use serde_json::Value;

use super::links::second;
use super::show::{member, tell};
use crate::columns::Columns;
use crate::{Client, Failure};

/// Shows the usage of the code space.
pub(super) async fn run(client: &Client, json: bool) -> Result<ExitCode, Failure> {
    let answer = client.get("/v1/codespace").await?;
    tell(&answer, json, describe)?;
    Ok(ExitCode::SUCCESS)
}

fn describe(codespace: &Value) -> String {
    let (strategy, one_in) = (member(codespace, "/strategy"), member(codespace, "/oneIn"));
    let lengths = codespace.get("lengths").and_then(Value::as_array);
    let rows: Vec<[String; 8]> = lengths
        .into_iter()
        .flatten()
        .map(|length| {
            let used = length.get("used").and_then(Value::as_f64);
            let guess = length.pointer("/blindGuess/oneIn").and_then(Value::as_f64);
            [
                member(length, "/length"),
                member(length, "/isIssued"),
                member(length, "/links"),
                member(length, "/linksLast7Days"),
                member(length, "/capacity"),
                used.map_or("-".to_owned(), |used| format!("{:.2} %", used * 100.0)),
                second(&member(length, "/fullAt")),
                guess.map_or("-".to_owned(), |one_in| format!("{one_in:.0}")),
            ]
        })
        .collect();
    let heads = [
        "LENGTH",
        "ISSUED",
        "LINKS",
        "7 DAYS",
        "CAPACITY",
        "USED",
        "FULL AT",
        "ONE GUESS IN",
    ];
    let table = Columns::new(heads, &[0, 2, 3, 4, 5, 7]).rows(&rows);
    format!("strategy {strategy}, at most one of {one_in} codes has a link\n\n{table}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::describe;

    #[test]
    fn a_length_has_a_line() {
        let text = describe(&json!({
            "strategy": "permuted", "oneIn": 1000, "lengths": [{
                "length": 8, "isIssued": true, "links": 12, "linksLast7Days": 3, "capacity": 1200,
                "used": 0.01, "fullAt": null, "blindGuess": {"chance": 0.0, "oneIn": 5000.4},
            }],
        }));
        let line = text.lines().last().expect("a line");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            cells,
            ["8", "yes", "12", "3", "1200", "1.00", "%", "-", "5000"]
        );
        assert!(text.starts_with("strategy permuted, at most one of 1000"));
    }
}
