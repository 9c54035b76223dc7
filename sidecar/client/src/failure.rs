//! The failures of commands, and their messages.

use std::io;
use std::process::ExitCode;

use serde::Deserialize;

/// The exit code for invalid or missing input, the same as for unknown options.
const USAGE: u8 = 2;

/// The reason that a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The input is invalid or incomplete; nothing was sent.
    Usage(String),
    /// The service has refused.
    Problem(Problem),
    /// Anything else.
    Other(anyhow::Error),
}

/// The service's answer to a request that it refuses: RFC 9457.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    /// The same for every problem of its kind.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// The explanation.
    #[serde(default)]
    pub detail: String,
    /// Each fault by itself.
    #[serde(default)]
    pub errors: Vec<FieldError>,
    /// Further advice, which is not part of the answer.
    #[serde(skip)]
    pub hint: Option<String>,
}

/// A fault of a request.
#[derive(Clone, Debug, Deserialize)]
pub struct FieldError {
    /// The faulty member.
    pub pointer: String,
    /// The fault.
    pub detail: String,
}

impl Failure {
    /// Returns whether the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Usage(_) => false,
            Self::Problem(problem) => problem.status == 429 || problem.status >= 500,
            Self::Other(_) => true,
        }
    }
}

impl Problem {
    /// The problem in one line, for lists of rows.
    pub fn line(&self) -> String {
        if self.errors.is_empty() {
            return format!("{} {}: {}", self.status, self.title, self.detail);
        }
        let errors = self.errors.iter();
        let errors: Vec<String> = errors
            .map(|error| format!("{} {}", error.pointer, error.detail))
            .collect();
        format!("{} {}: {}", self.status, self.title, errors.join("; "))
    }

    /// The text for the terminal: a line for each fault.
    fn text(&self) -> String {
        let mut text = format!("{} ({}): {}", self.title, self.status, self.detail);
        for error in &self.errors {
            text.push_str(&format!("\n  {}: {}", error.pointer, error.detail));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n  {hint}"));
        }
        text
    }
}

impl Failure {
    /// The failure in one line, for use in another message.
    pub fn line(&self) -> String {
        match self {
            Self::Usage(text) => text.clone(),
            Self::Problem(problem) => problem.line(),
            Self::Other(error) => format!("{error:#}"),
        }
    }

    /// Prints it on standard error, and returns the exit code.
    pub fn tell(&self) -> ExitCode {
        match self {
            Self::Usage(text) => {
                eprintln!("shortlink: {text}");
                ExitCode::from(USAGE)
            }
            Self::Problem(problem) => {
                eprintln!("shortlink: {}", problem.text());
                ExitCode::FAILURE
            }
            // The reader of the output has closed it, as `head` does.
            Self::Other(error) if is_broken_pipe(error) => ExitCode::SUCCESS,
            Self::Other(error) => {
                eprintln!("shortlink: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    })
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;

    fn problem(text: &str) -> Problem {
        serde_json::from_str(text).expect("a problem")
    }

    #[test]
    fn a_problem_is_told_with_each_field_and_its_reason() {
        let two = problem(
            r#"{"type":"urn:x","title":"Not valid","status":422,"detail":"2 members.",
                "errors":[{"pointer":"/longUrl","detail":"is missing"},
                          {"pointer":"/tags/0","detail":"is empty"}]}"#,
        );
        let text = "Not valid (422): 2 members.\n  /longUrl: is missing\n  /tags/0: is empty";
        assert_eq!(two.text(), text);
        assert_eq!(
            two.line(),
            "422 Not valid: /longUrl is missing; /tags/0 is empty"
        );
    }

    #[test]
    fn a_problem_without_fields_is_told_by_its_detail() {
        let mut problem = problem(r#"{"title":"Not found","status":404,"detail":"No link."}"#);
        assert_eq!(problem.line(), "404 Not found: No link.");
        problem.hint = Some("look again".to_owned());
        assert_eq!(problem.text(), "Not found (404): No link.\n  look again");
    }
}
