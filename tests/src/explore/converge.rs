//! After the faults: everything agrees again within a bound, and every visit is counted.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::bounds::{CONVERGED, COUNTED};
use super::history::{Answer, State, Visit};
use super::judge::Effect;
use super::ledger::Ledger;
use super::report::Outcome;
use super::visitors::follow;
use super::world::World;
use crate::http::{self, Connection, request};
use crate::visits::Account;
use crate::wait::within;

/// Waits until each code is answered as SQL has it, nothing drifts and all is ready.
pub(super) fn wait(
    world: &mut World,
    ledger: &Ledger,
    owners: &[ScopedJoinHandle<'_, ()>],
    cleared: Instant,
    outcome: &mut Outcome,
) {
    let rest = || CONVERGED.limit.saturating_sub(cleared.elapsed());
    let mut left = |what: &str, ask: &mut dyn FnMut() -> Result<(), String>| {
        let mut problem = String::new();
        let done = within(rest(), || match ask() {
            Ok(()) => Some(()),
            Err(text) => {
                problem = text;
                None
            }
        });
        if done.is_none() {
            outcome.fail(CONVERGED.name, &format!("{what}: {problem}"));
        }
    };
    left("the API answers", &mut || {
        let is_done = owners.iter().all(ScopedJoinHandle::is_finished);
        is_done
            .then_some(())
            .ok_or_else(|| "not for all owners".to_owned())
    });
    let mut connection = None;
    let mut place = 0;
    left("codes are answered as SQL has them", &mut || {
        while place < ledger.subjects().len() {
            agree(world, ledger, place, &mut connection)?;
            place += 1;
        }
        Ok(())
    });
    left("all is ready", &mut || {
        world.supervise();
        for sidecar in &world.sidecars {
            let ready = ask(sidecar.port, "/readyz", &[])?.to_string();
            if !ready.contains("\"status\":\"ready\"") {
                return Err(ready);
            }
        }
        Ok(())
    });
    left("audit", &mut || {
        let output = world.sidecars[0].run(&["audit"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_clean = output.status.success() && text.contains("no drift");
        is_clean.then_some(()).ok_or(text)
    });
}

/// Looks for processes that crashed by themselves.
pub(super) fn look_for_crashes(world: &World, outcome: &mut Outcome) {
    let kills = ["exited on signal 9"];
    let log = world.nginx.error_log();
    let is_crash = |line: &&str| line.contains("exited on signal") || line.contains("panicked");
    let lines = log.lines().filter(is_crash);
    let lines = lines.filter(|line| !kills.iter().any(|kill| line.contains(kill)));
    for line in lines {
        outcome.fail("crash", &format!("nginx: {line}"));
    }
    for sidecar in &world.sidecars {
        let log = sidecar.log();
        for line in log.lines().filter(|line| line.contains("panicked")) {
            outcome.fail("crash", &format!("sidecar: {line}"));
        }
    }
}

/// Asks for JSON.
fn ask(port: u16, path: &str, headers: &[(&str, &str)]) -> Result<Value, String> {
    let bytes = request("GET", path, headers, b"");
    let answer = http::try_send(port, "GET", &bytes).map_err(|error| error.to_string())?;
    serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
}

/// Compares the answer for a code with SQL, and SQL with the states that were acknowledged.
fn agree(
    world: &World,
    ledger: &Ledger,
    place: usize,
    connection: &mut Option<Connection>,
) -> Result<(), String> {
    let sidecar = &world.sidecars[0];
    let (code, last) = {
        let subjects = ledger.subjects();
        let subject = &subjects[place];
        (subject.code.clone(), subject.history.last().clone())
    };
    let headers = [("X-Api-Key", &*sidecar.key)];
    let link = ask(sidecar.port, &format!("/v1/links/{code}"), &headers)?;
    let state = |member: &str| link[member].as_str().unwrap_or_default().to_owned();
    let (own, campaign) = (state("state"), state("campaignState"));
    let is_live = |state: &str| matches!(state, "live" | "");
    let expected = match &*own {
        "live" if is_live(&campaign) => Answer::Redirect(state("longUrl")),
        "live" | "paused" | "revoked" | "expired" => Answer::Gone,
        "scheduled" => Answer::Unknown,
        _ if link["status"] == 404 => Answer::Unknown,
        _ => return Err(format!("GET of {code}: {link}")),
    };
    // Only the model knows what a link was acknowledged to be.
    let model = match last.state {
        State::Unknown => matches!(own.as_str(), "scheduled" | ""),
        State::Live(_) => own == "live",
        State::Gone => matches!(own.as_str(), "paused" | "revoked" | "expired"),
    };
    if last.acknowledged.is_some() && !model {
        return Err(format!("SQL has {link}, acknowledged is {last:?}"));
    }
    let begin = ledger.now();
    let (answer, edge) = follow(world.nginx.public_port, &code, connection);
    ledger.visits().push(Visit {
        subject: place,
        begin,
        end: ledger.now(),
        answer: answer.clone(),
        edge: edge.clone(),
    });
    if answer == expected {
        return Ok(());
    }
    let record = world.record(&format!("sl:l:{code}"));
    Err(format!(
        "{code} is answered {answer:?} ({edge}), SQL says {expected:?}, Redis {record:?}"
    ))
}

/// Compares the visits that clients saw answered with those that are counted.
pub(super) fn count(world: &World, ledger: &Ledger, outcome: &mut Outcome) {
    let visits = ledger.visits();
    // 404 is no visit.
    let is_visit = |it: &&Visit| matches!(it.answer, Answer::Redirect(_) | Answer::Gone);
    let answered = visits.iter().filter(is_visit).count() as u64;
    let broken = visits
        .iter()
        .filter(|it| matches!(it.answer, Answer::Broken(_)));
    let broken = broken.count() as u64;
    drop(visits);
    let had = |effect| world.windows.iter().any(|it| it.effects.contains(&effect));
    let headers = [("X-Api-Key", &*world.sidecars[0].key)];
    let sidecar = world.sidecars[0].port;
    let mut problem = String::new();
    let look = || -> Result<(), String> {
        let page = request("GET", "/edge/metrics", &[], b"");
        let page = http::try_send(world.nginx.internal_port, "GET", &page);
        let page = page.map_err(|error| error.to_string())?;
        let account = Account::of(&String::from_utf8_lossy(&page.body));
        // A worker records a visit after its answer, and may be killed between the two; and an answer
        // may break that a visitor waits for.
        let spread = if had(Effect::NginxBreaks) {
            3 * super::VISITORS as u64
        } else {
            0
        } + broken;
        if account.total.abs_diff(answered) > spread {
            return Err(format!("{answered} answered, {account:?}"));
        }
        let stats = ask(sidecar, "/v1/stats", &headers)?;
        let stored = stats["visits"]["total"].as_u64().unwrap_or_default();
        let least = account.total - account.lost - account.dropped;
        let all = least..=account.total;
        let is_right = account.held == 0 && account.in_files == 0 && all.contains(&stored)
            || had(Effect::VisitsLost) && stored <= account.total;
        is_right
            .then_some(())
            .ok_or_else(|| format!("{stored} stored, {account:?}"))
    };
    let done = within(COUNTED.limit, || {
        let looked = look();
        // Not too often: the sidecar has the visits to store.
        crate::wait::pass(Duration::from_millis(50));
        looked.map_err(|text| problem = text).ok()
    });
    if done.is_none() {
        outcome.fail(COUNTED.name, &problem);
    }
}
