//! Stored visits, with the attributes that a new classification needs.
//!
//! The client's texts and its provider are stored, so the rules of this version can be applied to
//! them. Attributes that depend on the whole address can't be derived again.

use std::sync::Arc;

use jiff::Timestamp;
use vocabulary::visit::VisitMethod;
use vocabulary::visit::evidence::VisitEvidence;

use super::agent::{Agent, Agents, Versioned};
use super::class::behaviour;
use super::class::networks::Network;
use super::class::{Class, Classification, Evidence, RULESET, classify};
use super::visitor::VisitorId;

/// A stored visit, with its classification at the time it was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVisit {
    /// Sequence number: visits that were stored later have greater ones.
    pub number: i64,
    /// Time of the answer.
    pub at: Timestamp,
    /// The link's code, as it was requested.
    pub code: String,
    /// The campaign that it was counted for; 0 for none.
    pub campaign: i64,
    /// The short domain of the request.
    pub host: String,
    /// Id of the visitor, unless the visit has none.
    pub visitor: Option<VisitorId>,
    /// The request's method.
    pub method: VisitMethod,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The header `Sec-Purpose`, `Purpose`, `X-Purpose` or `X-Moz`; empty without one.
    pub purpose: String,
    /// Other properties of the request.
    pub evidence: VisitEvidence,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// Provider of the client's Internet access.
    pub isp: Option<String>,
    /// The number of the client's autonomous system.
    pub asn: Option<u32>,
    /// The country's code.
    pub country: Option<String>,
    /// The referrer's host.
    pub referrer_host: Option<String>,
    /// The variant that was followed.
    pub variant: Option<String>,
    /// Kind of visitor.
    pub class: Class,
    /// Reason of the rules.
    pub reason: String,
    /// The version of the rules that decided the class.
    pub ruleset: u16,
    /// Parsed user agent.
    pub agent: StoredAgent,
}

/// A parsed user agent, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredAgent {
    /// Its number in the store.
    pub id: i64,
    /// The browser.
    pub browser: Option<Versioned>,
    /// The operating system.
    pub os: Option<Versioned>,
    /// The name of the kind of device.
    pub device: String,
    /// The app whose built-in browser it is.
    pub app: Option<String>,
}

impl StoredAgent {
    /// Reports whether this is the stored form of an agent.
    pub fn is(&self, agent: &Agent) -> bool {
        self.browser == agent.browser
            && self.os == agent.os
            && self.device == agent.device.kind.name()
            && self.app.as_deref() == agent.app
    }
}

/// Result of this version's rules for a stored visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Kind of visitor, with its reason.
    pub classification: Classification,
    /// Browser, system and device of the client.
    pub agent: Arc<Agent>,
}

impl StoredVisit {
    /// Applies the rules of this version to the visit; `None` if the result is already stored, or
    /// if a later version has judged it.
    pub fn reclassified(&self, agents: &dyn Agents) -> Option<Verdict> {
        if self.ruleset > RULESET {
            return None;
        }
        let agent = agents.agent(&self.user_agent);
        let mut classification = classify(&Evidence {
            listed: agent.listed,
            method: self.method,
            purpose: &self.purpose,
            observed: self.evidence,
            words: agent.words,
            network: Network {
                name: self.isp.as_deref(),
                asn: self.asn,
            },
        });
        // The headers of a visit that was judged by behaviour are those of a person.
        if let (Class::Human, Some(reason)) =
            (classification.class, behaviour::reason(&self.reason))
        {
            classification.class = behaviour::CLASS;
            classification.reason = reason;
        }
        let classification = classification.answered(self.status);
        let is_same = self.class == classification.class
            && self.reason == classification.reason
            && self.ruleset == classification.ruleset
            && self.agent.is(&agent);
        (!is_same).then_some(Verdict {
            classification,
            agent,
        })
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::visit::evidence::Request;

    use super::*;
    use crate::visit::agent::{Device, DeviceKind};
    use crate::visit::class::Words;

    struct Phones;

    impl Agents for Phones {
        fn agent(&self, user_agent: &str) -> Arc<Agent> {
            Arc::new(Agent {
                words: Words::of(user_agent),
                device: Device {
                    kind: DeviceKind::Phone,
                    ..Device::default()
                },
                ..Agent::default()
            })
        }
    }

    fn stored() -> StoredVisit {
        StoredVisit {
            number: 1,
            at: Timestamp::UNIX_EPOCH,
            code: "abc".to_owned(),
            campaign: 0,
            host: "s.example.com".to_owned(),
            visitor: None,
            method: VisitMethod::Get,
            status: 302,
            purpose: String::new(),
            evidence: VisitEvidence::UNKNOWN,
            user_agent: "WhatsApp/2.23.20.0 A".to_owned(),
            isp: None,
            asn: None,
            country: None,
            referrer_host: None,
            variant: None,
            class: Class::Preview,
            reason: "whatsapp".to_owned(),
            ruleset: RULESET,
            agent: StoredAgent {
                device: "phone".to_owned(),
                ..StoredAgent::default()
            },
        }
    }

    #[test]
    fn what_is_right_stays() {
        assert_eq!(stored().reclassified(&Phones), None);
    }

    #[test]
    fn every_part_that_differs_is_judged_again() {
        let changes: [fn(&mut StoredVisit); 5] = [
            |visit| visit.class = Class::Human,
            |visit| visit.reason = "browser".to_owned(),
            |visit| visit.ruleset = RULESET - 1,
            |visit| visit.agent.device = "tv".to_owned(),
            |visit| visit.agent.app = Some("WeChat".to_owned()),
        ];
        for change in changes {
            let mut visit = stored();
            change(&mut visit);
            let verdict = visit.reclassified(&Phones).expect("another verdict");
            let Classification { class, reason, .. } = verdict.classification;
            assert_eq!((class, reason), (Class::Preview, "whatsapp"), "{visit:?}");
        }
    }

    #[test]
    fn the_network_and_the_purpose_count_again() {
        let browser = StoredVisit {
            user_agent: "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
                .to_owned(),
            ..stored()
        };
        for (isp, purpose, reason) in [
            (None, "", "browser"),
            (Some("Mimecast Services"), "", "mimecast"),
            (Some("Mimecast Services"), "prefetch", "prefetch"),
        ] {
            let visit = StoredVisit {
                isp: isp.map(str::to_owned),
                purpose: purpose.to_owned(),
                ..browser.clone()
            };
            let verdict = visit.reclassified(&Phones).expect("another verdict");
            assert_eq!(verdict.classification.reason, reason);
        }
    }

    #[test]
    fn the_evidence_counts_again() {
        let part = VisitEvidence::of(&Request {
            mode: Some(b"no-cors"),
            destination: Some(b"image"),
            ..Request::default()
        });
        let visit = StoredVisit {
            user_agent: "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
                .to_owned(),
            evidence: part,
            ..stored()
        };
        let verdict = visit.reclassified(&Phones).expect("another verdict");
        let Classification { class, reason, .. } = verdict.classification;
        assert_eq!((class, reason), (Class::Preview, "fetched"));
    }

    #[test]
    fn a_verdict_by_behaviour_stays_unless_the_client_has_a_name() {
        let swept = StoredVisit {
            user_agent: "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
                .to_owned(),
            class: Class::Scanner,
            reason: "sweep".to_owned(),
            ..stored()
        };
        assert_eq!(swept.reclassified(&Phones), None);
        let named = StoredVisit {
            user_agent: "WhatsApp/2.23.20.0 A".to_owned(),
            ..swept
        };
        let verdict = named.reclassified(&Phones).expect("another verdict");
        assert_eq!(verdict.classification.reason, "whatsapp");
    }

    #[test]
    fn refused_visits_are_of_no_other_class_and_keep_the_reason() {
        let counted = StoredVisit {
            user_agent: "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"
                .to_owned(),
            status: 410,
            class: Class::Human,
            reason: "browser".to_owned(),
            ruleset: 2,
            ..stored()
        };
        let verdict = counted.reclassified(&Phones).expect("another verdict");
        let Classification { class, reason, .. } = verdict.classification;
        assert_eq!((class, reason), (Class::Refused, "browser"));
        for reason in ["browser", "sweep"] {
            let refused = StoredVisit {
                class: Class::Refused,
                reason: reason.to_owned(),
                ruleset: RULESET,
                ..counted.clone()
            };
            assert_eq!(refused.reclassified(&Phones), None, "{reason}");
        }
    }

    #[test]
    fn what_a_later_version_says_is_left_alone() {
        let later = StoredVisit {
            class: Class::Bot,
            ruleset: RULESET + 1,
            ..stored()
        };
        assert_eq!(later.reclassified(&Phones), None);
    }
}
