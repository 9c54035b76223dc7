//! Owners of a schedule: they create and change links and campaigns.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::history::{History, Moment, State};
use super::ledger::{Campaign, Ledger, Subject};
use crate::calendar::{format_time, now, since_1970};
use crate::chance::Chance;
use crate::http::{Connection, Response, request};
use crate::wait::pass;

/// The longest wait of an owner for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The time around a link's beginning or end in which workers may see the one or the other second:
/// nginx reads the clock once per turn of its event loop.
const TOLERANCE: Duration = Duration::from_millis(50);

/// The most codes of a schedule.
const MOST: usize = 60;

/// A client that creates and changes links and campaigns.
#[derive(Debug)]
pub struct Owner<'w> {
    ledger: &'w Ledger,
    /// The ports of the sidecars' API.
    ports: Vec<u16>,
    key: &'w str,
    chance: Chance,
    name: usize,
    made: usize,
}

/// The answer to a request that was repeated until it was answered.
struct Answered {
    body: Value,
    status: u16,
    /// Returns whether an earlier copy of the request may still take effect.
    repeated: bool,
}

impl<'w> Owner<'w> {
    /// A client with a name.
    pub fn new(
        ledger: &'w Ledger,
        ports: Vec<u16>,
        key: &'w str,
        chance: Chance,
        name: usize,
    ) -> Self {
        Self {
            ledger,
            ports,
            key,
            chance,
            name,
            made: 0,
        }
    }

    /// Works until it is over.
    pub fn work(&mut self) {
        while !self.ledger.are_owners_over() {
            self.act();
            let pause = Duration::from_millis(20 + self.chance.below(160));
            pass(pause);
        }
    }

    fn act(&mut self) {
        match self.chance.below(20) {
            0..=4 => self.plan(),
            5..=8 => self.create_planned(),
            9 => self.create_issued(),
            10 => match self.chance.below(2) {
                0 => self.create_scheduled(),
                _ => self.create_timed(),
            },
            11..=12 => self.change(|state| matches!(state, State::Live(_)), Change::Target),
            13 => self.change(|state| matches!(state, State::Live(_)), Change::Pause),
            14..=15 => self.change(|state| *state == State::Gone, Change::Resume),
            16 => self.change(|state| matches!(state, State::Live(_)), Change::Revoke),
            17 => self.create_campaign(),
            18 => self.create_member(),
            _ => self.change_campaign(),
        }
    }

    fn fresh_name(&mut self) -> usize {
        self.made += 1;
        self.name * 1000 + self.made
    }

    fn is_crowded(&self) -> bool {
        self.ledger.subjects().len() >= MOST
    }

    /// A code that visitors ask for before there is a link.
    fn plan(&mut self) {
        if self.is_crowded() {
            return;
        }
        let number = self.fresh_name();
        self.ledger.subjects().push(Subject {
            code: format!("x{number}"),
            history: History::default(),
            campaign: None,
            busy: false,
        });
    }

    fn create_planned(&mut self) {
        // The link of a campaign, too, may have a custom code.
        let fresh = |it: &Subject| it.history.versions.len() == 1;
        let Some(place) = self.ledger.claim_subject(&mut self.chance, fresh) else {
            return;
        };
        let target = self.fresh_target();
        let code = self.ledger.subjects()[place].code.clone();
        let body = json!({ "longUrl": target, "customSlug": code });
        self.create(place, State::Live(target), &body);
    }

    fn create_scheduled(&mut self) {
        let fresh = |it: &Subject| it.history.versions.len() == 1;
        let Some(place) = self.ledger.claim_subject(&mut self.chance, fresh) else {
            return;
        };
        let code = self.ledger.subjects()[place].code.clone();
        let target = self.fresh_target();
        let body = json!({
            "longUrl": target, "customSlug": code, "validSince": "2999-01-01T00:00:00Z"
        });
        self.create(place, State::Unknown, &body);
        // Begun by a change later.
        let is_begun = self.ledger.are_owners_over();
        let is_free = {
            let mut subjects = self.ledger.subjects();
            let is_free = !subjects[place].busy;
            subjects[place].busy = true;
            is_free
        };
        if is_begun || !is_free {
            return;
        }
        pass(Duration::from_millis(300));
        let body = json!({ "validSince": null });
        let path = format!("/v1/links/{code}");
        self.apply(place, State::Live(target), "PATCH", &path, Some(&body));
    }

    /// A link that begins or ends by itself: soon, or in half an hour.
    fn create_timed(&mut self) {
        let fresh = |it: &Subject| it.history.versions.len() == 1;
        let Some(place) = self.ledger.claim_subject(&mut self.chance, fresh) else {
            return;
        };
        let code = self.ledger.subjects()[place].code.clone();
        let target = self.fresh_target();
        let seconds = now() + 3 + self.chance.below(4);
        let live = State::Live(target.clone());
        let (member, seconds, first, then) = match self.chance.below(3) {
            0 => ("validSince", seconds, State::Unknown, Some(live)),
            1 => ("validUntil", seconds, live, Some(State::Gone)),
            _ => ("validUntil", seconds + 1800, live, None),
        };
        let body = json!({ "longUrl": target, "customSlug": code, member: format_time(seconds) });
        self.ledger.subjects()[place].history.is_timed = true;
        let is_made = self.apply(place, first, "POST", "/v1/links", Some(&body));
        // The moment of the change, once its second is over.
        let at = self.ledger.now() + until_second(seconds);
        let mut subjects = self.ledger.subjects();
        let subject = &mut subjects[place];
        if is_made && let Some(state) = then {
            subject.history.expect(state, at, TOLERANCE);
        }
        subject.busy = true;
    }

    fn create_issued(&mut self) {
        if self.is_crowded() {
            return;
        }
        let target = self.fresh_target();
        let sent = self.ledger.now();
        let body = json!({ "longUrl": target });
        let answered = self.ask("POST", "/v1/links", Some(&body));
        self.add(answered, sent, State::Live(target), None);
    }

    fn create_member(&mut self) {
        let campaigns = self.ledger.campaigns().len();
        if self.is_crowded() || campaigns == 0 {
            return;
        }
        let place = self.chance.below(campaigns as u64) as usize;
        let id = self.ledger.campaigns()[place].id.clone();
        let member = format!("m{}", self.fresh_name());
        let body = json!({ "campaignId": id, "parameters": { "m": member } });
        let sent = self.ledger.now();
        let answered = self.ask("POST", "/v1/links", Some(&body));
        self.add(answered, sent, State::Live(member), Some(place));
    }

    /// Adds a link with a code that was issued.
    fn add(
        &mut self,
        answered: Option<Answered>,
        sent: Moment,
        state: State,
        campaign: Option<usize>,
    ) {
        // A campaign may be revoked by now: 422.
        let Some(answered) = answered.filter(|answered| answered.status == 201) else {
            return;
        };
        let mut history = History::default();
        history.ask(state, sent);
        history.acknowledge(self.ledger.now(), answered.body["published"] == true);
        self.ledger.subjects().push(Subject {
            code: answered.body["shortCode"]
                .as_str()
                .unwrap_or("?")
                .to_owned(),
            history,
            campaign,
            busy: false,
        });
    }

    fn create(&mut self, place: usize, state: State, body: &Value) {
        self.apply(place, state, "POST", "/v1/links", Some(body));
    }

    fn fresh_target(&mut self) -> String {
        format!("https://example.com/{}", self.fresh_name())
    }

    fn change(&mut self, fits: impl Fn(&State) -> bool, change: Change) {
        let fits = |it: &Subject| {
            it.history.versions.len() > 1
                && fits(&it.history.last().state)
                && (it.campaign.is_none() || change != Change::Target)
        };
        let Some(place) = self.ledger.claim_subject(&mut self.chance, fits) else {
            return;
        };
        let (code, last_live) = {
            let subjects = self.ledger.subjects();
            let versions = subjects[place].history.versions.iter().rev();
            let mut live = versions.filter(|it| matches!(it.state, State::Live(_)));
            let live = live.next().map(|it| it.state.clone());
            (subjects[place].code.clone(), live)
        };
        let path = format!("/v1/links/{code}");
        match change {
            Change::Target => {
                let target = self.fresh_target();
                let body = json!({ "longUrl": target });
                self.apply(place, State::Live(target), "PATCH", &path, Some(&body));
            }
            Change::Pause => {
                self.apply(place, State::Gone, "POST", &format!("{path}/pause"), None);
            }
            Change::Resume => {
                let state = last_live.unwrap_or(State::Unknown);
                self.apply(place, state, "POST", &format!("{path}/resume"), None);
            }
            Change::Revoke => {
                self.apply(place, State::Gone, "DELETE", &path, None);
                // Nothing follows.
                self.ledger.subjects()[place].busy = true;
            }
        }
    }

    /// Asks for a state of a link until it is acknowledged, and returns whether it was.
    fn apply(
        &mut self,
        place: usize,
        state: State,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> bool {
        let sent = self.ledger.now();
        self.ledger.subjects()[place].history.ask(state, sent);
        let answered = self.ask(method, path, body);
        let mut subjects = self.ledger.subjects();
        let subject = &mut subjects[place];
        let Some(answered) = answered else {
            return false;
        };
        // A sidecar whose clock is ahead refuses an end that is past for it.
        if answered.status == 422 && subject.history.is_timed {
            subject.history.versions.pop();
            return false;
        }
        if answered.status >= 300 {
            self.refuse(method, path, &answered);
            return false;
        }
        let published = answered.body["published"] == true;
        subject.history.acknowledge(self.ledger.now(), published);
        subject.busy = answered.repeated;
        true
    }

    fn create_campaign(&mut self) {
        if self.ledger.campaigns().len() >= 4 {
            return;
        }
        let prefix = format!("https://example.com/c{}/", self.fresh_name());
        let sent = self.ledger.now();
        let body = json!({ "name": "explored", "longUrl": format!("{prefix}{{m}}") });
        // It is not repeated: a second campaign would be no harm.
        let Some(answered) = self.ask("POST", "/v1/campaigns", Some(&body)) else {
            return;
        };
        let mut history = History::default();
        history.ask(State::Live(prefix), sent);
        history.acknowledge(self.ledger.now(), answered.body["published"] == true);
        // A link can only be there after its campaign.
        history.versions.remove(0);
        self.ledger.campaigns().push(Campaign {
            id: answered.body["id"].as_str().unwrap_or("?").to_owned(),
            history,
            busy: false,
        });
    }

    fn change_campaign(&mut self) {
        let claimed = {
            let mut campaigns = self.ledger.campaigns();
            let free = campaigns.iter().enumerate().filter(|(_, it)| !it.busy);
            let free: Vec<usize> = free.map(|(place, _)| place).collect();
            let place = free.get(self.chance.below(free.len().max(1) as u64) as usize);
            place.map(|&place| {
                campaigns[place].busy = true;
                let history = campaigns[place].history.clone();
                (place, campaigns[place].id.clone(), history)
            })
        };
        let Some((place, id, history)) = claimed else {
            return;
        };
        let path = format!("/v1/campaigns/{id}");
        let versions = history.versions.iter().rev();
        let mut live = versions.filter(|it| matches!(it.state, State::Live(_)));
        let live = live.next().map(|it| it.state.clone());
        let (state, method, path, body) = match (&history.last().state, self.chance.below(2)) {
            (State::Gone, _) => (
                live.unwrap_or(State::Unknown),
                "POST",
                format!("{path}/resume"),
                None,
            ),
            (_, 0) => (State::Gone, "POST", format!("{path}/pause"), None),
            _ => {
                let prefix = format!("https://example.com/c{}/", self.fresh_name());
                let body = json!({ "longUrl": format!("{prefix}{{m}}") });
                (State::Live(prefix), "PATCH", path, Some(body))
            }
        };
        let sent = self.ledger.now();
        self.ledger.campaigns()[place].history.ask(state, sent);
        let answered = self.ask(method, &path, body.as_ref());
        let mut campaigns = self.ledger.campaigns();
        let Some(answered) = answered else {
            return;
        };
        if answered.status >= 300 {
            self.refuse(method, &path, &answered);
            return;
        }
        let published = answered.body["published"] == true;
        let campaign = &mut campaigns[place];
        campaign.history.acknowledge(self.ledger.now(), published);
        campaign.busy = answered.repeated;
    }

    fn refuse(&self, method: &str, path: &str, answered: &Answered) {
        let Answered { status, body, .. } = answered;
        let text = format!("{method} {path}: {status} {body}");
        self.ledger.refusals().push(text);
    }

    /// Repeats a request until it is answered: none when there was no answer until the end.
    fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Option<Answered> {
        let name = self.fresh_name().to_string();
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut headers = vec![("X-Api-Key", self.key), ("Idempotency-Key", &name)];
        if body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        let bytes = request(method, path, &headers, text.as_bytes());
        let mut repeated = false;
        while !self.ledger.is_over() {
            let port = *self.chance.choose(&self.ports);
            match send(port, method, &bytes) {
                Ok(answer) if answer.status < 500 => {
                    let body = serde_json::from_slice(&answer.body).unwrap_or_default();
                    return Some(Answered {
                        body,
                        status: answer.status,
                        repeated,
                    });
                }
                Ok(_) | Err(_) => repeated = true,
            }
            pass(Duration::from_millis(100));
        }
        None
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Target,
    Pause,
    Resume,
    Revoke,
}

/// The time until a second begins.
fn until_second(second: u64) -> Duration {
    Duration::from_secs(second).saturating_sub(since_1970())
}

fn send(port: u16, method: &str, bytes: &[u8]) -> io::Result<Response> {
    let mut connection = Connection::open(port)?;
    connection.set_patience(PATIENCE)?;
    connection.send(bytes)?;
    let answer = connection.receive(method)?;
    answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
