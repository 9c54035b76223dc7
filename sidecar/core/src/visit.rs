//! Visits: followed links, and the attributes derived from the edge's events.
//!
//! [`Enrichment`] derives a [`Visit`] from an event. Its inputs from outside are two traits,
//! [`place::Places`] and [`agent::Agents`], and the keys of the day. The texts that the client
//! sent are stored verbatim, so that visits can be reclassified when the rules have improved
//! ([`stored::StoredVisit::reclassified`]).

pub mod address;
pub mod agent;
pub mod class;
mod headers;
pub mod place;
pub mod ranges;
pub mod sketch;
pub mod stored;
pub mod text;
pub mod visitor;

use std::net::IpAddr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use vocabulary::ClickId;
use vocabulary::plan::MAX_VARIANT_LENGTH;
use vocabulary::visit::evidence::VisitEvidence;
use vocabulary::visit::{TEXT_LIMITS, VisitEvent, VisitId, VisitMethod};

use address::AddressPolicy;
use agent::{Agent, Agents};
use class::{Classification, Evidence, classify};
use place::{Place, Places};
use text::kept;
use visitor::{LiveKeys, VisitorId};

/// One followed link with all its stored attributes. Texts are cut to [`TEXT_LIMITS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Names the visit uniquely.
    pub id: VisitId,
    /// Time of the answer.
    pub at: Timestamp,
    /// The link's code, as it was requested.
    pub code: String,
    /// The short domain of the request, in lower case.
    pub host: String,
    /// The client's address, as far as the policy stores it.
    pub client: Option<IpAddr>,
    /// The same for all visits of the same client with the same agent on one day. `None` if the
    /// client has no address, or if the day's key is not there (any more).
    pub visitor: Option<VisitorId>,
    /// The header `User-Agent`; empty without one.
    pub user_agent: String,
    /// The header `Referer`; empty without one.
    pub referrer: String,
    /// The host in the referrer, or the package for one that is an Android app.
    pub referrer_host: Option<String>,
    /// The language that the client likes best, as a tag like `de` or `zh-Hans-CN`.
    pub language: Option<String>,
    /// The request's method.
    pub method: VisitMethod,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The header `Sec-Purpose`, `Purpose`, `X-Purpose` or `X-Moz`; empty without one.
    pub purpose: String,
    /// Other properties of the request.
    pub evidence: VisitEvidence,
    /// The id that the target got.
    pub click: Option<ClickId>,
    /// The variant of the rule that was followed; `None` for one without a name, and for the default target.
    pub variant: Option<String>,
    /// Location of the client.
    pub place: Place,
    /// Browser, system and device of the client.
    pub agent: Arc<Agent>,
    /// Kind of visitor: a person or a program.
    pub classification: Classification,
}

impl Visit {
    /// The method's name.
    pub fn method_name(&self) -> &'static str {
        match self.method {
            VisitMethod::Get => "GET",
            VisitMethod::Head => "HEAD",
            VisitMethod::Other => "other",
        }
    }
}

/// The reason that an event is not a visit. Such an event goes to quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VisitFault {
    /// Its time is beyond the year 9999.
    #[error("the visit's time, {0} ms after 1970, is not valid")]
    Time(u64),
}

/// The furthest that the clock of an edge may be ahead of that of the sidecar.
pub const MAX_AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// An event as it arrives at `now`. One from further ahead than [`MAX_AHEAD`] gets this time, or it would count in hours
/// to come and outlive all others; `true` reports it.
#[must_use]
pub fn arrive<'e>(event: &VisitEvent<'e>, now: Timestamp) -> (VisitEvent<'e>, bool) {
    let at = i64::try_from(event.time_ms).map(Timestamp::from_millisecond);
    let is_ahead = matches!(at, Ok(Ok(at)) if at.duration_since(now) > MAX_AHEAD);
    let mut event = *event;
    if is_ahead {
        event.time_ms = u64::try_from(now.as_millisecond()).unwrap_or_default();
    }
    (event, is_ahead)
}

/// The name of a variant; `None` for bytes that are none.
fn variant(bytes: &[u8]) -> Option<String> {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = (1..=MAX_VARIANT_LENGTH).contains(&bytes.len()) && bytes.iter().all(is_fine);
    is_name.then(|| kept(bytes, MAX_VARIANT_LENGTH))
}

/// Derives visits from events.
pub struct Enrichment {
    places: Arc<dyn Places>,
    agents: Arc<dyn Agents>,
    address: AddressPolicy,
}

impl Enrichment {
    /// Combines the sources of attributes.
    pub fn new(places: Arc<dyn Places>, agents: Arc<dyn Agents>, address: AddressPolicy) -> Self {
        Self {
            places,
            agents,
            address,
        }
    }

    /// The source of browsers, systems and devices.
    pub fn agents(&self) -> Arc<dyn Agents> {
        Arc::clone(&self.agents)
    }

    /// Derives a visit from an event. The place and the visitor come from the whole address,
    /// however little of it is stored.
    ///
    /// # Errors
    /// Fails if the event's time is invalid. Other oddities of an event are stored unchanged or
    /// left out.
    pub fn visit(&self, event: &VisitEvent<'_>, keys: &LiveKeys) -> Result<Visit, VisitFault> {
        let at = i64::try_from(event.time_ms)
            .ok()
            .and_then(|time| Timestamp::from_millisecond(time).ok())
            .ok_or(VisitFault::Time(event.time_ms))?;
        let [code, host, _, user_agent, referrer, language, purpose] = TEXT_LIMITS;
        let mut host = kept(event.host, host);
        host.make_ascii_lowercase();
        let whole = address::parsed(event.client);
        let user_agent = kept(event.user_agent, user_agent);
        let referrer = kept(event.referrer, referrer);
        let purpose = kept(event.purpose, purpose);
        let place = whole.map_or_else(Place::default, |whole| self.places.place(whole));
        let agent = self.agents.agent(&user_agent);
        let classification = classify(&Evidence {
            listed: agent.listed,
            method: event.method,
            purpose: &purpose,
            observed: event.evidence,
            words: agent.words,
            network: place.network(),
        })
        .answered(event.status);
        Ok(Visit {
            id: event.id,
            at,
            code: kept(event.code, code),
            host,
            client: whole.and_then(|whole| self.address.kept(whole)),
            visitor: whole.and_then(|whole| keys.visitor(at, whole, event.user_agent)),
            referrer_host: headers::referrer_host(&referrer),
            language: headers::preferred_language(&kept(event.accept_language, language)),
            agent,
            method: event.method,
            status: event.status,
            user_agent,
            referrer,
            purpose,
            evidence: event.evidence,
            click: event.click,
            variant: variant(event.variant),
            place,
            classification,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
