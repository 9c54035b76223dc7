//! Starts what runs in the background.

use jiff::SignedDuration;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use super::parts::Parts;
use crate::housekeeping;
use crate::random;
use crate::service::keeper::Keeper;
use crate::service::sweep::Sweep;
use crate::service::unvisited::Unvisited;
use crate::service::visits::VisitWriter;

/// The longest time from reading a link to publishing it, besides the waits for Redis.
const LEAST_STRAGGLE: SignedDuration = SignedDuration::from_secs(10);

/// Starts all background jobs; they end with `stop`.
pub(super) fn start(parts: &Parts, stop: &CancellationToken) -> Result<(), ServeError> {
    let config = &parts.config;
    let tasks = &parts.tasks;
    let (store, clock) = (|| Arc::clone(&parts.store), || Arc::clone(&parts.clock));
    tasks.spawn(Arc::clone(&parts.pool).keep_filled(stop.clone()));
    tasks.spawn(housekeeping::run(store(), clock(), stop.clone()));
    let keeper = Keeper {
        store: store(),
        index: Arc::clone(&parts.index),
        clock: clock(),
        holder: parts.holder.clone(),
        links_per_s: config.upkeep.reconcile_per_s,
        rebuilds: config.upkeep.rebuild,
    };
    tasks.spawn(keeper.run(stop.clone()));
    if let Some(live) = &parts.live {
        tasks.spawn(Arc::clone(live).run());
    }
    if parts.enrichment.is_some() {
        let geo = Arc::clone(&parts.geo);
        tasks.spawn(geo.watch(config.visits.geo_check, stop.clone()));
    }
    if let (Some(queue), Some(enrichment)) = (&parts.visits, &parts.enrichment) {
        if let (Some(days), Some(every)) = (
            config.visits.expire_unvisited_after_days,
            config.upkeep.sweep,
        ) {
            let unvisited = Unvisited {
                store: store(),
                queue: Arc::clone(queue) as _,
                delivery: Arc::clone(&parts.delivery),
                clock: clock(),
                holder: parts.holder.clone(),
                days,
                every,
            };
            tasks.spawn(unvisited.run(stop.clone()));
        }
        let writer = VisitWriter {
            queue: Arc::clone(queue) as _,
            store: store(),
            delivery: Arc::clone(&parts.delivery),
            enrichment: Arc::clone(enrichment),
            clock: clock(),
            counters: Arc::clone(&parts.visit_counters),
            retention: config.visits.retention,
            minutes_retention: config.visits.minutes_retention,
            hours_retention: config.visits.hours_retention,
        };
        tasks.spawn(writer.run(random::generator()?, stop.clone()));
    }
    if let Some(every) = config.upkeep.sweep {
        let days = i64::from(config.links.quarantine_days);
        let straggle = SignedDuration::try_from(config.redis.timeout * 4).unwrap_or_default();
        let sweep = Sweep {
            store: store(),
            index: Arc::clone(&parts.index),
            clock: clock(),
            holder: parts.holder.clone(),
            quarantine: (days > 0).then(|| SignedDuration::from_hours(24 * days)),
            straggle: LEAST_STRAGGLE + straggle,
            every,
        };
        tasks.spawn(sweep.run(stop.clone()));
    }
    Ok(())
}
