//! What is done now and then: forgetting what nobody needs any more.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::store::Store;

/// How long a request can be sent again with the same `Idempotency-Key`.
const REPEATABLE_FOR: SignedDuration = SignedDuration::from_hours(24);

/// How often there is a look.
const EVERY: Duration = Duration::from_secs(60);

/// Keeps house until `shutdown`.
pub async fn run(store: Arc<Store>, clock: Arc<dyn Clock>, shutdown: CancellationToken) {
    while !shutdown.is_cancelled() {
        match store.forget_chunks(clock.now() - REPEATABLE_FOR).await {
            Ok(0) => {}
            Ok(chunks) => tracing::debug!(chunks, "old requests were forgotten"),
            Err(error) => tracing::warn!(
                error = &error as &dyn Error,
                "old requests are not forgotten; trying again"
            ),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::core::link::tests::link;
    use crate::core::ports::{Chunk, ChunkKey, NewChunk, RowOutcome};
    use crate::testing::{TemporaryStore, eventually};

    #[tokio::test]
    async fn a_request_is_forgotten_after_a_day_and_no_sooner() {
        let kept = TemporaryStore::new().await;
        let clock = Arc::new(ManualClock::at("2026-06-01T00:00:00Z"));
        let key = |chunk| ChunkKey {
            key_id: "key".to_owned(),
            idempotency_key: "again".to_owned(),
            chunk,
        };
        for chunk in 0..2_u32 {
            let link = link(&format!("c{chunk}"));
            let new = NewChunk {
                key: key(chunk),
                chunk: Chunk {
                    digest: [1; 32],
                    rows: vec![RowOutcome::Link(link.code)],
                },
                before: None,
                links: vec![link],
                places: vec![0],
                now: clock.now(),
            };
            kept.store.create_chunk(new).await.expect("a store");
            clock.advance(SignedDuration::from_hours(12));
        }
        clock.advance(SignedDuration::from_secs(1));
        let shutdown = CancellationToken::new();
        let house = run(Arc::clone(&kept.store), clock, shutdown.clone());
        let house = tokio::spawn(house);
        eventually("the first is forgotten", || async {
            let found = kept.store.find_chunk(&key(0)).await;
            found.expect("a store").is_none()
        })
        .await;
        let found = kept.store.find_chunk(&key(1)).await;
        assert!(found.expect("a store").is_some());
        shutdown.cancel();
        house.await.expect("no panic");
    }
}
