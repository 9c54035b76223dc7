//! Codes from a counter and the keyed permutation that numbers links.
//!
//! The store leases blocks of the counter to each process, so that processes never collide. The
//! rest of a block is skipped when its process ends. Codes with consecutive counts are adjacent in
//! the database, which makes inserts cheap at any size.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use shortlink_core::codes::numbering::Numbering;
use shortlink_store::Store;
use tokio::sync::Mutex;
use vocabulary::{Code, CodeRules};

use super::strategy::{Block, CodeStrategy, DrawError, DrawRequest};

/// The largest block, as a part of all codes of a length: 1 / this.
const BLOCKS: u64 = 256;

/// The smallest and the largest block, unless a request needs more at once.
const SMALLEST_BLOCK: u64 = 1;
const LARGEST_BLOCK: u64 = 20_000;

/// Issues codes by counting.
pub struct PermutedCodes {
    store: Arc<Store>,
    numbering: Arc<Numbering>,
    rules: CodeRules,
    /// Rest of the leased block, by length of the codes with the check character.
    blocks: Mutex<HashMap<usize, Block>>,
}

impl PermutedCodes {
    /// Counts in a store.
    pub fn new(store: Arc<Store>, rules: CodeRules) -> Self {
        Self {
            numbering: store.numbering(),
            store,
            rules,
            blocks: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the name of the store's counter for codes of a length, check character included.
    pub fn counter(whole_length: usize) -> String {
        format!("permuted:{whole_length}")
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
        let whole_length = request.length + check.length();
        let capacity = self.numbering.capacity(check, request.length);
        let wanted = request.targets.len();
        let mut codes = Vec::with_capacity(wanted);
        // Held during the lease, so that concurrent draws do not lease further blocks.
        let mut blocks = self.blocks.lock().await;
        let current = blocks.entry(whole_length).or_default();
        while codes.len() < wanted {
            if current.next == current.end {
                let least = (wanted - codes.len()) as u64;
                let size = block(capacity).max(least);
                let counter = Self::counter(whole_length);
                let next = self.store.lease(&counter, 0, size).await?;
                let end = next.saturating_add(size).min(capacity);
                if next >= end {
                    break;
                }
                *current = Block { next, end };
            }
            let count = current.next;
            current.next += 1;
            codes.extend(
                self.numbering
                    .issued(alphabet, check, request.length, count),
            );
        }
        Ok(codes)
    }
}
