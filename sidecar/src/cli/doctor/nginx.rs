//! nginx: its installation, its configuration, and the agreement with the sidecar.

mod agreement;
mod dump;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{DoctorArguments, Finding};
use crate::config::Config;
use dump::Dump;

/// Examines the nginx of this machine; also returns its configuration, if that is valid.
pub(super) fn examine(
    arguments: &DoctorArguments,
    config: Option<&Config>,
) -> (Vec<Finding>, Option<Dump>) {
    let mut findings = Vec::new();
    match examined(arguments, &mut findings) {
        Ok(dump) => {
            findings.extend(
                config
                    .into_iter()
                    .flat_map(|it| agreement::examine(&dump, it)),
            );
            (findings, Some(dump))
        }
        Err(fault) => {
            findings.push(fault);
            (findings, None)
        }
    }
}

/// Reads the configuration; the error is the finding that ends the examination.
fn examined(arguments: &DoctorArguments, findings: &mut Vec<Finding>) -> Result<Dump, Finding> {
    let program = arguments.nginx.clone().or_else(installed).ok_or_else(|| {
        let advice = "pass --nginx FILE, or --without-nginx if it runs on another machine";
        Finding::fail("nginx", "there is no nginx in the path", advice)
    })?;
    let shown = program.display();
    let run = |check, words: &[&OsStr]| {
        run(&program, words).map_err(|error| {
            let found = format!("{shown} can't be run: {error}");
            Finding::fail(check, found, "give --nginx FILE")
        })
    };
    let output = run("nginx", &["-v".as_ref()])?;
    if !output.status.success() {
        let found = format!("{shown} -v: {}", said(&output));
        return Err(Finding::fail("nginx", found, "is it nginx?"));
    }
    let version = said(&output);
    let version = version.trim_start_matches("nginx version: ");
    findings.push(Finding::ok("nginx", format!("{shown}, {version}")));
    let mut words: Vec<&OsStr> = vec!["-T".as_ref()];
    if let Some(prefix) = &arguments.nginx_prefix {
        words.extend(["-p".as_ref(), prefix.as_os_str()]);
    }
    if let Some(conf) = &arguments.nginx_conf {
        words.extend(["-c".as_ref(), conf.as_os_str()]);
    }
    let check = "nginx-configuration";
    let output = run(check, &words)?;
    if !output.status.success() {
        return Err(refused(&said(&output)));
    }
    let dump = Dump::read(&String::from_utf8_lossy(&output.stdout));
    if dump.all("shortlink").next().is_none() {
        let found = "it is valid, but no location has `shortlink`";
        let advice = "include shortlink.conf in nginx's `http` block, or pass --nginx-conf FILE";
        return Err(Finding::fail(check, found, advice));
    }
    findings.push(Finding::ok(check, "nginx accepts it"));
    Ok(dump)
}

/// The nginx in the path; it may be where only root looks.
fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let mut programs = places.into_iter().map(|place| place.join("nginx"));
    programs.find(|program| program.is_file())
}

fn run(program: &Path, words: &[&OsStr]) -> std::io::Result<Output> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    command.output()
}

/// The text on standard error.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.trim().to_owned()
}

/// The error of nginx about a configuration that it rejects.
fn refused(said: &str) -> Finding {
    let mut lines = said.lines();
    let reason = lines.find(|line| line.contains("[emerg]") || line.contains("[alert]"));
    let reason = reason.unwrap_or(said).to_owned();
    let check = "nginx-configuration";
    if reason.contains("dlopen()") || reason.contains("is not binary compatible") {
        let advice = "install the module for exactly this nginx; do not restart a running nginx, which continues to work";
        return Finding::fail("module-file", reason, advice);
    }
    if reason.contains("Permission denied") {
        return Finding::warn(check, reason, "run this as root, as nginx is started");
    }
    let advice =
        "correct it before a reload or restart; until then the running nginx uses the old one";
    Finding::fail(check, reason, advice)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_refusal_is_told_by_the_line_that_says_why() {
        for (said, check, verdict) in [
            (
                "nginx: [warn] x\nnginx: [emerg] unknown directive \"y\" in a:1\nnginx: failed",
                "nginx-configuration",
                Verdict::Fail,
            ),
            (
                "nginx: [emerg] dlopen() \"m.so\" failed (m.so: no such file)",
                "module-file",
                Verdict::Fail,
            ),
            (
                "nginx: [emerg] open() \"/run/nginx.pid\" failed (13: Permission denied)",
                "nginx-configuration",
                Verdict::Warn,
            ),
        ] {
            let finding = refused(said);
            assert_eq!((finding.check, finding.verdict), (check, verdict));
            assert!(finding.found.contains("[emerg]"), "{}", finding.found);
        }
    }
}
