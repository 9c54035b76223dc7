//! Operations of the API: the route and handler of each, with its description for OpenAPI.
//!
//! The router and `/openapi.json` are built from the same operations. Extractors describe
//! themselves ([`Taken`]), so the scope that an operation checks is the one that it documents.

mod describe;
pub(super) mod parameter;
mod parts;

use axum::Extension;
use axum::body::Body as RawBody;
use axum::extract::{RawQuery, State};
use axum::handler::Handler;
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::routing::MethodRouter;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::app::SharedApp;
use super::problem::Problem;
use super::query::only;
pub(super) use describe::Components;
use shortlink_core::api_key::Scope;
use shortlink_service::access::ChargeError;

use parameter::{Parameter, of};

/// The header that forbids caches to store an answer.
pub(super) const NO_STORE: (HeaderName, &str) = (CACHE_CONTROL, "no-store");

/// A media type of a body, and the description of the body.
pub(super) type Content = (&'static str, fn(&mut SchemaGenerator) -> Value);

/// JSON of a type.
pub(super) fn json_of<T: JsonSchema>() -> Content {
    (
        "application/json",
        |generator| json!({ "schema": of::<T>(generator) }),
    )
}

/// Text with one JSON value of a type per line. OpenAPI describes the rows of a body from 3.2 on; until then this is
/// for readers and tests.
pub(super) fn rows_of<T: JsonSchema>(media: &'static str) -> Content {
    (
        media,
        |generator| json!({ "schema": { "type": "string" }, "x-itemSchema": of::<T>(generator) }),
    )
}

/// Server-sent events, whose data are JSON of a type. Each event is described, with fields that it may have.
pub(super) fn events_of<T: JsonSchema>() -> Content {
    ("text/event-stream", |generator| {
        let data = json!({
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": of::<T>(generator),
        });
        let name = json!({ "type": "string" });
        let properties = json!({ "event": name, "id": name, "data": data });
        json!({ "schema": { "type": "object", "properties": properties } })
    })
}

/// Other text.
pub(super) fn text_of(media: &'static str) -> Content {
    (media, |_| json!({ "schema": { "type": "string" } }))
}

/// An answer that is no problem.
struct Answer {
    status: u16,
    text: &'static str,
    contents: Vec<Content>,
    headers: Vec<&'static str>,
    leads_to: Option<(&'static str, Parameter)>,
}

/// A body and its examples.
struct Body {
    contents: Vec<Content>,
    examples: Vec<(&'static str, Value)>,
}

/// A method of a path.
pub(super) struct Operation {
    /// The path, as the router matches it.
    pub(super) path: &'static str,
    /// The handler, for the operation's method only.
    pub(super) handler: MethodRouter<SharedApp>,
    method: &'static str,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    text: &'static str,
    scope: Option<Scope>,
    parameters: Vec<Parameter>,
    body: Option<Body>,
    answers: Vec<Answer>,
    problems: Vec<Problem>,
    has_request_id: bool,
}

/// Describes the part of a request that an extractor takes.
pub(super) trait Taken {
    /// Adds parameters, problems and the required scope to an operation.
    fn describe(operation: Operation) -> Operation {
        operation
    }
}

impl Taken for State<SharedApp> {}
impl Taken for HeaderMap {}
impl Taken for RawBody {}
impl Taken for RawQuery {}
impl Taken for Uri {}
/// Handlers without extractors.
impl Taken for ((),) {}

/// Describes everything that a handler takes, in the order of its arguments.
macro_rules! handlers_take {
    ($($name:ident)*) => {
        impl<M, $($name: Taken),*> Taken for (M, $($name,)*) {
            fn describe(operation: Operation) -> Operation {
                $(let operation = $name::describe(operation);)*
                operation
            }
        }
    };
}
handlers_take!(A);
handlers_take!(A B);
handlers_take!(A B C);
handlers_take!(A B C D);
handlers_take!(A B C D E);
handlers_take!(A B C D E F);

/// Declares the operations of a file: method, path, id in generated clients, summary, handler,
/// and all else as calls of [`Operation`].
macro_rules! operations {
    ($($method:ident $path:literal, $id:literal, $summary:literal, $handler:ident {
        $($description:tt)*
    })*) => {
        /// Lists the operations of this file.
        pub(super) fn operations() -> Vec<$crate::operation::Operation> {
            use $crate::operation::Operation;
            vec![$({
                let method = (stringify!($method), axum::routing::$method as fn(_) -> _);
                Operation::new(method, $path, $id, $summary, $handler) $($description)*
            }),*]
        }
    };
}
pub(super) use operations;

/// Marks requests of operations that take no query.
#[derive(Clone, Copy)]
struct WithoutQuery;

/// Refuses a query where none is taken. Only extractors call it, once they have checked the key.
pub(super) fn check_query(parts: &Parts) -> Result<(), Problem> {
    let is_refused = parts.extensions.get::<WithoutQuery>().is_some();
    match parts.uri.query() {
        Some(query) if is_refused && !query.is_empty() => Err(only(&[])),
        _ => Ok(()),
    }
}

impl Operation {
    /// Creates an operation of a method with its route; `id` is its name in generated clients.
    pub(super) fn new<T: Taken, H: Handler<T, SharedApp>>(
        (method, route): (&'static str, fn(H) -> MethodRouter<SharedApp>),
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        T::describe(Self {
            path,
            handler: route(handler),
            method,
            id,
            tag: "",
            summary,
            text: "",
            scope: None,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            problems: vec![Problem::internal()],
            has_request_id: true,
        })
    }

    /// Lists the operation under a tag.
    pub(super) fn tagged(self, tag: &'static str) -> Self {
        Self { tag, ..self }
    }

    /// Adds a longer description.
    pub(super) fn text(self, text: &'static str) -> Self {
        Self { text, ..self }
    }

    /// Requires a key with a scope. Only extractors call it, which check the key.
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
            Problem::lacks(scope),
            limited.into(),
            Problem::unavailable(
                "The database does not answer. It is unknown whether the request had an effect.",
            ),
        ])
    }

    /// Takes parameters. One that is taken already moves to the end.
    pub(super) fn takes(mut self, parameters: &[Parameter]) -> Self {
        let is_new = |it: &Parameter| parameters.iter().all(|other| other.key != it.key);
        self.parameters.retain(is_new);
        self.parameters.extend_from_slice(parameters);
        self
    }

    /// Takes parameters of the query, with the problem of an invalid one.
    pub(super) fn query(self, parameters: &[Parameter]) -> Self {
        let refused = Problem::query("limit must be a number from 1 to 1000.");
        self.takes(parameters).problems([refused])
    }

    /// Refuses any query if none is taken, but of probes and pages, which need no key.
    pub(super) fn without_other_query(self) -> Self {
        let takes_query = self.parameters.iter().any(|it| it.place == "query");
        if takes_query || self.scope.is_none() {
            return self;
        }
        let handler = self.handler.layer(Extension(WithoutQuery));
        let operation = Self { handler, ..self };
        operation.problems([only(&[])])
    }

    /// Takes a JSON object, with the problems that its content can cause.
    pub(super) fn takes_json<T: JsonSchema, const N: usize>(
        mut self,
        examples: [(&'static str, Value); N],
    ) -> Self {
        self.body = Some(Body {
            contents: vec![json_of::<T>()],
            examples: examples.into(),
        });
        self.problems([
            Problem::malformed("The body is not valid JSON: line 1, column 2."),
            Problem::too_large(65_536),
            Problem::not_json(),
            Problem::invalid("/longUrl", "is required"),
        ])
    }

    /// Takes rows: an array, lines or CSV.
    pub(super) fn takes_rows<T: JsonSchema>(mut self, example: Value) -> Self {
        self.body = Some(Body {
            contents: vec![
                json_of::<Vec<T>>(),
                rows_of::<T>("application/x-ndjson"),
                text_of("text/csv"),
            ],
            examples: vec![("rows", example)],
        });
        self.problems([
            Problem::not_rows(),
            Problem::other_charset("iso-8859-1"),
            Problem::no_rows(),
        ])
    }

    /// Answers with JSON.
    pub(super) fn answers<T: JsonSchema>(self, status: u16, text: &'static str) -> Self {
        self.answer(status, text, [json_of::<T>()])
    }

    /// The last answer always has these headers, by their names in `parts`.
    pub(super) fn with<const N: usize>(mut self, headers: [&'static str; N]) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.headers.extend(headers);
        }
        self
    }

    /// The last answer has in `member` a parameter of other operations.
    pub(super) fn leads_to(mut self, member: &'static str, parameter: Parameter) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            answer.leads_to = Some((member, parameter));
        }
        self
    }

    /// Adds the parts that several operations share.
    pub(super) fn also(self, shared: fn(Self) -> Self) -> Self {
        shared(self)
    }

    /// Can be refused with problems.
    pub(super) fn problems<const N: usize>(mut self, problems: [Problem; N]) -> Self {
        self.problems.extend(problems);
        self
    }

    /// Is answered tersely, for visitors: without problems and without the id of the request.
    pub(super) fn terse(mut self) -> Self {
        self.problems.clear();
        self.has_request_id = false;
        self
    }

    /// Answers with one of some contents, or without a body if there is none.
    pub(super) fn answer<const N: usize>(
        mut self,
        status: u16,
        text: &'static str,
        contents: [Content; N],
    ) -> Self {
        self.answers.push(Answer {
            status,
            text,
            contents: contents.into(),
            headers: Vec::new(),
            leads_to: None,
        });
        self
    }
}
