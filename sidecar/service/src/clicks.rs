//! Ids of clicks, for visitors whom the fallback answers.

use parking_lot::Mutex;
use rand::CryptoRng;
use vocabulary::{ClickId, ClickIds};

/// Makes ids; nginx makes its own.
#[derive(Debug)]
pub struct ClickIdMaker(Mutex<ClickIds>);

impl ClickIdMaker {
    /// Begins with keys that no other process has.
    pub fn new(mut rng: impl CryptoRng) -> Self {
        let mut keys = [[0; 16]; 2];
        keys.iter_mut().for_each(|key| rng.fill_bytes(key));
        Self(Mutex::new(ClickIds::new(keys)))
    }

    /// Makes an id.
    pub fn make(&self) -> ClickId {
        self.0.lock().make()
    }
}
