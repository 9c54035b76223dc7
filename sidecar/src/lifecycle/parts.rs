//! Builds the parts of the service from its configuration.

use std::sync::Arc;

use anyhow::Context;
use rand::rngs::StdRng;
use shortlink_core::clock::{Clock, SystemClock};
use shortlink_core::ports::{Delivery, Publisher, RecordIndex};
use shortlink_core::visit::Enrichment;
use shortlink_core::visit::agent::Agents;
use shortlink_core::webhook::MessageSender;
use shortlink_enrich::agents::AgentReader;
use shortlink_enrich::geo::Geo;
use shortlink_http::{AnswerCounters, App, ConversionCounters, OpenId, Requests, SignInCounters};
use shortlink_openid::OpenId as OpenIdProvider;
use shortlink_publisher::{RedisIndex, RedisPublisher, RedisTail, RedisVisits};
use shortlink_service::access::{Access, Attempts, PeopleRules};
use shortlink_service::campaigns::Campaigns;
use shortlink_service::clicks::ClickIdMaker;
use shortlink_service::codes::hash::HashedCodes;
use shortlink_service::codes::leases::Leases;
use shortlink_service::codes::lengths::Lengths;
use shortlink_service::codes::permuted::PermutedCodes;
use shortlink_service::codes::pool::PooledCodes;
use shortlink_service::codes::sequence::SequenceCodes;
use shortlink_service::codes::strategy::Strategies;
use shortlink_service::codespace::Codespace;
use shortlink_service::domains::Domains;
use shortlink_service::explain::Explainer;
use shortlink_service::feed::VisitFeed;
use shortlink_service::issue::{self, Issuer};
use shortlink_service::keys::Keys;
use shortlink_service::links::Links;
use shortlink_service::live::{LiveParts, LiveVisits};
use shortlink_service::outbox::{self, outbox};
use shortlink_service::resolve::{Replica, Resolver};
use shortlink_service::sessions::Sessions;
use shortlink_service::uploads::Uploads;
use shortlink_service::visits::VisitCounters;
use shortlink_service::webhooks::{WebhookCounters, Webhooks};
use shortlink_store as store;
use shortlink_store::{ReplicaState, Store, StoreOptions};
use shortlink_webhooks::HttpSender;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::front::Front;
use crate::config::Config;
use crate::random;

/// The parts that requests and background jobs share.
pub(super) struct Parts {
    pub(super) config: Config,
    /// The name of this process among all that claim jobs and read visits.
    pub(super) holder: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Arc<Store>,
    /// The same database on connections of the front.
    pub(super) visitors_store: Arc<Store>,
    /// The same database for listings, exports and statistics, if it has a replica.
    pub(super) listings_store: Option<Arc<Store>>,
    /// The replica for visitors, on connections of the front.
    pub(super) replica_store: Option<Arc<Store>>,
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) index: Arc<dyn RecordIndex>,
    pub(super) delivery: Arc<dyn Delivery>,
    pub(super) leases: Arc<Leases>,
    pub(super) pool: Arc<PooledCodes<StdRng>>,
    /// The queue of visits, if this process stores them.
    pub(super) visits: Option<Arc<RedisVisits>>,
    pub(super) visit_counters: Arc<VisitCounters>,
    pub(super) geo: Arc<Geo>,
    pub(super) enrichment: Option<Arc<Enrichment>>,
    pub(super) live: Option<Arc<LiveVisits>>,
    pub(super) feed: Arc<VisitFeed>,
    /// The short domains that nginx announces.
    pub(super) domains: Arc<Domains>,
    /// Sends messages to the endpoints of webhooks.
    pub(super) sender: Arc<dyn MessageSender>,
    pub(super) webhook_counters: Arc<WebhookCounters>,
    /// All that runs in the background besides the worker of the outbox.
    pub(super) tasks: TaskTracker,
}

impl Parts {
    /// Opens the database, the files and Redis. Feeds of visits end with `shutdown`.
    pub(super) async fn build(
        config: Config,
        shutdown: CancellationToken,
        front: &Front,
    ) -> anyhow::Result<(Self, outbox::Worker)> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let holder = random::holder()?;
        let store = store::open(&config.database).await?;
        let of_visitors = StoreOptions {
            max_connections: config.resolver_connections,
            ..config.database.clone()
        };
        let visitors_options = of_visitors.clone();
        let visitors_store = front.run(async move { store::open(&of_visitors).await });
        let visitors_store = visitors_store.await??;
        let listings_store = store.for_listings(&config.database)?;
        let replica_store = visitors_store.for_visitors(&visitors_options)?;
        let (redis, visits) = (&config.redis, &config.visits);
        let publisher =
            RedisPublisher::new(redis, config.links.negative_ttl_s, Arc::clone(&clock))?;
        let publisher: Arc<dyn Publisher> = Arc::new(publisher);
        let queue = || RedisVisits::new(redis, visits.streams, holder.clone());
        let queue = visits.stores.then(queue).transpose()?.map(Arc::new);
        let geo = Arc::new(Geo::open(visits.geo.clone())?);
        let has_live = visits.live.listeners > 0;
        let agents: Option<Arc<dyn Agents>> = if visits.stores {
            Some(Arc::new(AgentReader::new(visits.remembered_agents)?))
        } else if has_live {
            // The feed may never have a listener.
            Some(Arc::new(AgentReader::late(visits.remembered_agents)))
        } else {
            None
        };
        let enrichment = agents.map(|agents| {
            Arc::new(Enrichment::new(
                Arc::clone(&geo) as _,
                agents,
                visits.address,
            ))
        });
        let live = match &enrichment {
            Some(enrichment) if has_live => Some(Arc::new(LiveVisits::new(LiveParts {
                tail: Arc::new(RedisTail::new(redis, visits.streams)?),
                keys: Arc::clone(&store) as _,
                enrichment: Arc::clone(enrichment),
                clock: Arc::clone(&clock),
                limits: visits.live,
                // Shutdown waits for requests in progress, but feeds have no end of their own.
                stop: shutdown.clone(),
            }))),
            _ => None,
        };
        let feed = Arc::new(VisitFeed::new(Arc::clone(&store), visits.live, shutdown));
        let webhooks = &config.webhooks;
        let sender = HttpSender::new(webhooks.policy.clone(), webhooks.timeout);
        let leases = Arc::new(Leases::new(
            Arc::clone(&store),
            config.codes.rules.clone(),
            Arc::clone(&clock),
            holder.clone(),
        ));
        let pool = Arc::new(PooledCodes::new(
            Arc::clone(&leases),
            config.codes.rules.clone(),
            config.codes.pool,
            random::generator()?,
        ));
        let (outbox, worker) = outbox(
            Arc::clone(&store),
            Arc::clone(&publisher),
            Arc::clone(&clock),
        );
        let tasks = TaskTracker::new();
        let domains = Domains::new(
            Arc::clone(&store),
            queue.clone().map(|queue| queue as _),
            Arc::clone(&clock),
            tasks.clone(),
        );
        let parts = Self {
            holder,
            clock,
            store,
            visitors_store,
            listings_store,
            replica_store,
            publisher,
            index: Arc::new(RedisIndex::new(&config.redis)?),
            delivery: Arc::new(outbox),
            leases,
            pool,
            visits: queue,
            visit_counters: Arc::default(),
            geo,
            enrichment,
            live,
            feed,
            domains: Arc::new(domains),
            sender: Arc::new(sender),
            webhook_counters: Arc::default(),
            tasks,
            config,
        };
        Ok((parts, worker))
    }

    /// Builds the services that requests use.
    pub(super) fn app(&self) -> anyhow::Result<App> {
        let Config { codes, links, .. } = &self.config;
        let (store, clock) = (|| Arc::clone(&self.store), || Arc::clone(&self.clock));
        let listings = || self.listings_store.clone().unwrap_or_else(store);
        let people = self.config.sign_in.openid.as_ref();
        let people = people.map(|openid| PeopleRules {
            issuer: openid.options.issuer.to_string(),
            roles: openid.rules.clone(),
        });
        let access = Access::new(store(), clock()).with_people(people);
        let access = Arc::new(access);
        Ok(App {
            links: Links {
                store: store(),
                listings: listings(),
                delivery: Arc::clone(&self.delivery),
                issuer: self.issuer()?,
                rules: codes.rules.clone(),
                reserved: codes.reserved.clone(),
                custom_blocklist: codes.custom_blocklist.clone(),
                clock: clock(),
            },
            campaigns: Campaigns {
                store: store(),
                delivery: Arc::clone(&self.delivery),
                clock: clock(),
            },
            codespace: Codespace {
                store: store(),
                rules: codes.rules.clone(),
                policy: codes.policy,
                one_in: codes.one_in,
                sequence_one_in: codes.sequence_one_in,
                pool: codes.pool,
                clock: clock(),
                leases: Arc::clone(&self.leases),
                summary: Default::default(),
            },
            explainer: Explainer {
                store: store(),
                index: Arc::clone(&self.index),
                rules: codes.rules.clone(),
                clock: clock(),
            },
            resolver: Resolver::new(
                Arc::clone(&self.visitors_store),
                Arc::clone(&self.publisher),
                codes.rules.clone(),
                clock(),
                self.tasks.clone(),
            )
            .with_replica(self.replica()),
            keys: Keys::new(
                store(),
                clock(),
                random::generator()?,
                Some(Arc::clone(&access)),
            ),
            access,
            sessions: Sessions::new(
                Arc::clone(&self.store),
                &self.store.code_key(),
                clock(),
                random::generator()?,
                self.config.sign_in.limits,
            ),
            sign_ins: Attempts::new(clock()),
            sign_in_counters: SignInCounters::default(),
            openid: self.openid()?,
            click_ids: ClickIdMaker::new(random::generator()?),
            uploads: Uploads::new(random::generator()?),
            store: store(),
            listings: listings(),
            replica: self.replica_state(),
            domains: Arc::clone(&self.domains),
            answers: AnswerCounters::default(),
            conversions: ConversionCounters::default(),
            requests: Requests::default(),
            sampling: self.config.log.sampling,
            visit_counters: Arc::clone(&self.visit_counters),
            visit_queue: self.visits.clone().map(|queue| queue as _),
            live: self.live.clone(),
            feed: Arc::clone(&self.feed),
            webhooks: Webhooks {
                store: store(),
                sender: Arc::clone(&self.sender),
                policy: self.config.webhooks.policy.clone(),
                clock: clock(),
                counters: Arc::clone(&self.webhook_counters),
                rng: random::generator()?.into(),
            },
            publisher: Arc::clone(&self.publisher),
            clock: clock(),
            policy: links.policy,
            target_domains: links.domains.clone(),
            default_redirect_status: links.redirect_status,
            default_policy: codes.policy,
            body_limit_bytes: self.config.http.body_limit_bytes,
            proxy_secret: self.config.http.proxy_secret.clone(),
        })
    }

    /// The provider at which people sign in.
    fn openid(&self) -> anyhow::Result<Option<OpenId>> {
        let Some(settings) = self.config.sign_in.openid.clone() else {
            return Ok(None);
        };
        let provider = OpenIdProvider::new(settings.options, Arc::clone(&self.clock));
        Ok(Some(OpenId {
            provider: Arc::new(provider.context("sign_in.ca_file can't be read")?),
            rules: settings.rules,
            name: settings.name,
            console_url: settings.console_url,
            shows_api_key: settings.shows_api_key,
        }))
    }

    fn replica_state(&self) -> Option<ReplicaState> {
        let replica = self.config.database.replica.as_ref();
        replica.map(|it| it.state.clone())
    }

    fn replica(&self) -> Option<Replica> {
        Some(Replica {
            store: self.replica_store.clone()?,
            state: self.replica_state()?,
            index: Arc::clone(&self.index),
        })
    }

    fn issuer(&self) -> anyhow::Result<Issuer> {
        let codes = &self.config.codes;
        let (leases, rules) = (|| Arc::clone(&self.leases), || codes.rules.clone());
        Ok(Issuer::start(issue::Parts {
            store: Arc::clone(&self.store),
            delivery: Arc::clone(&self.delivery),
            strategies: Strategies {
                permuted: Arc::new(PermutedCodes::new(leases(), rules())),
                pool: Arc::clone(&self.pool) as _,
                sequence: Arc::new(SequenceCodes::new(
                    leases(),
                    Arc::clone(&self.publisher),
                    rules(),
                    codes.sequence_one_in,
                    random::generator()?,
                )),
                hash: Arc::new(HashedCodes::new(
                    &self.store.code_key(),
                    rules(),
                    random::generator()?,
                )),
            },
            lengths: Arc::new(Lengths::new(leases(), rules(), codes.one_in)),
            reserved: codes.reserved.clone(),
            blocklist: codes.blocklist.clone(),
            clock: Arc::clone(&self.clock),
        }))
    }
}
