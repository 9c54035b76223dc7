//! From the first request to the last: puts the parts together, serves, and stops in order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};
use secrecy::ExposeSecret;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::core::codes::hash::HashedCodes;
use crate::core::codes::lengths::Lengths;
use crate::core::codes::numbering::CodeKey;
use crate::core::codes::permuted::PermutedCodes;
use crate::core::codes::pool::PooledCodes;
use crate::core::codes::sequence::SequenceCodes;
use crate::core::codes::strategy::Strategies;
use crate::core::ports::{Delivery, Publisher, RecordIndex};
use crate::core::visit::Enrichment;
use crate::core::visit::agent::Agents;
use crate::enrich::agents::{AgentReader, AgentRulesError, LateAgentReader};
use crate::enrich::geo::{Geo, GeoError};
use crate::housekeeping;
use crate::http::{self, AnswerCounters, App, Requests};
use crate::outbox::outbox;
use crate::publisher::{RedisIndex, RedisPublisher, RedisTail, RedisVisits, UrlError};
use crate::service::access::{Access, Attempts};
use crate::service::campaigns::Campaigns;
use crate::service::codespace::Codespace;
use crate::service::domains::Domains;
use crate::service::explain::Explainer;
use crate::service::issue::{Issuer, Parts};
use crate::service::keeper::Keeper;
use crate::service::keys::Keys;
use crate::service::links::Links;
use crate::service::live::{LiveParts, LiveVisits};
use crate::service::resolve::Resolver;
use crate::service::sessions::Sessions;
use crate::service::sweep::Sweep;
use crate::service::unvisited::Unvisited;
use crate::service::visits::{VisitCounters, VisitWriter};
use crate::store::{self, OpenError};

/// How long what was begun in the background may take to finish once no request is left.
const LAST_GRACE: Duration = Duration::from_secs(3);

/// How long anybody may take, besides waiting for Redis, from reading a link to publishing it.
const LEAST_STRAGGLE: SignedDuration = SignedDuration::from_secs(10);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When something that serving needs is not there, or accepting connections fails.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let shutdown = CancellationToken::new();
    cancel_on_signal(shutdown.clone()).map_err(|source| ServeError::Signals { source })?;

    let listen = config.http.listen;
    let listen_failed = |source| ServeError::Listen {
        address: listen,
        source,
    };
    let store = store::open(&config.database).await?;
    let publisher: Arc<dyn Publisher> = Arc::new(RedisPublisher::new(
        config.redis.url.expose_secret(),
        &config.redis.topology,
        config.redis.prefix.clone(),
        config.redis.timeout,
        config.links.negative_ttl_s,
    )?);
    let visits = if config.visits.stores {
        Some(Arc::new(RedisVisits::new(
            config.redis.url.expose_secret(),
            &config.redis.topology,
            &config.redis.prefix,
            config.redis.timeout,
            config.visits.streams,
            holder()?,
        )?))
    } else {
        None
    };
    let visit_counters = Arc::new(VisitCounters::default());
    let geo = Arc::new(Geo::open(config.visits.geo)?);
    let has_live = config.visits.live.listeners > 0;
    let remembered = config.visits.remembered_agents;
    let agents: Option<Arc<dyn Agents>> = if visits.is_some() {
        Some(Arc::new(AgentReader::new(remembered)?))
    } else if has_live {
        // Perhaps nobody ever listens.
        Some(Arc::new(LateAgentReader::new(remembered)))
    } else {
        None
    };
    let address = config.visits.address;
    let enrichment =
        agents.map(|agents| Arc::new(Enrichment::new(Arc::clone(&geo) as _, agents, address)));
    let index: Arc<dyn RecordIndex> = Arc::new(RedisIndex::new(
        config.redis.url.expose_secret(),
        &config.redis.topology,
        config.redis.prefix.clone(),
        config.redis.timeout,
    )?);
    let listener = TcpListener::bind(listen).await.map_err(listen_failed)?;
    let address = listener.local_addr().map_err(listen_failed)?;

    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let housekeeping_clock = Arc::clone(&clock);
    let tasks = TaskTracker::new();
    let (outbox, worker) = outbox(
        Arc::clone(&store),
        Arc::clone(&publisher),
        Arc::clone(&clock),
    );
    let delivery: Arc<dyn Delivery> = Arc::new(outbox);
    let rules = config.codes.rules.clone();
    let pool = Arc::new(PooledCodes::new(
        Arc::clone(&store),
        rules.clone(),
        config.codes.pool,
        random()?,
    ));
    let strategies = Strategies {
        permuted: Arc::new(PermutedCodes::new(Arc::clone(&store), rules.clone())),
        pool: Arc::clone(&pool) as _,
        sequence: Arc::new(SequenceCodes::new(
            Arc::clone(&store),
            Arc::clone(&publisher),
            rules.clone(),
            random()?,
        )),
        hash: Arc::new(HashedCodes::new(&store.code_key(), rules.clone())),
    };
    let access = Arc::new(Access::new(Arc::clone(&store), Arc::clone(&clock)));
    let live = match &enrichment {
        Some(enrichment) if has_live => Some(Arc::new(LiveVisits::new(LiveParts {
            tail: Arc::new(RedisTail::new(
                config.redis.url.expose_secret(),
                &config.redis.topology,
                &config.redis.prefix,
                config.redis.timeout,
                config.visits.streams,
            )?),
            keys: Arc::clone(&store) as _,
            enrichment: Arc::clone(enrichment),
            clock: Arc::clone(&clock),
            limits: config.visits.live,
            // Requests that are under way are waited for, but feeds have no end of their own.
            stop: shutdown.clone(),
        }))),
        _ => None,
    };
    let app = App {
        links: Links {
            store: Arc::clone(&store),
            delivery: Arc::clone(&delivery),
            issuer: Issuer::start(Parts {
                store: Arc::clone(&store),
                delivery: Arc::clone(&delivery),
                strategies,
                lengths: Lengths::new(Arc::clone(&store), rules.clone(), config.codes.one_in),
                reserved: config.codes.reserved.clone(),
                clock: Arc::clone(&clock),
            }),
            rules,
            reserved: config.codes.reserved,
            clock: Arc::clone(&clock),
        },
        campaigns: Campaigns {
            store: Arc::clone(&store),
            delivery: Arc::clone(&delivery),
            clock: Arc::clone(&clock),
        },
        codespace: Codespace {
            store: Arc::clone(&store),
            rules: config.codes.rules.clone(),
            policy: config.codes.policy,
            one_in: config.codes.one_in,
            pool: config.codes.pool,
            clock: Arc::clone(&clock),
        },
        explainer: Explainer {
            store: Arc::clone(&store),
            index: Arc::clone(&index),
            rules: config.codes.rules.clone(),
            clock: Arc::clone(&clock),
        },
        resolver: Resolver::new(
            Arc::clone(&store),
            Arc::clone(&publisher),
            config.codes.rules,
            Arc::clone(&clock),
            tasks.clone(),
        ),
        keys: Keys::new(
            Arc::clone(&store),
            Arc::clone(&clock),
            random()?,
            Some(Arc::clone(&access)),
        ),
        access,
        sessions: Sessions::new(&store.code_key(), Arc::clone(&clock), random()?),
        sign_ins: Attempts::new(Arc::clone(&clock)),
        store: Arc::clone(&store),
        domains: Domains::new(
            Arc::clone(&store),
            visits.clone().map(|queue| queue as _),
            Arc::clone(&clock),
            tasks.clone(),
        ),
        answers: AnswerCounters::default(),
        requests: Requests::default(),
        sampling: config.log.sampling,
        visit_counters: Arc::clone(&visit_counters),
        visit_queue: visits.clone().map(|queue| queue as _),
        live: live.clone(),
        publisher,
        clock: Arc::clone(&clock),
        policy: config.links.policy,
        target_domains: config.links.domains,
        default_redirect_status: config.links.redirect_status,
        default_policy: config.codes.policy,
        body_limit_bytes: config.http.body_limit_bytes,
    };

    let stop_worker = CancellationToken::new();
    let worker = tokio::spawn(worker.run(stop_worker.clone()));
    tasks.spawn(pool.keep_filled(stop_worker.clone()));
    tasks.spawn(housekeeping::run(
        Arc::clone(&store),
        housekeeping_clock,
        stop_worker.clone(),
    ));
    let keeper = Keeper {
        store: Arc::clone(&store),
        index: Arc::clone(&index),
        clock: Arc::clone(&clock),
        holder: holder()?,
        links_per_s: config.upkeep.reconcile_per_s,
        rebuilds: config.upkeep.rebuild,
    };
    tasks.spawn(keeper.run(stop_worker.clone()));
    if let Some(live) = live {
        tasks.spawn(live.run());
    }
    if enrichment.is_some() {
        tasks.spawn(geo.watch(config.visits.geo_check, stop_worker.clone()));
    }
    if let (Some(queue), Some(enrichment)) = (visits, enrichment) {
        if let (Some(days), Some(every)) = (
            config.visits.expire_unvisited_after_days,
            config.upkeep.sweep,
        ) {
            let unvisited = Unvisited {
                store: Arc::clone(&store),
                queue: Arc::clone(&queue) as _,
                delivery: Arc::clone(&delivery),
                clock: Arc::clone(&clock),
                holder: holder()?,
                days,
                every,
            };
            tasks.spawn(unvisited.run(stop_worker.clone()));
        }
        let writer = VisitWriter {
            queue,
            store: Arc::clone(&store),
            delivery,
            enrichment,
            clock: Arc::clone(&clock),
            counters: visit_counters,
            retention: config.visits.retention,
            minutes_retention: config.visits.minutes_retention,
            hours_retention: config.visits.hours_retention,
        };
        tasks.spawn(writer.run(random()?, stop_worker.clone()));
    }
    if let Some(every) = config.upkeep.sweep {
        let days = i64::from(config.links.quarantine_days);
        let straggle = SignedDuration::try_from(config.redis.timeout * 4).unwrap_or_default();
        let sweep = Sweep {
            store: Arc::clone(&store),
            index,
            clock,
            holder: holder()?,
            quarantine: (days > 0).then(|| SignedDuration::from_hours(24 * days)),
            straggle: LEAST_STRAGGLE + straggle,
            every,
        };
        tasks.spawn(sweep.run(stop_worker.clone()));
    }
    tracing::info!(%address, "serving");

    let server = http::serve(listener, app, shutdown.clone());
    let grace = config.http.shutdown_grace;
    tokio::select! {
        served = server => served.map_err(|source| ServeError::Serve { source })?,
        () = after(shutdown, grace) => {
            let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(grace_ms, "requests were cut off: they did not finish in time");
        }
    }

    // Requests have ended, so nothing new can arrive for those who work behind them.
    stop_worker.cancel();
    tasks.close();
    let last = async {
        tasks.wait().await;
        if let Err(error) = worker.await {
            tracing::error!(%error, "the outbox worker has panicked");
        }
        store.close().await;
    };
    if tokio::time::timeout(LAST_GRACE, last).await.is_err() {
        tracing::warn!("what was published last may be published again after the next start");
    }
    tracing::info!("stopped");
    Ok(())
}

/// A secret for the codes of a new database.
///
/// # Errors
/// When the operating system has no random numbers to give.
pub fn code_key() -> Result<CodeKey, ServeError> {
    let mut key = [0; 32];
    random()?.fill_bytes(&mut key);
    Ok(CodeKey::new(key))
}

/// A generator of secret random numbers, seeded by the operating system.
///
/// # Errors
/// When the operating system has no random numbers to give.
pub fn random() -> Result<StdRng, ServeError> {
    let mut seed = <StdRng as SeedableRng>::Seed::default();
    SysRng
        .try_fill_bytes(&mut seed)
        .map_err(|source| ServeError::Random {
            source: Box::new(source),
        })?;
    Ok(StdRng::from_seed(seed))
}

/// What this process is called among all that claim tasks in SQL.
///
/// # Errors
/// When the operating system has no random numbers to give.
pub fn holder() -> Result<String, ServeError> {
    Ok(format!("{:016x}", random()?.next_u64()))
}

/// Why the service does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can't be listened on.
    #[error("cannot listen on {address} (http.listen)")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The database can't be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The rules for user agents can't be used.
    #[error(transparent)]
    Agents(#[from] AgentRulesError),
    /// A database of addresses can't be used.
    #[error(transparent)]
    Geo(#[from] GeoError),
    /// The URL of Redis can't be used.
    #[error(transparent)]
    Redis(#[from] UrlError),
    /// Signals can't be caught.
    #[error("cannot catch signals")]
    Signals {
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There are no random numbers.
    #[error("the operating system has no random numbers to give")]
    Random {
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Connections can't be accepted any more.
    #[error("cannot serve any longer")]
    Serve {
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Cancels a token on SIGTERM and SIGINT.
pub(crate) fn cancel_on_signal(shutdown: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping (SIGTERM)"),
            _ = interrupt.recv() => tracing::info!("stopping (SIGINT)"),
        }
        shutdown.cancel();
    });
    Ok(())
}

/// Ends when the grace that follows the signal to stop has passed.
async fn after(shutdown: CancellationToken, grace: Duration) {
    shutdown.cancelled().await;
    tokio::time::sleep(grace).await;
}
