//! Changes of the counts when visits are reclassified.

use std::collections::BTreeSet;

use jiff::Timestamp;
use shortlink_core::ports::{Dimension, status_text};
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredVisit, Verdict};

use super::{ALL, Counts, EARLIER, HOUR_MS, LinkKey, MINUTE_MS};
use crate::shared::DAY_MS;

/// Additions to the counts and subtractions from them.
#[derive(Debug)]
pub(super) struct Moves<'a> {
    /// Additions; subtractions are below 0.
    pub(super) counts: Counts<'a>,
    /// The campaigns and days whose unique visitors have to be counted again.
    pub(super) stale: BTreeSet<(i64, i64)>,
}

impl<'a> Moves<'a> {
    /// The moves of visits, each with its link. Hours before `hours_since` and minutes before
    /// `minutes_since` are not counted apart any more.
    pub(super) fn of(
        visits: impl IntoIterator<Item = (&'a (StoredVisit, Verdict), LinkKey<'a>)>,
        hours_since: Option<Timestamp>,
        minutes_since: i64,
    ) -> Self {
        let hours_since = hours_since.map(|since| since.as_millisecond().div_euclid(HOUR_MS));
        let mut moves = Self {
            counts: Counts::default(),
            stale: BTreeSet::new(),
        };
        for ((visit, verdict), link) in visits {
            let hour = visit.at.as_millisecond().div_euclid(HOUR_MS);
            let is_kept = hours_since.is_none_or(|since| since <= hour);
            let agent = &verdict.agent;
            let (from, to) = (visit.class, verdict.classification.class);
            let before = Counted {
                class: from,
                device: &visit.agent.device,
                browser: visit.agent.browser.as_ref().map_or("", |it| &it.name),
                os: visit.agent.os.as_ref().map_or("", |it| &it.name),
            };
            let after = Counted {
                class: to,
                device: agent.device.kind.name(),
                browser: agent.browser.as_ref().map_or("", |it| &it.name),
                os: agent.os.as_ref().map_or("", |it| &it.name),
            };
            for (counted, by) in [(&before, -1), (&after, 1)] {
                let link_hour = if is_kept { hour } else { EARLIER };
                let key = (link, link_hour, counted.class.name());
                moves.count_for_link(key, visit.at, by);
                if is_kept {
                    moves.count(visit, hour, counted, by);
                }
                let minute = visit.at.as_millisecond().div_euclid(MINUTE_MS);
                if minute >= minutes_since {
                    for of in campaigns(visit) {
                        let key = (of, minute, counted.class.name());
                        *moves.counts.minutes.entry(key).or_default() += by;
                    }
                }
            }
            if is_kept {
                moves.move_person(visit, from, to);
            }
        }
        moves.counts.links.retain(|_, (visits, _)| *visits != 0);
        moves.counts.hours.retain(|_, visits| *visits != 0);
        moves.counts.minutes.retain(|_, visits| *visits != 0);
        moves
    }

    fn count_for_link(&mut self, key: (LinkKey<'a>, i64, &'static str), at: Timestamp, by: i64) {
        let at = at.as_millisecond();
        let of_link = self.counts.links.entry(key).or_insert((0, at));
        *of_link = (of_link.0 + by, of_link.1.max(at));
    }

    fn count(&mut self, visit: &'a StoredVisit, hour: i64, counted: &Counted<'a>, by: i64) {
        let class = counted.class.name();
        for of in campaigns(visit) {
            for (dimension, value) in super::counted(|dimension| counted.value(dimension, visit)) {
                let key = (of, dimension.name(), hour, value, class);
                *self.counts.hours.entry(key).or_default() += by;
            }
        }
    }

    /// Adds a visitor that is human now. Marks the day of one that no longer is as stale: sketches
    /// cannot remove visitors.
    fn move_person(&mut self, visit: &StoredVisit, from: Class, to: Class) {
        let Some(visitor) = visit.visitor.filter(|_| from != to) else {
            return;
        };
        let day = visit.at.as_millisecond().div_euclid(DAY_MS);
        for of in campaigns(visit) {
            if to == Class::Human {
                let people = self.counts.visitors.entry((of, day)).or_default();
                people.push(visitor);
            } else if from == Class::Human {
                self.stale.insert((of, day));
            }
        }
    }
}

/// Lists the campaigns that count a visit, besides its link.
fn campaigns(visit: &StoredVisit) -> impl Iterator<Item = i64> + use<> {
    let campaign = (visit.campaign != ALL).then_some(visit.campaign);
    std::iter::once(ALL).chain(campaign)
}

/// Properties by which a visit is counted.
struct Counted<'a> {
    class: Class,
    device: &'a str,
    browser: &'a str,
    os: &'a str,
}

impl<'a> Counted<'a> {
    fn value(&self, dimension: Dimension, visit: &'a StoredVisit) -> &'a str {
        match dimension {
            Dimension::Total => "",
            Dimension::Domain => &visit.host,
            Dimension::Country => visit.country.as_deref().unwrap_or_default(),
            Dimension::Device => self.device,
            Dimension::Browser => self.browser,
            Dimension::Os => self.os,
            Dimension::Referrer => visit.referrer_host.as_deref().unwrap_or_default(),
            Dimension::Network => visit.isp.as_deref().unwrap_or_default(),
            Dimension::Status => status_text(visit.status),
            Dimension::Variant => visit.variant.as_deref().unwrap_or_default(),
        }
    }
}
