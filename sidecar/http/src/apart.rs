//! Has a request answered on another runtime than that of its connection.
//!
//! Statistics and batches can keep every thread of a runtime busy for longer than a visitor waits. On the runtime of
//! visitors nothing runs but the fallback resolver, and the parts that all requests of its connections need.

use std::io;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;

use super::problem::Problem;

/// The parts of an answer that may wait for the client. An answer of known length waits as a whole.
const PARTS: usize = 2;

/// Has a router answer a request on `runtime`. The work ends when the client is gone.
pub(super) async fn answered(runtime: Handle, router: Router, request: Request) -> Response {
    let answer = AbortOnDropHandle::new(runtime.spawn(router.oneshot(request)));
    match answer.await {
        Ok(Ok(response)) => response.map(|body| made(&runtime, body)),
        // A router has no errors; its handlers' panics are caught within it.
        Ok(Err(never)) => match never {},
        Err(error) => {
            tracing::error!(%error, "a request was not answered");
            Problem::internal().into_response()
        }
    }
}

/// Has the parts of a body made on `runtime`, as fast as the client reads them.
fn made(runtime: &Handle, body: Body) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    // `None` ends a whole body: one that breaks off must not look like it.
    let (sender, receiver) = mpsc::channel::<Option<Result<Bytes, axum::Error>>>(PARTS);
    runtime.spawn(async move {
        let mut parts = body.into_data_stream();
        loop {
            let part = tokio::select! {
                () = sender.closed() => return,
                part = parts.next() => part,
            };
            let is_last = !matches!(part, Some(Ok(_)));
            if sender.send(part).await.is_err() || is_last {
                return;
            }
        }
    });
    Body::from_stream(stream::unfold(Some(receiver), async |receiver| {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Some(Ok(part))) => Some((Ok(part), Some(receiver))),
            Some(Some(Err(error))) => Some((Err(error), None)),
            Some(None) => None,
            None => {
                let broken = io::Error::from(io::ErrorKind::UnexpectedEof);
                Some((Err(axum::Error::new(broken)), None))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use axum::body::to_bytes;
    use axum::routing::get;
    use tokio::runtime::Runtime;

    use super::*;

    fn asked(path: &str) -> Request {
        Request::get(path).body(Body::empty()).expect("a request")
    }

    fn here() -> String {
        format!("{:?} ", thread::current().id())
    }

    fn id(of: &ThreadId) -> String {
        format!("{of:?} ")
    }

    #[tokio::test]
    async fn answers_and_all_their_parts_are_made_on_the_other_runtime() {
        let other = Runtime::new().expect("threads");
        let parts = async || {
            let parts = stream::iter(0..100).map(|_| Ok::<_, io::Error>(here()));
            Body::from_stream(parts)
        };
        let broken = async || {
            let parts = stream::iter([Ok("a"), Err(io::Error::other("broken")), Ok("b")]);
            Body::from_stream(parts)
        };
        let panics = async || {
            let parts = stream::iter(["a", "b"]).map(|part| match part {
                "a" => Ok::<_, io::Error>(part),
                _ => panic!("as a handler with a fault"),
            });
            Body::from_stream(parts)
        };
        let api = Router::new()
            .route("/whole", get(async || here()))
            .route("/parts", get(parts))
            .route("/broken", get(broken))
            .route("/panics", get(panics));
        let call = async |path| {
            let answer = answered(other.handle().clone(), api.clone(), asked(path)).await;
            let text = to_bytes(answer.into_body(), 1 << 20).await;
            text.map(|text| String::from_utf8(text.to_vec()).expect("text"))
        };
        let own = id(&thread::current().id());
        for (path, count) in [("/whole", 1), ("/parts", 100)] {
            let text = call(path).await.expect("a whole body");
            assert_eq!(text.matches("ThreadId").count(), count, "{text}");
            assert!(!text.contains(&own), "{text}");
        }
        assert!(call("/broken").await.is_err());
        assert!(call("/panics").await.is_err());
        other.shutdown_background();
    }

    #[tokio::test]
    async fn nothing_goes_on_for_a_client_that_is_gone() {
        let other = Runtime::new().expect("threads");
        let (sender, mut receiver) = mpsc::channel::<()>(1);
        let held = sender.clone();
        let slow = async move || {
            let _held = held;
            std::future::pending::<()>().await;
        };
        let endless = async move || {
            let held = sender;
            let silence = stream::once(async move {
                let _held = held;
                std::future::pending::<io::Result<Bytes>>().await
            });
            Body::from_stream(silence)
        };
        let api = Router::new()
            .route("/slow", get(slow))
            .route("/endless", get(endless));
        let asking = answered(other.handle().clone(), api.clone(), asked("/slow"));
        let asked_for = tokio::time::timeout(Duration::from_millis(50), asking).await;
        assert!(asked_for.is_err());
        let answer = answered(other.handle().clone(), api.clone(), asked("/endless")).await;
        drop((answer, api));
        // Every holder of the channel is gone.
        let gone = tokio::time::timeout(Duration::from_secs(20), receiver.recv()).await;
        assert_eq!(gone, Ok(None));
        other.shutdown_background();
    }
}
