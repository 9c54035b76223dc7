//! Resolves names to addresses that messages may be sent to.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::vec;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use shortlink_core::webhook::EndpointPolicy;
use tower::Service;

/// The error of a host without an address that the policy admits.
pub(crate) const REFUSED: &str =
    "the host has only private, local or reserved addresses (webhooks.allowed_networks)";

/// Resolves names, and leaves out addresses that the policy does not admit.
#[derive(Clone)]
pub(crate) struct AdmittedAddresses(pub(crate) EndpointPolicy);

impl Service<Name> for AdmittedAddresses {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let policy = self.0.clone();
        async move {
            // The connector sets the port.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let admitted = found.filter(|it| policy.admits(it.ip()));
            let admitted: Vec<SocketAddr> = admitted.collect();
            if admitted.is_empty() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, REFUSED));
            }
            Ok(admitted.into_iter())
        }
        .boxed()
    }
}
