//! The URL of a database: one host, or several with one primary among them, in the syntax of libpq.
//!
//! sqlx reads one host per URL, so a URL of several becomes a URL for each of them.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

/// The parameter by which clients of libpq select a server, and its values that name the primary, or may name a replica.
const ATTRIBUTES: &str = "target_session_attrs";
pub(super) const OF_PRIMARY: [&str; 2] = ["read-write", "primary"];
pub(super) const OF_REPLICA: [&str; 4] = ["any", "standby", "prefer-standby", "read-only"];

/// The fault of a URL. None contains a part that could be of a password.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL, or a parameter is invalid.
    #[error(transparent)]
    Invalid(#[from] sqlx::Error),
    /// A host of a list has no name.
    #[error("host {place} of {hosts} is empty")]
    Host {
        /// Its place in the list, from 1.
        place: usize,
        /// The number of hosts.
        hosts: usize,
    },
    /// A port is not a number of the right size.
    #[error("port {place} is {port:?}, but must be a number from 1 to 65535")]
    Port {
        /// Its place in the list, from 1.
        place: usize,
        /// The text in its place.
        port: String,
    },
    /// The text after a colon may be a part of a password, and not a port.
    #[error(
        "a \"/\", \"?\" or \"#\" in the user name or the password must be percent-encoded, as %2F, %3F or %23"
    )]
    Password,
    /// The numbers of hosts and ports differ.
    #[error(
        "it has {hosts} hosts and {ports} ports; allowed is one port for all hosts, or one for each"
    )]
    Ports {
        /// The number of hosts.
        hosts: usize,
        /// The number of ports.
        ports: usize,
    },
    /// A server of another role is asked for.
    #[error("{ATTRIBUTES} is {value:?}, but must be {}", either(.allowed))]
    Attributes {
        /// The value.
        value: String,
        /// The allowed values.
        allowed: &'static [&'static str],
    },
}

fn either(values: &[&str]) -> String {
    values.join(" or ")
}

/// Returns the options of sessions, for each host of a URL.
pub(super) fn parse(
    url: &str,
    attributes: &'static [&'static str],
) -> Result<Vec<PgConnectOptions>, UrlError> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Ok(vec![PgConnectOptions::from_str(url)?]);
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (user, list) = match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    };
    let may_be_password = !authority.contains('@') && rest.contains('@');
    let (rest, _fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));

    let (mut hosts, mut ports): (Vec<_>, Vec<_>) = list.split(',').map(host_and_port).unzip();
    let (mut named, mut others) = (None, Vec::new());
    for parameter in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            ATTRIBUTES if attributes.contains(&value) => {}
            ATTRIBUTES => {
                return Err(UrlError::Attributes {
                    value: value.to_owned(),
                    allowed: attributes,
                });
            }
            "host" | "hostaddr" => {
                hosts = value.split(',').collect();
                named = Some(name);
            }
            "port" => ports = value.split(',').collect(),
            _ => others.push(parameter),
        }
    }
    if hosts.len() > 1
        && let Some(empty) = hosts.iter().position(|host| host.is_empty())
    {
        return Err(UrlError::Host {
            place: empty + 1,
            hosts: hosts.len(),
        });
    }
    if ports.len() != 1 && ports.len() != hosts.len() {
        return Err(UrlError::Ports {
            hosts: hosts.len(),
            ports: ports.len(),
        });
    }
    for (place, port) in ports.iter().enumerate() {
        let is_good = port.is_empty() || port.parse::<u16>().is_ok_and(|port| port > 0);
        if !is_good && may_be_password {
            return Err(UrlError::Password);
        }
        if !is_good {
            return Err(UrlError::Port {
                place: place + 1,
                port: (*port).to_owned(),
            });
        }
    }
    let ports = ports.iter().cycle();
    let each = hosts.iter().zip(ports).map(|(host, port)| {
        let mut parameters = others.clone();
        let (host_parameter, port) = (
            named.map(|name| format!("{name}={host}")),
            format!("port={port}"),
        );
        parameters.extend(host_parameter.as_deref());
        if !port.ends_with('=') {
            parameters.push(&port);
        }
        let authority = match named {
            None => *host,
            // A URL with a user has a host, which the parameter overrides.
            Some(_) if user.is_empty() => "",
            Some(_) => "localhost",
        };
        let parameters = parameters.join("&");
        let one = format!("{scheme}://{user}{authority}{path}?{parameters}");
        Ok(PgConnectOptions::from_str(&one)?)
    });
    each.collect()
}

/// Splits a host and its port, which may be missing. A colon within brackets belongs to the host.
fn host_and_port(text: &str) -> (&str, &str) {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts and ports of a URL; the directory of a socket instead of a host.
    fn servers(url: &str) -> Vec<String> {
        let hosts = parse(url, &OF_PRIMARY).unwrap_or_else(|error| panic!("{url}: {error}"));
        let hosts = hosts.iter().map(|host| match host.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", host.get_host(), host.get_port()),
        });
        hosts.collect()
    }

    #[test]
    fn each_host_has_its_port() {
        for (url, expected) in [
            ("postgres://h1/links", &["h1:5432"][..]),
            (
                "postgres://u:p@h1:1,h2:2,h3/links",
                &["h1:1", "h2:2", "h3:5432"],
            ),
            ("postgres://u:a%2Fb,c@d@h1:1,h2:2/links", &["h1:1", "h2:2"]),
            (
                "postgresql://[::1]:7,[fe80::1]/links",
                &["[::1]:7", "[fe80::1]:5432"],
            ),
            ("postgres://h1,h2/links?port=7", &["h1:7", "h2:7"]),
            ("postgres://h1:1,h2:2/links?port=7,8", &["h1:7", "h2:8"]),
            ("postgres:///links?host=h1,h2&port=1,2", &["h1:1", "h2:2"]),
            ("postgres://u:p@/links?host=h1,h2&port=7", &["h1:7", "h2:7"]),
            (
                "postgres://u@h9/links?hostaddr=10.0.0.1,10.0.0.2",
                &["10.0.0.1:5432", "10.0.0.2:5432"],
            ),
            (
                "postgres://u@%2Frun%2Fa,%2Frun%2Fb/links",
                &["/run/a", "/run/b"],
            ),
            (
                "postgres:///links?host=%2Frun%2Fa,h2",
                &["/run/a", "h2:5432"],
            ),
        ] {
            assert_eq!(servers(url), expected, "{url}");
        }
    }

    #[test]
    fn all_hosts_share_the_rest() {
        let url = "postgres://me:p%40w@h1,h2/links?target_session_attrs=read-write&sslmode=require\
                   &application_name=x#y";
        for host in parse(url, &OF_PRIMARY).expect("a URL") {
            assert_eq!(host.get_username(), "me");
            assert_eq!(host.get_database(), Some("links"));
            assert_eq!(host.get_application_name(), Some("x"));
            assert!(matches!(
                host.get_ssl_mode(),
                sqlx::postgres::PgSslMode::Require
            ));
        }
    }

    #[test]
    fn a_fault_is_named_without_the_password() {
        for (url, expected) in [
            ("postgres://u:secret@h1:0/links", "port 1 is \"0\""),
            (
                "postgres://u:secret@h1:1,h2:x/links",
                "port 2 is \"x\", but must be",
            ),
            ("postgres://h1,h2/links?port=70000", "port 1 is \"70000\""),
            (
                "postgres://u:secret/secret@h1:1,h2/links",
                "must be percent-encoded",
            ),
            ("postgres://u:secret@h1,,h3/links", "host 2 of 3 is empty"),
            (
                "postgres://u:secret@h1,h2,h3/links?port=1,2",
                "3 hosts and 2 ports",
            ),
            (
                "postgres://u:secret@h1/links?port=1,2",
                "1 hosts and 2 ports",
            ),
            (
                "postgres://u:secret@h1/links?target_session_attrs=any",
                "is \"any\", but must be read-write or primary",
            ),
            (
                "postgres://u:secret@h1,h2/links?target_session_attrs=",
                "is \"\", but must be",
            ),
            ("postgres://u:secret@h1,h 2/links", "invalid"),
            ("postgres://u:secret@h1/links?sslmode=secure", "\"secure\""),
        ] {
            let said = parse(url, &OF_PRIMARY).expect_err(url).to_string();
            assert!(said.contains(expected), "{url}: {said}");
            assert!(!said.contains("secret"), "{url}: {said}");
        }
    }
}
