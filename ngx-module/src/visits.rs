//! Records each answered redirect when its answer is on its way.
//!
//! The log phase is run once a request, whatever it was redirected to within nginx. It records the
//! visit in memory; the connection's output gets a batch when it is full, at the end of an
//! iteration of nginx' loop with whatever else leaves.

use resolver::vocabulary::address::AddressText;
use resolver::vocabulary::visit::evidence::{self, Protocol, VisitEvidence};
use resolver::vocabulary::visit::{VisitEvent, VisitId, VisitMethod};
use resolver::vocabulary::{ClickId, Code};
use resolver::{Outcome, Source};

use crate::headers::Headers;
use crate::nginx::process::unix_milliseconds;
use crate::nginx::request::{Method, Request, Version};
use crate::nginx::status::Status;
use crate::nginx::variable::VariableIndex;
use crate::settings::{MainConf, Recording, Settings, VisitAddress};
use crate::state::RequestState;
use crate::worker;

/// The log phase.
pub(crate) fn on_log(request: &Request) -> Status {
    // nginx can be configured to log subrequests too: the answer is their main request's.
    if request.is_main()
        && let Some(state) = RequestState::find(request)
        && let Some(status) = status_of(request, state)
        && is_recorded(request, state)
    {
        record(request, state, status);
    }
    Status::OK
}

/// The status of a visit: of a redirect, 200 for the page of a preview, or 410 for a link that was live once, whatever
/// `error_page` makes of it; `None` if the answer is none. An error page may be a redirect: to a code that does not exist
/// there is no visit.
fn status_of(request: &Request, state: &RequestState) -> Option<u16> {
    let status = match state.outcome.get()? {
        Outcome::Gone => 410,
        Outcome::Miss | Outcome::Unavailable if state.source.get() != Source::Fallback => {
            return None;
        }
        Outcome::Redirect => request.status(),
        Outcome::Miss | Outcome::Unavailable => state.status(request),
        _ => return None,
    };
    let is_visit = matches!(status, 301..=303 | 307 | 308 | 410) || state.is_preview(request);
    is_visit.then_some(status as u16)
}

/// Returns whether the location with `shortlink` has its visits recorded, and this one.
fn is_recorded(request: &Request, state: &RequestState) -> bool {
    match state.recording {
        Recording::None => false,
        Recording::All => true,
        Recording::If(variable) => request.is_true(variable),
    }
}

/// Returns whether the fallback has answered, which describes its answer in headers.
fn is_of_fallback(state: &RequestState) -> bool {
    state.source.get() == Source::Fallback
}

/// The value of one of these headers.
fn header(request: &Request, index: fn(&MainConf) -> Option<VariableIndex>) -> Option<&[u8]> {
    request.variable(index(request.main_settings::<Settings>()?)?)
}

/// The click id that the target got: from this worker, or from the fallback.
fn click_id(request: &Request, state: &RequestState) -> Option<ClickId> {
    match is_of_fallback(state) {
        true => ClickId::parse(header(request, |conf| conf.click_variable)?),
        false => state.click_id(),
    }
}

/// The variant that the visitor got: from this worker, or from the fallback.
fn variant<'a>(request: &'a Request, state: &'a RequestState) -> &'a [u8] {
    match is_of_fallback(state) {
        true => header(request, |conf| conf.variant_header).unwrap_or_default(),
        false => state.variant(),
    }
}

/// The code of the link that was followed. The fallback names it if it is not the one that the path names.
fn code(request: &Request, state: &RequestState) -> Option<Code> {
    let named = match is_of_fallback(state) {
        true => header(request, |conf| conf.code_header),
        false => None,
    };
    let followed = named.and_then(|text| Code::parse(text).ok());
    followed.or_else(|| state.code(request))
}

fn record(request: &Request, state: &RequestState, status: u16) {
    let Some(code) = code(request, state) else {
        return;
    };
    let headers = Headers::of(request);
    let is_truncated = state.visit_address == VisitAddress::Truncated;
    let network;
    let mut client = request.client();
    if is_truncated {
        network = AddressText::truncated(client);
        client = network.as_bytes();
    }
    let evidence = VisitEvidence::of(&evidence::Request {
        site: headers.fetch_site,
        mode: headers.fetch_mode,
        destination: headers.fetch_dest,
        user: headers.fetch_user,
        accept: headers.accept,
        protocol: match request.version() {
            Version::Http10 => Protocol::Http10,
            Version::Http11 => Protocol::Http11,
            Version::Http2 => Protocol::Http2,
            Version::Http3 => Protocol::Http3,
            Version::Other => Protocol::Unknown,
        },
        is_tls: request.is_tls(),
        is_truncated,
    });
    let event = VisitEvent {
        // The worker's visits count for themselves.
        id: VisitId {
            origin: 0,
            sequence: 0,
        },
        time_ms: unix_milliseconds(),
        status,
        method: match request.method() {
            Method::Get => VisitMethod::Get,
            Method::Head => VisitMethod::Head,
            Method::Other => VisitMethod::Other,
        },
        code: code.as_bytes(),
        host: request.host(),
        client,
        user_agent: request.user_agent(),
        referrer: request.referrer(),
        accept_language: headers.accept_language.unwrap_or_default(),
        purpose: headers.announced_purpose(),
        evidence,
        click: click_id(request, state),
        variant: variant(request, state),
    };
    worker::with(state.redis, |backend| backend.record_visit(event));
}
