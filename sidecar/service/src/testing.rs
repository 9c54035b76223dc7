//! Tools for tests of this crate and of those that depend on it: issuers, API keys, and visits in memory.

pub mod live;

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use shortlink_core::api_key::{ApiKey, KeyPolicy, Scope};
use shortlink_core::clock::Clock;
use shortlink_core::codes::blocklist::Blocklist;
use shortlink_core::codes::reserved::ReservedWords;
use shortlink_core::codes::strategy::{CodePolicy, StrategyName};
use shortlink_core::ports::{Delivery, Publisher};
use shortlink_store::Store;
use vocabulary::CodeRules;

use crate::codes::hash::HashedCodes;
use crate::codes::leases::Leases;
use crate::codes::lengths::Lengths;
use crate::codes::permuted::PermutedCodes;
use crate::codes::pool::{PooledCodes, Watermarks};
use crate::codes::sequence::SequenceCodes;
use crate::codes::strategy::Strategies;
use crate::issue::{Issuer, Parts};
use crate::jobs::Claims;
use crate::keys::{Actor, Keys, NewKey};

/// Keeps a key with these scopes, and returns it with the text that it is presented with.
pub async fn keep_key(
    store: &Arc<Store>,
    clock: &Arc<dyn Clock>,
    seed: u64,
    key: NewKey,
) -> (ApiKey, String) {
    let rng = StdRng::seed_from_u64(seed);
    let keys = Keys::new(Arc::clone(store), Arc::clone(clock), rng, None);
    let made = keys.create(&Actor::Operator, key).await;
    made.expect("a working store")
}

/// A new key with these scopes and nothing else.
pub fn new_key(scopes: &[Scope]) -> NewKey {
    NewKey {
        name: "test".to_owned(),
        scopes: scopes.to_vec(),
        expires_at: None,
        rate_limit: None,
        policy: KeyPolicy::default(),
    }
}

/// Eight characters, counted up and permuted.
pub const POLICY: CodePolicy = CodePolicy {
    strategy: StrategyName::Permuted,
    lengths: (7, 7),
};

/// The leases of a process in a store.
pub fn leases(store: &Arc<Store>, rules: &CodeRules, holder: &str) -> Arc<Leases> {
    let clock = Arc::new(shortlink_core::clock::SystemClock);
    let leases = Leases::new(Arc::clone(store), rules.clone(), clock, holder.to_owned());
    Arc::new(leases)
}

/// Everything that issuing needs, with small numbers.
pub fn parts(
    leases: &Arc<Leases>,
    store: &Arc<Store>,
    publisher: &Arc<dyn Publisher>,
    delivery: &Arc<dyn Delivery>,
    clock: &Arc<dyn Clock>,
    rules: &CodeRules,
) -> Parts {
    let rng = || StdRng::seed_from_u64(7);
    let watermarks = Watermarks { low: 10, high: 50 };
    let strategies = Strategies {
        permuted: Arc::new(PermutedCodes::new(Arc::clone(leases), rules.clone())),
        pool: Arc::new(PooledCodes::new(
            Arc::clone(leases),
            rules.clone(),
            watermarks,
            rng(),
        )),
        sequence: Arc::new(SequenceCodes::new(
            Arc::clone(leases),
            Arc::clone(publisher),
            rules.clone(),
            100_000,
            rng(),
        )),
        hash: Arc::new(HashedCodes::new(&store.code_key(), rules.clone(), rng())),
    };
    Parts {
        store: Arc::clone(store),
        delivery: Arc::clone(delivery),
        strategies,
        lengths: Arc::new(Lengths::new(Arc::clone(leases), rules.clone(), 2)),
        reserved: ReservedWords::new(["api".to_owned()]),
        blocklist: Blocklist::default(),
        clock: Arc::clone(clock),
    }
}

/// An issuer of all of these.
pub fn issuer(
    leases: &Arc<Leases>,
    store: &Arc<Store>,
    publisher: &Arc<dyn Publisher>,
    delivery: &Arc<dyn Delivery>,
    clock: &Arc<dyn Clock>,
    rules: &CodeRules,
) -> Issuer {
    Issuer::start(parts(leases, store, publisher, delivery, clock, rules))
}

/// Has a holder claim jobs in a store.
pub fn claims<C: Clock + 'static>(store: &Arc<Store>, clock: &Arc<C>, holder: &str) -> Claims {
    Claims {
        store: Arc::clone(store),
        clock: Arc::clone(clock) as _,
        holder: holder.to_owned(),
    }
}
