//! The variables for configuration and logs.
//!
//! | variable | value |
//! |---|---|
//! | `$shortlink_code` | the code in the path, without text after it |
//! | `$shortlink_target` | the target that nginx itself answered with, whole |
//! | `$shortlink_variant` | the variant that nginx itself chose for the visitor; empty without one |
//! | `$shortlink_outcome` | the outcome of the request: [`Outcome`](resolver::Outcome) |
//! | `$shortlink_source` | the source of the answer: [`Source`](resolver::Source) |
//! | `$shortlink_url` | the requested short URL, without query and text after the code |
//! | `$shortlink_domain` | the domain that the request's host is, or is below |
//! | `$shortlink_domain_state` | `active`, `serving`, `retired`, or `unknown` for the request's host |
//! | `$shortlink_unknown_target` | where `domains.conf` sends the visitor of a code without a link; empty for any other |
//! | `$shortlink_home_target` | where `domains.conf` sends visitors without a code |
//! | `$shortlink_brand` | the name of the brand of the request's host; empty without one |
//! | `$shortlink_brand_logo` | the file of its logo |
//! | `$shortlink_brand_imprint` | the URL of its imprint |
//! | `$shortlink_brand_site` | the URL of its website |
//! | `$shortlink_retired_target` | where `domains.conf` sends visitors of a retired host |
//! | `$shortlink_retired_page` | the file of the page that a retired host answers with |
//! | `$shortlink_active_base` | the beginnings of new short URLs, from `domains.conf` |
//! | `$shortlink_domain_names` | all short domains, separated by commas |
//! | `$shortlink_domain_states` | a letter for the state of each of them, in the same order |
//! | `$shortlink_domain_brands` | the brand of each of them, in the same order |
//! | `$shortlink_language` | the language of `shortlink_languages` that the visitor prefers |
//! | `$shortlink_place` | the visitor's country, or country and region, from the variables of `shortlink_country` |
//!
//! The first six are not found (`-` in logs) for requests that `shortlink` did not handle. All but `$shortlink_url`
//! can be set, by `set` or in Lua: `$shortlink_code` before the request is handled says which code is
//! looked up; what is set afterwards shows in logs.

use resolver::vocabulary::domains::{Brand, Domain, Retirement};
use resolver::vocabulary::language::negotiate;

use crate::headers::Headers;
use crate::host::{domain_of, domains_of, short_url};
use crate::nginx::request::Request;
use crate::settings::Settings;
use crate::state::RequestState;
use crate::visitor;

/// The value that a variable shows, as the number that nginx stores with it.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Shown {
    Code,
    Target,
    Variant,
    Outcome,
    Source,
    Url,
    Domain,
    DomainState,
    UnknownTarget,
    HomeTarget,
    Brand,
    BrandLogo,
    BrandImprint,
    BrandSite,
    RetiredTarget,
    RetiredPage,
    ActiveBase,
    DomainNames,
    DomainStates,
    DomainBrands,
    Language,
    Place,
}

impl Shown {
    /// Returns whether a request may set it.
    fn is_settable(self) -> bool {
        matches!(
            self,
            Self::Code | Self::Target | Self::Variant | Self::Outcome | Self::Source
        )
    }
}

const VARIABLES: [(&str, Shown); 22] = [
    ("shortlink_code", Shown::Code),
    ("shortlink_target", Shown::Target),
    ("shortlink_variant", Shown::Variant),
    ("shortlink_outcome", Shown::Outcome),
    ("shortlink_source", Shown::Source),
    ("shortlink_url", Shown::Url),
    ("shortlink_domain", Shown::Domain),
    ("shortlink_domain_state", Shown::DomainState),
    ("shortlink_unknown_target", Shown::UnknownTarget),
    ("shortlink_home_target", Shown::HomeTarget),
    ("shortlink_brand", Shown::Brand),
    ("shortlink_brand_logo", Shown::BrandLogo),
    ("shortlink_brand_imprint", Shown::BrandImprint),
    ("shortlink_brand_site", Shown::BrandSite),
    ("shortlink_retired_target", Shown::RetiredTarget),
    ("shortlink_retired_page", Shown::RetiredPage),
    ("shortlink_active_base", Shown::ActiveBase),
    ("shortlink_domain_names", Shown::DomainNames),
    ("shortlink_domain_states", Shown::DomainStates),
    ("shortlink_domain_brands", Shown::DomainBrands),
    ("shortlink_language", Shown::Language),
    ("shortlink_place", Shown::Place),
];

/// The name of the variable with the code that is looked up.
pub(crate) const CODE: &str = "shortlink_code";

/// The name of nginx' variable with the click id of an answer of the fallback.
pub(crate) const CLICK: &str = "upstream_http_x_shortlink_click";

/// The name of nginx' variable with the code of the link that the fallback has answered with, unless it is
/// `$shortlink_code`.
pub(crate) const FOLLOWED: &str = "upstream_http_x_shortlink_code";

/// The name of nginx' variable with the variant that the fallback has chosen.
pub(crate) const VARIANT: &str = "upstream_http_x_shortlink_variant";

/// The name of nginx' variable that is 1 if the fallback has answered with the page of a preview.
pub(crate) const PREVIEW: &str = "upstream_http_x_shortlink_preview";

/// The name of nginx' variable that is 1 if the fallback knows that there is no link.
pub(crate) const UNKNOWN: &str = "upstream_http_x_shortlink_unknown";

/// The name of nginx' variable with the status of the server that the fallback has asked.
pub(crate) const UPSTREAM_STATUS: &str = "upstream_status";

/// The variables: the name, whether a request may set it, and the number for [`get`].
pub(crate) fn all() -> impl Iterator<Item = (&'static str, bool, usize)> {
    let row = |(name, shown): (&'static str, Shown)| (name, shown.is_settable(), shown as usize);
    VARIABLES.into_iter().map(row)
}

/// The text of a variable.
pub(crate) fn get(request: &Request, number: usize) -> Option<&[u8]> {
    let mut variables = VARIABLES.iter();
    let (_, shown) = variables.find(|(_, shown)| *shown as usize == number)?;
    match shown {
        Shown::ActiveBase => Some(domains_of(request)?.bases().as_bytes()),
        Shown::DomainNames => Some(domains_of(request)?.names().as_bytes()),
        Shown::DomainStates => Some(domains_of(request)?.states().as_bytes()),
        Shown::DomainBrands => Some(domains_of(request)?.announced_brands().as_bytes()),
        Shown::UnknownTarget => {
            let target = domain_of(request)?.unknown_target()?;
            let is_unknown = RequestState::find(request)?.is_unknown(request);
            is_unknown.then_some(target.as_bytes())
        }
        Shown::Brand | Shown::BrandLogo | Shown::BrandImprint | Shown::BrandSite => {
            let domains = domains_of(request)?;
            let brand = domain_of(request).and_then(|domain| domains.brand_of(domain));
            let text = match shown {
                Shown::Brand => brand.map(Brand::name),
                Shown::BrandLogo => brand.and_then(Brand::logo),
                Shown::BrandImprint => brand.and_then(Brand::imprint),
                _ => brand.and_then(Brand::site),
            };
            Some(text.unwrap_or_default().as_bytes())
        }
        Shown::HomeTarget => {
            domains_of(request)?;
            let target = domain_of(request).and_then(Domain::home_target);
            Some(target.unwrap_or_default().as_bytes())
        }
        Shown::Domain | Shown::DomainState | Shown::RetiredTarget | Shown::RetiredPage => {
            domains_of(request)?;
            let domain = domain_of(request);
            let retirement = domain.and_then(Domain::retirement);
            let text = match (shown, retirement) {
                (Shown::DomainState, _) => domain.map_or("unknown", |it| it.state().name()),
                (Shown::Domain, _) => domain.map_or("", Domain::base_name),
                (Shown::RetiredTarget, Some(Retirement::Target(target))) => target,
                (Shown::RetiredPage, Some(Retirement::Page(page))) => page,
                _ => "",
            };
            Some(text.as_bytes())
        }
        Shown::Language => {
            let conf = request.main_settings::<Settings>()?;
            let asked = Headers::of(request).accept_language.unwrap_or_default();
            negotiate(asked, &conf.languages)
        }
        Shown::Code => {
            let state = RequestState::find(request)?;
            // The code that is looked up begins the text that the path names, in any case.
            let code = state.code(request)?;
            let named = state.named.as_ref()?.as_bytes();
            named.get(..code.as_bytes().len())
        }
        Shown::Target => {
            let target = RequestState::find(request)?.target();
            (!target.is_empty()).then_some(target)
        }
        Shown::Variant => Some(RequestState::find(request)?.variant()),
        Shown::Url => {
            let url = request.pool().copy(&[&short_url(request)?])?;
            // SAFETY: it was copied to the request's pool, which lives as long as the request.
            Some(unsafe { url.bytes() })
        }
        Shown::Place => visitor::place(request),
        Shown::Outcome => {
            let outcome = RequestState::find(request)?.outcome.get();
            Some(
                outcome
                    .map_or("waiting", |outcome| outcome.name())
                    .as_bytes(),
            )
        }
        Shown::Source => Some(RequestState::find(request)?.source.get().name().as_bytes()),
    }
}
