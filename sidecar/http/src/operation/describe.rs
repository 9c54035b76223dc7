//! Operations as OpenAPI describes them.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::parameter::Parameter;
use super::{Content, Operation, parts};
use crate::problem::{Problem, ProblemBody};

impl Operation {
    /// Adds the operation to a description.
    pub(crate) fn describe(self, components: &mut Components, paths: &mut Value) {
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": self.responses(components),
        });
        if !self.text.is_empty() {
            operation["description"] = json!(self.text);
        }
        let parameters = self.parameters.iter();
        let parameters: Vec<Value> = parameters
            .map(|parameter| components.refer_to(parameter))
            .collect();
        if !parameters.is_empty() {
            operation["parameters"] = json!(parameters);
        }
        operation["security"] = match self.scope {
            Some(scope) => json!([{ "apiKey": [scope.name()] }, { "bearer": [scope.name()] }]),
            None => json!([]),
        };
        if let Some(body) = self.body {
            let mut content = content(&body.contents, &mut components.generator);
            let examples = body.examples.into_iter();
            let examples: Map<String, Value> = examples
                .map(|(name, value)| (name.to_owned(), json!({ "value": value })))
                .collect();
            content["application/json"]["examples"] = Value::Object(examples);
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        paths[self.path.replace("{*", "{")][self.method] = operation;
    }

    fn responses(&self, components: &mut Components) -> Value {
        let mut responses = Map::new();
        for answer in &self.answers {
            let mut headers = answer.headers.clone();
            if self.scope.is_some() {
                headers.extend(parts::RATE);
            }
            headers.extend(self.has_request_id.then_some("X-Request-Id"));
            let mut response = json!({ "description": answer.text });
            if !headers.is_empty() {
                response["headers"] = parts::references(headers);
            }
            if let Some((member, parameter)) = &answer.leads_to {
                let parameters = json!({ parameter.name: format!("$response.body#/{member}") });
                for (_, id) in components
                    .takers
                    .iter()
                    .filter(|(key, _)| *key == parameter.key)
                {
                    response["links"][id] = json!({ "operationId": id, "parameters": parameters });
                }
            }
            if !answer.contents.is_empty() {
                response["content"] = content(&answer.contents, &mut components.generator);
            }
            responses.insert(answer.status.to_string(), response);
        }
        let mut by_status: BTreeMap<u16, Vec<&Problem>> = BTreeMap::new();
        for problem in &self.problems {
            let problems = by_status.entry(problem.0.status.as_u16()).or_default();
            problems.push(problem);
        }
        for (status, problems) in by_status {
            // A request without a valid key is not charged.
            let is_charged = self.scope.is_some() && status != StatusCode::UNAUTHORIZED.as_u16();
            let described = components.describe_problems(&problems, is_charged);
            // A status that is also used without a problem gets the problem as a further media type.
            match responses.get_mut(&status.to_string()) {
                Some(response) => {
                    let media = &described["content"]["application/problem+json"];
                    response["content"]["application/problem+json"] = media.clone();
                }
                None => {
                    let refusal = components.add_refusal(status, &problems, described);
                    responses.insert(status.to_string(), refusal);
                }
            }
        }
        Value::Object(responses)
    }
}

/// Parts of a description to which operations refer.
pub(crate) struct Components {
    generator: SchemaGenerator,
    /// Keys of parameters, each with the id of an operation that takes it.
    takers: Vec<(&'static str, &'static str)>,
    parameters: Map<String, Value>,
    responses: Map<String, Value>,
    examples: Map<String, Value>,
}

impl Components {
    /// Prepares the description of operations.
    pub(crate) fn new(operations: &[Operation]) -> Self {
        let mut settings = SchemaSettings::draft2020_12().for_serialize();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        let settings = settings.with_transform(RecursiveTransform(refer_in_all_of));
        let takers = operations.iter().flat_map(|operation| {
            let parameters = operation.parameters.iter();
            parameters.map(|parameter| (parameter.key, operation.id))
        });
        Self {
            generator: SchemaGenerator::new(settings),
            takers: takers.collect(),
            parameters: Map::new(),
            responses: Map::new(),
            examples: Map::new(),
        }
    }

    /// Adds a parameter and refers to it.
    fn refer_to(&mut self, parameter: &Parameter) -> Value {
        let described = parameter.describe(&mut self.generator);
        self.parameters.insert(parameter.key.to_owned(), described);
        json!({ "$ref": format!("#/components/parameters/{}", parameter.key) })
    }

    /// Adds a response with problems unless it exists, and refers to it. Its name consists of their types.
    fn add_refusal(&mut self, status: u16, problems: &[&Problem], described: Value) -> Value {
        let mut names: Vec<&str> = problems.iter().map(|problem| problem.0.name).collect();
        names.dedup();
        let name = add(
            &mut self.responses,
            &format!("{status}.{}", names.join(".")),
            described,
        );
        json!({ "$ref": format!("#/components/responses/{name}") })
    }

    /// Describes an answer that is one of some problems of the same status. All have the same schema; the examples
    /// show which types there are.
    fn describe_problems(&mut self, problems: &[&Problem], is_charged: bool) -> Value {
        let mut examples = Map::new();
        let mut headers = Vec::new();
        let mut texts = Vec::new();
        for problem in problems {
            let body: ProblemBody<'_> = problem.body();
            let name = problem.0.name;
            let title = problem.0.title;
            let example = json!({ "summary": title, "value": body });
            let example = add(&mut self.examples, name, example);
            let reference = json!({ "$ref": format!("#/components/examples/{example}") });
            examples.insert(example, reference);
            headers.extend(
                problem
                    .0
                    .header
                    .iter()
                    .map(|(name, _)| parts::header_name(name)),
            );
            texts.push(format!("`{name}`: {title}."));
        }
        if is_charged {
            headers.extend(parts::RATE);
        }
        headers.push("X-Request-Id");
        texts.dedup();
        let schema = self.generator.subschema_for::<ProblemBody<'static>>();
        json!({
            "description": texts.join(" "),
            "headers": parts::references(headers),
            "content": { "application/problem+json": { "schema": schema, "examples": examples } },
        })
    }

    /// Returns all parts.
    pub(crate) fn into_value(mut self) -> Value {
        json!({
            "schemas": self.generator.take_definitions(true),
            "parameters": self.parameters,
            "responses": self.responses,
            "examples": self.examples,
            "headers": parts::headers(),
            "securitySchemes": parts::security(),
        })
    }
}

/// Puts a reference beside members of its own, which a flattened type has, into `allOf`: generators of clients ignore
/// what stands beside a reference.
fn refer_in_all_of(schema: &mut Schema) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    if members.contains_key("properties")
        && let Some(reference) = members.remove("$ref")
    {
        members.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
}

fn content(contents: &[Content], generator: &mut SchemaGenerator) -> Value {
    let contents = contents.iter();
    let described = contents.map(|(media, describe)| ((*media).to_owned(), describe(generator)));
    Value::Object(described.collect())
}

/// Adds a part unless it exists, and returns its name, with a number if another part has the name.
fn add(parts: &mut Map<String, Value>, name: &str, part: Value) -> String {
    let mut own = name.to_owned();
    let mut number = 1;
    while parts.get(&own).is_some_and(|other| *other != part) {
        number += 1;
        own = format!("{name}.{number}");
    }
    parts.insert(own.clone(), part);
    own
}
