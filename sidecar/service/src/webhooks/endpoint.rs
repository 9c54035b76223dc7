//! A webhook while its events are delivered: its queues, and the events in them.
//!
//! Each event is in the queue of its subject, and a queue has one message under way at a time. So the events of a link
//! arrive in their order, and an event that is refused holds up those of its queue only, until [`WINDOW`] events or
//! [`WINDOW_BYTES`] wait.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::value::RawValue;
use shortlink_core::ports::ExportedVisit;
use shortlink_core::webhook::{
    Answer, Attempt, EventBody, EventType, PATIENCE, PauseReason, Progress, QUEUES, Reached,
    SendError, Webhook, back_off, batch_id, click_id, event_id, queue_of,
};
use shortlink_store::{Delivered, StoredEvent};
use tokio::time::Instant;

use super::attempt;

/// The most events of a webhook in memory: so far ahead of an event that is refused others are delivered.
pub(super) const WINDOW: usize = 10_000;

/// The bytes of events of a webhook in memory from which no further events are read.
pub(super) const WINDOW_BYTES: usize = 16 << 20;

/// The number of queues of a webhook with batches: few, so that batches are large.
const BATCHED_QUEUES: usize = 4;

/// The most bytes of a batch with more than one event.
const BATCH_BYTES: usize = 1 << 20;

/// The most attempts that are logged at a time.
const LOGGED: usize = 100;

/// The longest pause that an endpoint can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Visits,
    Events,
}

/// An event that is to be delivered.
struct Event {
    source: Source,
    number: i64,
    id: String,
    at: Timestamp,
    body: String,
}

/// The attempts of the first events of a queue.
struct Retry {
    attempts: u32,
    /// The number of events of the message: it is repeated as it was.
    events: usize,
    since: Timestamp,
    next: Instant,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// The number of its first events that are under way.
    sent: usize,
    retry: Option<Retry>,
    /// The time since which its first event may have been failing before this process took over.
    inherited: Option<Timestamp>,
}

/// A message that is to be sent: the queue, its id, its body and the number of its events.
pub(super) struct Ready {
    pub(super) queue: usize,
    pub(super) id: String,
    pub(super) body: String,
    pub(super) events: usize,
}

/// A webhook that is being delivered.
pub(super) struct Endpoint {
    pub(super) webhook: Webhook,
    queues: Vec<Queue>,
    /// The place up to which events were read.
    pub(super) read: Reached,
    waiting: usize,
    bytes: usize,
    under_way: usize,
    /// It has changed: nothing more is sent before it is read again.
    pub(super) is_leaving: bool,
    pause: Option<PauseReason>,
    is_noted: bool,
    delivered: u64,
    attempts: Vec<Attempt>,
}

impl Endpoint {
    pub(super) fn new(webhook: Webhook) -> Self {
        let is_batched = webhook.settings.max_batch > 1;
        let queues = if is_batched { BATCHED_QUEUES } else { QUEUES };
        let queue = || Queue {
            inherited: webhook.failing_since,
            ..Queue::default()
        };
        Self {
            queues: std::iter::repeat_with(queue).take(queues).collect(),
            read: webhook.progress.least(),
            webhook,
            waiting: 0,
            bytes: 0,
            under_way: 0,
            is_leaving: false,
            pause: None,
            is_noted: true,
            delivered: 0,
            attempts: Vec::new(),
        }
    }

    /// Returns whether so many further events can be read.
    pub(super) fn has_room(&self, events: usize) -> bool {
        !self.is_leaving && self.waiting + events <= WINDOW && self.bytes < WINDOW_BYTES
    }

    /// Returns whether nothing of it is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.under_way == 0
    }

    /// Returns whether events besides visits can be events of it.
    pub(super) fn wants_events(&self) -> bool {
        self.webhook.settings.wants_events()
    }

    /// Takes a visit, unless a filter leaves it out or it has been delivered.
    pub(super) fn take_visit(
        &mut self,
        visit: ExportedVisit,
        describe: super::delivery::DescribeVisit,
    ) {
        let (number, at) = (visit.visit.number, visit.visit.at);
        let place = queue_of(&visit.visit.code);
        if number <= self.webhook.progress.0[place].visits || !self.selects(&visit) {
            return;
        }
        let id = click_id(number, at);
        if let Some(data) = describe(visit) {
            self.push(
                place,
                Source::Visits,
                number,
                id,
                at,
                EventType::LinkClicked.name(),
                &data,
            );
        }
    }

    /// Takes a stored event, likewise. One whose visit was erased is none any more.
    pub(super) fn take_event(
        &mut self,
        event: StoredEvent,
        describe: super::delivery::DescribeVisit,
    ) {
        let place = queue_of(&event.subject);
        let settings = &self.webhook.settings;
        let is_wanted = settings.events.iter().any(|it| it.name() == event.event);
        if event.number <= self.webhook.progress.0[place].events || !is_wanted {
            return;
        }
        let (id, at, data);
        if event.event == EventType::LinkClicked.name() {
            let visit = event.visit.filter(|_| settings.wants_first_clicks());
            let Some(visit) = visit.filter(|visit| self.selects(visit)) else {
                return;
            };
            (id, at) = (click_id(visit.visit.number, visit.visit.at), visit.visit.at);
            data = describe(*visit);
        } else {
            // A batch whose rows name campaigns, and a short domain, can concern any of them.
            let is_of_link = event.event == EventType::LinkExpired.name();
            let of_others = |ids: &Vec<_>| match event.campaign {
                Some(id) => !ids.contains(&id),
                None => is_of_link,
            };
            if settings.campaigns.as_ref().is_some_and(of_others) {
                return;
            }
            (id, at) = (event_id(event.number, event.at), event.at);
            data = event.data.and_then(|data| RawValue::from_string(data).ok());
        }
        if let Some(data) = data {
            self.push(
                place,
                Source::Events,
                event.number,
                id,
                at,
                &event.event,
                &data,
            );
        }
    }

    /// Reports whether the filters select a visit.
    fn selects(&self, visit: &ExportedVisit) -> bool {
        let settings = &self.webhook.settings;
        let of_campaign = |ids: &Vec<_>| visit.campaign.is_some_and(|id| ids.contains(&id));
        let has_tag = |tags: &Vec<String>| tags.iter().any(|tag| visit.tags.contains(tag));
        let of_class = |classes: &Vec<shortlink_core::visit::class::Class>| {
            classes
                .iter()
                .any(|class| class.name() == visit.visit.class)
        };
        settings.campaigns.as_ref().is_none_or(of_campaign)
            && settings.tags.as_ref().is_none_or(has_tag)
            && settings.classes.as_ref().is_none_or(of_class)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of an event")]
    fn push(
        &mut self,
        place: usize,
        source: Source,
        number: i64,
        id: String,
        at: Timestamp,
        event: &str,
        data: &RawValue,
    ) {
        let body = EventBody {
            event,
            id: &id,
            timestamp: at,
            data,
        };
        let Ok(body) = serde_json::to_string(&body) else {
            return;
        };
        self.bytes += body.len();
        let queues = self.queues.len();
        self.queues[place % queues].events.push_back(Event {
            source,
            number,
            id,
            at,
            body,
        });
        self.waiting += 1;
    }

    /// Takes the messages that can be sent at a time; each is under way from now on.
    pub(super) fn ready(&mut self, now: Instant) -> Vec<Ready> {
        let mut ready = Vec::new();
        if self.is_leaving {
            return ready;
        }
        let most = self.webhook.settings.max_batch as usize;
        for (place, queue) in self.queues.iter_mut().enumerate() {
            let is_due = queue.retry.as_ref().is_none_or(|retry| retry.next <= now);
            if queue.sent > 0 || queue.events.is_empty() || !is_due {
                continue;
            }
            let most = queue.retry.as_ref().map_or(most, |retry| retry.events);
            let mut bytes = 0;
            let fitting = queue.events.iter().take(most).take_while(|event| {
                let is_first = bytes == 0;
                bytes += event.body.len();
                is_first || bytes <= BATCH_BYTES
            });
            let events = fitting.count();
            queue.sent = events;
            self.under_way += 1;
            let sent = queue.events.range(..events);
            let (id, body) = if self.webhook.settings.max_batch > 1 {
                let bodies: Vec<&str> = sent.clone().map(|event| &*event.body).collect();
                let at = sent.clone().map(|event| event.at).max().unwrap_or_default();
                let id = batch_id(sent.map(|event| &*event.id));
                let list = bodies.join(",");
                let body =
                    format!(r#"{{"type":"batch","id":"{id}","timestamp":"{at}","data":[{list}]}}"#);
                (id, body)
            } else {
                let event = &queue.events[0];
                (event.id.clone(), event.body.clone())
            };
            ready.push(Ready {
                queue: place,
                id,
                body,
                events,
            });
        }
        ready
    }

    /// The time of the next attempt of a queue that waits for it.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        let idle = self.queues.iter().filter(|queue| queue.sent == 0);
        idle.filter_map(|queue| Some(queue.retry.as_ref()?.next))
            .min()
    }

    /// Takes the outcome of a message.
    pub(super) fn ended(
        &mut self,
        place: usize,
        message_id: String,
        outcome: &Result<Answer, SendError>,
        (now, took): (Timestamp, Duration),
        rng: &mut StdRng,
    ) {
        let queue = &mut self.queues[place];
        let events = std::mem::take(&mut queue.sent);
        let attempts = queue.retry.as_ref().map_or(1, |retry| retry.attempts + 1);
        self.under_way -= 1;
        self.is_noted = false;
        let logged = attempt(now, message_id, events, attempts, outcome, took);
        if outcome.as_ref().is_ok_and(|answer| answer.is_accepted()) {
            let delivered = queue.events.drain(..events);
            self.bytes -= delivered.map(|event| event.body.len()).sum::<usize>();
            queue.retry = None;
            queue.inherited = None;
            self.waiting -= events;
            self.delivered += events as u64;
        } else {
            // Of an event that is later than the failures before, nothing has failed yet.
            let first = queue.events.front().map_or(now, |event| event.at);
            let inherited = queue.inherited.take().map(|since| since.max(first));
            let since = queue.retry.as_ref().map(|retry| retry.since);
            let since = since.or(inherited).unwrap_or(now);
            let wanted = outcome.as_ref().ok().and_then(|answer| answer.retry_after);
            let wanted = wanted.unwrap_or_default().min(LONGEST_WAIT);
            let pause = back_off(attempts, rng.random()).max(wanted);
            queue.retry = Some(Retry {
                attempts,
                events,
                since,
                next: Instant::now() + pause,
            });
            if outcome.as_ref().is_ok_and(|answer| answer.status == 410) {
                self.pause(PauseReason::Gone);
            } else if now.duration_since(since) >= PATIENCE {
                self.pause(PauseReason::Failing);
            }
        }
        self.log(logged);
    }

    fn pause(&mut self, reason: PauseReason) {
        self.pause = Some(reason);
        self.is_leaving = true;
    }

    /// Keeps an attempt for the log, failed ones first.
    fn log(&mut self, attempt: Attempt) {
        if self.attempts.len() < LOGGED {
            self.attempts.push(attempt);
        } else if !attempt.is_delivered()
            && let Some(place) = self.attempts.iter().position(Attempt::is_delivered)
        {
            self.attempts.remove(place);
            self.attempts.push(attempt);
        }
    }

    /// Returns whether there is progress that is not written.
    pub(super) fn has_news(&self) -> bool {
        !self.is_noted || self.oldest() != self.webhook.waiting_since || self.moved()
    }

    /// Returns whether reading has passed further events that are none of this webhook.
    fn moved(&self) -> bool {
        self.waiting == 0 && self.webhook.progress != self.progress()
    }

    /// The time of the oldest event that waits.
    fn oldest(&self) -> Option<Timestamp> {
        let first = self.queues.iter().filter_map(|queue| queue.events.front());
        first.map(|event| event.at).min()
    }

    /// Takes the progress that is to be written.
    pub(super) fn news(&mut self) -> Delivered {
        self.is_noted = true;
        let progress = self.progress();
        self.webhook.waiting_since = self.oldest();
        self.webhook.progress = progress.clone();
        let failing = self.queues.iter().filter(|queue| !queue.events.is_empty());
        let failing = failing.filter_map(|queue| {
            let retry = queue.retry.as_ref().map(|retry| retry.since);
            retry.or(queue.inherited)
        });
        Delivered {
            id: self.webhook.id.clone(),
            fence: self.webhook.fence,
            progress,
            failing_since: failing.min(),
            waiting_since: self.webhook.waiting_since,
            events: std::mem::take(&mut self.delivered),
            attempts: std::mem::take(&mut self.attempts),
            pause: self.pause.take(),
        }
    }

    /// The place up to which each queue has delivered: everything before its first event that waits, or everything that was read.
    fn progress(&self) -> Progress {
        let before = |queue: &Queue, source| {
            let first = queue.events.iter().find(|event| event.source == source);
            first.map(|event| event.number - 1)
        };
        let places = std::array::from_fn(|place| {
            let queue = &self.queues[place % self.queues.len()];
            let former = self.webhook.progress.0[place];
            // A queue can be ahead of what was read, since before a restart.
            Reached {
                visits: before(queue, Source::Visits)
                    .unwrap_or(self.read.visits)
                    .max(former.visits),
                events: before(queue, Source::Events)
                    .unwrap_or(self.read.events)
                    .max(former.events),
            }
        });
        Progress(places)
    }
}

#[cfg(test)]
mod tests;
