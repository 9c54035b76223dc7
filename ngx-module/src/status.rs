//! `shortlink_status`: what the workers have counted, for Prometheus.

use crate::nginx::process::is_alive;
use crate::nginx::request::{Method, Request};
use crate::nginx::status::Status;
use crate::settings::Settings;
use crate::worker::Worker;
use crate::worker::edge::now;
use crate::{respond, worker};

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content handler of a location with `shortlink_status`.
pub(crate) fn handle(request: &Request) -> Status {
    if request.method() == Method::Other {
        return respond::method_not_allowed(request);
    }
    if let Err(status) = request.discard_body() {
        return status;
    }
    // This worker's numbers as they are now; the others' are a second old at most.
    worker::with(Worker::measure);
    let zone = request
        .main_settings::<Settings>()
        .and_then(|conf| conf.counters);
    let Some(counters) = zone.and_then(|zone| zone.counters()) else {
        return Status::INTERNAL_SERVER_ERROR;
    };
    let mut text = String::new();
    counters.render(is_alive, now().unix, &mut text);
    request.send_text(CONTENT_TYPE, &text)
}
