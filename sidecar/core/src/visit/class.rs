//! Classification of visitors: a person, or a program that inspects the target.
//!
//! Only the client's own headers are judged, its connection, and its network. A program that
//! pretends to be a browser counts as one, unless its [`behaviour`] betrays it.

pub mod behaviour;
pub mod networks;
pub mod pretence;
mod rules;

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::{Fetch, VisitEvidence};

use super::agent::Listed;
use crate::named;
use networks::Network;
use pretence::{is_known_browser, is_lacking};
use rules::{RULES, Rule};

/// The version of the rules. Every change of the rules increases it, and verdicts are stored with
/// it.
pub const RULESET: u16 = 3;

named! {
    /// Kind of visitor that followed a link.
    pub enum Class: "class" {
        /// A person.
        Human = "human",
        /// A program that shows a link's target before a person follows it, or prefetches it.
        Preview = "preview",
        /// A program that scans for threats: in mails, behind links, on servers.
        Scanner = "scanner",
        /// Any other program.
        Bot = "bot",
        /// Not recognised.
        Unknown = "unknown",
        /// Anyone whose link had ended or was paused. Such a visit counts for nothing else; its reason
        /// is the one that it would have otherwise.
        Refused = "refused",
    }
}

/// Result of the rules for a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Kind of visitor.
    pub class: Class,
    /// Reason: the recognised program (`whatsapp`), or the criterion (`head`). Lower case, digits
    /// and hyphens; the meaning of a reason is the same in all rulesets.
    pub reason: &'static str,
    /// The version of the rules that decided.
    pub ruleset: u16,
}

/// The status of the answer to refused visits.
const GONE: u16 = 410;

/// The reasons of [`Class::Human`].
const OF_PERSONS: [&str; 3] = ["app", "browser", "feature-phone"];

impl Class {
    /// Reports whether the rules take the client of a visit with this class and reason for a person,
    /// whatever it was answered.
    pub fn is_of_person(self, reason: &str) -> bool {
        match self {
            Self::Human => true,
            Self::Refused => OF_PERSONS.contains(&reason),
            _ => false,
        }
    }
}

impl Classification {
    /// Returns the classification of a visit that was answered with an HTTP status.
    #[must_use]
    pub fn answered(self, status: u16) -> Self {
        let class = match status {
            GONE => Class::Refused,
            _ => self.class,
        };
        Self { class, ..self }
    }
}

/// Evidence for the classification of a visit.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The request's method.
    pub method: VisitMethod,
    /// The header `Sec-Purpose`, `Purpose`, `X-Purpose` or `X-Moz`; empty without one.
    pub purpose: &'a str,
    /// Other properties of the request.
    pub observed: VisitEvidence,
    /// Evidence in the header `User-Agent`.
    pub words: Words,
    /// Kind of program that public lists of user agents name.
    pub listed: Option<Listed>,
    /// The client's network.
    pub network: Network<'a>,
}

/// The evidence in a user agent, which is the same for all visits with it. By default there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The verdict over a program with a rule.
    named: Option<(Class, &'static str)>,
    /// The verdict over a program without a rule.
    says: Option<(Class, &'static str)>,
    client: Client,
}

/// Kind of client that a user agent names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Client {
    /// None at all.
    #[default]
    Nothing,
    /// An app with a built-in browser.
    App,
    /// A browser; it may be one of which is known what it sends.
    Browser { is_known: bool },
    /// A telephone without a full browser.
    FeaturePhone,
    /// Another one.
    Other,
}

impl Words {
    /// Reads a user agent.
    pub fn of(user_agent: &str) -> Self {
        let agent = user_agent.trim().to_ascii_lowercase();
        Self {
            named: rule(&agent).map(|rule| (rule.class, rule.reason)),
            says: says_so(&agent),
            client: Client::of(&agent),
        }
    }
}

impl Client {
    /// The client with a user agent in lower case.
    fn of(agent: &str) -> Self {
        if agent.is_empty() {
            Self::Nothing
        } else if super::agent::app(agent).is_some() {
            Self::App
        } else if is_browser(agent) {
            Self::Browser {
                is_known: is_known_browser(agent),
            }
        } else if is_feature_phone(agent) {
            Self::FeaturePhone
        } else {
            Self::Other
        }
    }
}

/// Classifies the client that followed a link; [`Classification::answered`] adds the answer.
pub fn classify(evidence: &Evidence<'_>) -> Classification {
    let (class, reason) = judged(evidence);
    Classification {
        class,
        reason,
        ruleset: RULESET,
    }
}

fn judged(evidence: &Evidence<'_>) -> (Class, &'static str) {
    // Prefetchers set a header, while their user agent is the browser's.
    let purpose = evidence.purpose.to_ascii_lowercase();
    if purpose.contains("prefetch") || purpose.contains("prerender") {
        return (Class::Preview, "prefetch");
    }
    if purpose.contains("preview") {
        return (Class::Preview, "purpose-preview");
    }
    // A program with a name is classified by it, whatever else it does.
    if let Some(verdict) = evidence.words.named {
        return verdict;
    }
    if let Some(reason) = evidence.network.scanner() {
        return (Class::Scanner, reason);
    }
    if let Some(verdict) = evidence.words.says {
        return verdict;
    }
    match evidence.method {
        VisitMethod::Head => return (Class::Scanner, "head"),
        VisitMethod::Other => return (Class::Unknown, "method"),
        VisitMethod::Get => {}
    }
    // A browser that a person uses says that it navigates, or nothing.
    let is_part = evidence.observed.fetch() == Some(Fetch::Part);
    match (evidence.words.client, evidence.listed) {
        (Client::Nothing, _) => (Class::Unknown, "no-agent"),
        (Client::App, _) if is_part => (Class::Preview, "fetched"),
        (Client::App, _) => (Class::Human, "app"),
        (_, Some(listed)) => (listed.class, listed.reason),
        (Client::Browser { .. }, _) if is_part => (Class::Preview, "fetched"),
        // Each of the two by itself would make recipients scanners: a tunnel ends in such a
        // network, and a proxy removes headers.
        (Client::Browser { is_known: true }, _)
            if is_lacking(evidence.observed) && evidence.network.is_hosting() =>
        {
            (Class::Scanner, "pretender")
        }
        (Client::Browser { .. }, _) => (Class::Human, "browser"),
        (Client::FeaturePhone, _) => (Class::Human, "feature-phone"),
        (Client::Other, _) => (Class::Unknown, "agent"),
    }
}

/// The first of [`RULES`] that a user agent, in lower case, fits.
fn rule(agent: &str) -> Option<&'static Rule> {
    /// Finds the first words of all rules at once.
    static FIRST_WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
        let words = RULES.iter().map(|rule| bare(rule.words[0]));
        AhoCorasick::new(words).ok()
    });
    let words = FIRST_WORDS.as_ref()?;
    let found = words.find_overlapping_iter(agent);
    let found = found.map(|found| found.pattern().as_usize());
    let fitting = found.filter(|&place| RULES[place].words.iter().all(|word| fits(word, agent)));
    fitting.min().map(|place| &RULES[place])
}

/// A rule's word without its mark.
fn bare(word: &'static str) -> &'static str {
    word.strip_prefix(['^', '!']).unwrap_or(word)
}

fn fits(word: &'static str, agent: &str) -> bool {
    if let Some(word) = word.strip_prefix('^') {
        agent.starts_with(word)
    } else if let Some(word) = word.strip_prefix('!') {
        agent.contains(word) && (!is_browser(agent) || says_compatible(agent))
    } else {
        agent.contains(word)
    }
}

/// Judges programs without a rule by the words of their user agent.
fn says_so(agent: &str) -> Option<(Class, &'static str)> {
    let has = |word: &str| agent.contains(word);
    if [
        "linkpreview",
        "link-preview",
        "link preview",
        "urlpreview",
        "unfurl",
    ]
    .into_iter()
    .any(has)
    {
        Some((Class::Preview, "says-preview"))
    } else if is_called_bot(agent) {
        Some((Class::Bot, "says-bot"))
    } else if has("://") {
        // Browsers' user agents have no URL.
        Some((Class::Bot, "says-url"))
    } else if says_compatible(agent) {
        Some((Class::Bot, "says-compatible"))
    } else {
        None
    }
}

/// Reports whether a user agent calls itself compatible with browsers, as only some old browsers do.
fn says_compatible(agent: &str) -> bool {
    let has = |word: &str| agent.contains(word);
    has("(compatible;") && !has("msie ") && !has("konqueror")
}

fn is_called_bot(agent: &str) -> bool {
    if [
        "crawl",
        "spider",
        "scrape",
        "fetcher",
        "archiver",
        "indexer",
        "monitoring",
        "uptime",
    ]
    .into_iter()
    .any(|word| agent.contains(word))
    {
        return true;
    }
    agent.match_indices("bot").any(|(place, word)| {
        let before = &agent[..place];
        let behind = &agent[place + word.len()..];
        let behind = behind.strip_prefix('s').unwrap_or(behind);
        // Cubot makes telephones; `both` and `bottom` are no bots.
        !before.ends_with("cu") && !behind.starts_with(|next: char| next.is_ascii_alphabetic())
    })
}

/// Reports whether a user agent, in lower case, is a browser's: one with a known beginning, or one
/// that names an engine.
fn is_browser(agent: &str) -> bool {
    const BEGINNINGS: [&str; 7] = [
        "opera/",
        "lynx/",
        "w3m/",
        "elinks",
        "links (",
        "ucweb/",
        "blackberry",
    ];
    const ENGINES: [&str; 6] = [
        "applewebkit/",
        "gecko",
        "trident/",
        "msie ",
        "khtml",
        "presto/",
    ];
    BEGINNINGS.into_iter().any(|word| agent.starts_with(word))
        || (agent.starts_with("mozilla/") && ENGINES.into_iter().any(|word| agent.contains(word)))
}

/// Reports whether a user agent, in lower case, is that of a telephone without a full browser.
fn is_feature_phone(agent: &str) -> bool {
    const BEGINNINGS: [&str; 14] = [
        "nokia",
        "samsung-",
        "sec-",
        "sonyericsson",
        "lg-",
        "mot-",
        "alcatel",
        "zte-",
        "huawei",
        "itel",
        "tecno",
        "docomo/",
        "softbank/",
        "kddi-",
    ];
    const SIGNS: [&str; 9] = [
        "midp-",
        "cldc-",
        "up.browser/",
        "obigo",
        "netfront/",
        "maui",
        "wap-browser",
        "wap browser",
        "openwave",
    ];
    BEGINNINGS.into_iter().any(|word| agent.starts_with(word))
        || SIGNS.into_iter().any(|word| agent.contains(word))
}

#[cfg(test)]
mod tests;
