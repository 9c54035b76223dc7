//! Rows of visits, from and to the types of the core.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

use clickhouse::Row;
use jiff::Timestamp;
use serde::Deserialize;
use shortlink_core::ports::KeptVisit;
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::{Agent, DeviceKind, Versioned};
use shortlink_core::visit::class::behaviour::{self, Watched};
use shortlink_core::visit::class::networks::Network;
use shortlink_core::visit::class::pretence::is_pretended;
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::stored::{StoredAgent, StoredVisit, Verdict};
use shortlink_core::visit::visitor::VisitorId;
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::VisitEvidence;

use crate::insertion::RowBinary;

/// Names the stored columns in the order of [`VisitRow::write`]; the others are parts of them.
pub(crate) const VISITS: &str = "number, batch, at, code, campaign, host, client_v4, client_other, visitor, agent, \
     referrer, referrer_host, language, method, status, purpose, evidence, country, province, city, isp, asn, class, \
     reason, ruleset";

/// Separates the parts of the column `agent`.
const TAB: char = '\t';

/// A visit as ClickHouse has it. Texts and numbers that a visit lacks are empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Row, Deserialize)]
pub struct VisitRow {
    /// The visit's number.
    pub number: i64,
    /// The batch that wrote this row; the latest one counts.
    pub batch: i64,
    /// The time of the answer, in milliseconds since 1970.
    pub at: i64,
    /// The link's code, as it was requested.
    pub code: String,
    pub(crate) campaign: i64,
    pub(crate) host: String,
    pub(crate) client: String,
    pub(crate) visitor: Option<[u8; 16]>,
    pub(crate) user_agent: String,
    pub(crate) browser: String,
    pub(crate) browser_version: String,
    pub(crate) os: String,
    pub(crate) os_version: String,
    pub(crate) device: String,
    pub(crate) app: String,
    pub(crate) referrer: String,
    pub(crate) referrer_host: String,
    pub(crate) language: String,
    pub(crate) method: String,
    pub(crate) status: u16,
    pub(crate) purpose: String,
    pub(crate) evidence: u32,
    pub(crate) country: String,
    pub(crate) province: String,
    pub(crate) city: String,
    pub(crate) isp: String,
    pub(crate) asn: Option<u32>,
    pub(crate) class: String,
    pub(crate) reason: String,
    pub(crate) ruleset: u16,
}

fn owned(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn name_of(it: Option<&Versioned>) -> String {
    it.map_or_else(String::new, |it| it.name.clone())
}

fn version_of(it: Option<&Versioned>) -> String {
    owned(it.and_then(|it| it.version.as_deref()))
}

fn versioned(name: &str, version: &str) -> Option<Versioned> {
    Some(Versioned {
        name: some(name)?,
        version: some(version),
    })
}

impl VisitRow {
    /// The row of a new visit, which is counted for a campaign or, with 0, for none.
    pub fn new(visit: &Visit, number: i64, batch: i64, campaign: i64) -> Self {
        let place = &visit.place;
        let mut row = Self {
            number,
            batch,
            at: visit.at.as_millisecond(),
            code: visit.code.clone(),
            campaign,
            host: visit.host.clone(),
            client: visit.client.map(|it| it.to_string()).unwrap_or_default(),
            visitor: visit.visitor.map(|it| it.0),
            user_agent: visit.user_agent.clone(),
            referrer: visit.referrer.clone(),
            referrer_host: owned(visit.referrer_host.as_deref()),
            language: owned(visit.language.as_deref()),
            method: visit.method_name().to_owned(),
            status: visit.status,
            purpose: visit.purpose.clone(),
            evidence: visit.evidence.number(),
            country: owned(place.country.as_deref()),
            province: owned(place.province.as_deref()),
            city: owned(place.city.as_deref()),
            isp: owned(place.isp.as_deref()),
            asn: place.asn,
            ..Self::default()
        };
        row.judge(&visit.classification, &visit.agent);
        row
    }

    /// The row of a visit that SQL has stored.
    pub fn moved(kept: KeptVisit, stored: &StoredVisit, batch: i64) -> Self {
        let owned = Option::unwrap_or_default;
        Self {
            number: kept.number,
            batch,
            at: kept.at.as_millisecond(),
            code: kept.code,
            campaign: stored.campaign,
            host: kept.host,
            client: owned(kept.client),
            visitor: stored.visitor.map(|it| it.0),
            user_agent: kept.user_agent,
            browser: name_of(stored.agent.browser.as_ref()),
            browser_version: version_of(stored.agent.browser.as_ref()),
            os: name_of(stored.agent.os.as_ref()),
            os_version: version_of(stored.agent.os.as_ref()),
            device: kept.device,
            app: owned(kept.app),
            referrer: kept.referrer,
            referrer_host: owned(kept.referrer_host),
            language: owned(kept.language),
            method: kept.method,
            status: kept.status,
            purpose: kept.purpose,
            evidence: stored.evidence.number(),
            country: owned(kept.country),
            province: owned(kept.province),
            city: owned(kept.city),
            isp: owned(kept.isp),
            asn: stored.asn,
            class: kept.class,
            reason: kept.reason,
            ruleset: kept.ruleset,
        }
    }

    /// This visit with another verdict, by a later batch.
    #[must_use]
    pub fn judged(&self, verdict: &Verdict, batch: i64) -> Self {
        let mut row = Self {
            batch,
            ..self.clone()
        };
        row.judge(&verdict.classification, &verdict.agent);
        row
    }

    fn judge(&mut self, classification: &Classification, agent: &Agent) {
        self.browser = name_of(agent.browser.as_ref());
        self.browser_version = version_of(agent.browser.as_ref());
        self.os = name_of(agent.os.as_ref());
        self.os_version = version_of(agent.os.as_ref());
        agent.device.kind.name().clone_into(&mut self.device);
        self.app = owned(agent.app);
        classification.class.name().clone_into(&mut self.class);
        classification.reason.clone_into(&mut self.reason);
        self.ruleset = classification.ruleset;
    }

    /// Writes the values of the columns [`VISITS`].
    pub(crate) fn write(&self, to: &mut RowBinary) {
        to.number(self.number).number(self.batch).number(self.at);
        to.text(&self.code).number(self.campaign).text(&self.host);
        let v4 = self.client.parse().map_or(0, Ipv4Addr::to_bits);
        to.bytes(&v4.to_le_bytes());
        to.text(if v4 == 0 { &self.client } else { "" });
        to.some(self.visitor.as_ref().map(<[u8; 16]>::as_slice));
        to.text(&self.agent());
        to.text(&self.referrer).text(&self.referrer_host);
        to.text(&self.language).text(&self.method);
        to.bytes(&self.status.to_le_bytes()).text(&self.purpose);
        to.bytes(&self.evidence.to_le_bytes());
        to.text(&self.country).text(&self.province);
        to.text(&self.city).text(&self.isp);
        to.some(
            self.asn
                .map(u32::to_le_bytes)
                .as_ref()
                .map(<[u8; 4]>::as_slice),
        );
        to.text(&self.class).text(&self.reason);
        to.bytes(&self.ruleset.to_le_bytes());
    }

    fn moment(&self) -> Timestamp {
        // ClickHouse's DateTime64 ends long before that of this type.
        Timestamp::from_millisecond(self.at).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The visitor, if it is known.
    pub(crate) fn visitor_id(&self) -> Option<VisitorId> {
        self.visitor.map(VisitorId)
    }

    /// The campaign that the visit is counted for, 0 for none.
    pub fn campaign(&self) -> i64 {
        self.campaign
    }

    /// The visit is one by a person.
    pub(crate) fn is_human(&self) -> bool {
        self.class == Class::Human.name()
    }

    fn network(&self) -> Network<'_> {
        Network {
            name: Some(&*self.isp).filter(|isp| !isp.is_empty()),
            asn: self.asn,
        }
    }

    /// The user agent behind what was recognised of it. These texts come from rules, and contain no tab.
    fn agent(&self) -> String {
        let parts = [
            &self.browser,
            &self.browser_version,
            &self.os,
            &self.os_version,
            &self.device,
            &self.app,
        ];
        let length = parts.iter().map(|part| part.len() + 1).sum::<usize>();
        let mut agent = String::with_capacity(length + self.user_agent.len());
        for part in parts {
            agent.extend(part.chars().map(|it| if it == TAB { ' ' } else { it }));
            agent.push(TAB);
        }
        agent.push_str(&self.user_agent);
        agent
    }

    /// A number for the user agent and its recognition result. It is the same in one process.
    fn agent_number(&self) -> i64 {
        let mut hasher = DefaultHasher::new();
        let parts = [
            &self.user_agent,
            &self.browser,
            &self.browser_version,
            &self.os,
            &self.os_version,
            &self.device,
            &self.app,
        ];
        parts.hash(&mut hasher);
        hasher.finish().cast_signed()
    }

    /// The visit as it is judged again; `None` for a class that a later version has.
    pub fn stored(&self) -> Option<StoredVisit> {
        Some(StoredVisit {
            number: self.number,
            at: self.moment(),
            code: self.code.clone(),
            campaign: self.campaign,
            host: self.host.clone(),
            visitor: self.visitor_id(),
            method: match &*self.method {
                "GET" => VisitMethod::Get,
                "HEAD" => VisitMethod::Head,
                _ => VisitMethod::Other,
            },
            status: self.status,
            purpose: self.purpose.clone(),
            evidence: VisitEvidence::from_number(self.evidence.into()),
            user_agent: self.user_agent.clone(),
            isp: some(&self.isp),
            asn: self.network().asn,
            country: some(&self.country),
            referrer_host: some(&self.referrer_host),
            class: Class::by_name(&self.class)?,
            reason: self.reason.clone(),
            ruleset: self.ruleset,
            agent: StoredAgent {
                id: self.agent_number(),
                browser: versioned(&self.browser, &self.browser_version),
                os: versioned(&self.os, &self.os_version),
                device: self.device.clone(),
                app: some(&self.app),
            },
        })
    }

    /// The visit as behaviour is judged; `None` for one that is not of a person by the first rules.
    pub(crate) fn watched(&self) -> Option<Watched> {
        let is_judged = behaviour::reason(&self.reason).is_some();
        let class = Class::by_name(&self.class);
        if !is_judged && !class.is_some_and(|class| class.is_of_person(&self.reason)) {
            return None;
        }
        let observed = VisitEvidence::from_number(self.evidence.into());
        Some(Watched {
            number: self.number,
            at_ms: self.at,
            code: (&*self.code).into(),
            created_ms: None,
            visitor: self.visitor_id(),
            is_truncated: observed.is_truncated(),
            client: some(&self.client).map(Into::into),
            agent: self.agent_number(),
            is_desktop: self.device == DeviceKind::Desktop.name(),
            is_hosting: self.network().is_hosting(),
            is_pretended: is_pretended(observed, &self.user_agent),
            is_judged,
        })
    }
}

impl From<VisitRow> for KeptVisit {
    fn from(row: VisitRow) -> Self {
        let joined = |name, version| versioned(name, version).map(|it| it.to_string());
        Self {
            number: row.number,
            at: row.moment(),
            visitor: row.visitor_id().map(|it| it.to_string()),
            client: some(&row.client),
            referrer_host: some(&row.referrer_host),
            language: some(&row.language),
            country: some(&row.country),
            province: some(&row.province),
            city: some(&row.city),
            isp: some(&row.isp),
            browser: joined(&row.browser, &row.browser_version),
            os: joined(&row.os, &row.os_version),
            app: some(&row.app),
            code: row.code,
            host: row.host,
            user_agent: row.user_agent,
            referrer: row.referrer,
            method: row.method,
            status: row.status,
            purpose: row.purpose,
            device: row.device,
            class: row.class,
            reason: row.reason,
            ruleset: row.ruleset,
        }
    }
}
