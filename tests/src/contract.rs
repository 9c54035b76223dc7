//! The API's description of itself, and a check of answers against it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use crate::http::{self, Response};

/// The description of a running service, and what of it has been seen.
#[derive(Debug)]
pub struct Contract {
    description: Value,
    /// By the text of their schema: to make one takes longer than all else here.
    validators: RefCell<BTreeMap<String, Validator>>,
    /// The answers that were compared: method, path and status.
    seen: BTreeSet<(String, String, u16)>,
    /// The types of the problems that were compared.
    problems: BTreeSet<String>,
}

/// An operation: the method and the path as the description writes them.
pub type Name<'a> = (&'a str, &'a str);

impl Contract {
    /// Asks the service at a port.
    ///
    /// # Panics
    /// When it has no description.
    pub fn of(port: u16) -> Self {
        let answer = http::get(port, "/openapi.json");
        assert_eq!(answer.status, 200);
        Self {
            description: answer.json(),
            validators: RefCell::default(),
            seen: BTreeSet::new(),
            problems: BTreeSet::new(),
        }
    }

    /// The description as it was received.
    pub fn description(&self) -> &Value {
        &self.description
    }

    /// Every operation: method, path, and its description.
    ///
    /// # Panics
    /// When the description has none.
    pub fn operations(&self) -> Vec<(String, String, Value)> {
        let paths = self.description["paths"].as_object().expect("paths");
        let mut all = Vec::new();
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().expect("methods") {
                all.push((method.to_uppercase(), path.clone(), operation.clone()));
            }
        }
        all
    }

    /// Compares an answer to the description of its operation.
    ///
    /// # Panics
    /// When they differ: a status, a kind of body or a header that is not described, a body that is
    /// not of its schema, a required header that is missing.
    pub fn check(&mut self, (method, path): Name<'_>, answer: &Response) {
        let status = answer.status;
        let what = format!("{method} {path}: {status}");
        let operation = &self.description["paths"][path][method.to_lowercase()];
        assert!(operation.is_object(), "{what} is of no operation");
        let told = self
            .follow(&operation["responses"][status.to_string()])
            .clone();
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(told.is_object(), "{what} is not described: {body}");
        for (name, reference) in told["headers"].as_object().unwrap_or(&Map::new()) {
            let header = self.follow(reference);
            match answer.header(name) {
                Some(text) => {
                    self.check_header(&header["schema"], text, &format!("{what}: {name}"));
                }
                None => assert_ne!(header["required"], true, "{what} has no {name}"),
            }
        }
        self.check_body(&told["content"], answer, &what);
        self.seen
            .insert((method.to_owned(), path.to_owned(), status));
    }

    /// The described statuses that were not seen yet, among those that `wanted` accepts.
    pub fn unseen(&self, wanted: impl Fn(u16) -> bool) -> Vec<String> {
        let mut unseen = Vec::new();
        for (method, path, operation) in self.operations() {
            for status in operation["responses"]
                .as_object()
                .expect("responses")
                .keys()
            {
                let status: u16 = status.parse().expect("a status");
                let name = (method.clone(), path.clone(), status);
                if wanted(status) && !self.seen.contains(&name) {
                    unseen.push(format!("{method} {path}: {status}"));
                }
            }
        }
        unseen
    }

    /// The last parts of the types of the problems that were compared.
    pub fn problems(&self) -> &BTreeSet<String> {
        &self.problems
    }

    /// The members of the JSON object that an operation takes; `None` when it takes none.
    pub fn members(&self, operation: &Value) -> Option<BTreeMap<String, Value>> {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let members = self.follow(schema)["properties"].as_object()?.clone();
        Some(members.into_iter().collect())
    }

    /// Checks that a value is of a schema of the description.
    ///
    /// # Errors
    /// With what is wrong.
    ///
    /// # Panics
    /// When the schema is none.
    pub fn validate(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let mut validators = self.validators.borrow_mut();
        let validator = validators.entry(schema.to_string()).or_insert_with(|| {
            // References are followed within the whole document.
            let whole = json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "components": self.description["components"],
                "allOf": [schema],
            });
            jsonschema::options()
                .should_validate_formats(true)
                .build(&whole)
                .unwrap_or_else(|error| panic!("{error} in {schema}"))
        });
        let errors = validator.iter_errors(value);
        let errors: Vec<String> = errors
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors.join("; "))
        }
    }

    /// Returns the target of a reference, or the value itself if it is none.
    fn follow<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => {
                let pointer = reference.trim_start_matches('#');
                let found = self.description.pointer(pointer);
                found.unwrap_or_else(|| panic!("{reference} leads nowhere"))
            }
            None => value,
        }
    }

    fn check_header(&self, schema: &Value, text: &str, what: &str) {
        let value = match schema["type"].as_str() {
            Some("integer") => json!(text.parse::<i64>().expect("a number")),
            _ => json!(text),
        };
        if let Err(error) = self.validate(schema, &value) {
            panic!("{what} is {text:?}: {error}");
        }
    }

    fn check_body(&mut self, told: &Value, answer: &Response, what: &str) {
        let Some(told) = told.as_object() else {
            assert!(answer.body.is_empty(), "{what} has a body");
            return;
        };
        let media = answer.header("Content-Type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        let told = told.get(media);
        let told = told.unwrap_or_else(|| panic!("{what}: {media:?} is not described"));
        let text = std::str::from_utf8(&answer.body).expect("text");
        let parse = |line: &str| serde_json::from_str(line).expect("JSON");
        let (schema, values): (&Value, Vec<Value>) = match (media, told.get("x-itemSchema")) {
            (_, Some(row)) => (row, text.lines().map(parse).collect()),
            ("text/event-stream", None) => {
                let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
                let schema = &told["schema"]["properties"]["data"]["contentSchema"];
                (schema, data.map(parse).collect())
            }
            (media, None) if media.ends_with("json") => (&told["schema"], vec![answer.json()]),
            _ => return,
        };
        assert!(
            !schema.is_null() && !values.is_empty(),
            "{what}: nothing to compare"
        );
        for value in values {
            if let Err(error) = self.validate(schema, &value) {
                panic!("{what}: {error} in {value}");
            }
            if media == "application/problem+json" {
                let name = value["type"].as_str().expect("a type");
                let mut examples = told["examples"].as_object().expect("examples").values();
                let is_told = examples.any(|it| self.follow(it)["value"]["type"] == name);
                assert!(is_told, "{what}: {name} is not described");
                let name = name.rsplit(':').next().expect("a name");
                self.problems.insert(name.to_owned());
            }
        }
    }
}
