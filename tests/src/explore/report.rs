//! The outcome of a schedule as text.

use std::collections::BTreeMap;
use std::fmt;

use super::history::{History, Moment, Visit};
use super::judge::{Judge, Violation, Window};
use super::ledger::{Campaign, Subject};
use super::plan::Plan;

/// The number of violations of each bound that a report shows.
const SHOWN: usize = 3;

/// The outcome of a schedule.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// The violated bounds with the numbers of their violations.
    pub bounds: BTreeMap<&'static str, usize>,
    /// Number of visits.
    pub visits: usize,
    /// Number of states that were asked for.
    pub changes: usize,
    windows: Vec<Window>,
    texts: Vec<String>,
}

impl Outcome {
    /// An outcome without problems.
    pub fn of(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            bounds: BTreeMap::new(),
            visits: 0,
            changes: 0,
            windows: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Returns whether every bound was met.
    pub fn is_good(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Adds a violation of a bound.
    pub fn fail(&mut self, bound: &'static str, text: &str) {
        *self.bounds.entry(bound).or_default() += 1;
        self.texts.push(format!("{bound}: {text}"));
    }

    /// Takes what was judged.
    pub(super) fn take(
        &mut self,
        judge: &Judge,
        subjects: &[Subject],
        campaigns: &[Campaign],
        visits: &[Visit],
        violations: &[Violation],
    ) {
        self.windows.clone_from(&judge.windows);
        self.visits = visits.len();
        let histories = subjects.iter().map(|it| &it.history);
        let histories = histories.chain(campaigns.iter().map(|it| &it.history));
        self.changes = histories.map(|it| it.versions.len() - 1).sum();
        let mut seen: BTreeMap<(&str, usize), usize> = BTreeMap::new();
        for violation in violations {
            *self.bounds.entry(violation.bound).or_default() += 1;
            *seen
                .entry((violation.bound, violation.visit.subject))
                .or_default() += 1;
        }
        let mut shown: BTreeMap<&str, usize> = BTreeMap::new();
        for violation in violations {
            let Violation { visit, bound, text } = violation;
            // Each code once for a bound.
            let Some(count) = seen.remove(&(*bound, visit.subject)) else {
                continue;
            };
            let shown = shown.entry(bound).or_default();
            *shown += 1;
            if *shown > SHOWN {
                continue;
            }
            let subject = &subjects[visit.subject];
            let campaign = subject.campaign.map(|place| &campaigns[place].history);
            let own: Vec<&Visit> = visits
                .iter()
                .filter(|it| it.subject == visit.subject)
                .collect();
            self.texts.push(format!(
                "{bound}: {text}; {} at {:.3} s: {:?} ({}), {count} such visits\n{}",
                subject.code,
                visit.begin.as_secs_f64(),
                visit.answer,
                visit.edge,
                story(&subject.history, campaign, own),
            ));
        }
    }
}

/// The states and answers of a code in the order of time, equal answers together.
fn story(link: &History, campaign: Option<&History>, mut visits: Vec<&Visit>) -> String {
    let mut lines: Vec<(Moment, String)> = Vec::new();
    let histories = [("link", Some(link)), ("campaign", campaign)];
    for (name, history) in histories {
        for version in history.into_iter().flat_map(|it| &it.versions) {
            let acknowledged = match version.acknowledged {
                Some(at) => format!("acknowledged at {:.3} s", at.as_secs_f64()),
                None => "never acknowledged".to_owned(),
            };
            let text = format!(
                "{name}: {:?}, {acknowledged}, published: {}",
                version.state, version.published
            );
            lines.push((version.sent, text));
        }
    }
    visits.sort_by_key(|visit| visit.begin);
    // A change between two visits ends a run of equal answers.
    let changes: Vec<Moment> = lines.iter().map(|(moment, _)| *moment).collect();
    let same = |one: &&Visit, other: &&Visit| {
        let between = |at: &Moment| one.begin < *at && *at <= other.begin;
        one.answer == other.answer && one.edge == other.edge && !changes.iter().any(between)
    };
    for run in visits.chunk_by(same) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let text = format!(
            "  {} visits until {:.3} s: {:?} ({})",
            run.len(),
            last.end.as_secs_f64(),
            first.answer,
            first.edge
        );
        lines.push((first.begin, text));
    }
    lines.sort_by_key(|(moment, _)| *moment);
    let lines = lines
        .iter()
        .map(|(moment, text)| format!("      {:7.3} s  {text}", moment.as_secs_f64()));
    lines.collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_good() {
            let faults = self.plan.faults.len();
            let (seed, visits, changes) = (self.plan.seed, self.visits, self.changes);
            return write!(
                out,
                "seed {seed}: good, {faults} faults, {changes} changes, {visits} visits"
            );
        }
        write!(out, "{}", self.plan)?;
        for window in &self.windows {
            let end = window.end.map_or(f64::INFINITY, |end| end.as_secs_f64());
            let begin = window.begin.as_secs_f64();
            writeln!(
                out,
                "  was {begin:7.3} s to {end:7.3} s  {} {:?}",
                window.name, window.effects
            )?;
        }
        writeln!(
            out,
            "  violated: {:?} of {} visits",
            self.bounds, self.visits
        )?;
        for text in &self.texts {
            writeln!(out, "    {text}")?;
        }
        write!(out, "  again: make explore SEED={}", self.plan.seed)
    }
}
