//! Results of rows: they are counted, and those without a link are reported.

use anyhow::{Context, anyhow};
use indicatif::ProgressBar;
use serde::Deserialize;

use super::Rows;
use super::source::RowPlace;
use crate::commands::show::plain;
use crate::output::thousands;
use crate::{Failure, Problem};

/// The most failed rows that are reported one by one.
pub(super) const MOST_TOLD: u64 = 100;

/// The API's result for a row.
#[derive(Deserialize)]
struct RowResult {
    index: Option<u64>,
    status: u16,
    problem: Option<Problem>,
    message: Option<Message>,
}

/// The sizes of a message.
#[derive(Deserialize)]
struct Message {
    before: Size,
    after: Size,
}

#[derive(Deserialize)]
struct Size {
    segments: u64,
}

/// The last line of the answer.
#[derive(Deserialize)]
pub(super) struct SummaryLine {
    pub(super) summary: Summary,
}

/// The part of the file that the service has read.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Summary {
    /// Checks that it was sent.
    pub(super) fn check(read: Option<Self>, sent: Self) -> Result<(), Failure> {
        let Some(read) = read else {
            return Err(Failure::Other(anyhow!(
                "the answer has no summary: it is not whole, or the service has an older version than this command"
            )));
        };
        if read == sent {
            return Ok(());
        }
        Err(Failure::Other(anyhow!(
            "the service has read {} rows in {} bytes of the {} rows in {} bytes that were sent",
            thousands(read.rows),
            thousands(read.bytes),
            thousands(sent.rows),
            thousands(sent.bytes)
        )))
    }
}

/// The outcomes of all rows so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    made: u64,
    found: u64,
    pub(super) failed: u64,
    /// The number of failed rows that a retry may create.
    pub(super) unavailable: u64,
    /// The segments of messages before and after.
    segments: (u64, u64),
}

impl Tally {
    pub(super) fn all(&self) -> u64 {
        self.made + self.found + self.failed
    }

    /// The counts as text.
    pub(super) fn text(&self, rows: Rows) -> String {
        let all = thousands(self.all());
        let (mut text, found) = match rows {
            Rows::Links => {
                let made = thousands(self.made);
                (format!("{all} rows: {made} links created"), "there already")
            }
            Rows::Messages => {
                let (before, after) = (thousands(self.segments.0), thousands(self.segments.1));
                let made = thousands(self.made);
                let text = format!(
                    "{all} rows: {made} messages with new links, {before} segments before and {after} after"
                );
                (text, "without new links")
            }
            Rows::Conversions => {
                let made = thousands(self.made);
                let text = format!("{all} rows: {made} conversions counted");
                (text, "counted before")
            }
            Rows::Receipts => {
                let stored = thousands(self.made);
                (format!("{all} rows: {stored} receipts stored"), "unchanged")
            }
        };
        for (count, what) in [(self.found, found), (self.failed, "failed")] {
            if count > 0 {
                text.push_str(&format!(", {} {what}", thousands(count)));
            }
        }
        text
    }
}

/// Counts a result, and reports one that is no link.
pub(super) fn take(
    line: &[u8],
    tally: &mut Tally,
    place: Option<RowPlace>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let result: RowResult =
        serde_json::from_slice(line).context("the service's answer is not a list of results")?;
    if let RowResult {
        index: None,
        problem: Some(problem),
        ..
    } = result
    {
        // It is about all remaining rows.
        return Err(Failure::Problem(problem));
    }
    if let Some(Message { before, after }) = result.message {
        tally.segments.0 += before.segments;
        tally.segments.1 += after.segments;
    }
    match result.status {
        201 => tally.made += 1,
        200 => tally.found += 1,
        status => {
            tally.failed += 1;
            tally.unavailable += u64::from(status >= 500 || status == 429);
            if tally.failed <= MOST_TOLD {
                let place = match (place, result.index) {
                    (Some(place), _) => format!("line {}", place.line),
                    (None, Some(index)) => format!("row {}", index + 1),
                    (None, None) => "a row".to_owned(),
                };
                let problem = result.problem;
                let reason = problem.map_or(status.to_string(), |problem| problem.line());
                bar.suspend(|| eprintln!("shortlink: {place}: {}", plain(&reason)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let mut tally = Tally::default();
        let bar = ProgressBar::hidden();
        for line in [
            r#"{"index":0,"status":201,"link":{}}"#,
            r#"{"index":1,"status":200,"link":{}}"#,
            r#"{"index":2,"status":422,"problem":{"title":"No","status":422,"detail":"x"}}"#,
            r#"{"index":3,"status":503,"problem":{"title":"No","status":503,"detail":"x"}}"#,
        ] {
            take(line.as_bytes(), &mut tally, None, &bar).expect("a result");
        }
        assert_eq!(
            tally.text(Rows::Links),
            "4 rows: 1 links created, 1 there already, 2 failed"
        );
        let sizes = r#"{"before":{"segments":3},"after":{"segments":1}}"#;
        let line = format!(r#"{{"index":4,"status":201,"message":{sizes}}}"#);
        take(line.as_bytes(), &mut tally, None, &bar).expect("a result");
        assert_eq!(
            tally.text(Rows::Messages),
            "5 rows: 2 messages with new links, 3 segments before and 1 after, 1 without new links, 2 failed"
        );
        assert_eq!(tally.unavailable, 1);
        assert!(take(b"<html>", &mut tally, None, &bar).is_err());
        let rest = br#"{"status":422,"problem":{"title":"No","status":422,"detail":"x"}}"#;
        let ended = take(rest, &mut tally, None, &bar);
        assert!(matches!(ended, Err(Failure::Problem(_))));
    }

    #[test]
    fn an_answer_without_a_summary_or_for_other_rows_is_a_failure() {
        let sent = Summary { rows: 3, bytes: 70 };
        assert!(Summary::check(Some(sent), sent).is_ok());
        let told = |read| match Summary::check(read, sent) {
            Err(Failure::Other(error)) => error.to_string(),
            _ => panic!("no failure"),
        };
        assert!(told(None).contains("no summary"));
        let fewer = told(Some(Summary { rows: 2, bytes: 70 }));
        assert!(
            fewer.contains("2 rows in 70 bytes of the 3 rows"),
            "{fewer}"
        );
    }
}
