//! The variables for configuration and logs.
//!
//! | variable | value |
//! |---|---|
//! | `$shortlink_code` | the code that the path names, glued text left away |
//! | `$shortlink_target` | the target that nginx itself answered with, whole |
//! | `$shortlink_outcome` | what became of the request: [`Outcome`](resolver::Outcome) |
//! | `$shortlink_source` | who gave the answer: [`Source`](resolver::Source) |
//! | `$shortlink_domain` | the domain that the request's host is, or is below |
//! | `$shortlink_domain_state` | `active`, `serving`, `retired`, or `unknown` for the request's host |
//! | `$shortlink_retired_target` | where `domains.conf` sends those who ask a retired host |
//! | `$shortlink_retired_page` | the file of the page that a retired host answers with |
//! | `$shortlink_active_base` | what new short URLs begin with, from `domains.conf` |
//! | `$shortlink_domain_names` | all short domains, separated by commas |
//! | `$shortlink_domain_states` | a letter for the state of each of them, in the same order |
//! | `$shortlink_language` | of the languages of `shortlink_languages` the one that is asked for |
//!
//! The first four are not found (`-` in logs) for requests that `shortlink` did not handle. They can
//! be set, by `set` or in Lua: `$shortlink_code` before the request is handled says which code is
//! looked up; what is set afterwards shows in logs.

use ngx::ffi::{
    NGX_ERROR, NGX_HTTP_VAR_CHANGEABLE, NGX_HTTP_VAR_NOCACHEABLE, NGX_OK, ngx_conf_t,
    ngx_http_add_variable, ngx_http_get_variable_index, ngx_http_request_t,
    ngx_http_variable_value_t, ngx_int_t, ngx_pnalloc, ngx_str_t, ngx_uint_t,
};
use ngx::http::{HttpModuleMainConf, Request};
use resolver::language::negotiate;
use resolver::vocabulary::domains::{Domain, Domains, Retirement};

use crate::Shortlink;
use crate::headers::Headers;
use crate::state::RequestState;

/// The value that a variable shows, as the number that nginx stores with it.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Shown {
    Code,
    Target,
    Outcome,
    Source,
    Domain,
    DomainState,
    RetiredTarget,
    RetiredPage,
    ActiveBase,
    DomainNames,
    DomainStates,
    Language,
}

impl Shown {
    /// Returns nginx' flags of the variable. None is cached: they change during a request.
    fn flags(self) -> ngx_uint_t {
        let settable = matches!(
            self,
            Self::Code | Self::Target | Self::Outcome | Self::Source
        );
        let settable = if settable { NGX_HTTP_VAR_CHANGEABLE } else { 0 };
        (NGX_HTTP_VAR_NOCACHEABLE | settable) as ngx_uint_t
    }
}

const VARIABLES: [(&str, Shown); 12] = [
    ("shortlink_code", Shown::Code),
    ("shortlink_target", Shown::Target),
    ("shortlink_outcome", Shown::Outcome),
    ("shortlink_source", Shown::Source),
    ("shortlink_domain", Shown::Domain),
    ("shortlink_domain_state", Shown::DomainState),
    ("shortlink_retired_target", Shown::RetiredTarget),
    ("shortlink_retired_page", Shown::RetiredPage),
    ("shortlink_active_base", Shown::ActiveBase),
    ("shortlink_domain_names", Shown::DomainNames),
    ("shortlink_domain_states", Shown::DomainStates),
    ("shortlink_language", Shown::Language),
];

/// Makes the variables known.
///
/// # Safety
/// `cf` must be valid.
pub(crate) unsafe fn add(cf: *mut ngx_conf_t) -> ngx_int_t {
    for (name, shown) in VARIABLES {
        let mut name = ngx_str_t {
            len: name.len(),
            data: name.as_ptr().cast_mut(),
        };
        // SAFETY: as this function's own; nginx copies the name.
        unsafe {
            let variable = ngx_http_add_variable(cf, &mut name, shown.flags());
            let Some(variable) = variable.as_mut() else {
                return NGX_ERROR as ngx_int_t;
            };
            variable.get_handler = Some(get);
            variable.data = shown as usize;
            if let Shown::Code = shown {
                let index = ngx_http_get_variable_index(cf, &mut name);
                match (Shortlink::main_conf_mut(&*cf), usize::try_from(index)) {
                    (Some(main), Ok(index)) => main.code_variable = index,
                    _ => return NGX_ERROR as ngx_int_t,
                }
            }
        }
    }
    NGX_OK as ngx_int_t
}

/// Returns the code that `set` or Lua has set for a request instead of that of its path.
///
/// # Safety
/// `request` must be valid; `index` is that of `$shortlink_code`.
#[inline]
pub(crate) unsafe fn code_set<'a>(
    request: *mut ngx_http_request_t,
    index: usize,
) -> Option<&'a [u8]> {
    // SAFETY: the request has a place for every variable that has an index. Its value lives as
    // long as the request.
    unsafe {
        let value = &*(*request).variables.add(index);
        // A value from the function below is marked as not cacheable; one that was set is not.
        if value.valid() == 0 || value.no_cacheable() != 0 || value.not_found() != 0 {
            return None;
        }
        Some(std::slice::from_raw_parts(value.data, value.len() as usize))
    }
}

unsafe extern "C" fn get(
    request: *mut ngx_http_request_t,
    value: *mut ngx_http_variable_value_t,
    data: usize,
) -> ngx_int_t {
    // SAFETY: nginx calls this with a valid request and a value to be filled, and with the number
    // that was given with the variable.
    unsafe {
        let shown = VARIABLES.iter().find(|(_, shown)| *shown as usize == data);
        let text = shown.and_then(|(_, shown)| show(request, *shown));
        let value = &mut *value;
        match text {
            None => value.set_not_found(1),
            Some(text) => {
                value.set_valid(1);
                value.set_no_cacheable(0);
                value.set_not_found(0);
                // Texts are at most as long as a target or the table of domains.
                value.set_len(text.len as u32);
                value.data = text.data;
            }
        }
    }
    NGX_OK as ngx_int_t
}

/// The text of a variable; it lives as long as the request.
unsafe fn show(request: *mut ngx_http_request_t, shown: Shown) -> Option<ngx_str_t> {
    // SAFETY: the request is valid. Texts of the configuration live as long as its cycle, which
    // outlives the requests it serves; the state lives as long as the request.
    unsafe {
        match shown {
            Shown::ActiveBase | Shown::DomainNames | Shown::DomainStates => {
                let domains = domains_of(request)?;
                let text = match shown {
                    Shown::ActiveBase => domains.bases(),
                    Shown::DomainStates => domains.states(),
                    _ => domains.names(),
                };
                Some(borrowed(text.as_bytes()))
            }
            Shown::Domain | Shown::DomainState | Shown::RetiredTarget | Shown::RetiredPage => {
                let host = (*request).headers_in.server;
                let domain = domains_of(request)?.find(host.as_bytes());
                let retirement = domain.and_then(Domain::retirement);
                let text = match (shown, retirement) {
                    (Shown::DomainState, _) => domain.map_or("unknown", |it| it.state().name()),
                    (Shown::Domain, _) => domain.map_or("", Domain::base_name),
                    (Shown::RetiredTarget, Some(Retirement::Target(target))) => target,
                    (Shown::RetiredPage, Some(Retirement::Page(page))) => page,
                    _ => "",
                };
                Some(borrowed(text.as_bytes()))
            }
            Shown::Language => {
                let conf = Shortlink::main_conf(Request::from_ngx_http_request(request))?;
                let asked = Headers::of(request).accept_language.unwrap_or_default();
                negotiate(asked, &conf.languages).map(borrowed)
            }
            Shown::Code | Shown::Target | Shown::Outcome | Shown::Source => {
                let state = RequestState::find(request)?.as_ref();
                match shown {
                    Shown::Code => {
                        let code = state.code?;
                        let bytes = code.as_bytes();
                        // The code lives in the state, which an expression's text may not
                        // outlive in a log written after the request: it is copied.
                        let data = ngx_pnalloc((*request).pool, bytes.len()).cast::<u8>();
                        if data.is_null() {
                            return None;
                        }
                        data.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                        Some(ngx_str_t {
                            len: bytes.len(),
                            data,
                        })
                    }
                    Shown::Target if state.target.len == 0 => None,
                    Shown::Target => Some(state.target),
                    Shown::Outcome => {
                        let name = state.outcome.map_or("waiting", |outcome| outcome.name());
                        Some(borrowed(name.as_bytes()))
                    }
                    _ => Some(borrowed(state.source.name().as_bytes())),
                }
            }
        }
    }
}

/// The table of domains; it lives as long as the configuration, which outlives the request.
unsafe fn domains_of<'a>(request: *mut ngx_http_request_t) -> Option<&'a Domains> {
    // SAFETY: the request is valid.
    unsafe {
        let conf = Shortlink::main_conf(Request::from_ngx_http_request(request))?;
        conf.domains.as_ref()
    }
}

fn borrowed(text: &[u8]) -> ngx_str_t {
    ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(),
    }
}
