//! Visitors of a schedule: they follow its codes.

use std::io;
use std::time::Duration;

use super::history::{Answer, Visit};
use super::ledger::Ledger;
use crate::chance::Chance;
use crate::http::{Connection, Response, request};
use crate::wait::pass;

/// The pause of a visitor between two visits.
const PAUSE: Duration = Duration::from_millis(5);

/// Follows codes at random until it is over.
pub fn visit(ledger: &Ledger, port: u16, mut chance: Chance) {
    let mut connection: Option<Connection> = None;
    let mut visits = Vec::new();
    while !ledger.is_over() {
        let subject = {
            let subjects = ledger.subjects();
            let count = subjects.len() as u64;
            // The new ones more often, so that workers cache them.
            let place = match chance.below(2) {
                0 if count > 12 => count - 12 + chance.below(12),
                _ => chance.below(count.max(1)),
            } as usize;
            subjects.get(place).map(|it| (place, it.code.clone()))
        };
        if let Some((subject, code)) = subject {
            let begin = ledger.now();
            let (answer, edge) = follow(port, &code, &mut connection);
            visits.push(Visit {
                subject,
                begin,
                end: ledger.now(),
                answer,
                edge,
            });
        }
        pass(PAUSE);
    }
    ledger.visits().append(&mut visits);
}

/// Follows a code, with the connection that was kept if there is one.
pub fn follow(port: u16, code: &str, kept: &mut Option<Connection>) -> (Answer, String) {
    let bytes = request("GET", &format!("/{code}"), &[], b"");
    let ask = |mut connection: Connection| -> io::Result<(Response, Connection)> {
        connection.send(&bytes)?;
        let answer = connection.receive("GET")?;
        let answer = answer.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((answer, connection))
    };
    let is_kept = kept.is_some();
    let asked = match kept.take() {
        Some(connection) => ask(connection),
        None => Connection::open(port).and_then(ask),
    };
    match asked {
        Ok((answer, connection)) => {
            if answer.header("Connection") != Some("close") {
                *kept = Some(connection);
            }
            let edge = answer.header("X-Edge").unwrap_or_default().to_owned();
            let answer = match answer.status {
                302 => Answer::Redirect(answer.location().unwrap_or_default().to_owned()),
                404 => Answer::Unknown,
                410 => Answer::Gone,
                503 => Answer::Unavailable,
                status => Answer::Other(status),
            };
            (answer, edge)
        }
        // A server may close a connection that is idle.
        Err(error) if is_kept && error.kind() != io::ErrorKind::WouldBlock => {
            follow(port, code, kept)
        }
        Err(error) => (Answer::Broken(error.to_string()), String::new()),
    }
}
