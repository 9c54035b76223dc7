//! Redis: its reachability, role, persistence and permissions.

use shortlink_core::clock::{Clock, SystemClock};
use shortlink_publisher::{self as publisher, RedisOptions, ServerCondition};

use super::{Finding, PATIENCE, clock};
use crate::config::Config;

/// The oldest version, major and minor, that has all commands of the sidecar (`XAUTOCLAIM` is the
/// newest). The module needs 6.0.
const OLDEST: (u32, u32) = (6, 2);

/// Examines every server that is written to.
pub(super) async fn examine(config: &Config) -> Vec<Finding> {
    let options = RedisOptions {
        timeout: config.redis.timeout.max(PATIENCE),
        ..config.redis.clone()
    };
    match publisher::examine(&options).await {
        Ok(servers) => {
            let mut findings = Vec::new();
            for server in servers {
                findings.extend(judge(&server));
                if let Some(theirs) = server.now {
                    let whose = format!("the clock of {}", server.address);
                    findings.push(clock("redis-clock", &whose, theirs, SystemClock.now()));
                }
            }
            findings
        }
        Err(error) => {
            let advice = "check that it runs and that redis.url is right; links continue to redirect through the \
                          sidecar";
            let found = format!("{:#}", anyhow::Error::new(error));
            vec![Finding::fail("redis", found, advice)]
        }
    }
}

fn judge(server: &ServerCondition) -> Vec<Finding> {
    let address = &server.address;
    let mut numbers = server.version.split('.').map(str::parse::<u32>);
    let is_old = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < OLDEST,
        _ => false,
    };
    let mut findings = vec![if server.version.is_empty() {
        let found = format!("{address} does not report its version");
        Finding::warn("redis", found, "allow its user +info")
    } else if is_old {
        let found = format!("{address} is {} {}", server.program, server.version);
        Finding::fail("redis", found, "install version 6.2 or newer")
    } else if server.role != "master" {
        let found = format!("{address} is a replica, which takes no changes");
        let advice = "set redis.url to the master, or set redis.topology";
        Finding::fail("redis", found, advice)
    } else {
        let found = format!("{address}, {} {}", server.program, server.version);
        Finding::ok("redis", found)
    }];
    if !server.maxmemory_policy.is_empty() {
        let policy = &server.maxmemory_policy;
        findings.push(if policy == "noeviction" {
            Finding::ok("redis-memory", format!("{address} evicts nothing"))
        } else {
            let found = format!("{address} evicts links and visits when it is full ({policy})");
            let advice = "set maxmemory-policy noeviction, and add memory before it is full";
            Finding::fail("redis-memory", found, advice)
        });
    }
    if !server.version.is_empty() {
        findings.push(if server.write_failed {
            let found = format!("{address} could not write its append-only file");
            Finding::fail(
                "redis-persistence",
                found,
                "check its log and the free space on its disk",
            )
        } else if server.has_append_only_file {
            Finding::ok(
                "redis-persistence",
                format!("{address} writes an append-only file"),
            )
        } else {
            let found = format!("{address} writes no append-only file");
            let advice =
                "appendonly yes: else a restart loses visits, and links until they are rebuilt";
            Finding::warn("redis-persistence", found, advice)
        });
    }
    findings.push(if server.forbidden.is_empty() {
        Finding::ok(
            "redis-rights",
            format!("{address} allows all commands that are needed"),
        )
    } else {
        let commands = &server.forbidden;
        let found = format!("{address} does not allow {}", commands.join(", "));
        let rights: Vec<String> = commands.iter().map(|it| format!("+{it}")).collect();
        let advice = format!(
            "ACL SETUSER <user> {}, and keys ~<prefix>*",
            rights.join(" ")
        );
        Finding::fail("redis-rights", found, advice)
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn server() -> ServerCondition {
        ServerCondition {
            address: "a:1".to_owned(),
            program: "redis".to_owned(),
            version: "7.0.15".to_owned(),
            role: "master".to_owned(),
            maxmemory_policy: "noeviction".to_owned(),
            has_append_only_file: true,
            write_failed: false,
            now: None,
            forbidden: Vec::new(),
        }
    }

    #[test]
    fn what_is_wrong_with_a_server_is_found() {
        let well = judge(&server());
        assert!(well.iter().all(|it| it.verdict == Verdict::Ok), "{well:?}");
        assert_eq!(well[0].found, "a:1, redis 7.0.15");
        type Break = fn(&mut ServerCondition);
        let breaks: [(Break, &str, Verdict); 7] = [
            (
                |it| it.version = "6.0.16".to_owned(),
                "redis",
                Verdict::Fail,
            ),
            (|it| it.version = String::new(), "redis", Verdict::Warn),
            (|it| it.role = "slave".to_owned(), "redis", Verdict::Fail),
            (
                |it| it.maxmemory_policy = "allkeys-lru".to_owned(),
                "redis-memory",
                Verdict::Fail,
            ),
            (
                |it| it.has_append_only_file = false,
                "redis-persistence",
                Verdict::Warn,
            ),
            (
                |it| it.write_failed = true,
                "redis-persistence",
                Verdict::Fail,
            ),
            (
                |it| it.forbidden = vec!["xadd".to_owned()],
                "redis-rights",
                Verdict::Fail,
            ),
        ];
        for (break_it, check, verdict) in breaks {
            let mut server = server();
            break_it(&mut server);
            let found = judge(&server);
            let finding = found.iter().find(|it| it.verdict != Verdict::Ok);
            let finding = finding.expect("a finding");
            assert_eq!((finding.check, finding.verdict), (check, verdict));
            assert!(finding.advice.is_some());
        }
    }
}
