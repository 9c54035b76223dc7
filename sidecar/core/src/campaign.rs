//! Campaigns: many links with one target that differ only in their parameters.
//!
//! A link of a campaign stores only its parameters. The campaign has the target, the redirect
//! status and the state, so that one write changes millions of links.

mod click;
mod defaults;
mod target;

use std::num::NonZeroU64;

use jiff::Timestamp;
use vocabulary::{
    CampaignId, Code, ExpandError, LinkRecord, Record, RedirectStatus, State, Validity,
};

pub use crate::link::ParameterValues;
use crate::link::{Second, since_1970};
use crate::plan::{self, Plan, PlanChange};
use crate::revised::{self, Refusal, Revised, overwrite, revised};
use crate::target::Target;
pub use click::{ClickParameter, ClickParameterError};
pub use defaults::CampaignDefaults;
pub use target::{CampaignTarget, CampaignTargetError};

/// A campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// Its id, assigned by the store.
    pub id: CampaignId,
    /// Display name.
    pub name: String,
    /// Target of its links.
    pub target: CampaignTarget,
    /// Status of their redirects.
    pub redirect_status: RedirectStatus,
    /// Appends the visitor's query to the target.
    pub forward_query: bool,
    /// 1 for a new campaign, one more for each change.
    pub revision: u64,
    /// Period in which its links redirect.
    pub validity: Validity,
    /// Time of its pause, while it is paused.
    pub paused_at: Option<Timestamp>,
    /// Time of its revocation.
    pub revoked_at: Option<Timestamp>,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its last change.
    pub updated_at: Timestamp,
    /// The id of the API key that it was created with.
    pub created_by: String,
    /// Caller's name of it.
    pub external_id: Option<String>,
    /// Caller's note.
    pub note: Option<String>,
    /// Defaults of its new links.
    pub defaults: CampaignDefaults,
    /// The most links that can be created in it, including those that have ended or were deleted.
    pub max_links: Option<NonZeroU64>,
    /// The parameter that brings a click id to the target.
    pub click_id: Option<ClickParameter>,
    /// Rules for some visitors and targets instead of 410 and 404.
    pub plan: Option<Box<Plan>>,
}

/// Changes to a campaign. `None` leaves a member unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignChange {
    /// The new name.
    pub name: Option<String>,
    /// The new target; it has the parameters of the old one, and no others.
    pub target: Option<CampaignTarget>,
    /// The new redirect status.
    pub redirect_status: Option<RedirectStatus>,
    /// The new choice of forwarding the query.
    pub forward_query: Option<bool>,
    /// The new start of validity, or `Some(None)` for none.
    pub valid_since: Option<Option<Second>>,
    /// The new end of validity, or `Some(None)` for none.
    pub valid_until: Option<Option<Second>>,
    /// Pauses or resumes it.
    pub paused: Option<bool>,
    /// The new note, or `Some(None)` for none.
    pub note: Option<Option<String>>,
    /// The new defaults, as a whole.
    pub defaults: Option<CampaignDefaults>,
    /// The new quota, or `Some(None)` for none.
    pub max_links: Option<Option<NonZeroU64>>,
    /// The new name of the parameter with a click id, or `Some(None)` for none.
    pub click_id: Option<Option<String>>,
    /// Changes to the plan.
    pub plan: PlanChange,
}

/// Result of an attempt to change a campaign.
pub type CampaignEdit = revised::Edit<Campaign>;

revised!(Campaign);

impl Campaign {
    /// A new campaign that redirects, without an id before it is stored.
    pub fn new(name: String, target: CampaignTarget, created_by: String, now: Timestamp) -> Self {
        Self {
            id: CampaignId::FIRST,
            name,
            target,
            redirect_status: RedirectStatus::default(),
            forward_query: false,
            revision: 1,
            validity: Validity::ALWAYS,
            paused_at: None,
            revoked_at: None,
            created_at: now,
            updated_at: now,
            created_by,
            external_id: None,
            note: None,
            defaults: CampaignDefaults::default(),
            max_links: None,
            click_id: None,
            plan: None,
        }
    }

    /// Returns the campaign's state at a moment.
    pub fn state(&self, now: Timestamp) -> State {
        let phase = self.validity.at(since_1970(now));
        State::new(phase, self.paused_at.is_some(), self.revoked_at.is_some())
    }

    /// Applies a change.
    pub fn change(self, change: &CampaignChange, now: Timestamp) -> CampaignEdit {
        let change = change.clone();
        let is_planned =
            change.target.is_some() || change.click_id.is_some() || !change.plan.is_empty();
        let bound = |given: Option<Option<Second>>, present| match given {
            Some(bound) => bound.map(Second::non_zero),
            None => present,
        };
        let since = bound(change.valid_since, self.validity.since());
        let validity = Validity::new(since, bound(change.valid_until, self.validity.until()));
        let edit = self.edited(now, |campaign| {
            overwrite!(campaign, change: name, target, redirect_status, forward_query);
            overwrite!(campaign, change: note, defaults, max_links);
            campaign.validity = validity.unwrap_or(campaign.validity);
            let before = campaign.click_id.as_ref().map(|it| it.name().to_owned());
            let name = change.click_id.unwrap_or(before);
            campaign.click_id = name.map(|name| ClickParameter::new(name, &campaign.target));
            campaign.plan_anew(&change.plan);
            match change.paused {
                Some(true) => {
                    campaign.paused_at.get_or_insert(now);
                }
                Some(false) => campaign.paused_at = None,
                None => {}
            }
        });
        match edit {
            CampaignEdit::Changed(_) | CampaignEdit::Unchanged(_) if validity.is_none() => {
                CampaignEdit::Refused(Refusal::NeverValid)
            }
            CampaignEdit::Changed(campaign) if is_planned && !campaign.plan_fits() => {
                CampaignEdit::Refused(Refusal::PlanTooLong)
            }
            edit => edit,
        }
    }

    /// Ends an A/B test: the target of a variant becomes that of the campaign. Without variants, the
    /// campaign stays as it is; a name of none of them is refused.
    pub fn win(self, variant: &str, now: Timestamp) -> CampaignEdit {
        if let Some(names) = plan::missing_variant(self.plan.as_deref(), variant) {
            return CampaignEdit::Refused(Refusal::NoVariant { names });
        }
        let ended = self.plan.as_ref().and_then(|plan| plan.ended(variant));
        let names = || self.target.names().to_vec();
        let change = ended.map_or_else(CampaignChange::default, |ended| CampaignChange {
            target: ended
                .target
                .map(|it| CampaignTarget::from_stored(it, names())),
            plan: PlanChange {
                rules: Some(ended.rules),
                ..PlanChange::default()
            },
            ..CampaignChange::default()
        });
        self.change(&change, now)
    }

    /// Makes the plan again for the target, the click id and a change.
    pub fn plan_anew(&mut self, change: &PlanChange) {
        let text = change.text_after(self.plan.as_deref());
        self.plan = Plan::of_campaign(text, &self.target, self.click_id.as_ref());
    }

    /// Reports whether its record can have its plan.
    pub fn plan_fits(&self) -> bool {
        let has_click_id = self.click_id.is_some();
        let plan = self.plan.as_ref();
        plan.is_none_or(|plan| plan.fits_campaign(has_click_id))
    }

    /// The record that stands for the campaign in Redis.
    pub fn record(&self) -> Record<'_> {
        if self.revoked_at.is_some() || self.paused_at.is_some() {
            let plan = self.plan.as_deref().filter(|_| self.revoked_at.is_none());
            return plan::record_of_pause(plan, self.revision, self.validity.until());
        }
        let click_id = self.click_id.as_ref();
        let template = click_id.map_or(self.target.template(), ClickParameter::template);
        Record::Link(LinkRecord {
            status: match click_id {
                None => self.redirect_status,
                // Browsers store the others, and would repeat one id.
                Some(_) => self.redirect_status.temporary(),
            },
            forwards_query: self.forward_query,
            has_click_id: click_id.is_some(),
            revision: self.revision,
            validity: self.validity,
            is_plan: self.plan.is_some(),
            target: match &self.plan {
                None => template.as_bytes(),
                Some(plan) => plan.record(),
            },
        })
    }

    /// Fills in a link's parameters; the target is without a click id.
    ///
    /// # Errors
    /// Fails if the link lacks a parameter, or its target would not be served, with a click id if it gets one.
    pub fn expand(&self, code: &Code, values: &ParameterValues) -> Result<Target, ExpandError> {
        if let Some(click_id) = &self.click_id {
            click_id.check(code, values)?;
        }
        if let Some(plan) = &self.plan {
            plan.check(code, values, self.click_id.is_some())?;
        }
        self.target.expand(code, values)
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::template::ExpandError;

    use super::*;
    use crate::target::{OwnHosts, TargetPolicy};

    fn parse(text: &str, declared: &[&str]) -> Result<CampaignTarget, CampaignTargetError> {
        let declared: Vec<String> = declared.iter().map(|&name| name.to_owned()).collect();
        let policy = TargetPolicy::default();
        CampaignTarget::parse(text, &declared, policy, &OwnHosts::default())
    }

    #[test]
    fn names_become_places_and_names_again() {
        for (text, template, names) in [
            (
                "https://shop.example.com/p?m={member}&c={code}",
                "https://shop.example.com/p?m={0}&c={code}",
                &["member"][..],
            ),
            (
                "https://e.example/{a}/{b}/{a}#{c}",
                "https://e.example/{0}/{1}/{0}#{2}",
                &["a", "b", "c"],
            ),
            ("https://e.example", "https://e.example/", &[]),
            (
                "HTTPS://E.example/ü?x={q}",
                "https://e.example/%C3%BC?x={0}",
                &["q"],
            ),
            // Twelve places: the word of the first is the beginning of no other's.
            (
                "https://e.example/{a}{b}{c}{d}{e}{f}{g}{h}{i}{j}{k}{l}",
                "https://e.example/{0}{1}{2}{3}{4}{5}{6}{7}{8}{9}{10}{11}",
                &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"],
            ),
            (
                "https://e.example/qz0z/{a}",
                "https://e.example/qz0z/{0}",
                &["a"],
            ),
        ] {
            let target = parse(text, &[]).expect(text);
            assert_eq!(target.template(), template);
            assert_eq!(target.names(), names);
            let again = parse(&target.with_names(), &[]).expect(text);
            assert_eq!(again, target);
        }
        let declared = parse("https://e.example/{b}", &["a", "b"]).expect("a target");
        assert_eq!(declared.template(), "https://e.example/{1}");
        assert_eq!(declared.names(), ["a", "b"]);
    }

    #[test]
    fn places_that_could_change_the_host_and_braces_are_refused() {
        for text in [
            "https://{a}/",
            "https://{a}.example.com/",
            "https://example.com{a}/",
            "https://example.com:{a}/",
            "https://{a}@example.com/",
            "{a}://example.com/",
            "https://example.com/{",
            "https://example.com/}",
            "https://example.com/{}",
            "https://example.com/{a",
            "https://example.com/a}{b}",
            "https://example.com/{a b}",
            "https://example.com/{1a}",
            "https://example.com/{{a}}",
            "javascript:{a}",
        ] {
            assert!(parse(text, &[]).is_err(), "{text}");
        }
        assert!(parse("https://example.com/", &["code"]).is_err());
        let many: String = (0..17).map(|n| format!("{{p{n}}}")).collect();
        let many = format!("https://example.com/{many}");
        assert_eq!(parse(&many, &[]), Err(CampaignTargetError::TooMany));
    }

    #[test]
    fn a_link_leads_where_the_template_says_and_nowhere_else() {
        let target = parse("https://e.example/p?m={m}&c={code}", &[]).expect("a target");
        let code = "abc".parse().expect("a code");
        let values = ParameterValues::encode(&["ü&x=1#/\\"]).expect("a value");
        let expanded = target.expand(&code, &values).expect("a link");
        assert_eq!(
            expanded.as_str(),
            "https://e.example/p?m=%C3%BC%26x%3D1%23%2F%5C&c=abc"
        );
        let none = ParameterValues::default();
        assert_eq!(target.expand(&code, &none), Err(ExpandError::Missing(0)));
    }
}
