//! The short domains and their states: what `domains.conf` says.
//!
//! Only nginx knows domains. Links, codes and the sidecar do not: a domain is swapped by editing
//! this table and reloading.

use std::fmt;

/// What a domain is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainState {
    /// Follows links and is put into new short URLs.
    Active,
    /// Follows links.
    Serving,
    /// Was a short domain and answers 410.
    Retired,
}

impl DomainState {
    /// The name of each state, for messages that list what is allowed.
    pub const NAMES: &'static str = "active, serving, retired";

    /// Finds a state by its name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        match name {
            b"active" => Some(Self::Active),
            b"serving" => Some(Self::Serving),
            b"retired" => Some(Self::Retired),
            _ => None,
        }
    }

    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Serving => "serving",
            Self::Retired => "retired",
        }
    }
}

/// Why an entry or the table is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainError {
    /// The name is not a host name.
    Name(String),
    /// The name stands in the table already.
    Twice(String),
    /// The state is none.
    State(String),
    /// A parameter is none.
    Parameter(String),
    /// No domain is active, so that new links could not be given a short URL.
    NoneActive,
}

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "\"{name}\" is not a domain: give the host name alone, in lower case and punycode, \
                 without scheme, port or path"
            ),
            Self::Twice(name) => write!(f, "domain \"{name}\" is listed twice"),
            Self::State(state) => write!(
                f,
                "unknown state \"{state}\" of a domain: it is one of {}",
                DomainState::NAMES
            ),
            Self::Parameter(parameter) => write!(
                f,
                "unknown parameter \"{parameter}\" of a domain: allowed are scheme=http, \
                 scheme=https and port=1 to port=65535"
            ),
            Self::NoneActive => {
                f.write_str("no domain is active: new links would have no short URL")
            }
        }
    }
}

impl std::error::Error for DomainError {}

/// The table of short domains.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    /// Names and states, in the order of the names.
    sorted: Vec<(Box<[u8]>, DomainState)>,
    /// What new short URLs begin with, from the first active name; empty while there is none.
    active_base: String,
    /// All names, parted by commas, in the order of the table.
    names: String,
}

impl Domains {
    /// Adds an entry: a name, its state, and `scheme=…` and `port=…` for short URLs.
    ///
    /// # Errors
    /// When the entry is not right; the table is as before.
    pub fn add(
        &mut self,
        name: &[u8],
        state: &[u8],
        parameters: &[&[u8]],
    ) -> Result<(), DomainError> {
        if !is_host_name(name) {
            return Err(DomainError::Name(text(name)));
        }
        let place = match self
            .sorted
            .binary_search_by(|(known, _)| known[..].cmp(name))
        {
            Ok(_) => return Err(DomainError::Twice(text(name))),
            Err(place) => place,
        };
        let state = DomainState::by_name(state).ok_or_else(|| DomainError::State(text(state)))?;
        let mut scheme = "https";
        let mut port = None;
        for parameter in parameters {
            let refused = || DomainError::Parameter(text(parameter));
            match *parameter {
                b"scheme=http" => scheme = "http",
                b"scheme=https" => scheme = "https",
                _ => {
                    let digits = parameter.strip_prefix(b"port=").ok_or_else(refused)?;
                    let number = vocabulary::number::parse_decimal(digits)
                        .filter(|number| (1..=65535).contains(number));
                    port = Some(number.ok_or_else(refused)?);
                }
            }
        }
        let name_text = text(name);
        if state == DomainState::Active && self.active_base.is_empty() {
            self.active_base = format!("{scheme}://{name_text}");
            if let Some(port) = port {
                self.active_base.push_str(&format!(":{port}"));
            }
        }
        if !self.names.is_empty() {
            self.names.push(',');
        }
        self.names.push_str(&name_text);
        self.sorted.insert(place, (name.into(), state));
        Ok(())
    }

    /// Says that the table is whole.
    ///
    /// # Errors
    /// When no domain is active.
    pub fn finish(&self) -> Result<(), DomainError> {
        if self.active_base.is_empty() {
            Err(DomainError::NoneActive)
        } else {
            Ok(())
        }
    }

    /// The state of a host, as nginx normalised it (lower case, without port and final dot), or
    /// `None` when it is not in the table.
    pub fn state(&self, host: &[u8]) -> Option<DomainState> {
        let place = self
            .sorted
            .binary_search_by(|(known, _)| known[..].cmp(host))
            .ok()?;
        Some(self.sorted[place].1)
    }

    /// What new short URLs begin with, such as `https://s.example.com`.
    pub fn active_base(&self) -> &str {
        &self.active_base
    }

    /// All names, parted by commas.
    pub fn names(&self) -> &str {
        &self.names
    }
}

/// Whether a name is a host as nginx normalises it: lower-case letters, digits, hyphens and dots,
/// or an IPv6 address in brackets.
fn is_host_name(name: &[u8]) -> bool {
    if let [b'[', address @ .., b']'] = name {
        return !address.is_empty()
            && address
                .iter()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b':' | b'.'));
    }
    name.len() <= 253
        && name.split(|&byte| byte == b'.').all(|label| {
            (1..=63).contains(&label.len())
                && label
                    .iter()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
                && label[0] != b'-'
                && label[label.len() - 1] != b'-'
        })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, &str, &[&str])]) -> Result<Domains, DomainError> {
        let mut domains = Domains::default();
        for (name, state, parameters) in entries {
            let parameters: Vec<&[u8]> = parameters.iter().map(|p| p.as_bytes()).collect();
            domains.add(name.as_bytes(), state.as_bytes(), &parameters)?;
        }
        domains.finish()?;
        Ok(domains)
    }

    #[test]
    fn the_first_active_name_makes_the_base_and_all_are_known() {
        let domains = table(&[
            ("old.example.com", "retired", &[]),
            ("b.example.com", "serving", &["scheme=http"]),
            ("a.example.com", "active", &["port=8443"]),
            ("c.example.com", "active", &[]),
        ])
        .expect("a table");
        assert_eq!(domains.active_base(), "https://a.example.com:8443");
        assert_eq!(
            domains.names(),
            "old.example.com,b.example.com,a.example.com,c.example.com"
        );
        assert_eq!(domains.state(b"a.example.com"), Some(DomainState::Active));
        assert_eq!(domains.state(b"b.example.com"), Some(DomainState::Serving));
        assert_eq!(
            domains.state(b"old.example.com"),
            Some(DomainState::Retired)
        );
        assert_eq!(domains.state(b"example.com"), None);
        assert_eq!(domains.state(b""), None);
    }

    #[test]
    fn wrong_tables_are_refused() {
        let name = |name: &str| DomainError::Name(name.to_owned());
        for wrong in [
            "",
            "https://a.example",
            "a.example/x",
            "a.example:80",
            "A.example",
            "a..b",
            "-a",
            "é.cn",
            "*.a",
        ] {
            assert_eq!(table(&[(wrong, "active", &[])]).unwrap_err(), name(wrong));
        }
        assert_eq!(table(&[]).unwrap_err(), DomainError::NoneActive);
        assert_eq!(
            table(&[("a.b", "serving", &[])]).unwrap_err(),
            DomainError::NoneActive
        );
        assert_eq!(
            table(&[("a.b", "on", &[])]).unwrap_err(),
            DomainError::State("on".to_owned())
        );
        assert_eq!(
            table(&[("a.b", "active", &[]), ("a.b", "serving", &[])]).unwrap_err(),
            DomainError::Twice("a.b".to_owned())
        );
        for parameter in [
            "port=0",
            "port=65536",
            "port=",
            "scheme=ftp",
            "weight=1",
            "port=08",
        ] {
            assert_eq!(
                table(&[("a.b", "active", &[parameter])]).unwrap_err(),
                DomainError::Parameter(parameter.to_owned())
            );
        }
    }

    #[test]
    fn addresses_are_names_too() {
        let domains = table(&[("127.0.0.1", "active", &[]), ("[::1]", "serving", &[])]);
        let domains = domains.expect("a table");
        assert_eq!(domains.state(b"[::1]"), Some(DomainState::Serving));
    }
}
