//! The running parts: the sidecar, and nginx with the module.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use shortlink_client::Client;

use super::{Finding, PATIENCE};
use crate::config::Config;

/// Requests the sidecar's readiness.
pub(super) async fn readiness(config: &Config) -> Finding {
    let mut address = config.http.listen;
    // A listener on all addresses can be reached on loopback.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let server = format!("http://{address}");
    let asked = async { Client::anonymous(&server, PATIENCE)?.look("/readyz").await };
    let check = "sidecar";
    match asked.await {
        Err(failure) => Finding::fail(check, failure.line(), "start it: systemctl start shortlink"),
        Ok((_, body)) => {
            let told: Value = serde_json::from_slice(&body).unwrap_or_default();
            let Some(status) = told.get("status").and_then(Value::as_str) else {
                let advice = "another program listens on the port of http.listen";
                let found = format!("{server} does not report the state of a sidecar");
                return Finding::fail(check, found, advice);
            };
            let found = format!("{server} is {status}");
            let checks = format!("{found}: {}", told["checks"]);
            match status {
                "ready" => Finding::ok(check, found),
                "degraded" => {
                    let advice = "it works without the parts that are down; restore them";
                    Finding::warn(check, checks, advice)
                }
                _ => {
                    let advice =
                        "restore the parts that are down; links in Redis continue to redirect";
                    Finding::fail(check, checks, advice)
                }
            }
        }
    }
}

/// Requests the version of the running module.
pub(super) async fn module(server: &str) -> Finding {
    let asked = async {
        Client::anonymous(server, PATIENCE)?
            .look("/edge/metrics")
            .await
    };
    let check = "module";
    match asked.await {
        Err(failure) => Finding::fail(
            check,
            failure.line(),
            "start nginx, or pass --server URL of its internal server",
        ),
        Ok((200, body)) => judge(&String::from_utf8_lossy(&body), env!("CARGO_PKG_VERSION")),
        Ok((status, _)) => Finding::warn(
            check,
            format!("{server}/edge/metrics is answered {status}, so its version is unknown"),
            "pass --server URL of nginx's internal server, which has `shortlink_status`",
        ),
    }
}

fn judge(metrics: &str, ours: &str) -> Finding {
    let begin = "shortlink_edge_info{version=\"";
    let mut lines = metrics.lines();
    let version = lines.find_map(|line| line.strip_prefix(begin)?.split('"').next());
    match version {
        Some(version) if version == ours => Finding::ok(
            "module",
            format!("it runs version {version}, like this program"),
        ),
        Some(version) => Finding::warn(
            "module",
            format!("version {version} runs, and this program is {ours}"),
            "install both in the same version; a new module needs an online upgrade of nginx, not a reload",
        ),
        None => Finding::warn(
            "module",
            "the running module does not report its version",
            "pass --server with the URL of nginx' internal server",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn the_module_must_be_of_this_version() {
        let metrics = "# TYPE x gauge\nshortlink_edge_info{version=\"1.2.3\"} 1\n";
        assert_eq!(judge(metrics, "1.2.3").verdict, Verdict::Ok);
        assert_eq!(judge(metrics, "1.2.4").verdict, Verdict::Warn);
        assert_eq!(judge("", "1.2.4").verdict, Verdict::Warn);
    }
}
