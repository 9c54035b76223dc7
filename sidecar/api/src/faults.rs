//! Faults of a request's body, each with the place of the faulty value.

use schemars::JsonSchema;
use serde::Serialize;

/// A fault of a request's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FieldError")]
pub struct FieldError {
    /// JSON pointer to the faulty member; empty for the whole body.
    pub pointer: String,
    /// Description of the fault.
    pub detail: String,
}

/// The faults of one member.
pub struct Faults<'a> {
    pub(crate) errors: &'a mut Vec<FieldError>,
    pub(crate) name: &'a str,
}

impl Faults<'_> {
    /// Notes a fault of the member.
    pub fn refuse(&mut self, detail: impl Into<String>) {
        self.errors.push(fault(&[self.name], detail));
    }

    /// Notes a fault within the member.
    pub fn refuse_at(&mut self, step: &str, detail: impl Into<String>) {
        self.refuse_within(&[step], detail);
    }

    /// Notes a fault deep within the member.
    pub fn refuse_within(&mut self, path: &[&str], detail: impl Into<String>) {
        let path = [&[self.name], path].concat();
        self.errors.push(fault(&path, detail));
    }
}

/// A fault at a path of members.
pub(crate) fn fault(path: &[&str], detail: impl Into<String>) -> FieldError {
    let steps = path.iter().map(|step| {
        let step = step.replace('~', "~0").replace('/', "~1");
        format!("/{step}")
    });
    FieldError {
        pointer: steps.collect(),
        detail: detail.into(),
    }
}
