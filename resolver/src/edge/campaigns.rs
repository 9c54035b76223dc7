//! Links that lead where their campaign says.
//!
//! A campaign is looked up as a link is, and kept as one is; only its links ask for it, and all that
//! ask at once share one look-up. An answer is made when it is given, from the campaign as it then
//! is, and is as good as the worse of the two records.

use vocabulary::judge::{expand, is_over};
use vocabulary::{CampaignId, Code};

use crate::answer::{Answer, Expanded, MissReason};
use crate::cache::{CampaignLink, Entry, Freshness};
use crate::counters::{Counter, Source};
use crate::key::Key;
use crate::lookups::LookupId;

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
        if is_over(link.until, now.unix) {
            let answer = self.ended(&Key::Link(*code), entry, now);
            return LookUp::Answered(answer.with(b""), Source::Cache);
        }
        let campaign = link.campaign;
        let found = self.find_campaign(campaign, now);
        if let Some(of_campaign) = found.filter(|entry| entry.is_fresh()) {
            let answer = self.expand_kept(code, entry, of_campaign, now);
            return LookUp::Answered(answer.with(&self.expanded), Source::Cache);
        }
        if let Some(awaited) = self.begin_campaign(campaign, now)
            && let Some(link) = self.cache.as_ref().and_then(|c| c.campaign_link(entry))
        {
            let lookup = self.lookups.begin_known(code, &link);
            self.lookups.await_campaign(lookup, awaited);
            return LookUp::Waiting(self.lookups.join(lookup, token, now.ms));
        }
        match found {
            Some(of_campaign) => {
                let answer = self.expand_kept(code, entry, of_campaign, now);
                LookUp::Answered(answer.with(&self.expanded), Source::Stale)
            }
            None => LookUp::Answered(Answer::Miss(MissReason::Unavailable), Source::None),
        }
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
            // It has ended while it waited.
            (Key::Link(_), Some(link)) if is_over(link.until, now.unix) => {
                (Expanded::Gone.vouched_by(|| false), Source::Redis)
            }
            (Key::Link(code), Some(link)) => {
                let campaign = self.campaign.answer();
                let answer = expand(code, link.parameters, campaign, &mut self.expanded);
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
        if is_over(link.until, now.unix) {
            return Some(Kept::Expanded(Expanded::Gone.vouched_by(|| false)));
        }
        let cache = self.cache.as_mut()?;
        let entry = cache.find_campaign(link.campaign, now)?;
        let key = Key::Campaign(link.campaign);
        let campaign = cache
            .answer(entry, now)
            .vouched_by(|| vouches(&self.topology, &self.nodes, &key, entry, now));
        let answer = expand(&code, link.parameters, campaign, &mut self.expanded);
        Some(Kept::Expanded(answer))
    }

    /// Returns the cached data of a link, fresh or stale; `None` if its campaign is not cached.
    pub(super) fn whole(&mut self, code: &Code, entry: Entry, now: Now) -> Option<Kept> {
        if !entry.is_campaign_link() {
            return Some(Kept::Entry(entry));
        }
        let cache = self.cache.as_mut()?;
        let link = cache.campaign_link(entry)?;
        if is_over(link.until, now.unix) {
            return Some(Kept::Expanded(self.ended(&Key::Link(*code), entry, now)));
        }
        let campaign = link.campaign;
        let of_campaign = cache.find_campaign(campaign, now)?;
        let answer = self.expand_kept(code, entry, of_campaign, now);
        Some(Kept::Expanded(answer))
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
        let key = Key::Campaign(campaign);
        if let Some(cache) = &self.cache {
            let answer = cache
                .answer(entry, now)
                .vouched_by(|| vouches(&self.topology, &self.nodes, &key, entry, now));
            self.campaign.set(answer, source);
        }
    }

    /// Builds a link's answer from the cached link and campaign.
    fn expand_kept(&mut self, code: &Code, link: Entry, campaign: Entry, now: Now) -> Expanded {
        let Some(cache) = &self.cache else {
            return Expanded::Miss(MissReason::Unavailable);
        };
        match cache.campaign_link(link) {
            Some(CampaignLink {
                parameters,
                campaign: id,
                ..
            }) => {
                let key = Key::Campaign(id);
                let campaign = cache
                    .answer(campaign, now)
                    .vouched_by(|| vouches(&self.topology, &self.nodes, &key, campaign, now));
                expand(code, parameters, campaign, &mut self.expanded)
            }
            None => Expanded::Miss(MissReason::Unreadable),
        }
    }
}
