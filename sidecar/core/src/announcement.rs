//! Announcements of short domains by nginx nodes, for display. The sidecar configures none itself.

use jiff::Timestamp;
use vocabulary::domains::{Base, DomainState, announced_brands};

use crate::short_url::host;

/// The most domains stored of a node's announcement; further ones are only counted.
pub const MAX_DOMAINS: usize = 1000;

/// The most characters of a node's name.
const MAX_NODE: usize = 253;

/// The announcement of one nginx node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The name of its machine.
    pub node: String,
    /// Prefixes of short URLs, as [`Base::parse_all`] reads them.
    pub bases: String,
    /// The names of domains, separated by commas.
    pub names: String,
    /// A letter for the state of each of them ([`DomainState::letter`]).
    pub states: String,
    /// The brand of each of them, as [`announced_brands`] reads them.
    pub brands: String,
    /// The number of domains beyond those named.
    pub more: u64,
}

/// A domain as one nginx has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnouncedDomain {
    /// Its name; a wildcard begins with `*.`.
    pub name: String,
    /// Its state; `None` if a later version announced one that is unknown here.
    pub state: Option<DomainState>,
    /// Prefix of short URLs on it while it is active.
    pub base: Option<Base>,
    /// The name of its brand.
    pub brand: Option<String>,
}

/// The latest announcement of a node, with its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The announcement.
    pub announcement: Announcement,
    /// Time of its first report with this content.
    pub changed_at: Timestamp,
    /// Time of its last report, accurate to about a minute.
    pub heard_at: Timestamp,
}

impl Announcement {
    /// Builds an announcement from the headers, truncated to [`MAX_DOMAINS`] names.
    pub fn new(node: &str, bases: &str, names: &str, states: &str, brands: &str) -> Self {
        let count = names.split(',').count();
        let first = |text: &str| -> String {
            let parts: Vec<&str> = text.split(',').take(MAX_DOMAINS).collect();
            parts.join(",")
        };
        Self {
            node: node.chars().take(MAX_NODE).collect(),
            bases: first(bases),
            names: first(names),
            states: states.chars().take(MAX_DOMAINS).collect(),
            brands: first(brands),
            more: count.saturating_sub(MAX_DOMAINS) as u64,
        }
    }

    /// The domains, in the order of the table.
    pub fn domains(&self) -> Vec<AnnouncedDomain> {
        let bases: Vec<Base> = Base::parse_all(&self.bases).collect();
        let names = self.names.split(',').map(str::trim);
        let mut letters = self.states.chars();
        let mut brands = announced_brands(&self.brands);
        let domains = names.filter(|name| !name.is_empty()).map(|name| {
            let state = letters.next().and_then(DomainState::by_letter);
            let base = bases.iter().find(|base| host(base) == name);
            AnnouncedDomain {
                name: name.to_owned(),
                state,
                base: base.cloned(),
                brand: brands.next().flatten(),
            }
        });
        domains.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_bases_are_put_together_by_name() {
        let said = Announcement::new(
            "edge1",
            "https://a.example:8443 weight=3,http://[::1]:80 key=crm",
            "old.example,a.example,*.b.example,[::1],new.example",
            "rasa?",
            "-,Acme,,%c3%84%20b",
        );
        let text = |it: &AnnouncedDomain| {
            let state = it.state.map_or("none", DomainState::name);
            let base = it.base.as_ref().map_or("", |base| &base.url);
            let brand = it.brand.as_deref().unwrap_or("-");
            format!("{} {state} {base} {brand}", it.name)
        };
        let domains: Vec<String> = said.domains().iter().map(text).collect();
        assert_eq!(
            domains,
            [
                "old.example retired  -",
                "a.example active https://a.example:8443 Acme",
                "*.b.example serving  Acme",
                "[::1] active http://[::1]:80 Ä b",
                "new.example none  -",
            ]
        );
        assert_eq!(said.more, 0);
    }

    #[test]
    fn a_long_table_is_cut_and_what_is_left_out_is_counted() {
        let names: Vec<String> = (0..MAX_DOMAINS + 7)
            .map(|n| format!("d{n}.example"))
            .collect();
        let said = Announcement::new("n", "", &names.join(","), &"s".repeat(names.len()), "");
        let domains = said.domains();
        assert_eq!((domains.len(), said.more), (MAX_DOMAINS, 7));
        assert!(
            domains
                .iter()
                .all(|it| it.state == Some(DomainState::Serving))
        );
        assert_eq!(Announcement::new("n", "", "", "", "").domains(), []);
    }
}
