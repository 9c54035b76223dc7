//! Webhooks as clients see them.

use async_trait::async_trait;
use shortlink_core::webhook::{Answer, Message, MessageSender, SendError};

use super::*;

/// A sender whose endpoints accept nothing.
pub(super) struct Refusing;

#[async_trait]
impl MessageSender for Refusing {
    async fn send(&self, _message: Message) -> Result<Answer, SendError> {
        Ok(Answer {
            status: 503,
            retry_after: None,
        })
    }
}
