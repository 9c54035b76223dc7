//! `shortlink reclassify`

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use jiff::Timestamp;
use shortlink_client::output::{print, thousands};
use shortlink_client::progress::Progress;
use shortlink_core::ports::TimeSpan;
use shortlink_core::visit::class::RULESET;
use shortlink_enrich::agents::AgentReader;
use shortlink_service::jobs::Outcome;
use shortlink_service::reclassify::{Reclassify, Report};

use super::workbench::Workbench;
use crate::config::Config;
use crate::lifecycle::cancelled_by_signal;
use crate::transfer::moment::{self, Moment};

/// The exit code for a rehearsal that has found something to be changed.
const CHANGES: u8 = 2;

/// Options of a reclassification: the visits, and how far it goes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ReclassifyArguments {
    /// Only visits at or after this time: 2026-06-01 (UTC), or 2026-06-01T12:00:00Z. Default: from
    /// the first visit.
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<Timestamp>,
    /// Only visits before this time. Default: up to the last visit.
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<Timestamp>,
    /// Report the visits that would change, without changing them.
    #[arg(long)]
    dry_run: bool,
}

fn parse_moment(text: &str) -> Result<Timestamp, String> {
    match moment::parse(text) {
        Some(Moment::At(moment)) => Ok(moment),
        Some(Moment::None) | None => {
            Err("not a time like 2026-06-01 or 2026-06-01T12:00:00Z".to_owned())
        }
    }
}

/// Classifies stored visits again.
pub(super) async fn run(
    config: &Config,
    arguments: ReclassifyArguments,
) -> anyhow::Result<ExitCode> {
    let ReclassifyArguments {
        since,
        until,
        dry_run,
    } = arguments;
    if let (Some(since), Some(until)) = (since, until)
        && since >= until
    {
        bail!("--since must be before --until");
    }
    let agents = AgentReader::new(config.visits.remembered_agents)?;
    let shutdown = cancelled_by_signal()?;
    let begun = Instant::now();
    let display = Progress::of_items("visits");
    let mut progress = |report: Option<&Report>| match report {
        Some(report) => display.show_items("visits", report.reached, report.total, 0),
        None => eprintln!(
            "shortlink: another process counts unique visitors again, or was killed; waiting"
        ),
    };
    let done = Workbench::with(config, async |bench| {
        let reclassify = Reclassify {
            store: Arc::clone(&bench.store),
            agents: Arc::new(agents),
            time: TimeSpan { since, until },
            hours_since: config
                .visits
                .hours_retention
                .and_then(|kept| bench.clock.now().checked_sub(kept).ok()),
            is_rehearsal: dry_run,
        };
        let done = reclassify.run(&bench.claims, &shutdown, &mut progress);
        Ok(done.await?)
    });
    let done = done.await;
    display.finish();
    let (outcome, report) = done?;
    print(&as_text(&report, begun.elapsed().as_secs_f64(), dry_run))?;
    if outcome == Outcome::Stopped {
        bail!("interrupted; the next run finds what is left");
    }
    Ok(if dry_run && report.changes() > 0 {
        ExitCode::from(CHANGES)
    } else {
        ExitCode::SUCCESS
    })
}

fn as_text(report: &Report, seconds: f64, is_rehearsal: bool) -> String {
    let changes = if is_rehearsal {
        format!("{} would change", thousands(report.changes()))
    } else {
        format!("{} changed", thousands(report.written))
    };
    let mut text = format!(
        "{} visits in {seconds:.1} s ({} visits/s), by ruleset {RULESET}: {changes}\n",
        thousands(report.visits),
        thousands((report.visits as f64 / seconds.max(1e-9)) as u64),
    );
    for (from, to, visits) in report.moves() {
        let (from, to, visits) = (from.name(), to.name(), thousands(visits));
        // Into a string nothing fails.
        let _ = if from == to {
            writeln!(text, "  {from}, for another reason or agent: {visits}")
        } else {
            writeln!(text, "  {from} to {to}: {visits}")
        };
    }
    if !is_rehearsal {
        let elsewhere = report.changes().saturating_sub(report.written);
        if elsewhere > 0 {
            let elsewhere = thousands(elsewhere);
            let _ = writeln!(
                text,
                "  changed or deleted by others meanwhile: {elsewhere}"
            );
        }
        if report.days > 0 {
            let days = thousands(report.days);
            let _ = writeln!(text, "  days with recounted unique visitors: {days}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_goes_where() {
        let mut report = Report {
            visits: 12_345,
            written: 1_003,
            days: 2,
            ..Report::default()
        };
        report.found[0][3] = 1_000;
        report.found[1][1] = 5;
        let text = as_text(&report, 2.0, false);
        assert_eq!(
            text,
            format!(
                "12,345 visits in 2.0 s (6,172 visits/s), by ruleset {RULESET}: 1,003 changed\n  \
                 human to bot: 1,000\n  \
                 preview, for another reason or agent: 5\n  \
                 changed or deleted by others meanwhile: 2\n  \
                 days with recounted unique visitors: 2\n"
            )
        );
        let text = as_text(&report, 2.0, true);
        assert!(text.contains("1,005 would change"), "{text}");
        assert!(!text.contains("others"), "{text}");
    }

    #[test]
    fn times_are_read_as_everywhere() {
        for text in [
            "2026-06-01",
            "2026-06-01T00:00:00Z",
            "2026-06-01T02:00:00+02:00",
        ] {
            let moment = parse_moment(text).expect("a time");
            assert_eq!(moment.to_string(), "2026-06-01T00:00:00Z");
        }
        for text in ["", "0", "yesterday", "2026-13-01"] {
            assert!(parse_moment(text).is_err(), "{text}");
        }
    }
}
