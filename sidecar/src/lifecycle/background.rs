//! Starts the background jobs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::SignedDuration;
use shortlink_core::ports::StoreError;
use shortlink_core::visit::visitor::KeyRing;
use shortlink_enrich::geo::Geo;
use shortlink_http::describe_visit;
use shortlink_service::behaviour::{self, Behaviour};
use shortlink_service::bulk::{self, Bulk, BulkWorker};
use shortlink_service::codes::leases;
use shortlink_service::domains::blocks::{self, WatchBlocks};
use shortlink_service::drift::Inspector;
use shortlink_service::housekeeping::{
    self, AbsentReaders, MissingTargets, MissingWords, OldKeys, OldResults,
};
use shortlink_service::jobs::{Claims, Job, Members, Next, Run, lanes};
use shortlink_service::reclassify::{COUNT_PEOPLE_EVERY, People};
use shortlink_service::reconcile::{self, Reconcile};
use shortlink_service::refill::{self, Refill};
use shortlink_service::replica::{self, WatchReplica};
use shortlink_service::retention::{self, Retention, RetentionPeriods};
use shortlink_service::sweep::{Stage, Sweep, Swept};
use shortlink_service::unvisited::{Expired, Unvisited};
use shortlink_service::visits::{self, VisitWriter};
use shortlink_service::webhooks::delivery::{self, Delivery};
use shortlink_service::webhooks::expiry::{self, ReportExpired};
use shortlink_store::{Admission, ReplicaWatch};
use tokio_util::sync::CancellationToken;

use super::parts::Parts;
use crate::random;

/// The longest time from reading a link to publishing it, besides the waits for Redis.
const LEAST_STRAGGLE: SignedDuration = SignedDuration::from_secs(10);

/// Starts background jobs.
struct Starter<'p> {
    parts: &'p Parts,
    claims: Claims,
    members: Members,
    stop: &'p CancellationToken,
}

/// Starts all background jobs; they end with `stop`.
pub(super) fn start(parts: &Parts, stop: &CancellationToken) -> anyhow::Result<()> {
    let claims = Claims {
        store: Arc::clone(&parts.store),
        clock: Arc::clone(&parts.clock),
        holder: parts.holder.clone(),
    };
    let starter = Starter {
        parts,
        members: Members::new(claims.clone()),
        claims,
        stop,
    };
    starter.start_upkeep();
    starter.start_replica()?;
    starter.start_bulk();
    starter.start_visits()?;
    starter.start_webhooks()?;
    if parts.config.upkeep.lanes > 1 {
        let run = Run::new(starter.members, &starter.claims);
        parts.tasks.spawn(run.forever(lanes::EVERY, stop.clone()));
    }
    Ok(())
}

impl Starter<'_> {
    fn run(&self, job: impl Job + 'static, every: Duration) {
        let run = Run::new(job, &self.claims);
        self.parts
            .tasks
            .spawn(run.forever(every, self.stop.clone()));
    }

    /// Starts the jobs for links.
    fn start_upkeep(&self) {
        let Parts { config, index, .. } = self.parts;
        let (store, clock) = (&self.claims.store, &self.claims.clock);
        self.run(Arc::clone(&self.parts.leases), leases::EVERY);
        self.run(Arc::clone(&self.parts.pool), housekeeping::FILL_EVERY);
        let results = OldResults {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
        };
        self.run(results, housekeeping::EVERY);
        if config.database.find_by_target {
            let targets = MissingTargets {
                store: Arc::clone(store),
            };
            self.run(targets, housekeeping::FIND_EVERY);
        }
        let words = MissingWords {
            store: Arc::clone(store),
            admission: Arc::new(Admission::of_walk()),
        };
        self.run(words, housekeeping::FIND_EVERY);
        if config.upkeep.rebuild {
            let refill = Refill {
                claims: self.claims.clone(),
                index: Arc::clone(index),
                shutdown: self.stop.clone(),
                settled: None,
            };
            self.run(refill, refill::EVERY);
        }
        for lane in self.members.lanes(config.upkeep.lanes) {
            let inspector = Inspector {
                store: Arc::clone(store),
                index: Arc::clone(index),
                clock: Arc::clone(clock),
            };
            let reconcile = Reconcile::new(inspector, config.upkeep.reconcile_per_s, lane);
            self.run(reconcile, reconcile::EVERY);
        }
        if let Some(every) = config.upkeep.sweep {
            let days = i64::from(config.links.quarantine_days);
            let straggle = SignedDuration::try_from(config.redis.timeout * 4).unwrap_or_default();
            for lane in self.members.lanes(config.upkeep.lanes) {
                let sweep = Sweep {
                    store: Arc::clone(store),
                    index: Arc::clone(index),
                    clock: Arc::clone(clock),
                    quarantine: (days > 0).then(|| SignedDuration::from_hours(24 * days)),
                    straggle: LEAST_STRAGGLE + straggle,
                    lane,
                    stage: Stage::default(),
                    swept: Swept::default(),
                };
                self.run(sweep, every);
            }
        }
    }

    /// Starts the watch over the replica of the database.
    fn start_replica(&self) -> anyhow::Result<()> {
        if let Some(watch) = ReplicaWatch::new(&self.parts.config.database)? {
            let publisher = Arc::clone(&self.parts.publisher);
            self.run(WatchReplica::new(watch, publisher), replica::EVERY);
        }
        Ok(())
    }

    /// Starts the job that works off those of callers.
    fn start_bulk(&self) {
        let Parts {
            config, delivery, ..
        } = self.parts;
        let bulk = Bulk {
            store: Arc::clone(&self.claims.store),
            delivery: Arc::clone(delivery),
            clock: Arc::clone(&self.claims.clock),
            target_domains: config.links.domains.clone(),
        };
        self.run(BulkWorker::new(bulk), bulk::EVERY);
    }

    /// Starts the delivery of events to webhooks.
    fn start_webhooks(&self) -> anyhow::Result<()> {
        let delivery = Delivery::new(delivery::Parts {
            store: Arc::clone(&self.claims.store),
            feed: Arc::clone(&self.parts.feed),
            sender: Arc::clone(&self.parts.sender),
            clock: Arc::clone(&self.claims.clock),
            describe: describe_visit,
            counters: Arc::clone(&self.parts.webhook_counters),
            rng: random::generator()?,
        });
        self.run(delivery, delivery::EVERY);
        let expired = ReportExpired {
            store: Arc::clone(&self.claims.store),
            clock: Arc::clone(&self.claims.clock),
        };
        self.run(expired, expiry::EVERY);
        Ok(())
    }

    /// Starts the jobs for visits.
    fn start_visits(&self) -> anyhow::Result<()> {
        let Parts {
            config,
            delivery,
            visit_counters: counters,
            ..
        } = self.parts;
        let (store, clock) = (&self.claims.store, &self.claims.clock);
        if let Some(live) = &self.parts.live {
            self.parts.tasks.spawn(Arc::clone(live).run());
        }
        let Some(enrichment) = &self.parts.enrichment else {
            return Ok(());
        };
        if self.parts.geo.is_configured() {
            let places = ReplacedPlaces(Arc::clone(&self.parts.geo));
            self.run(places, config.visits.geo_check);
        }
        let Some(queue) = &self.parts.visits else {
            return Ok(());
        };
        let keys = Arc::new(KeyRing::new(Arc::clone(store) as _));
        let old_keys = OldKeys {
            keys: Arc::clone(&keys),
            clock: Arc::clone(clock),
        };
        self.run(old_keys, housekeeping::EVERY);
        let readers = AbsentReaders {
            queue: Arc::clone(queue) as _,
        };
        self.run(readers, housekeeping::EVERY);
        let writer = VisitWriter {
            queue: Arc::clone(queue) as _,
            store: Arc::clone(store),
            delivery: Arc::clone(delivery),
            enrichment: Arc::clone(enrichment),
            clock: Arc::clone(clock),
            counters: Arc::clone(counters),
        };
        self.run(writer.job(keys, random::generator()?), visits::EVERY);
        let lanes = config.upkeep.lanes.min(retention::LANES);
        for lane in self.members.lanes(lanes) {
            let retention = Retention::new(
                Arc::clone(store),
                Arc::clone(clock),
                Arc::clone(counters),
                RetentionPeriods {
                    visits: config.visits.retention,
                    minutes: config.visits.minutes_retention,
                    hours: config.visits.hours_retention,
                },
            );
            self.run(retention.in_lane(lane), retention::EVERY);
        }
        let delay = config.visits.judge_after;
        let behaviour = Behaviour::new(
            Arc::clone(store),
            Arc::clone(clock),
            enrichment.agents(),
            delay,
            config.visits.hours_retention,
        );
        self.run(behaviour, behaviour::every(delay));
        let blocks = WatchBlocks {
            domains: Arc::clone(&self.parts.domains),
            store: Arc::clone(store),
            clock: Arc::clone(clock),
        };
        self.run(blocks, blocks::EVERY);
        let people = People::in_background(Arc::clone(store), Arc::clone(clock));
        self.run(people, COUNT_PEOPLE_EVERY);
        if let (Some(days), Some(every)) = (
            config.visits.expire_unvisited_after_days,
            config.upkeep.sweep,
        ) {
            let unvisited = Unvisited {
                store: Arc::clone(store),
                queue: Arc::clone(queue) as _,
                delivery: Arc::clone(delivery),
                clock: Arc::clone(clock),
                days,
                walk: None,
                done: Expired::default(),
            };
            self.run(unvisited, every);
        }
        Ok(())
    }
}

/// Reads databases of places that were replaced.
struct ReplacedPlaces(Arc<Geo>);

#[async_trait]
impl Job for ReplacedPlaces {
    type Error = StoreError;
    const NAME: &'static str = "geo";
    const FAILURE: &'static str = "the check for new databases of places has failed";

    async fn step(&mut self) -> Result<Next, StoreError> {
        let geo = Arc::clone(&self.0);
        // Large files take their time, and others want to go on meanwhile.
        if tokio::task::spawn_blocking(move || geo.look())
            .await
            .is_err()
        {
            tracing::error!("{}", Self::FAILURE);
        }
        Ok(Next::Idle)
    }
}
