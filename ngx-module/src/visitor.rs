//! The visitor of a request, as the rules of a plan ask for it.

use resolver::vocabulary::Plan;
use resolver::vocabulary::plan::{Choice, Visitor};

use crate::headers::Headers;
use crate::nginx::request::Request;
use crate::settings::Settings;
use crate::state::RequestState;
use crate::worker::edge::now;

/// The visitor of a request.
struct OfRequest<'a>(&'a Request);

/// The value of one of the variables of `shortlink_country`.
fn variable(request: &Request, number: usize) -> &[u8] {
    let conf = request.main_settings::<Settings>();
    let index = conf.and_then(|conf| conf.country[number]);
    index
        .and_then(|index| request.variable(index))
        .unwrap_or_default()
}

impl Visitor for OfRequest<'_> {
    fn user_agent(&self) -> &[u8] {
        self.0.user_agent()
    }

    fn accept_language(&self) -> &[u8] {
        Headers::of(self.0).accept_language.unwrap_or_default()
    }

    fn country(&self) -> &[u8] {
        variable(self.0, 0)
    }

    fn region(&self) -> &[u8] {
        variable(self.0, 1)
    }

    fn query(&self) -> &[u8] {
        self.0.query()
    }

    fn address(&self) -> &[u8] {
        self.0.client()
    }
}

/// Chooses the target for the visitor of a request out of a plan, and notes the variant that the visit carries.
#[cold]
pub(crate) fn choose<'a>(plan: &'a [u8], request: &Request) -> Option<Choice<'a>> {
    let state = RequestState::find(request)?;
    let code = state.code(request)?;
    let plan = Plan::from_checked(plan);
    let choice = plan.choose(&code, &OfRequest(request), now().unix)?;
    if let Some(variant) = choice.variant {
        let variant = request.pool().copy(&[variant])?;
        // SAFETY: it was copied to the request's pool.
        unsafe { state.set_variant(variant) };
    }
    Some(choice)
}

/// The place of the visitor as `shortlink_country` has it: the country, with the region if it is known; `None` without
/// that directive.
pub(crate) fn place(request: &Request) -> Option<&[u8]> {
    match (variable(request, 0), variable(request, 1)) {
        ([], _) => None,
        (country, []) => Some(country),
        (country, region) => {
            let joined = request.pool().copy(&[country, b"-", region])?;
            // SAFETY: it was copied to the request's pool, which lives as long as the request.
            Some(unsafe { joined.bytes() })
        }
    }
}
