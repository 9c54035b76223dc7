//! What the service tells of itself, and where it sends visitors.

use vocabulary::RedirectStatus;

use super::operation::Operation;
use super::words::{Description, redirect_statuses};
use crate::http::health::{Alive, Ready};

pub(super) fn operations() -> Vec<Operation> {
    let new = |path, id, summary| Operation::new("service", "get", path, id, summary);
    vec![
        new("/healthz", "isAlive", "Tells that the process runs")
            .answers::<Alive>(200, "It does.")
            .with(["Cache-Control"]),
        new(
            "/readyz",
            "isReady",
            "Tells whether what the service needs is there",
        )
        .answers::<Ready>(200, "It is, or all that is really needed.")
        .with(["Cache-Control"])
        .answers::<Ready>(503, "The database is away.")
        .with(["Cache-Control"]),
        new(
            "/metrics",
            "getMetrics",
            "Tells Prometheus what this process has counted",
        )
        .answers_text(200, "Prometheus' text format.", "text/plain")
        .with(["Cache-Control"]),
        new("/openapi.json", "getDescription", "Describes the API")
            .answers::<Description>(200, "This description.")
            .with(["Cache-Control"]),
        new(
            "/docs",
            "getDocumentation",
            "Shows this description to people",
        )
        .answers_text(200, "A page.", "text/html")
        .with(["Cache-Control", "Content-Security-Policy"]),
        resolve(),
    ]
}

/// Where nginx sends visitors on.
fn resolve() -> Operation {
    let path = "/resolve/{path}";
    let id = "followLink";
    let mut operation = Operation::new("service", "get", path, id, "Follows a link, for nginx")
        .text(
            "Asked by nginx' public server when Redis could not say. The internal one refuses it.",
        )
        .takes(["Path", "VisitorQuery"])
        .terse();
    for status in redirect_statuses() {
        operation = operation
            .answers_nothing(status, "Where the link leads.")
            .with(["Location"]);
        // Browsers may keep the others.
        if RedirectStatus::from_code(status).is_some_and(|it| !it.is_permanent()) {
            operation = operation.with(["Cache-Control"]);
        }
    }
    operation
        .answers_text(404, "There is no such link, or not yet.", "text/plain")
        .with(["Cache-Control"])
        .answers_text(410, "The link does not redirect, or no more.", "text/plain")
        .with(["Cache-Control"])
        .answers_text(503, "It is not known where the link leads.", "text/plain")
        .with(["Cache-Control", "Retry-After"])
}
