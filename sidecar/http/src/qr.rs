//! `GET /v1/links/{code}/qr`: a link's short URL as a QR code.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use qrcode::{Color, EcLevel, QrCode};
use serde_json::json;

use super::app::SharedApp;
use super::auth::MayRead;
use super::extract::{CodeInPath, Domains, no_such_link};
use super::operation::parameter::parameters;
use super::operation::{operations, text_of};
use super::problem::Problem;
use super::query::{Asked, Value, query};

/// The width of the white border in modules, as the standard requires.
const QUIET: usize = 4;

parameters! {
    LEVEL: query "level", "ErrorCorrection",
        "Error correction: the share of the code that readers restore is about 7% (L), 15% (M), 25% (Q) or 30% (H). A code \
         with a logo in its middle needs H.",
        |_| json!({ "type": "string", "enum": ["L", "M", "Q", "H"], "default": "M" });
}

query! {
    /// The query of a drawing.
    DrawingQuery {
        level: Level = LEVEL,
    }
}

/// The error correction of a code.
pub(super) struct Level(EcLevel);

impl Value for Level {
    fn read(text: &str) -> Result<Self, String> {
        let level = match text {
            "L" => EcLevel::L,
            "M" => EcLevel::M,
            "Q" => EcLevel::Q,
            "H" => EcLevel::H,
            _ => return Err("one of L, M, Q, H".into()),
        };
        Ok(Self(level))
    }
}

operations! {
    get "/v1/links/{code}/qr", "drawLink", "Draws a link's short URL as a QR code", draw {
        .answer(200, "The QR code.", [text_of("image/svg+xml")])
        .with(["Cache-Control", "Content-Security-Policy"]).problems([no_domain()])
    }
}

/// `GET /v1/links/{code}/qr`
async fn draw(
    State(app): State<SharedApp>,
    _: MayRead,
    domains: Domains,
    CodeInPath(code): CodeInPath,
    Asked(asked): Asked<DrawingQuery>,
) -> Result<impl IntoResponse, Problem> {
    let link = app.store.find_link(&code).await?.ok_or_else(no_such_link)?;
    let base = domains.bases.of(&link).ok_or_else(no_domain)?;
    let Level(level) = asked.level.unwrap_or(Level(EcLevel::M));
    let drawn = svg(&format!("{base}/{code}"), level).ok_or_else(Problem::internal)?;
    // The domain may be another one tomorrow.
    Ok((
        [
            (CONTENT_TYPE, "image/svg+xml"),
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_SECURITY_POLICY, "default-src 'none'"),
        ],
        drawn,
    ))
}

/// 503: nginx announces no active domain, so the link has no short URL.
pub(super) fn no_domain() -> Problem {
    Problem::unavailable("No short domain is known: nginx announces none (X-Shortlink-Base).")
}

/// Draws a text in black on white, scalable to any size. `None` if it is too long.
fn svg(text: &str, level: EcLevel) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, level).ok()?;
    let width = code.width();
    let whole = width + 2 * QUIET;
    let mut path = String::new();
    for (place, color) in code.to_colors().into_iter().enumerate() {
        if color == Color::Dark {
            let (x, y) = (place % width + QUIET, place / width + QUIET);
            write!(path, "M{x} {y}h1v1h-1z").ok()?;
        }
    }
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole} {whole}\" \
         shape-rendering=\"crispEdges\"><path fill=\"#fff\" d=\"M0 0h{whole}v{whole}H0z\"/>\
         <path d=\"{path}\"/></svg>"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the modules back from the drawing and has another program decode them.
    fn decoded(svg: &str) -> String {
        let (_, rest) = svg.split_once("viewBox=\"0 0 ").expect("a size");
        let width: usize = rest
            .split(' ')
            .next()
            .and_then(|it| it.parse().ok())
            .expect("a width");
        let path = svg.rsplit("d=\"").next().expect("a path");
        let mut dark = vec![false; width * width];
        for module in path.split('M').skip(1) {
            let (place, _) = module.split_once('h').expect("a module");
            let (x, y) = place.split_once(' ').expect("a place");
            let (x, y): (usize, usize) = (x.parse().expect("x"), y.parse().expect("y"));
            dark[y * width + x] = true;
        }
        // Several pixels per module, as in a camera image.
        let scale = 4;
        let mut image =
            rqrr::PreparedImage::prepare_from_greyscale(width * scale, width * scale, |x, y| {
                match dark[(y / scale) * width + x / scale] {
                    true => 0,
                    false => 255,
                }
            });
        let grids = image.detect_grids();
        let (_, content) = grids.first().expect("a code").decode().expect("readable");
        content
    }

    #[test]
    fn what_is_drawn_is_read_again() {
        for url in [
            "https://s.example.com/pM69SXfs".to_owned(),
            "http://localhost:8080/a".to_owned(),
            format!("https://{}.example.com/0123456789abcdef", "x".repeat(60)),
        ] {
            for level in [EcLevel::L, EcLevel::M, EcLevel::Q, EcLevel::H] {
                assert_eq!(decoded(&svg(&url, level).expect("a drawing")), url);
            }
        }
        assert_eq!(svg(&"x".repeat(5000), EcLevel::L), None);
    }
}
