//! Members that are objects, lists or numbers.

use serde_json::{Map, Value};

use super::{Fields, Member, whole};
use crate::http::problem::FieldError;

impl Fields {
    /// Reads an object by reading its members with `read`; what is wrong with them is noted
    /// under this member.
    pub(in crate::http) fn object<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Fields) -> T,
    ) -> Member<T> {
        let members = match self.take(name) {
            None => return Member::Absent,
            Some(Value::Null) => return Member::Null,
            Some(Value::Object(members)) => members,
            Some(_) => {
                self.refuse(name, "must be an object");
                return Member::Absent;
            }
        };
        let mut inner = Fields::new(members);
        let value = read(&mut inner);
        inner.refuse_unknown();
        for FieldError { pointer, detail } in inner.errors {
            self.errors.push(FieldError {
                pointer: format!("/{name}{pointer}"),
                detail,
            });
        }
        Member::Value(value)
    }

    /// Reads a list of texts with `parse`, which says what is wrong with one. Wrong items are
    /// noted each under its place.
    pub(in crate::http) fn list<T, E: ToString>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Member<Vec<T>> {
        let items = match self.take(name) {
            None => return Member::Absent,
            Some(Value::Null) => return Member::Null,
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.refuse(name, "must be a list of strings");
                return Member::Absent;
            }
        };
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let parsed = match item.as_str() {
                Some(text) => parse(text).map_err(|error| error.to_string()),
                None => Err("must be a string".to_owned()),
            };
            match parsed {
                Ok(item) => list.push(item),
                Err(detail) => self.errors.push(FieldError {
                    pointer: format!("/{name}/{index}"),
                    detail,
                }),
            }
        }
        if list.len() < items.len() {
            return Member::Absent;
        }
        Member::Value(list)
    }

    /// Reads a whole number from `least` to `most`.
    pub(in crate::http) fn number(&mut self, name: &str, least: u32, most: u32) -> Member<u32> {
        let number = match self.take(name) {
            None => return Member::Absent,
            Some(Value::Null) => return Member::Null,
            Some(value) => whole(&value).and_then(|number| u32::try_from(number).ok()),
        };
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Member::Value(number),
            None => {
                self.refuse(
                    name,
                    format!("must be a whole number from {least} to {most}"),
                );
                Member::Absent
            }
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.members.remove(name)
    }

    /// Notes members that nobody has asked for.
    pub(super) fn refuse_unknown(&mut self) {
        let unknown: Map<String, Value> = std::mem::take(&mut self.members);
        for name in unknown.keys() {
            self.refuse(name, "is not known");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_inside_is_told_by_its_place() {
        let body = json!({
            "object": {"number": 0, "list": ["a", 1, "bb"], "unknown": 1, "other": 9},
            "list": "a", "number": 1.5, "empty": {}, "none": null,
        });
        let Value::Object(members) = body else {
            panic!("no object");
        };
        let mut fields = Fields::new(members);
        let one_letter = |text: &str| match text.len() {
            1 => Ok(()),
            _ => Err("must be a letter"),
        };
        let read = fields.object("object", |inner| {
            assert_eq!(inner.number("number", 1, 9), Member::Absent);
            assert_eq!(inner.number("other", 1, 9), Member::Value(9));
            assert_eq!(inner.list("list", one_letter), Member::Absent);
        });
        assert_eq!(read, Member::Value(()));
        assert_eq!(fields.list("list", one_letter), Member::Absent);
        assert_eq!(fields.number("number", 1, 9), Member::Absent);
        assert_eq!(fields.object("empty", |_| ()), Member::Value(()));
        assert_eq!(fields.object("none", |_| ()), Member::Null);
        assert_eq!(fields.object("absent", |_| ()), Member::Absent);
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
