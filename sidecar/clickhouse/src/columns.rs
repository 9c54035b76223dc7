//! The stored columns of a visit, which are written from a new visit or a changed row.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::{Agent, Versioned};

use crate::VisitRow;
use crate::insertion::RowBinary;

/// Names the stored columns in the order of [`Columns::write`]; the others are parts of them.
pub(crate) const VISITS: &str = "number, batch, at, code, campaign, host, client_v4, client_other, visitor, agent, \
     referrer, referrer_host, language, method, status, purpose, evidence, country, province, city, isp, asn, class, \
     reason, ruleset, variant";

/// As [`VISITS`] in rows that a program without variants has stored.
pub(crate) const VISITS_BEFORE: &str = VISITS.split_at(VISITS.len() - ", variant".len()).0;

/// Separates the parts of the column `agent`.
pub(crate) const TAB: char = '\t';

/// The values of the stored columns of a visit. Texts and numbers that it lacks are empty or 0.
#[derive(Debug)]
pub struct Columns<'a> {
    number: i64,
    batch: i64,
    at: i64,
    code: &'a str,
    campaign: i64,
    host: &'a str,
    client: Option<IpAddr>,
    visitor: Option<[u8; 16]>,
    agent: Cow<'a, str>,
    referrer: &'a str,
    referrer_host: &'a str,
    language: &'a str,
    method: &'a str,
    status: u16,
    purpose: &'a str,
    evidence: u32,
    /// Country, province, city, provider.
    place: [&'a str; 4],
    asn: Option<u32>,
    class: &'a str,
    reason: &'a str,
    ruleset: u16,
    variant: &'a str,
}

fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

pub(crate) fn name_of(it: Option<&Versioned>) -> &str {
    text(it.map(|it| &it.name))
}

pub(crate) fn version_of(it: Option<&Versioned>) -> &str {
    text(it.and_then(|it| it.version.as_ref()))
}

/// The texts that a user agent was recognised as.
pub(crate) fn recognised(agent: &Agent) -> [&str; 6] {
    [
        name_of(agent.browser.as_ref()),
        version_of(agent.browser.as_ref()),
        name_of(agent.os.as_ref()),
        version_of(agent.os.as_ref()),
        agent.device.kind.name(),
        agent.app.unwrap_or_default(),
    ]
}

/// The column `agent`: what is recognised of the user agent, and the user agent behind it. The first texts come from
/// rules, and contain no tab.
pub(crate) fn agent_text(recognised: &[&str; 6], user_agent: &str) -> String {
    let length = recognised.iter().map(|it| it.len() + 1).sum::<usize>();
    let mut text = String::with_capacity(length + user_agent.len());
    for part in recognised {
        match part.contains(TAB) {
            true => text.push_str(&part.replace(TAB, " ")),
            false => text.push_str(part),
        }
        text.push(TAB);
    }
    text.push_str(user_agent);
    text
}

impl<'a> Columns<'a> {
    /// The columns of a new visit, which is counted for a campaign or, with 0, for none.
    pub fn new(visit: &'a Visit, number: i64, batch: i64, campaign: i64) -> Self {
        let (place, agent) = (&visit.place, &visit.agent);
        let classification = &visit.classification;
        Self {
            number,
            batch,
            at: visit.at.as_millisecond(),
            code: &visit.code,
            campaign,
            host: &visit.host,
            client: visit.client,
            visitor: visit.visitor.map(|it| it.0),
            agent: agent_text(&recognised(agent), &visit.user_agent).into(),
            referrer: &visit.referrer,
            referrer_host: text(visit.referrer_host.as_ref()),
            language: text(visit.language.as_ref()),
            method: visit.method_name(),
            status: visit.status,
            purpose: &visit.purpose,
            evidence: visit.evidence.number(),
            place: [&place.country, &place.province, &place.city, &place.isp]
                .map(|it| text(it.as_ref())),
            asn: place.asn,
            class: classification.class.name(),
            reason: classification.reason,
            ruleset: classification.ruleset,
            variant: text(visit.variant.as_ref()),
        }
    }

    /// Writes the columns [`VISITS`].
    pub(crate) fn write(&self, to: &mut RowBinary) {
        to.number(self.number).number(self.batch).number(self.at);
        to.text(self.code).number(self.campaign).text(self.host);
        let (v4, other) = match self.client {
            Some(IpAddr::V4(v4)) if v4 != Ipv4Addr::UNSPECIFIED => (v4.to_bits(), String::new()),
            other => (0, other.map(|it| it.to_string()).unwrap_or_default()),
        };
        to.bytes(&v4.to_le_bytes()).text(&other);
        to.some(self.visitor.as_ref().map(<[u8; 16]>::as_slice));
        to.text(&self.agent);
        to.text(self.referrer).text(self.referrer_host);
        to.text(self.language).text(self.method);
        to.bytes(&self.status.to_le_bytes()).text(self.purpose);
        to.bytes(&self.evidence.to_le_bytes());
        for text in self.place {
            to.text(text);
        }
        let asn = self.asn.map(u32::to_le_bytes);
        to.some(asn.as_ref().map(<[u8; 4]>::as_slice));
        to.text(self.class).text(self.reason);
        to.bytes(&self.ruleset.to_le_bytes()).text(self.variant);
    }
}

impl<'a> From<&'a VisitRow> for Columns<'a> {
    fn from(row: &'a VisitRow) -> Self {
        Self {
            number: row.number,
            batch: row.batch,
            at: row.at,
            code: &row.code,
            campaign: row.campaign,
            host: &row.host,
            client: row.client(),
            visitor: row.visitor,
            agent: (&*row.agent).into(),
            referrer: &row.referrer,
            referrer_host: &row.referrer_host,
            language: &row.language,
            method: &row.method,
            status: row.status,
            purpose: &row.purpose,
            evidence: row.evidence,
            place: [&row.country, &row.province, &row.city, &row.isp],
            asn: row.asn,
            class: &row.class,
            reason: &row.reason,
            ruleset: row.ruleset,
            variant: &row.variant,
        }
    }
}
