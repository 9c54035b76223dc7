//! The job that delivers the events of all webhooks: one process at a time, by a claim.
//!
//! A message is sent at least once. Its progress is written with a number that each new holder raises, after it was
//! accepted: a process that is killed in between, or has lost its claim, sends it once more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;
use serde_json::value::RawValue;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{ExportedVisit, StoreError};
use shortlink_core::webhook::{Answer, EVENT_RETENTION, MessageSender, SendError};
use shortlink_store::Store;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::endpoint::{Endpoint, Ready};
use super::{WebhookCounters, sign};
use crate::feed::{Reading, VisitFeed};
use crate::jobs::{Job, Next};

/// The interval of the check for webhooks while there are none.
pub const EVERY: Duration = Duration::from_secs(1);

/// The interval of the check for changes of webhooks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The interval at which progress is written.
const NOTE_EVERY: Duration = Duration::from_millis(250);

/// The interval at which the place of the events of a time is noted, for replays, and old events are deleted.
const MARK_EVERY: Duration = Duration::from_secs(60);

/// The interval of the check for new events.
const READ_EVERY: Duration = Duration::from_millis(200);

/// The duration of a step.
const STEP: Duration = Duration::from_millis(500);

/// The time that messages under way have to end at shutdown.
const LAST_MESSAGES: Duration = Duration::from_millis(500);

/// The most events that are read at a time.
const PAGE: u32 = 1000;

/// The most events that are deleted at a time.
const FORGOTTEN: u32 = 100_000;

/// Describes a visit as JSON, as the API does.
pub type DescribeVisit = fn(ExportedVisit) -> Option<Box<RawValue>>;

/// The parts that deliver events.
pub struct Parts {
    /// The store of the webhooks.
    pub store: Arc<Store>,
    /// The feed of visits.
    pub feed: Arc<VisitFeed>,
    /// Sends messages.
    pub sender: Arc<dyn MessageSender>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Describes visits.
    pub describe: DescribeVisit,
    /// Counts of this process.
    pub counters: Arc<WebhookCounters>,
    /// Draws the random part of pauses.
    pub rng: StdRng,
}

/// The result of sending a message.
struct Sent {
    outcome: Result<Answer, SendError>,
    took: Duration,
}

/// A message that is under way.
struct UnderWay {
    webhook: String,
    queue: usize,
    id: String,
    events: usize,
}

/// Delivers events.
pub struct Delivery {
    parts: Parts,
    endpoints: BTreeMap<String, Endpoint>,
    /// A step takes it: a step that is cut off ends everything that is under way.
    sending: JoinSet<Sent>,
    under_way: HashMap<Id, UnderWay>,
    next_look: Instant,
    next_note: Instant,
    next_mark: Instant,
    next_read: Instant,
    last_event: i64,
    /// There are webhooks, if only paused ones.
    are_any: bool,
}

impl Delivery {
    /// Prepares the delivery.
    pub fn new(parts: Parts) -> Self {
        let now = Instant::now();
        Self {
            parts,
            endpoints: BTreeMap::new(),
            sending: JoinSet::new(),
            under_way: HashMap::new(),
            next_look: now,
            next_note: now,
            next_mark: now,
            next_read: now,
            last_event: 0,
            are_any: false,
        }
    }

    /// Finds new webhooks, and those that have changed.
    async fn look(&mut self) -> Result<(), StoreError> {
        let all = self.parts.store.list_webhooks().await?;
        self.are_any = !all.is_empty();
        let same = |endpoint: &Endpoint| {
            let found = all.iter().find(|it| it.id == endpoint.webhook.id);
            found.is_some_and(|it| {
                (it.revision, it.fence) == (endpoint.webhook.revision, endpoint.webhook.fence)
            })
        };
        for endpoint in self.endpoints.values_mut() {
            endpoint.is_leaving |= !same(endpoint);
        }
        // One that has changed is read again only after all its messages have ended and their progress is written.
        for webhook in all {
            if webhook.paused.is_none() && !self.endpoints.contains_key(&webhook.id) {
                let id = webhook.id.clone();
                self.endpoints.insert(id, Endpoint::new(webhook));
            }
        }
        Ok(())
    }

    /// Reads further events; returns whether there may be more of them.
    async fn read(&mut self) -> Result<bool, StoreError> {
        let parts = &self.parts;
        let is_due = Instant::now() >= self.next_read;
        if is_due {
            self.next_read = Instant::now() + READ_EVERY;
            if self.endpoints.values().any(Endpoint::wants_events) {
                self.last_event = parts.store.last_event().await?;
            }
        }
        let mut has_more = false;
        for endpoint in self.endpoints.values_mut() {
            if !endpoint.has_room(PAGE as usize) {
                continue;
            }
            if endpoint.webhook.settings.wants_visits()
                && let Reading::Page(page) = parts.feed.read(endpoint.read.visits, PAGE).await?
            {
                has_more = true;
                endpoint.read.visits = page.next;
                for visit in page.visits {
                    endpoint.take_visit(visit, parts.describe);
                }
            }
            if endpoint.wants_events() && endpoint.read.events < self.last_event {
                has_more = true;
                let events = parts.store.events_after(endpoint.read.events, PAGE);
                let events = events.await?;
                let is_full = events.len() >= PAGE as usize;
                let last = events.last().filter(|_| is_full).map(|event| event.number);
                endpoint.read.events = last.unwrap_or(self.last_event);
                for event in events {
                    // One that was stored after the last look is read with the next page.
                    if event.number <= endpoint.read.events {
                        endpoint.take_event(event, parts.describe);
                    }
                }
            }
        }
        Ok(has_more)
    }

    /// Sends what can be sent.
    fn send(&mut self, sending: &mut JoinSet<Sent>) {
        let now = Instant::now();
        let time = self.parts.clock.now();
        for (webhook_id, endpoint) in &mut self.endpoints {
            for ready in endpoint.ready(now) {
                let Ready {
                    queue,
                    id,
                    body,
                    events,
                } = ready;
                let (store, webhook) = (&self.parts.store, &endpoint.webhook);
                let message = sign(store, webhook, id.clone(), time, body);
                let sender = Arc::clone(&self.parts.sender);
                let task = sending.spawn(async move {
                    let begun = Instant::now();
                    let outcome = sender.send(message).await;
                    Sent {
                        outcome,
                        took: begun.elapsed(),
                    }
                });
                let under_way = UnderWay {
                    webhook: webhook_id.clone(),
                    queue,
                    id,
                    events,
                };
                self.under_way.insert(task.id(), under_way);
            }
        }
    }

    /// Takes the result of a message. One whose sending has panicked is a failed attempt.
    fn ended(&mut self, result: Result<(Id, Sent), JoinError>) {
        let (task, sent) = match result {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "sending a message of a webhook has panicked");
                let outcome = Err(SendError("the sidecar has failed to send it".to_owned()));
                let took = Duration::ZERO;
                (error.id(), Sent { outcome, took })
            }
        };
        let Some(message) = self.under_way.remove(&task) else {
            return;
        };
        self.parts.counters.count(&sent.outcome, message.events);
        if let Some(endpoint) = self.endpoints.get_mut(&message.webhook) {
            let time = (self.parts.clock.now(), sent.took);
            let (queue, rng) = (message.queue, &mut self.parts.rng);
            endpoint.ended(queue, message.id, &sent.outcome, time, rng);
        }
    }

    /// Writes progress, and drops webhooks that are to be read again.
    async fn note(&mut self) -> Result<(), StoreError> {
        let news = self.endpoints.values_mut().filter(|it| it.has_news());
        let news: Vec<_> = news.map(Endpoint::news).collect();
        if !news.is_empty() {
            for it in &news {
                if let Some(reason) = it.pause {
                    let (webhook, reason) = (&it.id, reason.name());
                    tracing::error!(webhook, reason, "a webhook is paused");
                }
            }
            let now = self.parts.clock.now();
            for lost in self.parts.store.note_delivered(news, now).await? {
                if let Some(endpoint) = self.endpoints.get_mut(&lost) {
                    endpoint.is_leaving = true;
                }
            }
        }
        self.endpoints
            .retain(|_, it| !(it.is_leaving && it.is_quiet()));
        Ok(())
    }

    /// Notes the place of the events that are stored now, if there are webhooks, and deletes old events and notes.
    async fn mark(&mut self) -> Result<(), StoreError> {
        let Parts { store, feed, .. } = &self.parts;
        let now = self.parts.clock.now();
        if self.are_any {
            store.mark_events(feed.last().await?, now).await?;
        }
        store.forget_events(now - EVENT_RETENTION, FORGOTTEN).await
    }

    /// The time at which something is to be done, though no message ends.
    fn wake(&self, until: Instant) -> Instant {
        let attempts = self.endpoints.values().filter_map(Endpoint::next_attempt);
        let times = attempts.chain([self.next_look, self.next_note, self.next_read]);
        times.fold(until, Instant::min)
    }

    async fn turn(&mut self, sending: &mut JoinSet<Sent>) -> Result<Next, StoreError> {
        let until = Instant::now() + STEP;
        while Instant::now() < until {
            if Instant::now() >= self.next_look {
                self.next_look = Instant::now() + LOOK_EVERY;
                self.look().await?;
            }
            if Instant::now() >= self.next_mark {
                self.next_mark = Instant::now() + MARK_EVERY;
                self.mark().await?;
            }
            if self.endpoints.is_empty() && sending.is_empty() {
                return Ok(Next::Idle);
            }
            let has_more = self.read().await?;
            self.send(sending);
            if Instant::now() >= self.next_note {
                self.next_note = Instant::now() + NOTE_EVERY;
                self.note().await?;
            }
            let wake = if has_more {
                Instant::now()
            } else {
                self.wake(until)
            };
            tokio::select! {
                biased;
                Some(result) = sending.join_next_with_id() => {
                    self.ended(result);
                    while let Some(result) = sending.try_join_next_with_id() {
                        self.ended(result);
                    }
                }
                () = sleep_until(wake) => {}
            }
        }
        Ok(Next::Now)
    }
}

#[async_trait]
impl Job for Delivery {
    type Error = StoreError;
    const NAME: &'static str = "webhooks";
    const FAILURE: &'static str = "events are not delivered to webhooks; trying again";
    const LEASE: Option<Duration> = Some(Duration::from_secs(6));

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.sending = JoinSet::new();
        self.under_way.clear();
        self.endpoints.clear();
        self.parts.store.take_over_webhooks().await?;
        let now = Instant::now();
        (self.next_look, self.next_note, self.next_read) = (now, now + NOTE_EVERY, now);
        self.last_event = 0;
        Ok(())
    }

    async fn step(&mut self) -> Result<Next, StoreError> {
        // If this is cut off, because the claim is lost, or fails, the messages under way end with it.
        let mut sending = std::mem::take(&mut self.sending);
        let next = self.turn(&mut sending).await?;
        self.sending = sending;
        Ok(next)
    }

    async fn end(&mut self) -> Result<(), StoreError> {
        let mut sending = std::mem::take(&mut self.sending);
        let last = async {
            while let Some(result) = sending.join_next_with_id().await {
                self.ended(result);
            }
        };
        let _in_time = timeout(LAST_MESSAGES, last).await;
        self.note().await
    }
}

#[cfg(test)]
mod tests;
