//! The visitor whom an explanation assumes, and the rules that were tried on it.

use shortlink_core::plan::Rule;
use vocabulary::plan::{Condition, Plan, Visitor};
use vocabulary::{Code, Phase};

/// A visitor; unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssumedVisitor {
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The header `Accept-Language`.
    pub accept_language: String,
    /// The country, or the region with its country: `DE`, `US-CA`.
    pub place: String,
    /// The query, without a question mark.
    pub query: String,
    /// The address.
    pub address: String,
}

impl Visitor for AssumedVisitor {
    fn user_agent(&self) -> &[u8] {
        self.user_agent.as_bytes()
    }

    fn accept_language(&self) -> &[u8] {
        self.accept_language.as_bytes()
    }

    fn country(&self) -> &[u8] {
        let country = self.place.split('-').next();
        country.unwrap_or_default().as_bytes()
    }

    fn region(&self) -> &[u8] {
        let region = self.place.split_once('-').map(|(_, region)| region);
        region.unwrap_or_default().as_bytes()
    }

    fn query(&self) -> &[u8] {
        self.query.as_bytes()
    }

    fn address(&self) -> &[u8] {
        self.address.as_bytes()
    }
}

/// A rule and its effect on the visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedRule {
    /// The rule, with the target for the code.
    pub rule: Rule,
    /// The effect.
    pub outcome: Outcome,
}

/// The effect of a rule on a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The visitor follows it.
    Followed,
    /// The visitor does not meet the condition that the rule has by this member.
    Unmet(&'static str),
    /// An earlier rule was followed.
    Unreached,
}

/// Tries the rules of a plan on a visitor; `now` is in seconds since 1970.
pub(super) fn tried(
    plan: Plan<'_>,
    code: &Code,
    visitor: &AssumedVisitor,
    now: u64,
) -> Vec<TriedRule> {
    let mut is_settled = false;
    let tried = plan.tried(code, visitor, now).map(|tried| {
        let outcome = match tried.unmet {
            _ if is_settled => Outcome::Unreached,
            Some(condition) => Outcome::Unmet(member(&condition, now)),
            None => Outcome::Followed,
        };
        is_settled |= tried.is_met;
        let rule = Rule::of_record(tried.rule);
        let target = shown(rule.target.as_bytes());
        TriedRule {
            rule: Rule { target, ..rule },
            outcome,
        }
    });
    tried.collect()
}

/// A target with a name for the click id, which is a space.
pub(super) fn shown(target: &[u8]) -> String {
    String::from_utf8_lossy(target).replace(' ', "{clickId}")
}

/// The member of a rule that has a condition.
fn member(condition: &Condition<'_>, now: u64) -> &'static str {
    match condition {
        Condition::Device(_) => "device",
        Condition::Language(_) => "language",
        Condition::Country(_) => "country",
        Condition::Time(validity) => match validity.at(now) {
            Phase::Early => "validSince",
            Phase::Live | Phase::Over => "validUntil",
        },
        Condition::Query(..) => "query",
        Condition::Share(_) => "percent",
        Condition::Variant(_) => "variant",
    }
}
