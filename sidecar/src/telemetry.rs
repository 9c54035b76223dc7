//! Logging.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat};

/// The beginning of the names of the project's crates.
const CRATES: &str = "shortlink_";

/// Starts logging to standard error. Libraries only log warnings and errors: their details may
/// have secrets.
pub fn start(log: &Log) {
    let filter = Targets::new()
        .with_default(log.level.min(tracing::level_filters::LevelFilter::WARN))
        .with_target(CRATES, log.level);
    let layer = tracing_subscriber::fmt::layer().with_writer(stderr);
    let layer = match log.format {
        LogFormat::Text => layer.with_ansi(stderr().is_terminal()).boxed(),
        // Spans are not nested: the list of them would say the same again.
        LogFormat::Json => {
            let json = layer.json().flatten_event(true);
            json.with_span_list(false).boxed()
        }
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}
