//! Short URLs: which of the active domains a link is on.
//!
//! The sidecar has no list of domains; nginx sends the active ones with every request. A link stays
//! on the same domain as long as the active ones stay the same. When one is added or removed, only
//! its own links move (rendezvous hashing, Thaler and Ravishankar 1998; with weights after
//! Schindelhauer and Schomaker 2005).

use sha2::{Digest, Sha256};
use url::Host;
use vocabulary::CampaignId;
use vocabulary::domains::{Base, BoundTo};

use crate::link::Link;

/// The most names that the fault of a domain lists.
const MOST_LISTED: usize = 20;

/// Prefixes of short URLs, one for each active domain.
#[derive(Clone, Debug, Default)]
pub struct Bases(Vec<Base>);

/// The owners of a link, which decide on the active domains that it can be on.
#[derive(Clone, Copy, Debug)]
pub struct Owners<'a> {
    /// Its campaign.
    pub campaign: Option<CampaignId>,
    /// The API key that it is created with.
    pub key: &'a str,
}

impl<'a> Owners<'a> {
    /// Those of a link.
    pub fn of(link: &'a Link) -> Self {
        Self {
            campaign: link.destination.campaign(),
            key: &link.created_by,
        }
    }
}

impl Bases {
    /// The domains that are active.
    pub fn new(bases: Vec<Base>) -> Self {
        Self(bases)
    }

    /// Reports that no domain is active.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the prefix of a link's short URL, without a trailing slash: that of the domain in the link if it can be on it, else one
    /// that its code determines. Returns `None` if no domain serves it.
    pub fn of(&self, link: &Link) -> Option<&str> {
        if let [
            Base {
                url, bound: None, ..
            },
        ] = &self.0[..]
        {
            return Some(url);
        }
        let owners = Owners::of(link);
        let chosen = link.domain.as_deref();
        if let Some(base) = chosen.and_then(|name| self.find(name, owners)) {
            return Some(&base.url);
        }
        let costs = self.for_link(owners).map(|base| (cost(base, link), base));
        let (_, cheapest) = costs.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
        Some(&cheapest.url)
    }

    /// Returns the length of the longest prefix that the short URL of a link can have; 0 if it can have none.
    pub fn longest(&self, owners: Owners<'_>, chosen: Option<&str>) -> usize {
        let chosen = chosen.and_then(|name| self.find(name, owners));
        let all = || self.for_link(owners).map(|base| base.url.len()).max();
        chosen
            .map(|base| base.url.len())
            .or_else(all)
            .unwrap_or_default()
    }

    /// Returns the length of the longest prefix of all; 0 without any.
    pub fn longest_of_all(&self) -> usize {
        self.0
            .iter()
            .map(|base| base.url.len())
            .max()
            .unwrap_or_default()
    }

    /// Checks the domain that is chosen for a link. The present choice may stay, active or not: a change repeats it.
    ///
    /// # Errors
    /// Fails if the domain is not active for the link; the text is worded for the caller.
    pub fn check(
        &self,
        name: &str,
        owners: Owners<'_>,
        present: Option<&str>,
    ) -> Result<(), String> {
        if present == Some(name) || self.find(name, owners).is_some() {
            return Ok(());
        }
        let names: Vec<&str> = self.for_link(owners).map(host).collect();
        let listed = names[..names.len().min(MOST_LISTED)].join(", ");
        let more = match names.len().saturating_sub(MOST_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Err(match &*listed {
            "" => format!("can't be {name:?}: no short domain is active"),
            _ => format!(
                "can't be {name:?}, which is not active or is for other links: use one of {listed}{more}"
            ),
        })
    }

    /// The domains of a link: those bound to its campaign, else to the API key that created it, else to neither.
    fn for_link<'b, 'o>(
        &'b self,
        owners: Owners<'o>,
    ) -> impl Iterator<Item = &'b Base> + use<'b, 'o> {
        let rank = move |base: &Base| match &base.bound {
            Some(BoundTo::Campaign(id)) => (owners.campaign == Some(*id)).then_some(0),
            Some(BoundTo::Key(id)) => (owners.key == id).then_some(1),
            None => Some(2),
        };
        let best = self.0.iter().filter_map(rank).min();
        let ranked = self.0.iter().filter(move |base| rank(base) == best);
        ranked.filter(move |_| best.is_some())
    }

    fn find(&self, name: &str, owners: Owners<'_>) -> Option<&Base> {
        self.for_link(owners).find(|base| host(base) == name)
    }
}

/// The name of a domain as `domains.conf` and browsers have it: punycode in lower case; `None` for a text that is no name.
pub fn domain_name(text: &str) -> Option<String> {
    Host::parse(text).ok().map(|host| host.to_string())
}

/// The host of a prefix.
pub(crate) fn host(base: &Base) -> &str {
    let behind = base.url.split_once("://");
    let host = behind.map_or(&*base.url, |(_scheme, host)| host);
    match host.rsplit_once(':') {
        // The colons of an address in version 6 are in brackets.
        Some((host, port)) if !port.ends_with(']') => host,
        _ => host,
    }
}

/// Cost of placing a link on a domain: an exponentially distributed number that is smaller for
/// domains of greater weight.
fn cost(base: &Base, link: &Link) -> f64 {
    let mut digest = Sha256::new_with_prefix(base.url.as_bytes());
    digest.update([b' ']);
    digest.update(link.code.as_bytes());
    let mut bits = [0; 8];
    bits.copy_from_slice(&digest.finalize()[..8]);
    // More than 0 and less than 1.
    let share = ((u64::from_be_bytes(bits) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    -share.ln() / f64::from(base.weight)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::testing::link;

    fn bases(text: &str) -> Bases {
        Bases::new(Base::parse_all(text).collect())
    }

    fn code(number: usize) -> String {
        format!("{number:07}")
    }

    #[test]
    fn links_are_spread_by_weight_and_stay_where_they_are() {
        let three = bases("https://a.example weight=2,https://b.example,https://c.example");
        let two = bases("https://c.example,https://a.example weight=2");
        let mut counts = HashMap::new();
        for number in 0..4000 {
            let link = link(&code(number));
            let before = three.of(&link).expect("a domain");
            *counts.entry(before.to_owned()).or_insert(0) += 1;
            let after = two.of(&link).expect("a domain");
            assert!(before == after || before == "https://b.example");
        }
        for (domain, share) in [("a", 2000), ("b", 1000), ("c", 1000)] {
            let count = counts[&format!("https://{domain}.example")];
            // Five standard deviations.
            assert!((share - 158..share + 158).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn a_bound_domain_is_for_its_links_alone() {
        let mut link = link("abcdefg");
        link.created_by = "crm".to_owned();
        for (active, url) in [
            (
                "https://a.example,https://b.example key=crm",
                "https://b.example",
            ),
            (
                "https://b.example key=other,https://a.example",
                "https://a.example",
            ),
            (
                "https://b.example campaign=1,https://a.example",
                "https://a.example",
            ),
        ] {
            assert_eq!(bases(active).of(&link), Some(url), "{active}");
        }
        assert_eq!(bases("https://b.example key=other").of(&link), None);
        assert_eq!(bases("").of(&link), None);
    }

    #[test]
    fn a_link_is_on_the_chosen_one_of_its_domains_while_that_is_active() {
        let active = "https://a.example,http://b.example:8080,https://[::1]:8443,https://k.example key=crm,\
                      https://c.example campaign=1";
        let mut link = link("abcdefg");
        let mut on = |domain: &str, active: &str| {
            link.domain = Some(domain.to_owned());
            bases(active).of(&link).map(str::to_owned)
        };
        for (domain, url) in [
            ("a.example", "https://a.example"),
            ("b.example", "http://b.example:8080"),
            ("[::1]", "https://[::1]:8443"),
        ] {
            assert_eq!(on(domain, active).as_deref(), Some(url));
            let without = active.replace(url, "https://d.example");
            assert!(on(domain, &without).is_some_and(|it| it != url));
        }
        for others in ["k.example", "c.example", "b.exampl", "x.example", ""] {
            assert!(
                on(others, active).is_some_and(|it| !it.contains("//k") && !it.contains("//c"))
            );
        }
    }

    #[test]
    fn only_the_active_domains_of_a_link_can_be_chosen() {
        let active = bases(
            "https://a.example,http://bb.example:8080,https://k.example key=crm,https://c.example campaign=1",
        );
        let owners = |campaign: u64, key| Owners {
            campaign: CampaignId::new(campaign),
            key,
        };
        for (owners, allowed) in [
            (owners(0, "x"), &["a.example", "bb.example"][..]),
            (owners(2, "x"), &["a.example", "bb.example"]),
            (owners(2, "crm"), &["k.example"]),
            (owners(1, "crm"), &["c.example"]),
        ] {
            for name in ["a.example", "bb.example", "k.example", "c.example", "x"] {
                let checked = active.check(name, owners, None);
                assert_eq!(
                    checked.is_ok(),
                    allowed.contains(&name),
                    "{owners:?} {name}"
                );
                let told = checked
                    .err()
                    .is_none_or(|it| it.ends_with(&allowed.join(", ")));
                assert!(told, "{owners:?} {name}");
            }
            let longest = allowed.iter().map(|it| it.len()).max().unwrap_or_default();
            let longest = longest + if allowed.len() > 1 { 12 } else { 8 };
            assert_eq!(active.longest(owners, None), longest, "{owners:?}");
            assert_eq!(active.longest(owners, Some("x")), longest);
        }
        assert_eq!(active.longest(owners(0, "x"), Some("a.example")), 17);
        let none = bases("").check("a.example", owners(0, "x"), None);
        assert!(none.is_err_and(|it| it.contains("no short domain is active")));
        let many: Vec<String> = (0..25).map(|n| format!("https://d{n}.example")).collect();
        let many = bases(&many.join(",")).check("a.example", owners(0, "x"), None);
        assert!(many.is_err_and(|it| it.ends_with("d19.example and 5 more")));
    }

    #[test]
    fn names_are_written_as_browsers_send_them() {
        for (text, name) in [
            ("S.Example.com", Some("s.example.com")),
            ("短.example", Some("xn--s7y.example")),
            ("[::1]", Some("[::1]")),
            ("https://s.example.com", None),
            ("s.example.com:8080", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(domain_name(text).as_deref(), name, "{text}");
        }
    }
}
