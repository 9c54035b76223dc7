//! The short domains configured in every nginx, their visits, and detection of suspected blocked
//! ones.

pub mod blocks;
pub mod fall;
pub mod network;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use parking_lot::Mutex;
use shortlink_core::announcement::{AnnouncedDomain, Announcement, Heard};
use shortlink_core::boxed;
use shortlink_core::clock::Clock;
use shortlink_core::ports::{MAX_NODES, NetworkCount, StoreError, VisitQueue};
use shortlink_store::Store;
use tokio_util::task::TaskTracker;
use vocabulary::domains::DomainState;

/// Number of whole minutes in the overview.
pub const MINUTES: usize = 60;

/// Interval at which an unchanged announcement is stored again.
const NOTE_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Time without requests after which a node is removed.
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(24);

/// The most nodes in memory, and a few that are refused.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Rank of domains that are retired in every nginx.
const RETIRED: u8 = 2;

/// Age of the visit backlog above which counts are stale.
const LATE: SignedDuration = SignedDuration::from_mins(1);

/// Records the domains that nginx nodes announce, and reports on them.
pub struct Domains {
    store: Arc<Store>,
    queue: Option<Arc<dyn VisitQueue>>,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    hasher: RandomState,
    /// Last stored announcement of each node: a digest, and its time.
    noted: Arc<Mutex<LruCache<String, (u64, Timestamp)>>>,
}

/// The overview of all domains.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Nodes and their announcements.
    pub nodes: Vec<Heard>,
    /// Suspected blocked domains first, then by state and name.
    pub domains: Vec<DomainView>,
    /// Start of the first minute. The last minute is not over.
    pub since: Timestamp,
    /// The visit backlog is late or unknown. No domain is then suspected of being blocked.
    pub is_late: bool,
}

/// A domain in the overview.
#[derive(Clone, Debug)]
pub struct DomainView {
    /// Its name.
    pub name: String,
    /// Announcements of the domain with the names of the nodes; empty for a domain that is visited
    /// but no longer listed.
    pub announced: Vec<(String, AnnouncedDomain)>,
    /// Visits in each minute.
    pub minutes: Vec<u64>,
    /// The collapse of its visits, if any.
    pub fall: Option<FallAt>,
    /// Networks from which its visits have collapsed while others go on; none of a domain that has collapsed itself.
    pub networks: Vec<(String, FallAt)>,
}

/// Time and extent of the collapse of a domain's visits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FallAt {
    /// Start of the first minute with few visits.
    pub at: Timestamp,
    /// Visits per minute before.
    pub before: f64,
    /// Visits per minute since.
    pub since: f64,
}

impl Domains {
    /// Records announcements in the background, on `tasks`. `queue` reports the visit backlog.
    pub fn new(
        store: Arc<Store>,
        queue: Option<Arc<dyn VisitQueue>>,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            store,
            queue,
            clock,
            tasks,
            hasher: RandomState::new(),
            noted: Arc::new(Mutex::new(LruCache::new(REMEMBERED))),
        }
    }

    /// Records the announcement that a node sends with a request. An unchanged announcement costs
    /// next to nothing, and no request waits for the store.
    pub fn hear(&self, node: &str, bases: &str, names: &str, states: &str, brands: &str) {
        let digest = self.hasher.hash_one((bases, names, states, brands));
        let now = self.clock.now();
        let is_noted =
            |(of, at): &(u64, Timestamp)| *of == digest && now.duration_since(*at) < NOTE_EVERY;
        let mut noted = self.noted.lock();
        if noted.get(node).is_some_and(is_noted) {
            return;
        }
        noted.put(node.to_owned(), (digest, now));
        drop(noted);
        let announcement = Announcement::new(node, bases, names, states, brands);
        let (store, noted) = (Arc::clone(&self.store), Arc::clone(&self.noted));
        self.tasks.spawn(async move {
            let forget_before = now.checked_sub(FORGET_AFTER).unwrap_or(Timestamp::MIN);
            match store.note_domains(&announcement, now, forget_before).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(
                    node = announcement.node,
                    "the domains of an nginx were not stored: {MAX_NODES} others announce theirs"
                ),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the domains of an nginx were not stored"
                    );
                    // The next request retries.
                    noted.lock().pop(&announcement.node);
                }
            }
        });
    }

    /// Returns all domains that are listed or visited.
    ///
    /// # Errors
    /// Fails if the store does.
    #[boxed]
    pub async fn overview(&self) -> Result<Overview, StoreError> {
        let now = self.clock.now();
        let minute = now.as_second().div_euclid(60) - MINUTES as i64;
        let since = Timestamp::from_second(minute * 60).unwrap_or(now);
        let nodes = self.store.list_domains().await?;
        let mut domains: BTreeMap<String, DomainView> = BTreeMap::new();
        for heard in &nodes {
            for domain in heard.announcement.domains() {
                let view = domains
                    .entry(domain.name.clone())
                    .or_insert_with(|| DomainView::new(&domain.name));
                view.announced
                    .push((heard.announcement.node.clone(), domain));
            }
        }
        for count in self.store.count_domains(since).await? {
            let place = count.minute.duration_since(since).as_mins();
            let name = match listed(&domains, &count.host) {
                Some(name) => name.to_owned(),
                None => count.host,
            };
            let view = domains
                .entry(name)
                .or_insert_with_key(|name| DomainView::new(name));
            let place = usize::try_from(place).ok();
            // The clock of another server may be ahead.
            if let Some(minute) = place.and_then(|place| view.minutes.get_mut(place)) {
                *minute += count.visits;
            }
        }
        let is_late = self.is_late(now).await;
        let networks = self
            .store
            .count_networks(since, fall::ENOUGH as u64)
            .await?;
        let networks = Networks::new(networks, since, |host| {
            listed(&domains, host).unwrap_or(host).to_owned()
        });
        let mut domains: Vec<DomainView> = domains.into_values().collect();
        for domain in &mut domains {
            // The visits of a retired domain are not counted.
            if !is_late && domain.rank() != RETIRED {
                domain.fall = fall_of(&domain.minutes, since);
                if domain.fall.is_none() {
                    domain.networks = networks.falls_of(&domain.name, since);
                }
            }
        }
        domains.sort_by_key(|domain| {
            (
                domain.fall.is_none(),
                domain.networks.is_empty(),
                domain.rank(),
            )
        });
        Ok(Overview {
            nodes,
            domains,
            since,
            is_late,
        })
    }

    /// Returns true when the visit backlog is so old that domains would seem to have no visits.
    async fn is_late(&self, now: Timestamp) -> bool {
        let Some(queue) = &self.queue else {
            return false;
        };
        match queue.depth().await {
            Ok(depth) => depth
                .oldest
                .is_some_and(|oldest| now.duration_since(oldest) > LATE),
            Err(_) => true,
        }
    }
}

impl DomainView {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            announced: Vec::new(),
            minutes: vec![0; MINUTES + 1],
            fall: None,
            networks: Vec::new(),
        }
    }

    /// Returns the place of its state in the order of states.
    fn rank(&self) -> u8 {
        let states = self.announced.iter().map(|(_, domain)| match domain.state {
            Some(DomainState::Active) => 0,
            Some(DomainState::Serving) => 1,
            Some(DomainState::Retired) => RETIRED,
            None => 3,
        });
        states.min().unwrap_or(4)
    }
}

/// Returns the listed domain that equals a host, or the longest wildcard that matches it.
fn listed<'d>(domains: &'d BTreeMap<String, DomainView>, host: &str) -> Option<&'d str> {
    let dots = host.match_indices('.').map(|(place, _)| place);
    let below = dots.filter(|place| *place > 0);
    let wildcards = below.map(|place| format!("*{}", &host[place..]));
    std::iter::once(host.to_owned())
        .chain(wildcards)
        .find_map(|name| domains.get_key_value(&name))
        .map(|(name, _)| &**name)
}

/// Returns the collapse of visits in whole minutes.
fn fall_of(minutes: &[u64], since: Timestamp) -> Option<FallAt> {
    fall::find(&minutes[..MINUTES]).map(|fall| FallAt::new(fall, since))
}

impl FallAt {
    fn new(fall: fall::Fall, since: Timestamp) -> Self {
        Self {
            at: since + SignedDuration::from_mins(fall.at as i64),
            before: fall.before,
            since: fall.since,
        }
    }
}

/// Human visits in each whole minute.
type Minutes = [u64; MINUTES];

/// Human visits by domain and network.
struct Networks {
    both: BTreeMap<String, BTreeMap<String, Minutes>>,
    /// Of each network on all domains.
    networks: BTreeMap<String, Minutes>,
}

impl Networks {
    fn new(
        counts: Vec<NetworkCount>,
        since: Timestamp,
        domain_of: impl Fn(&str) -> String,
    ) -> Self {
        let mut all = Self {
            both: BTreeMap::new(),
            networks: BTreeMap::new(),
        };
        for count in counts {
            let place = usize::try_from(count.minute.duration_since(since).as_mins()).ok();
            let Some(place) = place.filter(|place| *place < MINUTES) else {
                continue;
            };
            let of_domain = all.both.entry(domain_of(&count.host)).or_default();
            let both = of_domain
                .entry(count.network.clone())
                .or_insert([0; MINUTES]);
            both[place] += count.visits;
            let network = all.networks.entry(count.network).or_insert([0; MINUTES]);
            network[place] += count.visits;
        }
        all
    }

    /// The networks from which the visits of a domain have collapsed, while others go on.
    fn falls_of(&self, domain: &str, since: Timestamp) -> Vec<(String, FallAt)> {
        let Some(of_domain) = self.both.get(domain) else {
            return Vec::new();
        };
        let mut of_all = [0; MINUTES];
        for minutes in of_domain.values() {
            of_all = sums(&of_all, minutes, |all, it| all + it);
        }
        let falls = of_domain.iter().filter_map(|(network, own)| {
            let without = |all: &Minutes| sums(all, own, u64::saturating_sub);
            let other_domains = self.networks.get(network).map(without)?;
            let fall = network::find(own, &without(&of_all), &other_domains)?;
            Some((network.clone(), FallAt::new(fall, since)))
        });
        falls.collect()
    }
}

fn sums(one: &Minutes, other: &Minutes, with: fn(u64, u64) -> u64) -> Minutes {
    std::array::from_fn(|place| with(one[place], other[place]))
}
