//! Clicks in ClickHouse: which links human visits belong to, and what corrections make of them.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use shortlink_clickhouse::{
    CLOCKS_DIFFER_MS, ClickHouse, ClickedLink, Clicks, HumanVisits, LinkClicks,
};
use shortlink_core::ports::StoreError;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use vocabulary::Code;

use super::super::clicks::{ByLink, Place, Weighed, changes, existing};
use super::super::moves::Moves;
use super::super::{ALL, LinkKey, Map, Taken};
use super::{asked, of_links};
use crate::Store;

/// The clicks by new visits, without those of links that do not exist.
pub(in super::super) fn new<'a>(visits: &[Taken<'a>]) -> Vec<LinkClicks<'a>> {
    let mut places: Map<&str, usize> = Map::default();
    let mut all: Vec<LinkClicks<'a>> = Vec::with_capacity(visits.len());
    for Taken { visit, link, .. } in visits {
        let (Some(link), Class::Human) = (link, visit.classification.class) else {
            continue;
        };
        let clicks = Clicks::at(visit.at.as_millisecond());
        let place = *places.entry(&*visit.code).or_insert(all.len());
        match all.get_mut(place) {
            Some(it) => it.clicks = it.clicks.map(|it| it.with(clicks)),
            None => all.push(LinkClicks {
                link: ClickedLink {
                    campaign: link.campaign.unwrap_or(ALL),
                    created: link.created,
                    code: &visit.code,
                },
                clicks: Some(clicks),
                since: 0,
            }),
        }
    }
    all
}

/// The clicks of a link that a correction has changed.
#[derive(Clone, Debug)]
pub(super) struct Corrected {
    campaign: i64,
    created: i64,
    code: String,
    clicks: Option<Clicks>,
    since: i64,
}

impl Corrected {
    fn of(link: &ClickedLink<'_>, clicks: Option<Clicks>, since: i64) -> Self {
        Self {
            campaign: link.campaign,
            created: link.created,
            code: link.code.to_owned(),
            clicks,
            since,
        }
    }

    pub(super) fn row(&self) -> LinkClicks<'_> {
        LinkClicks {
            link: ClickedLink {
                campaign: self.campaign,
                created: self.created,
                code: &self.code,
            },
            clicks: self.clicks,
            since: self.since,
        }
    }
}

/// A visit that is judged again, with its link.
fn with_key(visit: &(StoredVisit, Verdict)) -> (&(StoredVisit, Verdict), LinkKey<'_>) {
    (visit, LinkKey::Code(&visit.0.code))
}

/// A link, by its campaign and code.
fn place<'a>(link: &ClickedLink<'a>) -> Place<'a> {
    (link.campaign, LinkKey::Code(link.code))
}

impl Store {
    /// The links of some codes, of those that exist.
    pub(in super::super) async fn clicked_links<'a>(
        &self,
        codes: &[&'a str],
    ) -> Result<Vec<ClickedLink<'a>>, StoreError> {
        self.read("find the links of visits", codes, |db, codes| {
            Box::pin(async move {
                let keys = codes.iter().copied().map(LinkKey::Code);
                let found = existing(db, keys).await?.into_iter();
                let links = found.filter_map(|(key, (campaign, created))| {
                    let LinkKey::Code(code) = key else {
                        return None;
                    };
                    Some(ClickedLink {
                        campaign,
                        created,
                        code,
                    })
                });
                Ok(links.collect())
            })
        })
        .await
    }

    /// The clicks of those of some links that have any, each with the place of its link.
    pub(crate) async fn sunk_clicks(
        &self,
        sink: &ClickHouse,
        codes: &[Code],
    ) -> Result<Vec<(Code, Clicks)>, StoreError> {
        let texts: Vec<&str> = codes.iter().map(Code::as_str).collect();
        let links = self.clicked_links(&texts).await?;
        let found = asked(
            "read the clicks of links",
            sink.clicks_of(&links, i64::MAX).await,
        )?;
        let by_text: HashMap<&str, Code> = codes.iter().map(|it| (it.as_str(), *it)).collect();
        let found = found.into_iter();
        Ok(found
            .filter_map(|(place, clicks)| Some((*by_text.get(links[place].code)?, clicks)))
            .collect())
    }

    /// The clicks of links some of whose visits become of another class: by all batches up to one, which are in
    /// ClickHouse. Later ones add to them.
    pub(super) async fn corrected_clicks(
        &self,
        sink: &ClickHouse,
        verdicts: &[&(StoredVisit, Verdict)],
        hours_since: Option<Timestamp>,
        up_to: i64,
    ) -> Result<Vec<Corrected>, StoreError> {
        let operation = "correct the clicks of links";
        let is_human = |class| class == Class::Human;
        let moved = verdicts.iter().filter(|(visit, verdict)| {
            is_human(visit.class) != is_human(verdict.classification.class)
        });
        let moved: Vec<&(StoredVisit, Verdict)> = moved.copied().collect();
        if moved.is_empty() {
            return Ok(Vec::new());
        }
        let mut codes: Vec<&str> = moved.iter().map(|(visit, _)| &*visit.code).collect();
        codes.sort_unstable();
        codes.dedup();
        let links = self.clicked_links(&codes).await?;
        let links: HashMap<Place<'_>, ClickedLink<'_>> =
            links.into_iter().map(|it| (place(&it), it)).collect();
        // Those of a link that was deleted stay as they are.
        let moved = moved.into_iter().filter(|(visit, _)| {
            let link = links.get(&(visit.campaign, LinkKey::Code(&visit.code)));
            link.is_some_and(|it| it.created - CLOCKS_DIFFER_MS <= visit.at.as_millisecond())
        });
        let moved: Vec<&(StoredVisit, Verdict)> = moved.collect();
        let (mut more, less) = changes(moved.iter().copied().map(with_key));
        let changed: Vec<ClickedLink<'_>> = more
            .0
            .keys()
            .chain(less.0.keys())
            .filter_map(|place| links.get(place).copied())
            .collect();
        let stored = asked(operation, sink.clicks_of(&changed, up_to).await)?;
        let stored: BTreeMap<Place<'_>, Clicks> = stored
            .into_iter()
            .map(|(at, clicks)| (place(&changed[at]), clicks))
            .collect();
        let stored: Vec<(Place<'_>, Clicks)> = stored.into_iter().collect();
        let weighed = Weighed::of(&stored, &mut more, &less);
        let mut corrected: Vec<Corrected> = Vec::new();
        let mut add = |place: &Place<'_>, clicks, since| {
            corrected.extend(links.get(place).map(|it| Corrected::of(it, clicks, since)));
        };
        for (place, _, clicks) in &weighed.known {
            add(place, *clicks, up_to);
        }
        // Those that are left have no clicks yet.
        for (place, clicks) in &more.0 {
            add(place, Some(*clicks), 0);
        }
        let unknown: Vec<ClickedLink<'_>> = weighed
            .unknown
            .iter()
            .filter_map(|it| links.get(&it.place).copied())
            .collect();
        let since = weighed.unknown.iter().map(|it| it.left.first_at).min();
        let since = since.unwrap_or_default();
        // As they are after the correction.
        let numbers: Vec<i64> = verdicts.iter().map(|(visit, _)| visit.number).collect();
        let counted = sink.human_visits(&unknown, since, up_to, &numbers).await;
        let counted = asked(operation, counted)?;
        let counted = counted
            .iter()
            .map(|it: &HumanVisits| ((it.campaign, LinkKey::Code(&it.code)), it.clicks));
        let mut counted = ByLink(counted.collect());
        for (visit, verdict) in verdicts.iter().copied() {
            let at = visit.at.as_millisecond();
            let place = (visit.campaign, LinkKey::Code(&visit.code));
            let is_of_link = links
                .get(&place)
                .is_some_and(|it| since.max(it.created - CLOCKS_DIFFER_MS) <= at);
            if is_human(verdict.classification.class) && is_of_link {
                counted.add(place, at);
            }
        }
        let gone = unknown
            .iter()
            .filter(|it| !counted.0.contains_key(&place(it)));
        let gone: Vec<&str> = gone.map(|it| it.code).collect();
        let all = verdicts.iter().copied().map(with_key);
        // Those of links only.
        let mut counts = Moves::of(all, hours_since, i64::MAX).counts;
        let counts = of_links(&mut counts);
        let last = asked(operation, sink.last_human(&gone, &counts).await)?;
        for it in &weighed.unknown {
            let LinkKey::Code(code) = it.place.1 else {
                continue;
            };
            let clicks = it.settled(counted.0.get(&it.place).copied(), last.get(code).copied());
            add(&it.place, Some(clicks), up_to);
        }
        Ok(corrected)
    }
}
