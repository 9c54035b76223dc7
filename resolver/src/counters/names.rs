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
    /// One sentence for people.
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
            /// How many there are.
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
    /// What is counted, besides requests (`WorkerCounters::count_request`).
    Counter
    "shortlink_trimmed_total",
    "Requests whose path had something glued to the code, which was left away.":
        Trimmed "";
    "shortlink_cache_lookups_total",
    "Lookups in the cache of records, by what was found.":
        CacheHit r#"{result="hit"}"#,
        CacheMiss r#"{result="miss"}"#,
        CacheStale r#"{result="stale"}"#;
    "shortlink_campaign_lookups_total",
    "Lookups of campaigns in the cache for their links, by what was found.":
        CampaignHit r#"{result="hit"}"#,
        CampaignMiss r#"{result="miss"}"#,
        CampaignStale r#"{result="stale"}"#;
    "shortlink_cache_insertions_total",
    "Records that were put into the cache.":
        CacheInsertion "";
    "shortlink_cache_evictions_total",
    "Records that left the cache to make room for others.":
        CacheEviction "";
    "shortlink_cache_invalidations_total",
    "Invalidations of the cache: of one record, or of all at once.":
        InvalidatedKey r#"{kind="key"}"#,
        InvalidatedAll r#"{kind="all"}"#;
    "shortlink_redis_connects_total",
    "Connections to Redis that became ready.":
        RedisConnect "";
    "shortlink_redis_disconnects_total",
    "Connections to Redis, or attempts at one, that were given up, by the reason.":
        RedisClosed r#"{reason="closed"}"#,
        RedisProtocol r#"{reason="protocol"}"#,
        RedisRefused r#"{reason="refused"}"#,
        RedisConnectTimeout r#"{reason="connect_timeout"}"#,
        RedisStalled r#"{reason="stalled"}"#,
        RedisRole r#"{reason="role"}"#,
        RedisTopology r#"{reason="topology"}"#;
    "shortlink_redis_replies_total",
    "Replies of Redis to requests for a record, by what they held.":
        ReplyRecord r#"{kind="record"}"#,
        ReplyAbsent r#"{kind="absent"}"#,
        ReplyUnreadable r#"{kind="unreadable"}"#,
        ReplyError r#"{kind="error"}"#;
    "shortlink_redis_timeouts_total",
    "Requests for a record that Redis did not answer within the time budget.":
        RedisTimeout "";
    "shortlink_redis_redirections_total",
    "Replies of a Redis Cluster that named another node.":
        RedisMoved r#"{kind="moved"}"#,
        RedisAsk r#"{kind="ask"}"#;
    "shortlink_coalesced_total",
    "Requests that waited for the reply to an earlier request for the same code.":
        Coalesced "";
    "shortlink_breaker_opened_total",
    "How often a worker stopped asking Redis for a while.":
        BreakerOpened "";
    "shortlink_fallback_answers_total",
    "Answers to requests that were handed to the fallback, by what the visitor got; errors are 5xx.":
        FallbackRedirect r#"{answer="redirect"}"#,
        FallbackGone r#"{answer="gone"}"#,
        FallbackUnknown r#"{answer="unknown"}"#,
        FallbackError r#"{answer="error"}"#,
        FallbackOther r#"{answer="other"}"#;
    "shortlink_visits_total",
    "Visits: redirects, and answers 410, that are to be stored.":
        Visit "";
    "shortlink_visits_unspooled_total",
    "Visits out of files that Redis has confirmed.":
        VisitUnspooled "";
    "shortlink_visits_stored_total",
    "Visits that Redis has confirmed, those out of files included.":
        VisitStored "";
    "shortlink_visits_spooled_total",
    "Visits that were written to files because Redis took none.":
        VisitSpooled "";
    "shortlink_visits_dropped_total",
    "Visits that will not be stored: no room in memory, none in files, or none when a worker ended.":
        VisitNoMemory r#"{reason="memory"}"#,
        VisitNoSpool r#"{reason="spool"}"#,
        VisitAtExit r#"{reason="exit"}"#;
    "shortlink_visits_lost_total",
    "Visits that were in the memory of workers that were killed.":
        VisitLost "";
    "shortlink_visit_batches_total",
    "Batches of visits sent to Redis, by what became of them; all but the first kind are sent again.":
        BatchStored r#"{result="stored"}"#,
        BatchRefused r#"{result="refused"}"#,
        BatchLost r#"{result="lost"}"#;
}

metrics! {
    /// What is measured: how things are in a living worker. Shown as the sum over the workers,
    /// as the largest of them where all measure the same thing, or for each worker
    /// where the label is its process number.
    Gauge
    "shortlink_cache_entries", "Records in the caches.":
        CacheEntries "";
    "shortlink_cache_bytes", "Memory that the records in the caches take.":
        CacheBytes "";
    "shortlink_cache_capacity_bytes", "Memory that the caches may take.":
        CacheCapacityBytes "";
    "shortlink_redis_connected", "Connections to Redis that are ready.":
        RedisConnected "";
    "shortlink_breaker_open", "Workers that do not ask Redis for a while.":
        BreakerOpen "";
    "shortlink_waiting_requests", "Requests that wait for Redis.":
        WaitingRequests "";
    "shortlink_visits_held", "Visits in memory that Redis has not confirmed yet.":
        VisitsHeld "";
    "shortlink_spool_files",
    "Files that hold visits, as many as there were when a worker last looked.":
        SpoolFiles "";
    "shortlink_spool_files_most", "How many such files there may be; 0 without spool=.":
        SpoolFilesMost "";
    "shortlink_epoch", "How often all that a worker keeps became stale at once, as when Redis is lost.":
        Epoch r#"{worker="<pid>"}"#;
}

impl Gauge {
    /// Whether all workers measure one and the same thing, so that it is not to be added up.
    pub(super) const fn is_common(self) -> bool {
        matches!(self, Self::SpoolFiles | Self::SpoolFilesMost)
    }
}
