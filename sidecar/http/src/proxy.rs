//! Trust in the headers that nginx sets.
//!
//! nginx names the short domains, itself and the client's address in headers. Other programs that reach the sidecar
//! could set the same ones, so an installation can give nginx a secret.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};

use super::app::SharedApp;

/// The header with the secret.
const SECRET: &str = "x-shortlink-secret";

/// The headers that only nginx may set.
const OF_NGINX: [&str; 8] = [
    SECRET,
    "x-shortlink-base",
    "x-shortlink-domains",
    "x-shortlink-states",
    "x-shortlink-brands",
    "x-shortlink-node",
    "x-real-ip",
    "x-forwarded-proto",
];

/// The least length of a secret in characters.
const MIN_LENGTH: usize = 16;

/// The secret by which the sidecar recognises nginx. It holds a digest, whose comparison shows nothing of the secret by
/// its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxySecret([u8; 32]);

impl ProxySecret {
    /// Reads the file that nginx includes: one line `proxy_set_header X-Shortlink-Secret "…";` besides comments, where
    /// the secret has 16 or more letters, digits, `-` and `_`. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let lines = text.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (line, None) = (lines.next()?, lines.next()) else {
            return None;
        };
        let words: Vec<&str> = line.strip_suffix(';')?.split_ascii_whitespace().collect();
        let [directive, header, secret] = words[..] else {
            return None;
        };
        let secret = secret.trim_matches('"');
        let is_fine = secret.len() >= MIN_LENGTH
            && secret
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let is_right = directive == "proxy_set_header" && header.eq_ignore_ascii_case(SECRET);
        (is_right && is_fine).then(|| Self::of(secret.as_bytes()))
    }

    fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    fn is_in(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(SECRET).map(|sent| Self::of(sent.as_bytes()));
        sent.as_ref() == Some(self)
    }
}

/// Removes nginx' headers from a request without the secret, if there is one.
pub(super) async fn believe(
    State(app): State<SharedApp>,
    mut request: Request,
    next: Next,
) -> Response {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);

    let headers = request.headers_mut();
    if let Some(secret) = &app.proxy_secret
        && !secret.is_in(headers)
    {
        let removed = OF_NGINX.map(|name| headers.remove(name));
        if removed.iter().any(Option::is_some) && !IS_REPORTED.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "headers of nginx are ignored: a request lacks the secret of http.proxy_secret_file; nginx must \
                 include this file (logged once)"
            );
        }
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_the_file_that_nginx_includes() {
        let secret = ProxySecret::of(b"0123456789abcdef");
        for text in [
            "proxy_set_header X-Shortlink-Secret \"0123456789abcdef\";\n",
            "# A comment.\n\n  proxy_set_header  x-shortlink-secret 0123456789abcdef;",
        ] {
            assert_eq!(ProxySecret::parse(text).as_ref(), Some(&secret), "{text}");
        }
        for text in [
            "",
            "0123456789abcdef",
            "proxy_set_header X-Shortlink-Secret \"0123456789abcde\";",
            "proxy_set_header X-Shortlink-Secret \"0123456789abcdef$\";",
            "proxy_set_header X-Shortlink-Node \"0123456789abcdef\";",
            "proxy_set_header X-Shortlink-Secret \"0123456789abcdef\"",
            "proxy_set_header X-Shortlink-Secret \"0123456789abcdef\";\nproxy_set_header A b;",
        ] {
            assert_eq!(ProxySecret::parse(text), None, "{text}");
        }
    }
}
