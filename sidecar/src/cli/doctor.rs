//! `shortlink doctor`: all checks that an operator makes after a failure, at once.

mod files;
mod keys;
mod nginx;
mod servers;
mod service;
mod sign_in;
mod store;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shortlink_client::DEFAULT_SERVER;

use super::domains::{self, CheckArguments};
use super::{environment, print};
use crate::config::Config;

/// The page of the book that explains each check under a heading of its own.
const PAGE: &str = "docs/src/operations/doctor.md";

/// The folder into which the Debian package installs the book.
const INSTALLED: &str = "/usr/share/doc/shortlink";

/// The clock skew that is harmless, and the one from which links visibly start and expire at the
/// wrong time.
const CLOCKS: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(2), SignedDuration::from_secs(30));

/// The longest wait for any answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of `shortlink doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArguments {
    /// Program file of nginx. Default: the first `nginx` in PATH, /usr/sbin and /usr/local/sbin.
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// Configuration file of nginx (its option -c). Default: the one built into the program.
    #[arg(long, value_name = "FILE")]
    nginx_conf: Option<PathBuf>,
    /// Prefix directory of nginx (its option -p). Default: the one built into the program.
    #[arg(long, value_name = "DIRECTORY")]
    nginx_prefix: Option<PathBuf>,
    /// Skip the checks of nginx, for a machine without it.
    #[arg(long, conflicts_with_all = ["nginx", "nginx_conf", "nginx_prefix"])]
    without_nginx: bool,
    /// Base URL of the internal server of nginx.
    #[arg(long, value_name = "URL", env = "SHORTLINK_SERVER", default_value = DEFAULT_SERVER)]
    server: String,
    /// Warn about API keys that expire within this number of days: 0 to 65535.
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    ends_within: u16,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

impl Verdict {
    /// The verdict on a value with two bounds.
    fn of(is_near: bool, is_beyond: bool) -> Self {
        match (is_near, is_beyond) {
            (_, true) => Self::Fail,
            (true, false) => Self::Warn,
            (false, false) => Self::Ok,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// The name of the check, on which scripts may depend.
    check: &'static str,
    verdict: Verdict,
    /// The finding, in one line.
    found: String,
    /// The advice, in one line.
    advice: Option<String>,
}

impl Finding {
    /// The result of a check; `advice` is only for one that is not well.
    fn new(
        check: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            check,
            verdict,
            found: found.into(),
            advice: (verdict != Verdict::Ok).then(|| advice.into()),
        }
    }

    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, found, "")
    }

    fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warn, found, advice)
    }

    fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(check, Verdict::Fail, found, advice)
    }

    /// The section of the book that explains the check.
    fn section(&self) -> String {
        let installed = Path::new(INSTALLED).join(PAGE);
        let page = if installed.exists() {
            installed
        } else {
            PAGE.into()
        };
        format!("{}#{}", page.display(), self.check)
    }
}

/// Runs all checks. The configuration is read here, since it may be the cause.
pub(super) async fn run(
    file: Option<PathBuf>,
    arguments: &DoctorArguments,
) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    let config = match Config::load(file.as_deref(), environment()) {
        Ok(config) => Some(config),
        Err(error) => {
            let reason = format!("{error:#}");
            let advice = "correct it; `shortlink serve` would not start";
            findings.push(Finding::fail("configuration", reason, advice));
            None
        }
    };
    if let Some(config) = &config {
        findings.push(files::configuration(file.as_deref()));
        findings.extend(files::secrets(config, file.as_deref()));
        let (store, open) = store::examine(config).await;
        findings.extend(store);
        if let Some(store) = open {
            let looked = keys::examine(&store, arguments.ends_within).await;
            store.close().await;
            findings.extend(looked?);
        }
        findings.extend(servers::examine(config).await);
        findings.push(service::readiness(config).await);
        findings.extend(sign_in::examine(config).await);
    }
    if !arguments.without_nginx {
        let (nginx, dump) = nginx::examine(arguments, config.as_ref());
        findings.extend(nginx);
        findings.push(service::module(&arguments.server).await);
        if let (Some(config), Some(file)) =
            (&config, dump.and_then(|it| it.file_of("shortlink_domains")))
        {
            findings.push(domains_of(config, file).await);
        }
    }
    print(&if arguments.json {
        as_json(&findings)
    } else {
        as_text(&findings)
    })?;
    let has_failed = findings.iter().any(|it| it.verdict == Verdict::Fail);
    Ok(if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The findings of `shortlink domains check`.
async fn domains_of(config: &Config, file: PathBuf) -> Finding {
    let shown = file.display().to_string();
    match domains::examine(config, &CheckArguments::of(file)).await {
        Err(error) => Finding::fail("domains", format!("{error:#}"), "correct the line"),
        Ok(examined) if examined.concerns.is_empty() => {
            Finding::ok("domains", format!("{} in {shown}", examined.domains))
        }
        Ok(examined) => Finding::warn(
            "domains",
            examined.concerns.join("; "),
            format!("`shortlink domains check {shown}` shows all of it"),
        ),
    }
}

/// Compares a remote clock with this machine's.
fn clock(check: &'static str, whose: &str, theirs: Timestamp, ours: Timestamp) -> Finding {
    let apart = theirs.duration_since(ours).abs();
    let found = format!("{whose} differs by {:.1} s from here", apart.as_secs_f64());
    let advice = "synchronise both machines by NTP: the validity of links depends on these clocks";
    let (harmless, visible) = CLOCKS;
    Finding::new(
        check,
        Verdict::of(apart >= harmless, apart >= visible),
        found,
        advice,
    )
}

fn as_text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|it| it.check.len()).max();
    let width = width.unwrap_or_default();
    let mut text = String::new();
    for finding in findings {
        let Finding {
            check,
            verdict,
            found,
            advice,
        } = finding;
        let found = one_line(found);
        text.push_str(&format!(
            "{:<4}  {check:<width$}  {found}\n",
            verdict.name()
        ));
        if let Some(advice) = advice {
            let (advice, section) = (one_line(advice), finding.section());
            text.push_str(&format!("{:<4}  {:<width$}  -> {advice}\n", "", ""));
            text.push_str(&format!("{:<4}  {:<width$}     {section}\n", "", ""));
        }
    }
    let count = |verdict| findings.iter().filter(|it| it.verdict == verdict).count();
    let (failed, warned) = (count(Verdict::Fail), count(Verdict::Warn));
    text.push_str(&format!(
        "{} checks: {failed} failed, {warned} with a warning\n",
        findings.len()
    ));
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn as_json(findings: &[Finding]) -> String {
    let checks: Vec<_> = findings
        .iter()
        .map(|finding| {
            json!({
                "check": finding.check,
                "state": finding.verdict.name(),
                "found": finding.found,
                "advice": finding.advice,
                "docs": finding.section(),
            })
        })
        .collect();
    format!("{}\n", json!({ "checks": checks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_what_nobody_notices() {
        let ours = Timestamp::UNIX_EPOCH;
        for (apart, verdict) in [
            (0, Verdict::Ok),
            (-1, Verdict::Ok),
            (2, Verdict::Warn),
            (-29, Verdict::Warn),
            (30, Verdict::Fail),
            (-3600, Verdict::Fail),
        ] {
            let theirs = ours + SignedDuration::from_secs(apart);
            let finding = clock("redis-clock", "its clock", theirs, ours);
            assert_eq!(finding.verdict, verdict, "{apart}");
            assert_eq!(finding.advice.is_some(), verdict != Verdict::Ok);
        }
    }

    #[test]
    fn findings_are_told_with_what_to_do() {
        let findings = [
            Finding::ok("a", "fine"),
            Finding::warn("long-name", "so\nso", "do it"),
            Finding::fail("b", "bad", "hurry"),
        ];
        let text = "ok    a          fine\nwarn  long-name  so so\n                 -> do it\n                    \
                    docs/src/operations/doctor.md#long-name\nfail  b          bad\n                 -> hurry\n                    \
                    docs/src/operations/doctor.md#b\n3 checks: 1 failed, 1 with a warning\n";
        assert_eq!(as_text(&findings), text);
        let told: serde_json::Value = serde_json::from_str(&as_json(&findings)).expect("JSON");
        assert_eq!(told["checks"][2]["state"], "fail");
        assert_eq!(told["checks"][0]["advice"], serde_json::Value::Null);
    }
}
