//! Rows of visits, from and to the types of the core.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};

use clickhouse::Row;
use jiff::Timestamp;
use serde::Deserialize;
use shortlink_core::ports::KeptVisit;
use shortlink_core::visit::agent::{Agent, DeviceKind, Versioned};
use shortlink_core::visit::class::behaviour::{self, Watched};
use shortlink_core::visit::class::networks::Network;
use shortlink_core::visit::class::pretence::is_pretended;
use shortlink_core::visit::class::{Class, Classification};
use shortlink_core::visit::stored::{StoredAgent, StoredVisit, Verdict};
use shortlink_core::visit::visitor::VisitorId;
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::VisitEvidence;

use crate::columns::{TAB, agent_text, name_of, recognised, version_of};

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
    pub(crate) client_v4: u32,
    pub(crate) client_other: String,
    pub(crate) visitor: Option<[u8; 16]>,
    pub(crate) agent: String,
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
    pub(crate) variant: String,
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn versioned(name: &str, version: &str) -> Option<Versioned> {
    Some(Versioned {
        name: some(name)?,
        version: some(version),
    })
}

impl VisitRow {
    /// The row of a visit that SQL has stored.
    pub fn moved(kept: KeptVisit, stored: &StoredVisit, batch: i64) -> Self {
        let owned = Option::unwrap_or_default;
        let client = kept.client.unwrap_or_default();
        let client_v4 = client.parse().map_or(0, Ipv4Addr::to_bits);
        let recognised = [
            name_of(stored.agent.browser.as_ref()),
            version_of(stored.agent.browser.as_ref()),
            name_of(stored.agent.os.as_ref()),
            version_of(stored.agent.os.as_ref()),
            &*kept.device,
            kept.app.as_deref().unwrap_or_default(),
        ];
        Self {
            number: kept.number,
            batch,
            at: kept.at.as_millisecond(),
            code: kept.code,
            campaign: stored.campaign,
            host: kept.host,
            client_v4,
            client_other: if client_v4 == 0 {
                client
            } else {
                String::new()
            },
            visitor: stored.visitor.map(|it| it.0),
            agent: agent_text(&recognised, &kept.user_agent),
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
            variant: owned(kept.variant),
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
        self.agent = agent_text(&recognised(agent), self.parts()[6]);
        classification.class.name().clone_into(&mut self.class);
        classification.reason.clone_into(&mut self.reason);
        self.ruleset = classification.ruleset;
    }

    /// Browser and its version, system and its version, device, app, user agent.
    fn parts(&self) -> [&str; 7] {
        let mut parts = self.agent.splitn(7, TAB);
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    /// The client's address.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        match self.client_v4 {
            0 => self.client_other.parse().ok(),
            v4 => Some(Ipv4Addr::from_bits(v4).into()),
        }
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

    /// A number for the user agent and its recognition result. It is the same in one process.
    fn agent_number(&self) -> i64 {
        let mut hasher = DefaultHasher::new();
        self.agent.hash(&mut hasher);
        hasher.finish().cast_signed()
    }

    /// The visit as it is judged again; `None` for a class that a later version has.
    pub fn stored(&self) -> Option<StoredVisit> {
        let [
            browser,
            browser_version,
            os,
            os_version,
            device,
            app,
            user_agent,
        ] = self.parts();
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
            user_agent: user_agent.to_owned(),
            isp: some(&self.isp),
            asn: self.network().asn,
            country: some(&self.country),
            referrer_host: some(&self.referrer_host),
            variant: some(&self.variant),
            class: Class::by_name(&self.class)?,
            reason: self.reason.clone(),
            ruleset: self.ruleset,
            agent: StoredAgent {
                id: self.agent_number(),
                browser: versioned(browser, browser_version),
                os: versioned(os, os_version),
                device: device.to_owned(),
                app: some(app),
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
        let [_, _, _, _, device, _, user_agent] = self.parts();
        Some(Watched {
            number: self.number,
            at_ms: self.at,
            code: (&*self.code).into(),
            created_ms: None,
            visitor: self.visitor_id(),
            is_truncated: observed.is_truncated(),
            client: self.client().map(|it| it.to_string().into()),
            agent: self.agent_number(),
            is_desktop: device == DeviceKind::Desktop.name(),
            is_hosting: self.network().is_hosting(),
            is_pretended: is_pretended(observed, user_agent),
            is_judged,
        })
    }
}

impl From<VisitRow> for KeptVisit {
    fn from(row: VisitRow) -> Self {
        let joined = |name, version| versioned(name, version).map(|it| it.to_string());
        let [
            browser,
            browser_version,
            os,
            os_version,
            device,
            app,
            user_agent,
        ] = row.parts();
        Self {
            number: row.number,
            at: row.moment(),
            visitor: row.visitor_id().map(|it| it.to_string()),
            client: row.client().map(|it| it.to_string()),
            referrer_host: some(&row.referrer_host),
            language: some(&row.language),
            country: some(&row.country),
            province: some(&row.province),
            city: some(&row.city),
            isp: some(&row.isp),
            browser: joined(browser, browser_version),
            os: joined(os, os_version),
            app: some(app),
            variant: some(&row.variant),
            device: device.to_owned(),
            user_agent: user_agent.to_owned(),
            code: row.code,
            host: row.host,
            referrer: row.referrer,
            method: row.method,
            status: row.status,
            purpose: row.purpose,
            class: row.class,
            reason: row.reason,
            ruleset: row.ruleset,
            click_id: None,
        }
    }
}
