//! The console's files, embedded in the program.
//!
//! The path of each file except the page contains the version, a digest of all files. Browsers can
//! therefore cache them forever, and a page never loads scripts of another version.

use std::io::Write;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use include_dir::{Dir, include_dir};
use sha2::{Digest, Sha256};

use super::super::problem::Problem;

/// The files of the console, embedded when this crate is compiled.
static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../console");

/// The page that every address of the console is answered with.
const PAGE: &str = "index.html";

/// The placeholder of the version in the page.
const VERSION_PLACE: &str = "{version}";

/// The content security policy: only files of this server, and nothing inline.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'; object-src 'none'";

static ASSETS: LazyLock<Assets> = LazyLock::new(Assets::new);

struct Assets {
    version: String,
    files: Vec<File>,
}

struct File {
    path: &'static str,
    media_type: &'static str,
    plain: Bytes,
    gzip: Bytes,
    etag: String,
}

impl Assets {
    fn new() -> Self {
        let mut whole = Sha256::new();
        let embedded = all_files(&FILES);
        for (path, bytes) in &embedded {
            whole.update(path);
            whole.update((bytes.len() as u64).to_be_bytes());
            whole.update(bytes);
        }
        let version = hex(&whole.finalize());
        let files = embedded.iter().map(|&(path, bytes)| {
            let plain = match path {
                PAGE => {
                    let page = String::from_utf8_lossy(bytes);
                    Bytes::from(page.replace(VERSION_PLACE, &version))
                }
                _ => Bytes::from_static(bytes),
            };
            File {
                path,
                media_type: media_type(path),
                gzip: gzip(&plain),
                etag: hex(&Sha256::digest(&plain)),
                plain,
            }
        });
        Self {
            files: files.collect(),
            version,
        }
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

/// The paths and contents of the files below a folder, always in the same order.
fn all_files(folder: &'static Dir<'_>) -> Vec<(&'static str, &'static [u8])> {
    let files = folder.files();
    let files = files.filter_map(|file| Some((file.path().to_str()?, file.contents())));
    files.chain(folder.dirs().flat_map(all_files)).collect()
}

/// The first bytes of a digest: enough that no two files meet.
fn hex(digest: &[u8]) -> String {
    let bytes = digest.iter().take(8);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Compresses a file; empty in the case of failure, which writes to memory do not have.
fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.map(Bytes::from).unwrap_or_default()
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// `GET /console` and all pages below it; the script routes between them.
pub(super) async fn page(headers: HeaderMap) -> Response {
    answer(PAGE, "no-cache", &headers)
}

/// `GET /console/assets/{version}/{path}`
pub(super) async fn asset(
    Path((version, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    // A page of another version, served by another sidecar, gets the current file.
    let caching = if version == ASSETS.version {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    answer(&path, caching, &headers)
}

fn answer(path: &str, caching: &'static str, headers: &HeaderMap) -> Response {
    let Some(file) = ASSETS.file(path) else {
        return Problem::not_found("The console has no such file.").into_response();
    };
    let is_gzip = !file.gzip.is_empty() && takes_gzip(headers);
    let etag = match is_gzip {
        true => format!("\"{}-gzip\"", file.etag),
        false => format!("\"{}\"", file.etag),
    };
    let said: [(HeaderName, &str); 8] = [
        (CACHE_CONTROL, caching),
        (ETAG, &etag),
        (VARY, "accept-encoding"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    if has(headers, &etag) {
        return (StatusCode::NOT_MODIFIED, said).into_response();
    }
    let body = if is_gzip { &file.gzip } else { &file.plain };
    let mut response = (said, body.clone()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.media_type));
    if is_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// The parts of a header's lists.
fn parts<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    parts(headers, &ACCEPT_ENCODING).any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        name.trim().eq_ignore_ascii_case("gzip")
            && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)
    })
}

fn has(headers: &HeaderMap, etag: &str) -> bool {
    parts(headers, &IF_NONE_MATCH).any(|part| part.strip_prefix("W/").unwrap_or(part) == etag)
}

#[cfg(test)]
mod tests;
