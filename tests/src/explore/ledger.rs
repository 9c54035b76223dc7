//! The knowledge of the clients of a schedule: codes with the states that were asked for, visits, refusals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use super::history::{History, Moment, Visit};
use crate::chance::Chance;

/// A code with the states of its link.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The code.
    pub code: String,
    /// The states of the link.
    pub history: History,
    /// The place of its campaign.
    pub campaign: Option<usize>,
    /// Set while an owner works on it, and for good when nothing more can be done, or the effect of a
    /// request may still come.
    pub(super) busy: bool,
}

/// A campaign with its states.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The id.
    pub id: String,
    /// The states.
    pub history: History,
    pub(super) busy: bool,
}

/// Everything that the clients know.
#[derive(Debug)]
pub struct Ledger {
    /// The beginning of the schedule.
    begin: Instant,
    subjects: Mutex<Vec<Subject>>,
    campaigns: Mutex<Vec<Campaign>>,
    visits: Mutex<Vec<Visit>>,
    /// Refusals of the API that have no reason.
    refusals: Mutex<Vec<String>>,
    /// Set when owners change nothing more, and visitors leave.
    owners_over: AtomicBool,
    visitors_over: AtomicBool,
}

impl Ledger {
    /// An empty one.
    pub fn new(begin: Instant) -> Self {
        Self {
            begin,
            subjects: Mutex::default(),
            campaigns: Mutex::default(),
            visits: Mutex::default(),
            refusals: Mutex::default(),
            owners_over: AtomicBool::new(false),
            visitors_over: AtomicBool::new(false),
        }
    }

    /// The time since the beginning.
    pub fn now(&self) -> Moment {
        self.begin.elapsed()
    }

    /// The codes.
    ///
    /// # Panics
    /// When another holder did.
    pub fn subjects(&self) -> MutexGuard<'_, Vec<Subject>> {
        self.subjects.lock().expect("no holder panics")
    }

    /// The campaigns.
    ///
    /// # Panics
    /// When another holder did.
    pub fn campaigns(&self) -> MutexGuard<'_, Vec<Campaign>> {
        self.campaigns.lock().expect("no holder panics")
    }

    /// The visits.
    ///
    /// # Panics
    /// When another holder did.
    pub fn visits(&self) -> MutexGuard<'_, Vec<Visit>> {
        self.visits.lock().expect("no holder panics")
    }

    /// Refusals of the API that have no reason.
    ///
    /// # Panics
    /// When another holder did.
    pub fn refusals(&self) -> MutexGuard<'_, Vec<String>> {
        self.refusals.lock().expect("no holder panics")
    }

    /// Ends the work of the owners, once what they have begun is answered.
    pub fn end_owners(&self) {
        self.owners_over.store(true, Ordering::SeqCst);
    }

    /// Ends the visits.
    pub fn end_visitors(&self) {
        self.visitors_over.store(true, Ordering::SeqCst);
        self.end_owners();
    }

    /// Returns whether the visitors are to leave.
    pub fn is_over(&self) -> bool {
        self.visitors_over.load(Ordering::SeqCst)
    }

    /// Returns whether the owners are to change nothing more.
    pub(super) fn are_owners_over(&self) -> bool {
        self.owners_over.load(Ordering::SeqCst)
    }

    /// Marks a code that fits as busy.
    pub(super) fn claim_subject(
        &self,
        chance: &mut Chance,
        fits: impl Fn(&Subject) -> bool,
    ) -> Option<usize> {
        let mut subjects = self.subjects();
        let found = |it: &(usize, &Subject)| !it.1.busy && fits(it.1);
        let places = subjects.iter().enumerate().filter(found);
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        let place = *places.get(chance.below(places.len().max(1) as u64) as usize)?;
        subjects[place].busy = true;
        Some(place)
    }
}
