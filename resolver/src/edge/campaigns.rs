//! Links whose target their campaign defines.
//!
//! A campaign is looked up as a link is, and kept as one is; only its links ask for it, and all that
//! ask at once share one look-up. An answer is made when it is given, from the campaign as it then
//! is, and is as good as the worse of the two records.

use vocabulary::judge::expand;
use vocabulary::{CampaignId, Code, Phase};

use crate::answer::{Answer, Expanded, MissReason};
use crate::cache::{Cache, Entry, Freshness};
use crate::counters::{Counter, Source};
use crate::key::Key;
use crate::lookups::LookupId;
use crate::nodes::Nodes;
use crate::topology::Topology;

use super::authority::vouches;
use super::{Brought, Completion, Edge, Kept, LookUp, Notice, Now, note};

impl<T> Edge<T> {
    /// Answers a request for a link with a fresh entry from the cached campaign; or asks for the
    /// campaign only and makes the request wait.
    pub(super) fn look_up_campaign_link(
        &mut self,
        code: &Code,
        entry: Entry,
        token: T,
        now: Now,
    ) -> LookUp<'_> {
        let link = self.cache.as_ref().map(|cache| cache.campaign_link(entry));
        let Some(Some(link)) = link else {
            return LookUp::Answered(Answer::Miss(MissReason::Unreadable), Source::Cache);
        };
        let campaign = link.campaign;
        let found = self.find_campaign(campaign, now);
        if found.is_some_and(Entry::is_fresh) {
            let answer = self.expand_kept(code, entry, found, now);
            return LookUp::Answered(answer.with(&self.expanded), Source::Cache);
        }
        if let Some(awaited) = self.begin_campaign(campaign, now)
            && let Some(link) = self.cache.as_ref().and_then(|c| c.campaign_link(entry))
        {
            let key = Key::Link(*code);
            let is_current = vouches(&self.topology, &self.nodes, &key, entry, now);
            let lookup = self.lookups.begin_known(code, &link, is_current);
            self.lookups.await_campaign(lookup, awaited);
            return LookUp::Waiting(self.lookups.join(lookup, token, now.ms));
        }
        let answer = self.expand_kept(code, entry, found, now);
        let source = match answer {
            Expanded::Miss(MissReason::Unavailable) => Source::None,
            _ => Source::Stale,
        };
        LookUp::Answered(answer.with(&self.expanded), source)
    }

    /// A link's record has come, and it is known which campaign it belongs to: its look-up is
    /// answered, or waits for the campaign's.
    pub(super) fn ask_campaign(&mut self, link: LookupId, campaign: CampaignId, now: Now) {
        let found = self.find_campaign(campaign, now);
        if let Some(entry) = found.filter(|entry| entry.is_fresh()) {
            self.set_campaign(campaign, entry, Source::Redis, now);
            self.deliver(link, Brought::Campaign);
            return;
        }
        match self.begin_campaign(campaign, now) {
            Some(awaited) => self.lookups.await_campaign(link, awaited),
            None => {
                self.set_campaign_kept(campaign, MissReason::Unavailable, now);
                self.deliver(link, Brought::Campaign);
            }
        }
    }

    /// Handles a campaign's look-up without a result: its links are answered from the cached
    /// campaign, if that may be served.
    pub(super) fn deliver_campaign(&mut self, lookup: LookupId, reason: MissReason, now: Now) {
        if let Key::Campaign(campaign) = *self.lookups.key(lookup) {
            self.set_campaign_kept(campaign, reason, now);
        }
        self.answer_links(lookup);
    }

    /// Has the links answered, one after the other, that wait for a campaign.
    pub(super) fn answer_links(&mut self, lookup: LookupId) {
        self.lookups.finish(lookup);
        self.answered_campaign = Some(lookup);
    }

    /// The answer to a request for a link whose campaign's answer is there.
    pub(super) fn campaign_completion(
        &mut self,
        token: T,
        lookup: LookupId,
        now: Now,
    ) -> Completion<'_, T> {
        let (answer, source) = match (self.lookups.key(lookup), self.lookups.known(lookup)) {
            (Key::Link(code), Some(link)) => {
                let campaign = self.campaign.answer();
                let phase = link.phase(now);
                let mut answer = expand(code, link.parameters, phase, campaign, &mut self.expanded);
                if phase != Phase::Live {
                    answer = answer.vouched_by(|| self.lookups.is_current(lookup));
                }
                if let Expanded::Miss(MissReason::Unexpandable(_)) = answer {
                    note(&mut self.notices, Notice::Unexpandable(*code));
                }
                (answer, self.campaign.source())
            }
            _ => (Expanded::Miss(MissReason::Unavailable), Source::None),
        };
        Completion {
            token,
            answer: answer.with(&self.expanded),
            source,
        }
    }

    /// Returns the cached data that may be served to the waiters of a look-up while Redis can't be
    /// asked.
    pub(super) fn stale(&mut self, lookup: LookupId, now: Now) -> Option<Kept> {
        let Key::Link(code) = *self.lookups.key(lookup) else {
            return None;
        };
        let Some(link) = self.lookups.known(lookup) else {
            let cache = self.cache.as_mut()?;
            let entry = cache.find(&code, cache.hash(&code), now)?;
            return self.whole(&code, entry, now);
        };
        let phase = link.phase(now);
        let found = self.cache.as_mut()?.find_campaign(link.campaign, now);
        if found.is_none() && phase == Phase::Live {
            return None;
        }
        let (cache, held_by) = (self.cache.as_ref(), (&self.topology, &self.nodes));
        let campaign = kept_campaign(cache, held_by, link.campaign, found, now);
        let answer = expand(&code, link.parameters, phase, campaign, &mut self.expanded);
        Some(Kept::Expanded(match phase {
            Phase::Live => answer,
            // Redis can't be asked.
            _ => answer.vouched_by(|| false),
        }))
    }

    /// Returns the cached data of a link, fresh or stale; `None` if its campaign is not cached.
    pub(super) fn whole(&mut self, code: &Code, entry: Entry, now: Now) -> Option<Kept> {
        if !entry.is_campaign_link() {
            return Some(Kept::Entry(entry));
        }
        let cache = self.cache.as_mut()?;
        let link = cache.campaign_link(entry)?;
        let (campaign, phase) = (link.campaign, link.phase(now));
        let found = cache.find_campaign(campaign, now);
        if found.is_none() && phase == Phase::Live {
            return None;
        }
        Some(Kept::Expanded(self.expand_kept(code, entry, found, now)))
    }

    /// Returns the cached answer.
    pub(super) fn kept_answer(&self, key: &Key, kept: Kept, now: Now) -> Answer<'_> {
        match kept {
            Kept::Entry(entry) => self.entry_answer(key, entry, now),
            Kept::Expanded(answer) => answer.with(&self.expanded),
        }
    }

    /// Finds a campaign in the cache, and counts the hit or miss.
    fn find_campaign(&mut self, campaign: CampaignId, now: Now) -> Option<Entry> {
        let found = self.cache.as_mut()?.find_campaign(campaign, now);
        match found.map(Entry::freshness) {
            Some(Freshness::Fresh) => self.campaign_hits += 1,
            Some(Freshness::Stale) => self.count(Counter::CampaignStale),
            None => self.count(Counter::CampaignMiss),
        }
        found
    }

    /// Returns the look-up of a campaign, and begins it unless it is pending; `None` if no server
    /// can be asked.
    fn begin_campaign(&mut self, campaign: CampaignId, now: Now) -> Option<LookupId> {
        let key = Key::Campaign(campaign);
        if let Some(lookup) = self.lookups.find(&key) {
            return Some(lookup);
        }
        // Cached at once: a request for a campaign comes from one of its many links.
        self.begin(&key, true, now)
    }

    /// Makes the cached campaign the answer of its links, if it may be served.
    fn set_campaign_kept(&mut self, campaign: CampaignId, reason: MissReason, now: Now) {
        let cache = self.cache.as_mut();
        match cache.and_then(|cache| cache.find_campaign(campaign, now)) {
            Some(entry) => self.set_campaign(campaign, entry, Source::Stale, now),
            None => {
                let source = match reason {
                    MissReason::Error => Source::Redis,
                    _ => Source::None,
                };
                self.campaign.set(Answer::Miss(reason), source);
            }
        }
    }

    /// Makes an entry the answer of its campaign's links.
    fn set_campaign(&mut self, campaign: CampaignId, entry: Entry, source: Source, now: Now) {
        let (cache, held_by) = (self.cache.as_ref(), (&self.topology, &self.nodes));
        let answer = kept_campaign(cache, held_by, campaign, Some(entry), now);
        self.campaign.set(answer, source);
    }

    /// Builds a link's answer from the cached link, and the campaign if that is cached, too.
    fn expand_kept(
        &mut self,
        code: &Code,
        entry: Entry,
        campaign: Option<Entry>,
        now: Now,
    ) -> Expanded {
        let Some(cache) = &self.cache else {
            return Expanded::Miss(MissReason::Unavailable);
        };
        let Some(link) = cache.campaign_link(entry) else {
            return Expanded::Miss(MissReason::Unreadable);
        };
        let (phase, held_by) = (link.phase(now), (&self.topology, &self.nodes));
        let campaign = kept_campaign(Some(cache), held_by, link.campaign, campaign, now);
        let answer = expand(code, link.parameters, phase, campaign, &mut self.expanded);
        match phase {
            Phase::Live => answer,
            _ => answer
                .vouched_by(|| vouches(&self.topology, &self.nodes, &Key::Link(*code), entry, now)),
        }
    }
}

/// The answer of a cached campaign, if it is cached.
fn kept_campaign<'a>(
    cache: Option<&'a Cache>,
    (topology, nodes): (&Topology, &Nodes),
    id: CampaignId,
    entry: Option<Entry>,
    now: Now,
) -> Answer<'a> {
    let (Some(cache), Some(entry)) = (cache, entry) else {
        return Answer::Miss(MissReason::Unavailable);
    };
    cache
        .answer(entry, now)
        .vouched_by(|| vouches(topology, nodes, &Key::Campaign(id), entry, now))
}
