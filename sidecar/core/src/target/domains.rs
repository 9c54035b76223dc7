//! Rules for the domains of targets.
//!
//! Hosts are compared as the URL standard serialises them: names in lower case and as A-labels
//! (punycode), addresses as numbers. All spellings of a host (Unicode, percent-encoding,
//! full-width letters, an octal address) are equal here if they are to a browser.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use url::{Host, Url};

use super::Target;

/// One rule: a name and all below it, just a name, or an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DomainRule {
    /// `example.com`: this name and all names below it.
    Below(String),
    /// `=example.com`: just this name.
    Exact(String),
    /// `203.0.113.9`, `2001:db8::1`: just this address. Nothing is below an address.
    Address(IpAddr),
}

impl FromStr for DomainRule {
    type Err = DomainRuleError;

    fn from_str(text: &str) -> Result<Self, DomainRuleError> {
        let (is_exact, name) = match text.strip_prefix('=') {
            Some(name) => (true, name),
            None => (false, text),
        };
        if let Ok(address) = name.parse::<Ipv6Addr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let refused = || DomainRuleError {
            text: text.to_owned(),
        };
        // A URL's host may be percent-encoded; in a rule this is a mistake.
        if name.contains('%') {
            return Err(refused());
        }
        let name = match Host::parse(name).map_err(|_error| refused())? {
            Host::Domain(name) => name,
            Host::Ipv4(address) => return Ok(Self::Address(address.into())),
            Host::Ipv6(address) => return Ok(Self::Address(address.to_canonical())),
        };
        let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
        // The standard accepts names that can't exist in the DNS, such as `*.example.com`.
        let is_label = |label: &str| {
            let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !label.is_empty() && label.bytes().all(is_of_name)
        };
        if !name.split('.').all(is_label) {
            return Err(refused());
        }
        Ok(if is_exact {
            Self::Exact(name)
        } else {
            Self::Below(name)
        })
    }
}

impl fmt::Display for DomainRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(name) => write!(f, "{name}"),
            Self::Exact(name) => write!(f, "={name}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// A text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a domain: write example.com for it and all below, =example.com for just it, or \
     an IP address"
)]
pub struct DomainRuleError {
    /// The text.
    pub text: String,
}

/// A set of rules. A look-up takes as many steps as the host has labels, however many rules there
/// are: a deny list may be long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainRules(
    /// In their own order.
    Vec<DomainRule>,
);

impl DomainRules {
    /// Reports whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules, in an order of their own.
    pub fn iter(&self) -> impl Iterator<Item = &DomainRule> {
        self.0.iter()
    }

    /// Reports whether a rule matches a host.
    fn match_host(&self, host: &TargetHost<'_>) -> bool {
        let name = match host {
            TargetHost::Address(address) => {
                return self.0.binary_search(&DomainRule::Address(*address)).is_ok();
            }
            TargetHost::Name(name) => *name,
        };
        let mut dots = name.match_indices('.');
        self.has(true, name)
            || self.has(false, name)
            || dots.any(|(dot, _)| self.has(false, &name[dot + 1..]))
    }

    /// Reports whether there is the rule of a name, for just it or for it and all below.
    fn has(&self, is_exact: bool, name: &str) -> bool {
        let found = self.0.binary_search_by(|rule| match rule {
            DomainRule::Below(rule) => (false, rule.as_str()).cmp(&(is_exact, name)),
            DomainRule::Exact(rule) => (true, rule.as_str()).cmp(&(is_exact, name)),
            DomainRule::Address(_) => Ordering::Greater,
        });
        found.is_ok()
    }
}

impl Serialize for DomainRules {
    /// A list of the rules' texts.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(DomainRule::to_string))
    }
}

impl FromIterator<DomainRule> for DomainRules {
    fn from_iter<I: IntoIterator<Item = DomainRule>>(rules: I) -> Self {
        let rules: BTreeSet<DomainRule> = rules.into_iter().collect();
        Self(rules.into_iter().collect())
    }
}

/// The domains that links of the whole service may and may not lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetDomains {
    /// Allowed domains; empty for all.
    pub allowed: DomainRules,
    /// Denied domains, even if another rule allows them.
    pub denied: DomainRules,
}

impl TargetDomains {
    /// Checks that both the service and the key, if it has rules, allow a target for a new link.
    ///
    /// # Errors
    /// Fails if one of them does not.
    pub fn check(&self, target: &Target, of_key: Option<&DomainRules>) -> Result<(), DomainError> {
        if self.allowed.is_empty() && self.denied.is_empty() && of_key.is_none() {
            return Ok(());
        }
        // A target is a URL in serialised form; one that could not be read again is let through
        // by no list.
        let url = Url::parse(target.as_str()).map_err(|_error| DomainError::Unreadable)?;
        let host = url.host().ok_or(DomainError::Unreadable)?;
        let host = TargetHost::new(&host);
        if self.denied.match_host(&host) {
            return Err(DomainError::Denied);
        }
        if !self.allowed.is_empty() && !self.allowed.match_host(&host) {
            return Err(DomainError::NotAllowed);
        }
        if of_key.is_some_and(|allowed| !allowed.match_host(&host)) {
            return Err(DomainError::NotAllowedToKey);
        }
        Ok(())
    }
}

/// Reason for the refusal of a target's domain, worded for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// It is on the deny list.
    #[error("must not lead to this domain: it is denied here")]
    Denied,
    /// It is not on the allow list.
    #[error("must lead to one of the domains that are allowed here")]
    NotAllowed,
    /// It is not on the API key's allow list.
    #[error("must lead to one of the domains that this API key allows")]
    NotAllowedToKey,
    /// It can't be found out.
    #[error("must be a URL with a host")]
    Unreadable,
}

/// A host as it is compared.
enum TargetHost<'a> {
    Name(&'a str),
    Address(IpAddr),
}

impl<'a> TargetHost<'a> {
    fn new(host: &'a Host<&str>) -> Self {
        match host {
            // The parser has converted it to A-labels in lower case. A resolver takes
            // `example.com.` for `example.com`.
            Host::Domain(name) => Self::Name(name.trim_end_matches('.')),
            Host::Ipv4(address) => Self::Address((*address).into()),
            // `::ffff:203.0.113.9` is another spelling of 203.0.113.9.
            Host::Ipv6(address) => Self::Address(address.to_canonical()),
        }
    }
}

#[cfg(test)]
mod tests;
