//! Every counter and gauge: its name, its help and its labels.
//!
//! The enums, their documentation and the Prometheus text are all made from the tables at the end
//! of this file. A line `Variant "labels"` is one number; a metric has as many as it has labels.
//! Of visits, those who come stand before those who go (see `render`).

/// A metric: numbers that have a name in common.
#[derive(Debug)]
pub(super) struct Metric<T: 'static> {
    /// The name, as Prometheus wants it.
    pub(super) name: &'static str,
    /// One sentence of description.
    pub(super) help: &'static str,
    /// The numbers with their labels, in braces unless there are none.
    pub(super) samples: &'static [(T, &'static str)],
}

/// Makes an enum of the numbers of a table of metrics, and the table.
macro_rules! metrics {
    (
        $(#[$about:meta])*
        $number:ident
        $($name:literal, $help:literal: $($variant:ident $labels:literal),+;)+
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $number {
            $($(
                #[doc = concat!("`", $name, $labels, "`: ", $help)]
                $variant,
            )+)+
        }

        impl $number {
            /// The number of values.
            pub(super) const COUNT: usize = [$($(Self::$variant,)+)+].len();

            /// The table.
            pub(super) const METRICS: &[Metric<Self>] = &[
                $(Metric {
                    name: $name,
                    help: $help,
                    samples: &[$((Self::$variant, $labels)),+],
                },)+
            ];
        }
    };
}

metrics! {
    /// Counters, except those of requests (`WorkerCounters::count_request`).
    Counter
    "shortlink_trimmed_total",
    "Requests whose path had text after the code.":
        Trimmed "";
    "shortlink_misses_charged_total",
    "Requests for unknown codes that were charged to an address.":
        MissCharged "";
    "shortlink_limit_reached_total",
    "Times that an address or a network reached its miss limit.":
        LimitedAddress r#"{scope="address"}"#,
        LimitedNetwork r#"{scope="network"}"#;
    "shortlink_limited_redirects_total",
    "Cached redirects answered to limited addresses.":
        LimitedRedirect "";
    "shortlink_cache_lookups_total",
    "Lookups of link records in the cache, by result.":
        CacheHit r#"{result="hit"}"#,
        CacheMiss r#"{result="miss"}"#,
        CacheStale r#"{result="stale"}"#;
    "shortlink_campaign_lookups_total",
    "Lookups of campaign records in the cache, by result.":
        CampaignHit r#"{result="hit"}"#,
        CampaignMiss r#"{result="miss"}"#,
        CampaignStale r#"{result="stale"}"#;
    "shortlink_cache_insertions_total",
    "Records inserted into the cache.":
        CacheInsertion "";
    "shortlink_cache_evictions_total",
    "Records evicted from the cache to free memory for others.":
        CacheEviction "";
    "shortlink_cache_invalidations_total",
    "Invalidations of the cache, of one record (key) or of all records (all).":
        InvalidatedKey r#"{kind="key"}"#,
        InvalidatedAll r#"{kind="all"}"#;
    "shortlink_redis_connects_total",
    "Connections to Redis that became ready.":
        RedisConnect "";
    "shortlink_redis_disconnects_total",
    "Connections to Redis that were closed and attempts that failed, by reason.":
        RedisClosed r#"{reason="closed"}"#,
        RedisProtocol r#"{reason="protocol"}"#,
        RedisRefused r#"{reason="refused"}"#,
        RedisConnectTimeout r#"{reason="connect_timeout"}"#,
        RedisStalled r#"{reason="stalled"}"#,
        RedisRole r#"{reason="role"}"#,
        RedisTopology r#"{reason="topology"}"#;
    "shortlink_redis_replies_total",
    "Replies of Redis to lookups of a record, by content.":
        ReplyRecord r#"{kind="record"}"#,
        ReplyAbsent r#"{kind="absent"}"#,
        ReplyUnreadable r#"{kind="unreadable"}"#,
        ReplyError r#"{kind="error"}"#;
    "shortlink_redis_timeouts_total",
    "Lookups of a record without a reply of Redis within the budget.":
        RedisTimeout "";
    "shortlink_redis_redirections_total",
    "Replies of a Redis Cluster that redirected to another node, by kind.":
        RedisMoved r#"{kind="moved"}"#,
        RedisAsk r#"{kind="ask"}"#;
    "shortlink_coalesced_total",
    "Requests that joined a pending lookup of the same code.":
        Coalesced "";
    "shortlink_breaker_opened_total",
    "Openings of a worker's circuit breaker, which pauses its lookups in Redis.":
        BreakerOpened "";
    "shortlink_doubtful_total",
    "Answers that were not given because their source is not authoritative, by answer.":
        DoubtfulGone r#"{answer="gone"}"#,
        DoubtfulNotYet r#"{answer="not_yet"}"#,
        DoubtfulUnknown r#"{answer="unknown"}"#;
    "shortlink_fallback_refused_total",
    "Requests answered without the fallback because too many wait for it (waiting) or it fails (breaker).":
        FallbackFull r#"{reason="waiting"}"#,
        FallbackFailing r#"{reason="breaker"}"#;
    "shortlink_fallback_breaker_opened_total",
    "Openings of a worker's circuit breaker for the fallback.":
        FallbackBreakerOpened "";
    "shortlink_fallback_answers_total",
    "Responses to requests passed to the fallback, by result; error is a status 5xx, or no response.":
        FallbackRedirect r#"{answer="redirect"}"#,
        FallbackGone r#"{answer="gone"}"#,
        FallbackUnknown r#"{answer="unknown"}"#,
        FallbackError r#"{answer="error"}"#,
        FallbackOther r#"{answer="other"}"#;
    "shortlink_visits_total",
    "Visits to be stored: redirects, responses 410 and pages of previews.":
        Visit "";
    "shortlink_visits_unspooled_total",
    "Visits from spool files that Redis has confirmed.":
        VisitUnspooled "";
    "shortlink_visits_stored_total",
    "Visits that Redis has confirmed, including those from spool files.":
        VisitStored "";
    "shortlink_visits_spooled_total",
    "Visits written to spool files because Redis did not accept them.":
        VisitSpooled "";
    "shortlink_visits_dropped_total",
    "Visits discarded, by reason: memory full, not written to the spool, or unconfirmed at worker exit.":
        VisitNoMemory r#"{reason="memory"}"#,
        VisitNoSpool r#"{reason="spool"}"#,
        VisitAtExit r#"{reason="exit"}"#;
    "shortlink_visits_lost_total",
    "Visits in the memory of workers that were killed.":
        VisitLost "";
    "shortlink_visit_batches_total",
    "Batches of visits sent to Redis, by result; refused and lost batches are retried.":
        BatchStored r#"{result="stored"}"#,
        BatchRefused r#"{result="refused"}"#,
        BatchLost r#"{result="lost"}"#;
}

metrics! {
    /// Gauges of living workers. Shown as the sum over the workers, as the largest of them where
    /// all measure the same thing, or per worker where the label is its process number.
    Gauge
    "shortlink_cache_entries", "Records in the caches of all workers.":
        CacheEntries "";
    "shortlink_cache_bytes", "Memory used by the records in the caches, in bytes.":
        CacheBytes "";
    "shortlink_cache_capacity_bytes", "Maximum memory of the caches, in bytes.":
        CacheCapacityBytes "";
    "shortlink_redis_connected", "Connections to Redis that are ready.":
        RedisConnected "";
    "shortlink_redis_authoritative",
    "Connections to Redis whose data are proved current, so that 404 and 410 are answered from them.":
        RedisAuthoritative "";
    "shortlink_breaker_open", "Workers whose circuit breaker for Redis is open.":
        BreakerOpen "";
    "shortlink_waiting_requests", "Requests that wait for a reply of Redis.":
        WaitingRequests "";
    "shortlink_fallback_waiting", "Requests that wait for the fallback.":
        FallbackWaiting "";
    "shortlink_fallback_breaker_open", "Circuit breakers of workers for the fallback that are open.":
        FallbackBreakerOpen "";
    "shortlink_visits_held", "Visits in memory that Redis has not confirmed.":
        VisitsHeld "";
    "shortlink_spool_files",
    "Spool files at the latest count by a worker.":
        SpoolFiles "";
    "shortlink_spool_files_most", "Maximum number of spool files; 0 without spool=.":
        SpoolFilesMost "";
    "shortlink_epoch", "Number of times that the whole cache of a worker became stale, as on loss of Redis.":
        Epoch r#"{worker="<pid>"}"#;
}

impl Gauge {
    /// Reports whether all workers measure one and the same thing, which must not be added up.
    pub(super) const fn is_common(self) -> bool {
        matches!(self, Self::SpoolFiles | Self::SpoolFilesMost)
    }
}
