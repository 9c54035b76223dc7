//! The router as a client sees it, with a real store and a Redis in memory.

mod access;
mod audit;
mod batch;
mod batch_bodies;
mod bulk;
mod campaign_links;
mod campaigns;
mod clicks;
mod codespace;
mod console;
mod conversions;
mod domains;
mod explain;
mod feed;
mod full_lengths;
mod isolation;
mod keys;
mod links;
mod live;
mod messages;
mod metrics;
mod once;
mod openapi;
mod options;
mod previews;
mod quotas;
mod receipts;
mod reports;
mod requests;
mod rules;
mod search;
mod targets;
mod utm_templates;
mod variants;
mod visitors;
mod visits;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use jiff::SignedDuration;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use shortlink_core::api_key::Scope;
use shortlink_core::clock::Clock;
use shortlink_core::codes::blocklist::Blocklist;
use shortlink_core::codes::reserved::ReservedWords;
use shortlink_core::ports::{Delivery, Publisher};
use shortlink_core::target::TargetPolicy;
use shortlink_core::target::domains::{DomainRules, TargetDomains};
use shortlink_core::testing::{ManualClock, MemoryPublisher};
use shortlink_core::trace::Sampling;
use shortlink_core::webhook::EndpointPolicy;
use shortlink_service::access::{Access, Attempts};
use shortlink_service::campaigns::Campaigns;
use shortlink_service::clicks::ClickIdMaker;
use shortlink_service::codes::pool::Watermarks;
use shortlink_service::codespace::Codespace;
use shortlink_service::domains::Domains;
use shortlink_service::explain::Explainer;
use shortlink_service::feed::VisitFeed;
use shortlink_service::keys::{Keys, NewKey};
use shortlink_service::links::Links;
use shortlink_service::live::LiveVisits;
use shortlink_service::outbox::outbox;
use shortlink_service::resolve::Resolver;
use shortlink_service::sessions::{PeopleLimits, Sessions};
use shortlink_service::testing::{POLICY, issuer, keep_key, leases, new_key};
use shortlink_service::uploads::Uploads;
use shortlink_service::webhooks::Webhooks;
use shortlink_store::testing::TemporaryStore;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use vocabulary::{CodeRules, RedirectStatus};

use super::router::homes;
use super::*;

const BODY_LIMIT: usize = 1024;

/// A service with one key of each kind.
struct Service {
    router: Router,
    /// Of connections that begin with a request of the API.
    api_router: Router,
    kept: TemporaryStore,
    redis: Arc<MemoryPublisher>,
    clock: Arc<ManualClock>,
    delivery: Arc<dyn Delivery>,
    writer: String,
    reader: String,
    campaigner: String,
}

/// An answer.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("text"))
    }

    /// The pointers of a validation problem.
    fn pointers(&self) -> Vec<String> {
        let body = self.json();
        let errors = body["errors"].as_array().cloned().unwrap_or_default();
        let pointers = errors.iter().map(|error| &error["pointer"]);
        pointers
            .map(|pointer| pointer.as_str().expect("text").to_owned())
            .collect()
    }
}

impl Service {
    async fn new() -> Self {
        Self::with(|_app| {}).await
    }

    /// A service with a modified configuration.
    async fn with(change: impl FnOnce(&mut App)) -> Self {
        Self::on(TemporaryStore::new().await, change).await
    }

    /// A service on a store.
    async fn on(kept: TemporaryStore, change: impl FnOnce(&mut App)) -> Self {
        let redis = Arc::new(MemoryPublisher::default());
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let (publisher, shared_clock): (Arc<dyn Publisher>, Arc<dyn Clock>) =
            (Arc::clone(&redis) as _, Arc::clone(&clock) as _);
        let (outbox, _worker) = outbox(
            Arc::clone(&kept.store),
            Arc::clone(&publisher),
            Arc::clone(&shared_clock),
        );
        let rules = CodeRules::default();
        let mut keys = Vec::new();
        for scopes in [
            &[Scope::LinksWrite, Scope::LinksRead][..],
            &[Scope::LinksRead],
            &[Scope::CampaignsWrite, Scope::CampaignsRead],
        ] {
            let seed = 100 + keys.len() as u64;
            let (_, text) = keep_key(&kept.store, &shared_clock, seed, new_key(scopes)).await;
            keys.push(text);
        }
        let [writer, reader, campaigner] = keys.try_into().expect("three keys");
        let delivery: Arc<dyn Delivery> = Arc::new(outbox);
        let access = Arc::new(Access::new(
            Arc::clone(&kept.store),
            Arc::clone(&shared_clock),
        ));
        let leases = leases(&kept.store, &rules, "test");
        let mut app = App {
            keys: Keys::new(
                Arc::clone(&kept.store),
                Arc::clone(&shared_clock),
                StdRng::seed_from_u64(1000),
                Some(Arc::clone(&access)),
            ),
            access,
            sessions: Sessions::new(
                Arc::clone(&kept.store),
                &kept.store.code_key(),
                Arc::clone(&shared_clock),
                StdRng::seed_from_u64(1001),
                PeopleLimits {
                    life: SignedDuration::from_hours(12),
                    idle: SignedDuration::from_hours(2),
                },
            ),
            sign_ins: Attempts::new(Arc::clone(&shared_clock)),
            sign_in_counters: SignInCounters::default(),
            openid: None,
            click_ids: ClickIdMaker::new(StdRng::seed_from_u64(1003)),
            uploads: Uploads::new(StdRng::seed_from_u64(1002)),
            links: Links {
                store: Arc::clone(&kept.store),
                listings: Arc::clone(&kept.store),
                issuer: issuer(
                    &leases,
                    &kept.store,
                    &publisher,
                    &delivery,
                    &shared_clock,
                    &rules,
                ),
                delivery: Arc::clone(&delivery),
                rules: rules.clone(),
                reserved: ReservedWords::new(["api".to_owned()]),
                custom_blocklist: Blocklist::parse(["zob"]).expect("a word"),
                clock: Arc::clone(&shared_clock),
            },
            campaigns: Campaigns {
                store: Arc::clone(&kept.store),
                delivery: Arc::clone(&delivery),
                clock: Arc::clone(&shared_clock),
            },
            explainer: Explainer {
                store: Arc::clone(&kept.store),
                index: Arc::clone(&redis) as _,
                rules: rules.clone(),
                clock: Arc::clone(&shared_clock),
            },
            resolver: Resolver::new(
                Arc::clone(&kept.store),
                Arc::clone(&publisher),
                rules,
                Arc::clone(&shared_clock),
                TaskTracker::new(),
            ),
            codespace: Codespace {
                store: Arc::clone(&kept.store),
                rules: CodeRules::default(),
                policy: POLICY,
                one_in: 1000,
                sequence_one_in: 100_000,
                pool: Watermarks { low: 10, high: 50 },
                clock: Arc::clone(&shared_clock),
                leases,
                summary: Default::default(),
            },
            store: Arc::clone(&kept.store),
            listings: Arc::clone(&kept.store),
            replica: None,
            domains: Arc::new(Domains::new(
                Arc::clone(&kept.store),
                None,
                Arc::clone(&shared_clock),
                TaskTracker::new(),
            )),
            answers: AnswerCounters::default(),
            conversions: ConversionCounters::default(),
            requests: Requests::default(),
            sampling: Sampling { one_in: 0 },
            visit_counters: Arc::default(),
            visit_queue: None,
            live: None,
            feed: Arc::new(VisitFeed::new(
                Arc::clone(&kept.store),
                live::LIMITS,
                CancellationToken::new(),
            )),
            webhooks: Webhooks {
                store: Arc::clone(&kept.store),
                sender: Arc::new(webhooks::Refusing),
                policy: EndpointPolicy::default(),
                clock: Arc::clone(&shared_clock),
                counters: Arc::default(),
                rng: StdRng::seed_from_u64(1003).into(),
            },
            publisher,
            clock: shared_clock,
            policy: TargetPolicy::default(),
            default_policy: POLICY,
            target_domains: TargetDomains {
                denied: DomainRules::from_iter(["denied.example".parse().expect("a rule")]),
                ..TargetDomains::default()
            },
            default_redirect_status: RedirectStatus::Found,
            body_limit_bytes: BODY_LIMIT,
            proxy_secret: None,
        };
        change(&mut app);
        let homes = homes(app, Handle::current(), Handle::current());
        Self {
            router: homes.visitors.router,
            api_router: homes.api.router,
            kept,
            redis,
            clock,
            delivery,
            writer,
            reader,
            campaigner,
        }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await;
        let response = response.expect("the router answers everything");
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 8 << 20).await.expect("a whole body");
        let answer = Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: body.to_vec(),
        };
        let is_api = parts.status.is_client_error() || parts.status.is_server_error();
        if is_api && answer.header("content-type") == Some("application/problem+json") {
            let problem = answer.json();
            assert_eq!(problem["status"], json!(answer.status));
            for member in ["type", "title", "detail"] {
                assert!(problem[member].is_string(), "{problem}");
            }
        }
        answer
    }

    /// Sends JSON with a key, as nginx would pass it on.
    async fn call(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", key)
            .header("x-shortlink-base", "https://s.example.com")
            .header("x-shortlink-domains", "s.example.com, Old.Example.");
        let request = match body {
            Some(body) => request
                .header("content-type", "application/json")
                .body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        self.send(request.expect("a good request")).await
    }

    /// Creates an API key as the command line does; returns its id and text.
    async fn key(&self, seed: u64, key: NewKey) -> (String, String) {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let (key, text) = keep_key(&self.kept.store, &clock, seed, key).await;
        (key.id, text)
    }

    async fn create(&self, body: Value) -> Answer {
        self.call(&self.writer, "POST", "/v1/links", Some(body))
            .await
    }

    /// Sends a GET request with the key for campaigns.
    async fn look(&self, path: &str) -> Answer {
        self.call(&self.campaigner, "GET", path, None).await
    }

    /// Sends a request without body that is meant for some revisions.
    async fn call_if(&self, method: &str, path: &str, if_match: &str) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("x-api-key", &self.writer)
            .header("if-match", if_match)
            .body(Body::empty());
        self.send(request.expect("a good request")).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(&self.reader, "GET", path, None).await
    }
}
