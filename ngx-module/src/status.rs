//! `shortlink_status`: the counters of the workers, for Prometheus.

use resolver::counters::render;

use crate::nginx::process::is_alive;
use crate::nginx::request::{Method, Request};
use crate::nginx::status::Status;
use crate::settings::Settings;
use crate::worker::backend::Backend;
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
    worker::with_each(Backend::measure);
    let Some(conf) = request.main_settings::<Settings>() else {
        return Status::INTERNAL_SERVER_ERROR;
    };
    let all = conf.redis.iter();
    let all: Vec<_> = all
        .filter_map(|redis| Some((&*redis.name, redis.counters?.counters()?)))
        .collect();
    let mut text = String::new();
    render(&all, is_alive, now().unix, &mut text);
    request.send_text(CONTENT_TYPE, text.as_bytes())
}
