//! Codes from a counter and the keyed permutation that numbers links.
//!
//! Each process leases blocks of the counter ([`leases`](super::leases)), so that processes never collide. Codes with
//! consecutive counts are adjacent in the database, which makes inserts cheap at any size.

use std::sync::Arc;

use async_trait::async_trait;
use shortlink_core::codes::numbering::Numbering;
use shortlink_store::NumbersWanted;
use vocabulary::{Code, CodeRules};

use super::leases::Leases;
use super::strategy::{CodeStrategy, DrawError, DrawRequest};

/// The largest block, as a part of all codes of a length: 1 / this.
const BLOCKS: u64 = 256;

/// The smallest and the largest block, unless a request needs more at once.
const SMALLEST_BLOCK: u64 = 1;
const LARGEST_BLOCK: u64 = 20_000;

/// The beginning of the names of counters.
const COUNTER: &str = "permuted:";

/// Issues codes by counting.
pub struct PermutedCodes {
    leases: Arc<Leases>,
    numbering: Arc<Numbering>,
    rules: CodeRules,
}

impl PermutedCodes {
    /// Counts in the store of leases.
    pub fn new(leases: Arc<Leases>, rules: CodeRules) -> Self {
        Self {
            numbering: leases.store.numbering(),
            leases,
            rules,
        }
    }

    /// Returns the name of the store's counter for codes of a length, check character included.
    pub fn counter(whole_length: usize) -> String {
        format!("{COUNTER}{whole_length}")
    }

    /// The length that a counter is for, check character included; `None` for that of another strategy.
    pub(super) fn length_of(counter: &str) -> Option<usize> {
        counter.strip_prefix(COUNTER)?.parse().ok()
    }

    /// Returns the most by which the counter can have advanced for so many links, created by
    /// processes that restarted so often; for a length that has `capacity` codes.
    pub fn most_used(capacity: u64, links: u64, starts: u64) -> u64 {
        let left_out = block(capacity).saturating_mul(starts);
        links.saturating_add(left_out).min(capacity)
    }
}

/// Returns the number of codes in a leased block.
fn block(capacity: u64) -> u64 {
    (capacity / BLOCKS).clamp(SMALLEST_BLOCK, LARGEST_BLOCK)
}

#[async_trait]
impl CodeStrategy for PermutedCodes {
    async fn draw(&self, request: &DrawRequest<'_>) -> Result<Vec<Code>, DrawError> {
        let (alphabet, check) = (self.rules.alphabet, &self.rules.check);
        let counter = Self::counter(request.length + check.length());
        let capacity = self.numbering.capacity(check, request.length);
        let wanted = request.targets.len();
        let mut codes = Vec::with_capacity(wanted);
        // Held during the lease, so that concurrent draws do not lease further blocks.
        let mut held = self.leases.hold(&counter).await?;
        while codes.len() < wanted {
            let Some(count) = held.number() else {
                let least = (wanted - codes.len()) as u64;
                let numbers = NumbersWanted {
                    counter: &counter,
                    floor: 0,
                    size: block(capacity).max(least),
                    limit: capacity,
                    used_up: held.until,
                };
                if self.leases.extend(&mut held, numbers).await? {
                    continue;
                }
                break;
            };
            codes.extend(
                self.numbering
                    .issued(alphabet, check, request.length, count),
            );
        }
        Ok(codes)
    }
}
