//! `shortlink audit`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use shortlink_client::output::{print, thousands};
use shortlink_client::progress::Progress;
use shortlink_service::audit::{Audit, Kind, Report};
use shortlink_service::drift::Inspector;

use super::workbench::Workbench;
use crate::config::Config;
use crate::lifecycle::cancelled_by_signal;

/// The exit code for drift that was found and is still there, and for changes that are overdue.
const DRIFT: u8 = 2;

/// Options of an audit and of its output.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct AuditArguments {
    /// Maximum number of examples of drift in the output.
    #[arg(long, default_value_t = 10)]
    examples: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Repair the drift.
    #[arg(long)]
    repair: bool,
}

/// Compares SQL with Redis.
pub(super) async fn run(config: &Config, arguments: AuditArguments) -> anyhow::Result<ExitCode> {
    let shutdown = cancelled_by_signal()?;
    let begun = Instant::now();
    let display = Progress::new(None, "{spinner} {msg}");
    let progress = |report: &Report| {
        display.show(report.links, || {
            format!(
                "{} links, {} keys, {} found",
                thousands(report.links),
                thousands(report.keys),
                thousands(report.drift())
            )
        });
    };
    let audit = async |bench: &Workbench| {
        let audit = Audit {
            inspector: Inspector {
                store: Arc::clone(&bench.store),
                index: Arc::clone(&bench.index),
                clock: Arc::clone(&bench.clock),
            },
            examples: arguments.examples,
            repair: arguments.repair,
        };
        tokio::select! {
            report = audit.run(&progress) => Ok(report?),
            () = shutdown.cancelled() => Err(anyhow::anyhow!("interrupted")),
        }
    };
    let report = Workbench::with(config, audit).await;
    display.finish();
    let report = report?;
    let seconds = begun.elapsed().as_secs_f64();
    print(&if arguments.json {
        as_json(&report, seconds)
    } else {
        as_text(&report, seconds, arguments.repair)
    })?;
    let left = report.drift().saturating_sub(report.repaired);
    Ok(match left + u64::from(report.overdue) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(DRIFT),
    })
}

fn as_json(report: &Report, seconds: f64) -> String {
    let found = Kind::ALL.into_iter().zip(report.found);
    let found: serde_json::Map<_, _> = found
        .map(|(kind, count)| (kind.name().to_owned(), json!(count)))
        .collect();
    let examples = report.examples.iter();
    let examples: Vec<_> = examples
        .map(|(kind, code)| json!({ "kind": kind.name(), "code": code }))
        .collect();
    let body = json!({
        "links": report.links,
        "keys": report.keys,
        "drift": found,
        "changing": report.changing,
        "overdue": report.overdue,
        "repaired": report.repaired,
        "examples": examples,
        "seconds": seconds,
    });
    format!("{body}\n")
}

fn as_text(report: &Report, seconds: f64, repairs: bool) -> String {
    let mut text = format!(
        "{} links and {} keys in {seconds:.1} s: ",
        thousands(report.links),
        thousands(report.keys)
    );
    if report.drift() == 0 {
        text.push_str("no drift\n");
    } else {
        let found = Kind::ALL.into_iter().zip(report.found);
        let found: Vec<String> = found
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| format!("{} {}", thousands(count), kind.name()))
            .collect();
        text.push_str(&format!("{}\n", found.join(", ")));
    }
    if report.changing > 0 {
        text.push_str(&format!(
            "{} links were just being changed\n",
            thousands(report.changing)
        ));
    }
    if report.overdue > 0 {
        text.push_str(&format!(
            "{} changes have waited too long for Redis\n",
            thousands(u64::from(report.overdue))
        ));
    }
    for (kind, code) in &report.examples {
        text.push_str(&format!("  {:<9}  {code}\n", kind.name()));
    }
    if repairs {
        text.push_str(&format!("{} repaired\n", thousands(report.repaired)));
    }
    text
}
