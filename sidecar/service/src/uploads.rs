//! Ids of uploads.

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use shortlink_core::link::UploadId;

/// Draws the ids of batches that bring none of their own.
pub struct Uploads {
    rng: Mutex<StdRng>,
}

impl Uploads {
    /// Draws ids from `rng`.
    pub fn new(rng: StdRng) -> Self {
        Self {
            rng: Mutex::new(rng),
        }
    }

    /// The id of a batch: for one with an idempotency key, that of all its repetitions, else a new one.
    pub fn of(&self, key_id: &str, idempotency_key: Option<&str>) -> UploadId {
        match idempotency_key {
            Some(idempotency_key) => UploadId::of_request(key_id, idempotency_key),
            None => UploadId::new(self.rng.lock().next_u64()),
        }
    }
}
