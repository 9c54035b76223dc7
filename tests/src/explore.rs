//! Random schedules of one and two simultaneous faults on the real system, with a model that judges
//! every answer.
//!
//! - [`plan`]: the world and the faults of a seed.
//! - [`world`]: the real servers, the proxies between them, and the faults.
//! - [`owners`]: clients that change links, and [`visitors`], who follow them.
//! - [`ledger`]: what they know.
//! - [`history`]: the states that were asked for and acknowledged, and the answers.
//! - [`bounds`]: how old an answer may be, each bound with its name.
//! - [`judge`]: whether the bounds allow an answer.
//! - [`report`]: an outcome as text.
//!
//! A seed decides the faults, their moments and the draws of the clients. Processes are scheduled by
//! the machine, so a seed that fails seldom may need several runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::wait::pass;

pub mod bounds;
mod converge;
pub mod history;
pub mod judge;
pub mod ledger;
pub mod owners;
pub mod plan;
pub mod report;
pub mod visitors;
pub mod world;

use judge::{Judge, Stall, Violation};
use ledger::Ledger;
use owners::Owner;
use plan::Plan;
use report::Outcome;
use world::World;

/// Number of clients that change links.
const OWNERS: usize = 3;

/// Number of clients that follow them.
const VISITORS: usize = 4;

/// A thread that sleeps for a moment and wakes later than after this time saw the machine stall.
const STALL: Duration = Duration::from_millis(100);

/// Runs a schedule and judges it.
pub fn run(plan: &Plan) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| explore(plan)));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        let mut outcome = Outcome::of(plan);
        outcome.fail("tool", text.as_deref().unwrap_or("a panic"));
        outcome
    })
}

/// Ends the clients of a schedule, also when it panics.
struct EndAll<'a>(&'a Ledger);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        self.0.end_visitors();
    }
}

fn explore(plan: &Plan) -> Outcome {
    let mut world = World::start(plan);
    let ledger = Ledger::new(world.begin());
    let mut outcome = Outcome::of(plan);
    let ports: Vec<u16> = world.sidecars.iter().map(|sidecar| sidecar.port).collect();
    let key = world.sidecars[0].key.clone();
    let public = world.nginx.public_port;
    let mut chance = Chance::of(plan.seed);
    let stalls = thread::scope(|scope| {
        let _end = EndAll(&ledger);
        let owners: Vec<_> = (1..=OWNERS)
            .map(|name| {
                let chance = Chance::of(chance.below(u64::MAX));
                let mut owner = Owner::new(&ledger, ports.clone(), &key, chance, name);
                scope.spawn(move || owner.work())
            })
            .collect();
        for _ in 0..VISITORS {
            let chance = Chance::of(chance.below(u64::MAX));
            let ledger = &ledger;
            scope.spawn(move || visitors::visit(ledger, public, chance));
        }
        let watch = scope.spawn(|| watch(&ledger));
        disturb(plan, &mut world, &ledger);
        ledger.end_owners();
        let cleared = Instant::now();
        converge::wait(&mut world, &ledger, &owners, cleared, &mut outcome);
        ledger.end_visitors();
        watch.join().expect("the watch")
    });
    converge::look_for_crashes(&world, &mut outcome);
    converge::count(&world, &ledger, &mut outcome);
    let judge = Judge {
        windows: world.windows.clone(),
        stalls,
        stale: plan.world.stale,
    };
    judge_all(&judge, &ledger, &mut outcome);
    outcome
}

/// Begins and ends the faults at their moments.
fn disturb(plan: &Plan, world: &mut World, ledger: &Ledger) {
    let mut moments: Vec<(Duration, usize, bool)> = Vec::new();
    for (place, timed) in plan.faults.iter().enumerate() {
        moments.push((timed.begin, place, true));
        moments.push((timed.end, place, false));
    }
    moments.sort_unstable();
    let mut windows = vec![0; plan.faults.len()];
    for (moment, place, is_begin) in moments {
        world.pass(moment.saturating_sub(ledger.now()));
        let fault = plan.faults[place].fault;
        if is_begin {
            windows[place] = world.begin_fault(fault);
        } else {
            world.end_fault(fault, windows[place]);
        }
    }
    world.pass(plan.length.saturating_sub(ledger.now()));
}

/// Notes the times in which the machine stands still.
fn watch(ledger: &Ledger) -> Vec<Stall> {
    let mut stalls = Vec::new();
    while !ledger.is_over() {
        let before = ledger.now();
        pass(Duration::from_millis(20));
        let length = ledger.now().saturating_sub(before);
        if length > STALL {
            stalls.push((before, length));
        }
    }
    stalls
}

fn judge_all(judge: &Judge, ledger: &Ledger, outcome: &mut Outcome) {
    let (subjects, campaigns) = (ledger.subjects(), ledger.campaigns());
    let visits = ledger.visits();
    let mut violations: Vec<Violation> = Vec::new();
    for visit in visits.iter() {
        let subject = &subjects[visit.subject];
        let campaign = subject.campaign.map(|place| &campaigns[place].history);
        if let Err(violation) = judge.judge(&subject.history, campaign, visit) {
            violations.push(*violation);
        }
    }
    for refusal in ledger.refusals().iter() {
        outcome.fail("refused", refusal);
    }
    outcome.take(judge, &subjects, &campaigns, &visits, &violations);
}
