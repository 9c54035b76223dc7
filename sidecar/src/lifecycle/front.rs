//! The runtime of visitors, on which nothing else runs.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

/// A runtime with threads of its own, which end with it. The fallback resolver runs here, on connections to the
/// database that are opened here, so that neither the API nor background jobs can take a thread or a connection of it.
#[derive(Debug)]
pub(super) struct Front {
    handle: Handle,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
}

impl Front {
    /// Starts the threads.
    pub(super) fn open() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .thread_name("visitors")
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Does something on the runtime; ends it when the caller is dropped.
    ///
    /// # Errors
    /// Fails if the work panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        AbortOnDropHandle::new(self.handle.spawn(work)).await
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // To wait for its threads would block one of the runtime that this is dropped on.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
