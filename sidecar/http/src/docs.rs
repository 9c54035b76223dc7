//! `/docs`: a page that shows `/openapi.json` in a browser. It is one file and loads nothing else.

use std::sync::LazyLock;

use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::operation::{operations, text_of};

const SKELETON: &str = include_str!("docs/page.html");
const STYLE: &str = include_str!("docs/page.css");
const SCRIPT: &str = include_str!("docs/page.js");

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let page = SKELETON.replace("/* page.css */", STYLE);
    page.replace("/* page.js */", SCRIPT)
});

/// The content security policy: only the page's own script and style, and requests to this service.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        source(SCRIPT),
        source(STYLE)
    )
});

/// Names a text within a page by its digest.
fn source(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(digest))
}

operations! {
    get "/docs", "getDocumentation", "Shows the API description in a browser", show {
        .answer(200, "The page.", [text_of("text/html")])
        .with(["Cache-Control", "Content-Security-Policy"])
    }
}

/// `GET /docs`
async fn show() -> impl IntoResponse {
    let headers: [(HeaderName, &'static str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, &POLICY),
        (CACHE_CONTROL, "no-cache"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, PAGE.as_str())
}
