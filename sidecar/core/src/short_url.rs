//! Short URLs: which of the active domains a link is on.
//!
//! The sidecar has no list of domains; nginx sends the active ones with every request. A link stays
//! on the same domain as long as the active ones stay the same. When one is added or removed, only
//! its own links move (rendezvous hashing, Thaler and Ravishankar 1998; with weights after
//! Schindelhauer and Schomaker 2005).

use sha2::{Digest, Sha256};
use vocabulary::domains::{Base, BoundTo};

use crate::link::Link;

/// Prefixes of short URLs, one for each active domain.
#[derive(Clone, Debug, Default)]
pub struct Bases(Vec<Base>);

impl Bases {
    /// The domains that are active.
    pub fn new(bases: Vec<Base>) -> Self {
        Self(bases)
    }

    /// Returns the length of the longest prefix, or `None` if no domain is active.
    pub fn longest(&self) -> Option<usize> {
        self.0.iter().map(|base| base.url.len()).max()
    }

    /// Returns the prefix of a link's short URL, without a trailing slash: one of the domains bound
    /// to its campaign, else to the API key that created it, else to neither. Returns `None` if no
    /// domain serves it.
    pub fn of(&self, link: &Link) -> Option<&str> {
        if let [
            Base {
                url, bound: None, ..
            },
        ] = &self.0[..]
        {
            return Some(url);
        }
        let campaign = link.destination.campaign().map(BoundTo::Campaign);
        let key = BoundTo::Key(link.created_by.clone());
        [campaign.as_ref(), Some(&key)]
            .into_iter()
            .flatten()
            .find_map(|to| self.choose(link, Some(to)))
            .or_else(|| self.choose(link, None))
    }

    fn choose(&self, link: &Link, bound: Option<&BoundTo>) -> Option<&str> {
        let for_it = self.0.iter().filter(|base| base.bound.as_ref() == bound);
        let costs = for_it.map(|base| (cost(base, link), base));
        let (_, chosen) = costs.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
        Some(&chosen.url)
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
}
