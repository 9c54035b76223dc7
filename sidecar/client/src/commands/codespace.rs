//! `shortlink codespace`, `shortlink codes`

use clap::Subcommand;
use serde_json::Value;

use super::session::Session;
use super::show::{Table, block, cells, elements, heads, member};
use super::values::CodeText;
use crate::Failure;
use crate::columns::Columns;

const TABLE: Table<10> = [
    ("LENGTH", "/length"),
    ("ISSUED", "/isIssued"),
    ("LINKS", "/links"),
    ("7 DAYS", "/linksLast7Days"),
    ("CAPACITY", "/capacity"),
    ("USED", "/used"),
    ("FULL AT", "/fullAt"),
    ("ONE GUESS IN", "/blindGuess/oneIn"),
    ("KNOWING ONE", "/neighbourGuess/oneIn"),
    ("BURNT", "/numbers/burnt"),
];

/// Commands for codes.
#[derive(Debug, Subcommand)]
pub enum CodesCommand {
    /// Show what a code itself reveals: whether its check character is right, and the number that it contains if the
    /// strategy sequence issued it.
    Decode {
        /// The code, or a short URL.
        code: CodeText,
    },
}

impl CodesCommand {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let Self::Decode { code } = self;
        session
            .get(&format!("/v1/codespace/{}", code.0), decoded)
            .await
    }
}

fn decoded(code: &Value) -> String {
    block(
        code,
        &[
            ("code", "/shortCode"),
            ("length", "/length"),
            ("check character", "/check"),
            ("number of sequence", "/sequenceNumber"),
        ],
    )
}

/// Shows the usage of the code space.
pub(super) async fn run(session: &Session) -> Result<(), Failure> {
    session.get("/v1/codespace", describe).await
}

fn describe(codespace: &Value) -> String {
    let (strategy, one_in) = (member(codespace, "/strategy"), member(codespace, "/oneIn"));
    let rows = elements(codespace, "lengths").iter().map(|length| {
        let mut row = cells(length, &TABLE);
        if let Some(used) = length.get("used").and_then(Value::as_f64) {
            row[5] = format!("{:.2} %", used * 100.0);
        }
        for column in [7, 8] {
            if let Some(one_in) = length.pointer(TABLE[column].1).and_then(Value::as_f64) {
                row[column] = format!("{one_in:.0}");
            }
        }
        row
    });
    let table =
        Columns::new(heads(&TABLE), &[0, 2, 3, 4, 5, 7, 8, 9]).rows(&rows.collect::<Vec<_>>());
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
                "numbers": {"burnt": 7},
            }],
        }));
        let line = text.lines().last().expect("a line");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "8", "yes", "12", "3", "1200", "1.00", "%", "-", "5000", "-", "7"
            ]
        );
        assert!(text.starts_with("strategy permuted, at most one of 1000"));
    }
}
