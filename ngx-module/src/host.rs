//! The short domain that a request is for.

use resolver::vocabulary::domains::{Domain, Domains};

use crate::nginx::request::Request;
use crate::settings::Settings;
use crate::state::RequestState;

/// The table of domains of the request's server.
pub(crate) fn domains_of(request: &Request) -> Option<&Domains> {
    let table = request.location_settings::<Settings>()?.table?;
    let tables = &request.main_settings::<Settings>()?.tables;
    Some(&tables.get(table)?.domains)
}

/// The domain that the request's host is, or is below.
pub(crate) fn domain_of(request: &Request) -> Option<&Domain> {
    domains_of(request)?.find(request.host())
}

/// The requested short URL, without query and text after the code. Scheme and port are those of the table of domains,
/// and otherwise those of the request.
pub(crate) fn short_url(request: &Request) -> Option<Vec<u8>> {
    let code = RequestState::find(request)?.code(request)?;
    let code = code.as_bytes();
    let host = request.host();
    let base = match domain_of(request) {
        Some(domain) => domain.base_of(host),
        None => {
            let scheme: &[u8] = match request.is_tls() {
                true => b"https://",
                false => b"http://",
            };
            // With its port.
            let named = request.headers().find(|(name, _)| *name == b"host");
            [scheme, named.map_or(host, |(_, value)| value)].concat()
        }
    };
    // A location may have the codes elsewhere than behind the first slash.
    let path = request.unparsed_path();
    let path = path.split(|&byte| byte == b'?').next()?;
    let at = path.windows(code.len()).rposition(|part| part == code);
    let before = at.map_or(&b"/"[..], |at| &path[..at]);
    Some([&base, before, code].concat())
}
