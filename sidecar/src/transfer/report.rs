//! Counts the outcomes of the rows, and reports those that did not become links.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use shortlink_service::import::Outcome;

use super::windows::{Origin, Window};

/// The number of refused rows that are shown without a report file.
const SHOWN: usize = 10;

/// The outcomes of the rows.
pub struct Report<'a> {
    files: &'a [String],
    file: Option<Box<dyn Write + Send>>,
    shown: Vec<String>,
    /// Links that were created.
    pub created: u64,
    /// Links that were there.
    pub same: u64,
    /// Codes that belong to other links.
    pub conflicts: u64,
    /// Links that are not yet published to Redis.
    pub waiting: u64,
    refused: BTreeMap<&'static str, (u64, Option<&'static str>)>,
    spanning: (u64, Option<Origin>),
}

/// A row that did not become a link.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    file: &'a str,
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    outcome: &'a str,
    reason: String,
}

impl<'a> Report<'a> {
    /// Begins to count; `file` gets a line of JSON for each row that does not become a link.
    pub fn new(files: &'a [String], file: Option<Box<dyn Write + Send>>) -> Self {
        Self {
            files,
            file,
            shown: Vec::new(),
            created: 0,
            same: 0,
            conflicts: 0,
            waiting: 0,
            refused: BTreeMap::new(),
            spanning: (0, None),
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.created + self.same + self.conflicts + self.refused()
    }

    /// The number of refused rows.
    pub fn refused(&self) -> u64 {
        self.refused.values().map(|(count, _)| count).sum()
    }

    /// Counts a window whose links have met these outcomes.
    ///
    /// # Errors
    /// Fails when the file can't be written.
    pub fn add(&mut self, window: &Window, outcomes: &[Outcome]) -> io::Result<()> {
        self.spanning.0 += window.spanning.0;
        self.spanning.1 = self.spanning.1.or(window.spanning.1);
        let mut lines = Vec::new();
        for ((link, origin), outcome) in window.links.iter().zip(&window.origins).zip(outcomes) {
            let (outcome, reason) = match outcome {
                Outcome::Created => {
                    self.created += 1;
                    continue;
                }
                Outcome::Same => {
                    self.same += 1;
                    ("same", "there is a link with this code and target")
                }
                Outcome::Conflict => {
                    self.conflicts += 1;
                    ("conflict", "the code is taken by a link to another target")
                }
            };
            let code = Some(link.code.as_str());
            lines.push((*origin, code, outcome, reason.to_owned()));
        }
        for row in &window.refused {
            let counted = self.refused.entry(row.refusal.kind).or_default();
            counted.0 += 1;
            counted.1 = row.refusal.hint;
            let reason = row.refusal.problem.clone();
            lines.push((row.origin, row.code.as_deref(), "refused", reason));
        }
        lines.sort_unstable_by_key(|(origin, ..)| *origin);
        for (origin, code, outcome, reason) in lines {
            let line = Line {
                file: &self.files[origin.file],
                line: origin.line,
                code,
                outcome,
                reason,
            };
            match &mut self.file {
                Some(file) => {
                    serde_json::to_writer(&mut *file, &line)?;
                    file.write_all(b"\n")?;
                }
                None if self.shown.len() < SHOWN && outcome != "same" => {
                    self.shown.push(format!(
                        "{} line {}, code {}: {}",
                        line.file,
                        line.line,
                        code.unwrap_or("-").escape_debug(),
                        line.reason
                    ));
                }
                None => {}
            }
        }
        match &mut self.file {
            // If the process is killed later, the file has whole lines only.
            Some(file) => file.flush(),
            None => Ok(()),
        }
    }

    /// The report as text.
    pub fn lines(&self, dry_run: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let created = if dry_run { "to be created" } else { "created" };
        lines.push(format!("{created}: {}", self.created));
        lines.push(format!("already there and the same: {}", self.same));
        lines.push(format!(
            "conflicts, codes taken by links to other targets: {}",
            self.conflicts
        ));
        lines.push(format!("refused: {}", self.refused()));
        for (kind, (count, hint)) in &self.refused {
            let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
            lines.push(format!("  {kind}: {count}{hint}"));
        }
        if let (count, Some(first)) = self.spanning {
            lines.push(format!(
                "note: {count} rows span several lines, the first at {} line {}; if that is not \
                 meant, a quotation mark is not closed there",
                self.files[first.file], first.line
            ));
        }
        if self.waiting > 0 {
            lines.push(format!(
                "note: {} links are not yet published to Redis; `shortlink serve` publishes them",
                self.waiting
            ));
        }
        let others = self.conflicts + self.refused();
        if !self.shown.is_empty() {
            lines.push("not imported:".to_owned());
            lines.extend(self.shown.iter().map(|line| format!("  {line}")));
            if others > self.shown.len() as u64 {
                lines.push("  … all of them with --report FILE".to_owned());
            }
        }
        lines
    }
}
