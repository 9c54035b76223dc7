//! One operation of the description: what is sent, and everything that can be answered.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::parts;
use crate::core::api_key::Scope;
use crate::http::problem::{Problem, ProblemBody};
use crate::service::access::ChargeError;

/// Finds or makes the schema of a type.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a body is.
enum Content {
    /// JSON of a type.
    Json(SchemaOf),
    /// Text in another form, each of whose lines is JSON of a type.
    Rows(&'static str, SchemaOf),
    /// Server-sent events, whose data are JSON of a type.
    Events(SchemaOf),
    /// Other text.
    Text(&'static str),
}

/// An answer that is no problem.
struct Answer {
    status: u16,
    text: &'static str,
    contents: Vec<Content>,
    headers: Vec<&'static str>,
    links: Value,
}

/// What is sent behind the headers.
struct Body {
    contents: Vec<Content>,
    examples: Vec<(&'static str, Value)>,
}

/// A method of a path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    text: &'static str,
    scope: Option<Scope>,
    parameters: Vec<&'static str>,
    body: Option<Body>,
    answers: Vec<Answer>,
    problems: Vec<Problem>,
    has_request_id: bool,
}

impl Operation {
    /// An operation that anybody may ask for; `id` is its name in clients that are generated.
    pub(super) fn new(
        tag: &'static str,
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            method,
            path,
            id,
            tag,
            summary,
            text: "",
            scope: None,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            problems: vec![Problem::internal()],
            has_request_id: true,
        }
    }

    /// Says more about it.
    pub(super) fn text(self, text: &'static str) -> Self {
        Self { text, ..self }
    }

    /// Takes a key with a scope, with all that can be wrong with it.
    pub(super) fn scope(self, scope: Scope) -> Self {
        let limited = ChargeError::Exceeded {
            retry_after: std::time::Duration::from_secs(1),
        };
        let operation = Self {
            scope: Some(scope),
            ..self
        };
        operation.problems([
            Problem::unauthorized(),
            Problem::forbidden(scope.name()),
            limited.into(),
            Problem::unavailable(
                "The database does not answer. Whether the request had an effect is not known.",
            ),
        ])
    }

    /// Takes parameters, by their names in [`parts`].
    pub(super) fn takes<const N: usize>(mut self, parameters: [&'static str; N]) -> Self {
        self.parameters.extend(parameters);
        self
    }

    /// Takes parameters of the query, with what is said of wrong ones.
    pub(super) fn query<const N: usize>(self, parameters: [&'static str; N]) -> Self {
        let refused = Problem::query("limit must be a number from 1 to 1000.");
        self.takes(parameters).problems([refused])
    }

    /// Takes a JSON object, with what can be wrong with it.
    pub(super) fn takes_json<T: JsonSchema, const N: usize>(
        mut self,
        examples: [(&'static str, Value); N],
    ) -> Self {
        self.body = Some(Body {
            contents: vec![Content::Json(|generator| generator.subschema_for::<T>())],
            examples: examples.into(),
        });
        self.problems([
            Problem::malformed("The body is not valid JSON: line 1, column 2."),
            Problem::too_large(65_536),
            Problem::not_json(),
            parts::invalid(),
        ])
    }

    /// Takes rows: an array, lines or CSV.
    pub(super) fn takes_rows<T: JsonSchema>(mut self, example: Value) -> Self {
        self.body = Some(Body {
            contents: vec![
                Content::Json(|generator| generator.subschema_for::<Vec<T>>()),
                Content::Rows("application/x-ndjson", |it| it.subschema_for::<T>()),
                Content::Text("text/csv"),
            ],
            examples: vec![("rows", example)],
        });
        self.problems([Problem::not_rows()])
    }

    /// Answers with JSON.
    pub(super) fn answers<T: JsonSchema>(self, status: u16, text: &'static str) -> Self {
        let content = Content::Json(|generator| generator.subschema_for::<T>());
        self.answer(status, text, vec![content])
    }

    /// Answers with server-sent events.
    pub(super) fn answers_events<T: JsonSchema>(self, status: u16, text: &'static str) -> Self {
        let content = Content::Events(|generator| generator.subschema_for::<T>());
        self.answer(status, text, vec![content])
    }

    /// Answers with text of a media type.
    pub(super) fn answers_text(self, status: u16, text: &'static str, media: &'static str) -> Self {
        self.answer(status, text, vec![Content::Text(media)])
    }

    /// Answers without a body.
    pub(super) fn answers_nothing(self, status: u16, text: &'static str) -> Self {
        self.answer(status, text, Vec::new())
    }

    /// The last answer can also be text whose lines are JSON of a type.
    pub(super) fn or_rows<T: JsonSchema>(self, media: &'static str) -> Self {
        self.or(Content::Rows(media, |it| it.subschema_for::<T>()))
    }

    /// The last answer can also be other text.
    pub(super) fn or_text(self, media: &'static str) -> Self {
        self.or(Content::Text(media))
    }

    /// The last answer always has these headers, by their names in [`parts`].
    pub(super) fn with<const N: usize>(mut self, headers: [&'static str; N]) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers.extend(headers);
        }
        self
    }

    /// What the last answer tells in `member` is the parameter of other operations.
    pub(super) fn leads_to<const N: usize>(
        mut self,
        member: &'static str,
        parameter: &'static str,
        operations: [&'static str; N],
    ) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            let value = format!("$response.body#/{member}");
            for id in operations {
                answer.links[id] = json!({
                    "operationId": id, "parameters": { parameter: value },
                });
            }
        }
        self
    }

    /// Can be refused with problems.
    pub(super) fn problems<const N: usize>(mut self, problems: [Problem; N]) -> Self {
        self.problems.extend(problems);
        self
    }

    /// Is answered tersely, for phones: without problems and without the id of the request.
    pub(super) fn terse(mut self) -> Self {
        self.problems.clear();
        self.has_request_id = false;
        self
    }

    fn answer(mut self, status: u16, text: &'static str, contents: Vec<Content>) -> Self {
        self.answers.push(Answer {
            status,
            text,
            contents,
            headers: Vec::new(),
            links: json!({}),
        });
        self
    }

    fn or(mut self, content: Content) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.contents.push(content);
        }
        self
    }

    /// The operation as OpenAPI has it.
    pub(super) fn describe(
        mut self,
        generator: &mut SchemaGenerator,
        refusals: &mut Refusals,
    ) -> Value {
        if self.has_request_id {
            self.parameters.extend(["RequestId", "Traceparent"]);
        }
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": self.responses(generator, refusals),
        });
        if !self.text.is_empty() {
            operation["description"] = json!(self.text);
        }
        let parameters = self.parameters.iter();
        let parameters: Vec<Value> = parameters
            .map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }))
            .collect();
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        operation["security"] = match self.scope {
            Some(scope) => json!([{ "apiKey": [scope.name()] }, { "bearer": [scope.name()] }]),
            None => json!([]),
        };
        if let Some(body) = self.body {
            let mut content = content(&body.contents, generator);
            let examples = body.examples.into_iter();
            let examples: Map<String, Value> = examples
                .map(|(name, value)| (name.to_owned(), json!({ "value": value })))
                .collect();
            content["application/json"]["examples"] = Value::Object(examples);
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        operation
    }

    fn responses(&self, generator: &mut SchemaGenerator, refusals: &mut Refusals) -> Value {
        let mut responses = Map::new();
        for answer in &self.answers {
            let mut headers = answer.headers.clone();
            headers.extend(self.has_request_id.then_some("X-Request-Id"));
            let mut response = json!({ "description": answer.text });
            if !headers.is_empty() {
                response["headers"] = parts::headers(headers);
            }
            if answer
                .links
                .as_object()
                .is_some_and(|links| !links.is_empty())
            {
                response["links"] = answer.links.clone();
            }
            if !answer.contents.is_empty() {
                response["content"] = content(&answer.contents, generator);
            }
            responses.insert(answer.status.to_string(), response);
        }
        let mut by_status: BTreeMap<u16, Vec<&Problem>> = BTreeMap::new();
        for problem in &self.problems {
            let problems = by_status.entry(problem.status().as_u16()).or_default();
            problems.push(problem);
        }
        for (status, problems) in by_status {
            let described = describe_problems(&problems, generator);
            // Where no kind of answer is a problem alone, it is one more kind.
            match responses.get_mut(&status.to_string()) {
                Some(response) => {
                    let media = &described["content"]["application/problem+json"];
                    response["content"]["application/problem+json"] = media.clone();
                }
                None => {
                    let reference = refusals.add(status, &problems, &described);
                    responses.insert(status.to_string(), json!({ "$ref": reference }));
                }
            }
        }
        Value::Object(responses)
    }
}

/// Answers with problems, which many operations share.
#[derive(Default)]
pub(super) struct Refusals(Map<String, Value>);

impl Refusals {
    /// Adds an answer unless it is there, and refers to it. It is called after its problems, with a
    /// number behind when they are told in other words elsewhere.
    fn add(&mut self, status: u16, problems: &[&Problem], described: &Value) -> String {
        let mut names: Vec<&str> = problems.iter().map(|problem| problem.name()).collect();
        names.dedup();
        let name = format!("{status}.{}", names.join("."));
        let others = (2..).map(|number| format!("{name}.{number}"));
        let names = std::iter::once(name.clone()).chain(others);
        for name in names {
            let known = self.0.entry(&*name).or_insert_with(|| described.clone());
            if known == described {
                return format!("#/components/responses/{name}");
            }
        }
        String::new()
    }

    /// All of them.
    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

fn content(contents: &[Content], generator: &mut SchemaGenerator) -> Value {
    let mut media = Map::new();
    for content in contents {
        let (name, value) = match content {
            Content::Json(schema) => ("application/json", json!({ "schema": schema(generator) })),
            // OpenAPI can say what a line is from 3.2 on; until then this is for people and tests.
            Content::Rows(name, schema) => (
                *name,
                json!({ "schema": { "type": "string" }, "x-itemSchema": schema(generator) }),
            ),
            // It is each event that is described, with fields that it may have.
            Content::Events(schema) => {
                let data = json!({
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": schema(generator),
                });
                let name = json!({ "type": "string" });
                let event = json!({
                    "type": "object",
                    "properties": { "event": name, "id": name, "data": data },
                });
                ("text/event-stream", json!({ "schema": event }))
            }
            Content::Text(name) => (*name, json!({ "schema": { "type": "string" } })),
        };
        media.insert(name.to_owned(), value);
    }
    Value::Object(media)
}

/// An answer that is one of some problems of the same status.
fn describe_problems(problems: &[&Problem], generator: &mut SchemaGenerator) -> Value {
    let mut examples = Map::new();
    let mut headers = Vec::new();
    let mut types = Vec::new();
    let mut texts = Vec::new();
    for problem in problems {
        let body: ProblemBody<'_> = problem.body();
        let name = problem.name();
        let title = problem.title();
        examples.insert(name.to_owned(), json!({ "summary": title, "value": body }));
        headers.extend(problem.header().map(parts::header_name));
        types.push(body.r#type.clone());
        texts.push(format!("`{name}`: {title}."));
    }
    headers.push("X-Request-Id");
    texts.dedup();
    types.sort_unstable();
    types.dedup();
    let schema = generator.subschema_for::<ProblemBody<'static>>();
    json!({
        "description": texts.join(" "),
        "headers": parts::headers(headers),
        "content": { "application/problem+json": {
            "schema": { "allOf": [schema, { "properties": { "type": { "enum": types } } }] },
            "examples": examples,
        } },
    })
}
