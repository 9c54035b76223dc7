//! A domain's certificate, as it is in its file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use vocabulary::domains::Domain;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

/// The contents of the file.
struct Facts {
    /// Time of expiry.
    ends_at: Timestamp,
    /// The names that it is for.
    names: Vec<String>,
}

/// A certificate, or the reason why there is none.
pub(super) struct Certificate {
    path: PathBuf,
    facts: anyhow::Result<Facts>,
}

impl Certificate {
    /// Reads it, and checks that its private key can be read.
    pub(super) fn read(path: &Path, key: &Path) -> Self {
        let facts = facts(path).and_then(|facts| {
            File::open(key).with_context(|| format!("its key {} can't be read", key.display()))?;
            Ok(facts)
        });
        Self {
            path: path.to_owned(),
            facts,
        }
    }

    /// The fault of the certificate for a domain, if any.
    pub(super) fn concern(
        &self,
        domain: &Domain,
        now: Timestamp,
        soon: Timestamp,
    ) -> Option<String> {
        let facts = match &self.facts {
            Ok(facts) => facts,
            Err(error) => return Some(format!("no certificate: {error:#}")),
        };
        let path = self.path.display();
        if !facts.names.iter().any(|name| covers(name, domain)) {
            let names = facts.names.join(", ");
            return Some(format!(
                "the certificate {path} is not for it, but for {names}"
            ));
        }
        let ends = day(facts.ends_at);
        if facts.ends_at <= now {
            return Some(format!("the certificate {path} has ended on {ends}"));
        }
        let days = facts.ends_at.duration_since(now).as_hours() / 24;
        (facts.ends_at <= soon)
            .then(|| format!("the certificate {path} ends on {ends}, in {days} days"))
    }

    /// It in a few words.
    pub(super) fn summary(&self) -> String {
        match &self.facts {
            Ok(facts) => format!("until {}", day(facts.ends_at)),
            Err(_) => "none".to_owned(),
        }
    }

    /// It as JSON.
    pub(super) fn as_json(&self) -> Value {
        match &self.facts {
            Ok(facts) => json!({
                "file": self.path,
                "endsAt": facts.ends_at,
                "names": facts.names,
            }),
            Err(error) => json!({ "file": self.path, "error": format!("{error:#}") }),
        }
    }
}

/// Reads the first certificate of a file: that of the name; the others have signed it.
fn facts(path: &Path) -> anyhow::Result<Facts> {
    let shown = path.display();
    let bytes = fs::read(path).with_context(|| format!("{shown} can't be read"))?;
    let pem = Pem::iter_from_buffer(&bytes).next();
    let pem = pem.with_context(|| format!("{shown} has no certificate"))?;
    let pem = pem.with_context(|| format!("{shown} is not in the format PEM"))?;
    let certificate = pem.parse_x509();
    let certificate = certificate.with_context(|| format!("{shown} has no certificate"))?;
    let ends_at = Timestamp::from_second(certificate.validity().not_after.timestamp())?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let names = alternatives
        .into_iter()
        .flat_map(|it| &it.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Ok(Facts {
        ends_at,
        names: names.collect(),
    })
}

/// Reports whether a name in a certificate covers a domain: equal, or `*.` for one label.
fn covers(name: &str, domain: &Domain) -> bool {
    let asked = domain.name();
    if name == asked {
        return true;
    }
    let Some(parent) = name.strip_prefix("*.") else {
        return false;
    };
    asked
        .split_once('.')
        .is_some_and(|(label, rest)| label != "*" && rest == parent)
}

fn day(moment: Timestamp) -> String {
    moment.to_zoned(TimeZone::UTC).date().to_string()
}
