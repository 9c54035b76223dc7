//! Links and their changes.

mod dedupe;
mod destination;
mod second;
mod upload;
mod values;

use std::num::NonZeroU64;

use jiff::Timestamp;
use vocabulary::parameters::Parameters;
use vocabulary::{
    CampaignLinkRecord, Code, Instead, LinkRecord, Phase, Record, RedirectStatus, Validity,
};

use crate::codes::strategy::CodeOrigin;
use crate::plan::{self, Plan, PlanChange};
use crate::revised::{self, Revised, overwrite, revised};
pub use crate::revised::{Expected, Refusal};
use crate::target::Target;
pub use dedupe::{Dedupe, Window, WindowError};
pub use destination::Destination;
pub use second::{Second, since_1970};
pub use upload::{UploadId, UploadIdError};
pub use values::ParameterValues;
pub use vocabulary::State;

/// A short link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its code, unique for ever: a revoked link's code is not issued again.
    pub code: Code,
    /// Target, its own or its campaign's.
    pub destination: Destination,
    /// Redirect status, for a target of its own.
    pub redirect_status: RedirectStatus,
    /// Appends the visitor's query, for a target of its own.
    pub forward_query: bool,
    /// Rules for some visitors and targets instead of 410 and 404, for a target of its own.
    pub plan: Option<Box<Plan>>,
    /// 1 for a new link, one more for each change.
    pub revision: u64,
    /// Before this second it answers 404.
    pub valid_since: Option<Second>,
    /// From this second on it answers 410.
    pub valid_until: Option<Second>,
    /// Approximate number of visits after which it ends. The storage of visits enforces it:
    /// redirects wait for no counter, so a few more get through.
    pub max_visits: Option<NonZeroU64>,
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
    /// The upload that created it. It never changes.
    pub upload: Option<UploadId>,
    /// The way in which its code was chosen. It never changes; `None` for a link that was stored before this was
    /// recorded, or imported without it.
    pub strategy: Option<CodeOrigin>,
    /// The short domain of its short URL, while that is active for it.
    pub domain: Option<String>,
    /// External id: the caller's name of it. Several links may share one.
    pub external_id: Option<String>,
    /// Caller's note.
    pub note: Option<String>,
    /// Tags, in ascending order without duplicates.
    pub tags: Vec<String>,
}

/// Changes to a link, or the settings of a new one. `None` leaves a member unchanged, or at its
/// default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// A new target; for links that have one of their own.
    pub target: Option<Target>,
    /// Other values for the campaign's target; for links of campaigns.
    pub values: Option<ParameterValues>,
    /// The new redirect status; for links that have a target of their own.
    pub redirect_status: Option<RedirectStatus>,
    /// The new choice of forwarding the query; for links that have a target of their own.
    pub forward_query: Option<bool>,
    /// Changes to the plan; for links that have a target of their own.
    pub plan: PlanChange,
    /// The new start of validity, or `Some(None)` for none.
    pub valid_since: Option<Option<Second>>,
    /// The new end of validity, or `Some(None)` for none.
    pub valid_until: Option<Option<Second>>,
    /// The new limit of visits, or `Some(None)` for none.
    pub max_visits: Option<Option<NonZeroU64>>,
    /// The new short domain, or `Some(None)` for none.
    pub domain: Option<Option<String>>,
    /// The new external id, or `Some(None)` for none.
    pub external_id: Option<Option<String>>,
    /// The new note, or `Some(None)` for none.
    pub note: Option<Option<String>>,
    /// The new tags, in ascending order without duplicates.
    pub tags: Option<Vec<String>>,
}

impl Change {
    /// Writes the settings of a new link down, each in a part of its own, for the digest by which
    /// identical requests are found. A member that is added later writes no part while it has its
    /// default.
    pub fn write_parts(&self, add: &mut impl FnMut(&[u8])) {
        let second = |bound: Option<Option<Second>>| {
            let second = bound.flatten().map_or(0, Second::get);
            second.to_be_bytes()
        };
        let text = |text: &Option<Option<String>>| text.clone().flatten().unwrap_or_default();
        let most = self.max_visits.flatten().map_or(0, NonZeroU64::get);
        add(&self
            .redirect_status
            .unwrap_or_default()
            .code()
            .to_be_bytes());
        add(&second(self.valid_since));
        add(&second(self.valid_until));
        add(&most.to_be_bytes());
        // Neither of these is ever empty.
        add(text(&self.external_id).as_bytes());
        add(text(&self.note).as_bytes());
        for tag in self.tags.iter().flatten() {
            add(tag.as_bytes());
        }
        let plan = self.plan.text_after(None);
        if !plan.is_empty() {
            // No tag has a control character.
            add(&[b'=', 2]);
            add(plan.as_bytes());
        }
        if let Some(domain) = self.domain.iter().flatten().next() {
            add(&[b'=', 3]);
            add(domain.as_bytes());
        }
    }
}

/// Result of an attempt to change a link.
pub type Edit = revised::Edit<Link>;

revised!(Link);

/// A change that a link has been through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastChange {
    /// Time of the change.
    pub changed_at: Timestamp,
    /// The id of the API key that it was changed with.
    pub changed_by: String,
    /// The link before the change.
    pub before: Link,
}

impl Link {
    /// A new link.
    pub fn new(
        code: Code,
        destination: Destination,
        settings: Change,
        created_by: String,
        now: Timestamp,
    ) -> Self {
        let mut link = Self {
            code,
            destination,
            redirect_status: RedirectStatus::default(),
            forward_query: false,
            plan: None,
            revision: 1,
            valid_since: None,
            valid_until: None,
            max_visits: None,
            paused_at: None,
            revoked_at: None,
            created_at: now,
            updated_at: now,
            created_by,
            upload: None,
            strategy: None,
            domain: None,
            external_id: None,
            note: None,
            tags: Vec::new(),
        };
        let plan = settings.plan.clone();
        link.set(settings);
        link.plan_anew(&plan);
        link
    }

    /// Applies what a change specifies, but for the destination.
    fn set(&mut self, change: Change) {
        overwrite!(self, change: redirect_status, forward_query, valid_since, valid_until);
        overwrite!(self, change: max_visits, domain, external_id, note, tags);
    }

    /// Makes the plan again for the target and a change.
    fn plan_anew(&mut self, change: &PlanChange) {
        if self.plan.is_none() && change.is_empty() {
            return;
        }
        let text = change.text_after(self.plan.as_deref());
        self.plan = Plan::of_destination(text, &self.destination);
    }

    /// The members, by the API's names, in which the link is not as another one is.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let targets = [self, other].map(|it| it.destination.target());
        let values = [self, other].map(|it| it.destination.values());
        let members = [
            ("longUrl", targets[0] == targets[1]),
            ("parameters", values[0] == values[1]),
            (
                "redirectStatus",
                self.redirect_status == other.redirect_status,
            ),
            ("forwardQuery", self.forward_query == other.forward_query),
            ("validSince", self.valid_since == other.valid_since),
            ("validUntil", self.valid_until == other.valid_until),
            ("maxVisits", self.max_visits == other.max_visits),
            ("domain", self.domain == other.domain),
            ("externalId", self.external_id == other.external_id),
            ("note", self.note == other.note),
            ("tags", self.tags == other.tags),
        ];
        let different = members.into_iter().filter(|(_, is_same)| !is_same);
        let plans = [self, other].map(|it| it.plan.as_deref());
        let different = different.map(|(name, _)| name);
        different
            .chain(plan::differences(plans[0], plans[1]))
            .collect()
    }

    /// Returns the link's state at a moment.
    pub fn state(&self, now: Timestamp) -> State {
        let (since, until) = self.bounds();
        let phase = Phase::at(since_1970(now), since, until);
        State::new(phase, self.paused_at.is_some(), self.revoked_at.is_some())
    }

    /// Applies a change.
    pub fn change(self, change: &Change, now: Timestamp) -> Edit {
        let says_how = change.target.is_some()
            || change.redirect_status.is_some()
            || change.forward_query.is_some()
            || !change.plan.is_empty();
        let refusal = match &self.destination {
            _ if self.revoked_at.is_some() => Some(Refusal::Revoked),
            Destination::Target(_) => change.values.is_some().then_some(Refusal::OfNoCampaign),
            Destination::Campaign { .. } => says_how.then_some(Refusal::OfCampaign),
        };
        if let Some(refusal) = refusal {
            return Edit::Refused(refusal);
        }
        let edit = self.edited(now, |link| {
            match (&mut link.destination, &change.target, &change.values) {
                (Destination::Target(target), Some(new), _) => target.clone_from(new),
                (Destination::Campaign { values, .. }, _, Some(new)) => values.clone_from(new),
                _ => {}
            }
            link.set(change.clone());
            link.plan_anew(&change.plan);
        });
        match edit {
            Edit::Changed(link) if is_never_valid(link.valid_since, link.valid_until) => {
                Edit::Refused(Refusal::NeverValid)
            }
            Edit::Changed(link) if link.plan.as_ref().is_some_and(|it| !it.fits_link()) => {
                Edit::Refused(Refusal::PlanTooLong)
            }
            edit => edit,
        }
    }

    /// Ends an A/B test: the target of a variant becomes that of the link. Without variants, the link
    /// stays as it is; a name of none of them is refused.
    pub fn win(self, variant: &str, now: Timestamp) -> Edit {
        if self.destination.campaign().is_some() {
            return Edit::Refused(Refusal::OfCampaign);
        }
        if let Some(names) = plan::missing_variant(self.plan.as_deref(), variant) {
            return Edit::Refused(Refusal::NoVariant { names });
        }
        let ended = self.plan.as_ref().and_then(|plan| plan.ended(variant));
        let change = ended.map_or_else(Change::default, |ended| Change {
            target: ended.target.map(Target::from_stored),
            plan: PlanChange {
                rules: Some(ended.rules),
                ..PlanChange::default()
            },
            ..Change::default()
        });
        self.change(&change, now)
    }

    /// Reports whether the link can be returned in place of a new one: it equals the wanted one but
    /// for its creator and code, and has not ended.
    pub fn stands_for(&self, wanted: &Self, now: Timestamp) -> bool {
        matches!(self.state(now), State::Live | State::Scheduled)
            && self.destination == wanted.destination
            && self.differences(wanted).is_empty()
    }

    /// Returns the second in which it has ended: that of its revocation, or else of its expiry. A paused link can
    /// be resumed and has not ended, nor has one that redirects after its expiry.
    pub fn ended_s(&self, now: Timestamp) -> Option<u64> {
        let revoked = self.revoked_at.map(since_1970);
        let expired = self.bounds().1.map(NonZeroU64::get);
        let expired = expired.filter(|_| self.instead(Instead::Expired).is_none());
        revoked.or_else(|| expired.filter(|&second| second <= since_1970(now)))
    }

    /// The record that stands for the link in Redis.
    pub fn record(&self) -> Record<'_> {
        if self.revoked_at.is_some() || self.paused_at.is_some() {
            // To the edge a pause is a revocation that a later revision undoes, or another target.
            let plan = self.plan.as_deref().filter(|_| self.revoked_at.is_none());
            return plan::record_of_pause(plan, self.revision, self.bounds().1);
        }
        match &self.destination {
            Destination::Target(target) => {
                let plan = self.plan.as_deref();
                let has_click_id = plan.is_some_and(|plan| plan.click_id().is_some());
                let only = match plan {
                    None => Some(target.as_str().as_bytes()),
                    Some(plan) => plan.only_target(),
                };
                Record::Link(LinkRecord {
                    status: match has_click_id {
                        false => self.redirect_status,
                        // Browsers store the others, and would repeat one id.
                        true => self.redirect_status.temporary(),
                    },
                    forwards_query: self.forward_query,
                    has_click_id,
                    revision: self.revision,
                    validity: self.validity(),
                    is_plan: only.is_none(),
                    target: only.or(plan.map(Plan::record)).unwrap_or_default(),
                })
            }
            Destination::Campaign { id, values } => Record::CampaignLink(CampaignLinkRecord {
                campaign: *id,
                revision: self.revision,
                validity: self.validity(),
                parameters: Parameters::from_checked(values.as_str().as_bytes()),
            }),
        }
    }

    /// The target instead of an answer.
    fn instead(&self, of: Instead) -> Option<&str> {
        self.plan.as_ref()?.instead(of)
    }

    /// Returns the period in which it redirects.
    fn validity(&self) -> Validity {
        let (since, until) = self.bounds();
        // The period was checked when the link was created or changed. If it ends before it begins
        // nevertheless, its end counts.
        Validity::new(since, until)
            .or_else(|| Validity::new(None, until))
            .unwrap_or_default()
    }

    /// Returns the first second and the second from which it has expired.
    fn bounds(&self) -> (Option<NonZeroU64>, Option<NonZeroU64>) {
        let bound = |second: Option<Second>| second.map(Second::non_zero);
        (bound(self.valid_since), bound(self.valid_until))
    }
}

/// Reports whether a link with these bounds would never redirect.
pub fn is_never_valid(since: Option<Second>, until: Option<Second>) -> bool {
    since
        .zip(until)
        .is_some_and(|(since, until)| since >= until)
}

#[cfg(test)]
pub(crate) mod tests;
