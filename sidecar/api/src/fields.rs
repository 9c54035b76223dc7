//! Reads the members of a JSON object one by one and collects all faults.
//!
//! A request with three faults gets all three in one answer. An unknown member is a fault, so that a
//! misspelt optional member is not ignored.

use serde_json::{Map, Value};

use super::faults::{Faults, FieldError, fault};
use super::kinds::Kind;

/// The outcome of reading a member.
#[derive(Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// The member is absent, or its value is invalid and a fault has been noted.
    Absent,
    /// `null`.
    Null,
    /// A value.
    Value(T),
}

impl<T> Read<T> {
    /// Returns the value, if present.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }
}

impl Faults<'_> {
    /// Reads the members of a member that is an object with `read`; their faults are noted below it.
    pub fn within<T>(
        &mut self,
        members: Map<String, Value>,
        read: impl FnOnce(&mut Fields) -> T,
    ) -> T {
        self.below("", members, read)
    }

    /// As [`Faults::within`] for an item of a list of objects.
    pub fn within_item<T>(
        &mut self,
        place: usize,
        members: Map<String, Value>,
        read: impl FnOnce(&mut Fields) -> T,
    ) -> T {
        self.below(&format!("/{place}"), members, read)
    }

    fn below<T>(
        &mut self,
        path: &str,
        members: Map<String, Value>,
        read: impl FnOnce(&mut Fields) -> T,
    ) -> T {
        let mut inner = Fields::new(members);
        let value = read(&mut inner);
        let faults = inner.faults().into_iter().map(|inner| FieldError {
            pointer: format!("/{}{path}{}", self.name, inner.pointer),
            ..inner
        });
        self.errors.extend(faults);
        value
    }
}

/// The unread members of an object, and the faults of those already read.
pub struct Fields {
    members: Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Fields {
    /// Begins to read an object.
    pub fn new(members: Map<String, Value>) -> Self {
        Self {
            members,
            errors: Vec::new(),
        }
    }

    /// Notes a fault of a member.
    pub fn refuse(&mut self, name: &str, detail: impl Into<String>) {
        self.errors.push(fault(&[name], detail));
    }

    /// Notes a fault within a member.
    pub fn refuse_at(&mut self, path: &[&str], detail: impl Into<String>) {
        self.errors.push(fault(path, detail));
    }

    /// Notes that a member is missing, unless a fault of it has been noted already.
    pub fn require(&mut self, name: &str) {
        if !self.is_refused(name) {
            self.refuse(name, "is required");
        }
    }

    /// Returns the value of a member, or notes that it is missing.
    pub fn required<T>(&mut self, name: &str, given: Option<T>) -> Option<T> {
        if given.is_none() {
            self.require(name);
        }
        given
    }

    /// Returns a checked value of a member, or notes the reason why it is invalid.
    pub fn checked<T, E: ToString>(&mut self, name: &str, checked: Result<T, E>) -> Option<T> {
        checked
            .map_err(|error| self.refuse(name, error.to_string()))
            .ok()
    }

    /// Returns whether a member, or a value within it, has a fault.
    pub fn is_refused(&self, name: &str) -> bool {
        let is_of_member = |error: &FieldError| error.pointer.split('/').nth(1) == Some(name);
        self.errors.iter().any(is_of_member)
    }

    /// Returns whether no fault has been noted so far.
    pub fn is_faultless(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns whether an unread member is present and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|value| !value.is_null())
    }

    /// Leaves a member unread.
    pub fn ignore(&mut self, name: &str) {
        self.members.remove(name);
    }

    /// Reads a member of a kind.
    pub fn read<K: Kind>(&mut self, name: &str) -> Read<K::Value> {
        match self.members.remove(name) {
            None => Read::Absent,
            Some(Value::Null) => Read::Null,
            Some(value) => {
                let mut faults = Faults {
                    errors: &mut self.errors,
                    name,
                };
                match K::check(value, &mut faults) {
                    Some(value) if K::is_null(&value) => Read::Null,
                    Some(value) => Read::Value(value),
                    None => Read::Absent,
                }
            }
        }
    }

    /// Reads the members of a member that is an object, as [`Faults::within`] does.
    pub fn within<T>(
        &mut self,
        name: &str,
        members: Map<String, Value>,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let errors = &mut self.errors;
        Faults { errors, name }.within(members, read)
    }

    /// All faults, unknown members included.
    pub fn faults(mut self) -> Vec<FieldError> {
        for name in std::mem::take(&mut self.members).keys() {
            self.refuse(name, "is not known");
        }
        self.errors
    }

    /// Finishes reading.
    ///
    /// # Errors
    /// All faults that were noted.
    pub fn finish(self) -> Result<(), Vec<FieldError>> {
        let faults = self.faults();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::link::Parameters;
    use crate::kinds::{List, Number};

    #[test]
    fn pointers_escape_what_json_pointers_escape() {
        let mut fields = Fields::new(Map::new());
        fields.refuse("a/b~c", "");
        assert_eq!(fields.errors[0].pointer, "/a~1b~0c");
    }

    #[test]
    fn faults_within_a_member_are_reported_at_their_place() {
        type Digit = Number<1, 9>;
        type Flags = List<bool, bool>;
        let body = json!({
            "object": {"number": 0, "list": ["true", 1, "b"], "unknown": 1, "other": 9},
            "list": "a", "number": 1.5, "empty": {}, "none": null,
        });
        let Value::Object(members) = body else {
            panic!("no object");
        };
        let mut fields = Fields::new(members);
        let object = fields.read::<Parameters>("object").value();
        fields.within("object", object.expect("members"), |inner| {
            assert_eq!(inner.read::<Digit>("number"), Read::Absent);
            assert_eq!(inner.read::<Digit>("other"), Read::Value(9));
            assert_eq!(inner.read::<Flags>("list"), Read::Absent);
        });
        assert_eq!(fields.read::<Flags>("list"), Read::Absent);
        assert_eq!(fields.read::<Digit>("number"), Read::Absent);
        assert_eq!(fields.read::<Parameters>("empty"), Read::Value(Map::new()));
        assert_eq!(fields.read::<Parameters>("none"), Read::Null);
        assert_eq!(fields.read::<Parameters>("absent"), Read::Absent);
        let pointers: Vec<&str> = fields.errors.iter().map(|error| &*error.pointer).collect();
        assert_eq!(
            pointers,
            [
                "/object/number",
                "/object/list/1",
                "/object/list/2",
                "/object/unknown",
                "/list",
                "/number"
            ]
        );
    }
}
