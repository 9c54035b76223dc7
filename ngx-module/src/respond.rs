//! Answers: headers without a body for redirects, pages of previews, nginx' own pages for the rest.

use resolver::vocabulary::{Preview, RedirectStatus};

use crate::nginx::pool::PoolText;
use crate::nginx::request::Request;
use crate::nginx::response::HeaderName;
use crate::nginx::status::Status;

/// Sends a redirect without a body.
///
/// # Safety
/// The target must have been copied to the request's pool.
#[inline]
pub(crate) unsafe fn redirect(
    request: &Request,
    status: RedirectStatus,
    target: PoolText,
) -> Status {
    // SAFETY: as this function's own.
    if unsafe { request.set_target(target) }.is_none() {
        return Status::ERROR;
    }
    if status.is_permanent() {
        request.allow_storing();
    } else if request.forbid_storing().is_none() {
        return Status::ERROR;
    }
    request.send_empty(status.code())
}

/// Sends the page of a preview. It is never stored: another visitor is redirected.
pub(crate) fn preview(request: &Request, page: &[u8]) -> Status {
    match request.forbid_storing() {
        Some(()) => request.send_text(Preview::PAGE_TYPE, page),
        None => Status::ERROR,
    }
}

/// Prepares 410. nginx adds its page or the configured `error_page` to these.
pub(crate) fn gone(request: &Request) -> Status {
    page(request, 410, None)
}

/// Prepares 404.
pub(crate) fn not_found(request: &Request) -> Status {
    page(request, 404, None)
}

/// Prepares 503: it is uncertain whether the link exists.
pub(crate) fn unavailable(request: &Request) -> Status {
    page(request, 503, Some("2"))
}

/// Prepares 429: the address has asked for too much that does not exist.
pub(crate) fn too_many(request: &Request) -> Status {
    page(request, 429, Some("60"))
}

/// Prepares 405.
pub(crate) fn method_not_allowed(request: &Request) -> Status {
    let allowed = request.add_header(HeaderName::ALLOW, "GET, HEAD");
    allowed.map_or(Status::ERROR, |()| Status::page(405))
}

/// Every answer but a permanent redirect may be another one next time: without this a browser keeps a 404 or 410 for as
/// long as it likes.
fn page(request: &Request, status: u16, retry_after: Option<&'static str>) -> Status {
    let prepared = request.forbid_storing().and_then(|()| match retry_after {
        Some(seconds) => request.add_header(HeaderName::RETRY_AFTER, seconds),
        None => Some(()),
    });
    prepared.map_or(Status::ERROR, |()| Status::page(status))
}
