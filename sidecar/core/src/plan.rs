//! Plans of links and campaigns: rules for some visitors, targets instead of 410 and 404, previews, and the parameter that
//! the targets of a link get for click ids. That of a campaign is apart.
//!
//! The stored text is the one that stands in the record behind the default target, in the words of [`vocabulary::plan`],
//! but for the section of the parameter: records have places for the ids instead.

mod coverage;
mod rule;
mod variants;

use std::num::NonZeroU64;

use vocabulary::plan::{self, PREVIEW, Section, push_section};
use vocabulary::target::{is_servable, is_servable_with_click_id, with_click_id_parameter};
use vocabulary::template::Template;
use vocabulary::{
    Code, ExpandError, Instead, LinkRecord, Parameters, Preview, Record, RedirectStatus, Validity,
};

use crate::campaign::{CampaignTarget, ClickParameter};
use crate::link::{Destination, ParameterValues};
use crate::target::Target;

pub use rule::{Conditions, POINTS_OF_ONE, Rule, RuleError, check_rules};
pub use variants::{Ended, Variant, missing_variant, variants_text};

/// The names of the targets instead of an answer in the API, in the order of [`Instead::ALL`].
pub const INSTEAD_NAMES: [&str; 3] = ["expiredTarget", "pausedTarget", "notYetTarget"];

/// The letter of the section with the name of the parameter for click ids.
const CLICK_ID: u8 = b'k';

/// The plan of a link or a campaign, without the default target.
#[derive(Clone, PartialEq, Eq)]
pub struct Plan {
    text: String,
    record: String,
    /// The plan during a pause: the target for that, and what follows the end. Empty without such a target.
    paused: String,
}

impl Plan {
    /// The plan of a link with a target, from [`Plan::text`]; `None` without one. The targets of visitors get the place for
    /// a click id if the text names a parameter for it.
    pub fn of_link(text: String, target: &Target) -> Option<Box<Self>> {
        let Some(name) = click_id_of(&text).map(str::to_owned) else {
            return Self::new(text, target.as_str(), None);
        };
        let target = with_click_id_parameter(target.as_str().as_bytes(), name.as_bytes());
        Self::new(text, &texts_of(target), Some(&name))
    }

    /// As [`Plan::of_link`] for a link with a destination; `None` for one of a campaign, which has the plan.
    pub fn of_destination(text: String, destination: &Destination) -> Option<Box<Self>> {
        Self::of_link(text, destination.target()?)
    }

    /// As [`Plan::of_link`] for a campaign. The targets of visitors get the place for a click id.
    pub fn of_campaign(
        text: String,
        target: &CampaignTarget,
        click_id: Option<&ClickParameter>,
    ) -> Option<Box<Self>> {
        let template = click_id.map_or(target.template(), ClickParameter::template);
        Self::new(text, template, click_id.map(ClickParameter::name))
    }

    fn new(text: String, target: &str, click_id: Option<&str>) -> Option<Box<Self>> {
        if text.is_empty() {
            return None;
        }
        let mut record = Vec::with_capacity(target.len() + text.len() + 8);
        push_section(&mut record, b'T', target.as_bytes());
        match click_id {
            None => record.extend_from_slice(text.as_bytes()),
            Some(name) => record.extend(mapped(&text, |section, target| {
                Some(match section {
                    Section::Rule(_) => with_click_id_parameter(target, name.as_bytes()),
                    _ => target.to_vec(),
                })
            })),
        }
        let mut paused = Vec::new();
        if let Some(target) = sections(&text).instead(Instead::Paused) {
            push_section(&mut paused, b'T', target);
            paused.extend(mapped(&text, |section, target| {
                matches!(section, Section::Instead(Instead::Expired, _)).then(|| target.to_vec())
            }));
        }
        Some(Box::new(Self {
            paused: texts_of(paused),
            // It was made of texts, which are split at ASCII only.
            record: String::from_utf8(record).unwrap_or_default(),
            text,
        }))
    }

    /// The sections behind the default target, as they are stored.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The whole plan, as it stands in the record.
    pub fn record(&self) -> &[u8] {
        self.record.as_bytes()
    }

    /// The target of the record, if that is all there is in the plan.
    pub(crate) fn only_target(&self) -> Option<&[u8]> {
        let mut sections = plan::Plan::from_checked(self.record()).sections();
        match (sections.next(), sections.next()) {
            (Some(Section::Target(target)), None) => Some(target),
            _ => None,
        }
    }

    /// The name of the parameter that the targets of a link get for click ids.
    pub fn click_id(&self) -> Option<&str> {
        click_id_of(&self.text)
    }

    /// The rules, in order.
    pub fn rules(&self) -> Vec<Rule> {
        sections(&self.text).rules().map(Rule::of_record).collect()
    }

    /// The target instead of an answer.
    pub fn instead(&self, of: Instead) -> Option<&str> {
        let target = sections(&self.text).instead(of)?;
        std::str::from_utf8(target).ok()
    }

    /// The preview in messengers.
    pub fn preview(&self) -> Option<Preview<'_>> {
        preview_of(&self.text)
    }

    /// All targets behind the default one, and the image of the preview.
    pub fn targets(&self) -> Vec<String> {
        let rules = self.rules().into_iter().map(|rule| rule.target);
        let instead = Instead::ALL.into_iter().filter_map(|of| self.instead(of));
        let image = self.preview().map(|preview| preview.image);
        let image = image.filter(|image| !image.is_empty());
        let others = instead.chain(image).map(str::to_owned);
        rules.chain(others).collect()
    }

    /// Reports whether the record of a link can have it.
    pub fn fits_link(&self) -> bool {
        let is_target = match self.click_id() {
            None => is_servable,
            Some(_) => is_servable_with_click_id,
        };
        plan::Plan::parse(self.record(), is_target, is_servable).is_some()
    }

    /// Reports whether the record of a campaign can have it.
    pub fn fits_campaign(&self, has_click_id: bool) -> bool {
        let is_template = |text: &[u8]| Template::parse(text).is_ok();
        let is_target = |text: &[u8]| match has_click_id {
            false => is_template(text),
            true => Template::parse_with_click_id(text).is_ok(),
        };
        plan::Plan::parse(self.record(), is_target, is_template).is_some()
    }

    /// Checks that the targets for a link of the campaign can be served.
    pub(crate) fn check(
        &self,
        code: &Code,
        values: &ParameterValues,
        has_click_id: bool,
    ) -> Result<(), ExpandError> {
        let values = Parameters::from_checked(values.as_str().as_bytes());
        let mut room = Vec::new();
        for section in plan::Plan::from_checked(self.record()).sections() {
            let (template, is_of_visitor) = match section {
                Section::Target(target) => (target, true),
                Section::Rule(rule) => (rule.target, true),
                Section::Instead(_, target) => (target, false),
                Section::Preview(_) | Section::Skipped => continue,
            };
            let template = Template::from_checked(template);
            match has_click_id && is_of_visitor {
                true => template.expand_with_click_id(code, values, &mut room)?,
                false => template.expand(code, values, &mut room)?,
            }
        }
        Ok(())
    }

    fn rules_text(&self) -> String {
        texts_of(mapped(&self.text, |section, target| {
            matches!(section, Section::Rule(_)).then(|| target.to_vec())
        }))
    }
}

/// The members, by the API's names, in which two plans differ.
pub fn differences(one: Option<&Plan>, other: Option<&Plan>) -> Vec<&'static str> {
    if one.map(Plan::text) == other.map(Plan::text) {
        return Vec::new();
    }
    let [rules, others] = [one, other].map(|it| it.map(Plan::rules_text).unwrap_or_default());
    let mut names = Vec::new();
    if rules != others {
        names.push("rules");
    }
    if one.and_then(Plan::click_id) != other.and_then(Plan::click_id) {
        names.push("clickId");
    }
    if one.and_then(Plan::preview) != other.and_then(Plan::preview) {
        names.push("preview");
    }
    for (name, of) in INSTEAD_NAMES.into_iter().zip(Instead::ALL) {
        if one.and_then(|it| it.instead(of)) != other.and_then(|it| it.instead(of)) {
            names.push(name);
        }
    }
    names
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plan({} bytes)", self.record.len())
    }
}

/// Changes to a plan. `None` leaves a member unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChange {
    /// The new rules as [`rules_text`] writes them; empty for none.
    pub rules: Option<String>,
    /// The variants that replace rules which are shares of all visitors, as [`variants_text`] writes them; empty for none.
    pub variants: Option<String>,
    /// The new targets instead of an answer, in the order of [`Instead::ALL`], or `Some(None)` for none.
    pub instead: [Option<Option<String>>; 3],
    /// The new preview as [`preview_text`] writes it, or `Some(None)` for none.
    pub preview: Option<Option<String>>,
    /// The new name of a link's parameter for click ids, or `Some(None)` for none.
    pub click_id: Option<Option<String>>,
}

impl PlanChange {
    /// Reports whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The new rules whose periods have no part in that of their link or campaign, each with its place; those of `present`
    /// may stay.
    pub fn out_of_period(
        &self,
        of_all: Validity,
        present: Option<&Plan>,
    ) -> Vec<(usize, RuleError)> {
        let Some(text) = &self.rules else {
            return Vec::new();
        };
        let present = present.map(Plan::rules).unwrap_or_default();
        let rules = sections(text).rules().map(Rule::of_record).enumerate();
        let new = rules.filter(|(_, rule)| !present.contains(rule));
        new.filter_map(|(place, rule)| {
            let error = rule::check_period(&rule.conditions, of_all).err()?;
            Some((place, error))
        })
        .collect()
    }

    /// The change that makes a stored plan out of none.
    pub fn of_text(text: &str) -> Self {
        let instead = |of| {
            let target = sections(text).instead(of)?;
            Some(Some(String::from_utf8_lossy(target).into_owned()))
        };
        let rules = mapped(text, |section, target| {
            matches!(section, Section::Rule(_)).then(|| target.to_vec())
        });
        Self {
            rules: Some(texts_of(rules)),
            variants: None,
            instead: Instead::ALL.map(instead),
            preview: Some(preview_of(text).map(preview_text)),
            click_id: Some(click_id_of(text).map(str::to_owned)),
        }
    }

    /// The stored text of a plan after the change.
    pub fn text_after(&self, before: Option<&Plan>) -> String {
        let mut rules = match &self.rules {
            Some(rules) => rules.clone(),
            None => before.map(Plan::rules_text).unwrap_or_default(),
        };
        if let Some(added) = &self.variants {
            rules = variants::with_variants(&rules, added);
        }
        let mut text = match &self.preview {
            Some(preview) => preview.clone().unwrap_or_default(),
            None => before
                .and_then(Plan::preview)
                .map(preview_text)
                .unwrap_or_default(),
        };
        text.push_str(&rules);
        for (of, change) in Instead::ALL.into_iter().zip(&self.instead) {
            let present = before.and_then(|it| it.instead(of));
            let target = change.as_ref().map_or(present, |change| change.as_deref());
            if let Some(target) = target {
                let mut section = Vec::new();
                push_section(&mut section, of.letter(), target.as_bytes());
                text.push_str(&texts_of(section));
            }
        }
        let present = before.and_then(Plan::click_id);
        let click_id = self.click_id.as_ref();
        if let Some(name) = click_id.map_or(present, |change| change.as_deref()) {
            let mut section = Vec::new();
            push_section(&mut section, CLICK_ID, name.as_bytes());
            text.push_str(&texts_of(section));
        }
        text
    }
}

/// The record of a link or campaign that is paused, with this plan: it leads to the target for that, whether it was to
/// begin or not, until it expires.
pub(crate) fn record_of_pause(
    plan: Option<&Plan>,
    revision: u64,
    until: Option<NonZeroU64>,
) -> Record<'_> {
    match plan.map_or("", |plan| &plan.paused) {
        "" => Record::Revoked { revision },
        paused => Record::Link(LinkRecord {
            status: RedirectStatus::Found,
            forwards_query: false,
            has_click_id: false,
            revision,
            validity: Validity::new(None, until).unwrap_or_default(),
            is_plan: true,
            target: paused.as_bytes(),
        }),
    }
}

/// Writes rules down.
pub fn rules_text(rules: &[Rule]) -> String {
    let mut text = Vec::new();
    let mut from = 0;
    for rule in rules {
        let section = rule.to_section(from);
        from += rule.conditions.points.unwrap_or_default();
        push_section(&mut text, b'R', &section);
    }
    texts_of(text)
}

/// Writes a preview down.
pub fn preview_text(preview: Preview<'_>) -> String {
    let mut section = Vec::new();
    preview.write(&mut section);
    let mut text = Vec::new();
    push_section(&mut text, PREVIEW, &section);
    texts_of(text)
}

/// The preview of a stored plan, whose first section it is.
fn preview_of(text: &str) -> Option<Preview<'_>> {
    match sections(text).sections().next() {
        Some(Section::Preview(preview)) => Some(preview),
        _ => None,
    }
}

/// The name of the parameter for click ids in a stored plan.
fn click_id_of(text: &str) -> Option<&str> {
    let name = sections(text).other(CLICK_ID)?;
    std::str::from_utf8(name).ok()
}

fn sections(text: &str) -> plan::Plan<'_> {
    plan::Plan::from_checked(text.as_bytes())
}

/// The sections with other targets, without those that get none.
fn mapped(text: &str, target: impl Fn(Section<'_>, &[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    let mapped = sections(text).map(&mut out, |section, present, out| {
        let target = target(section, present);
        out.extend(target.iter().flatten());
        Ok::<bool, std::convert::Infallible>(target.is_some())
    });
    let Ok(()) = mapped;
    out
}

/// Plans are made of texts.
fn texts_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests;
