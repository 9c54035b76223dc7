//! A link.

use shortlink_core::link::{Change, Link};

use super::kinds::link::{
    CampaignId, ClickIdName, Code, CodeLength, Deduplication, ExternalId, LongUrl, Note,
    Parameters, ShortDomain, Since, Strategy, Tags, Until, Utm,
};
use super::kinds::{Count, Status, Truth};
use super::members::request;
use super::members::{Always, Emptied, Member, Members, Optional, Required, members};
use super::rules::PlanMembers;

members! {
    /// The settings of a link, for new links and for changes.
    pub struct LinkSettings {
        /// Status of the redirect: 301, 302, 307 or 308. Default for a new link: `links.default_redirect_status`
        /// of the sidecar. Not for a link of a campaign.
        redirect_status: Always<Status> = "redirectStatus" as "status",
        /// Append the visitor's query to that of the target. Default for a new link: false. Not for a link of a
        /// campaign.
        forward_query: Always<Truth> = "forwardQuery",
        /// Start of validity, rounded up to a whole second; the link answers 404 before it.
        valid_since: Optional<Since> = "validSince",
        /// End of validity, in the future, rounded down to a whole second; the link answers 410 from then on.
        valid_until: Optional<Until> = "validUntil",
        /// Number of human visits after which the link expires: 1 or more. The limit is approximate; a few more
        /// visits may be redirected.
        max_visits: Optional<Count> = "maxVisits",
        /// Tags of 1 to 64 characters, as a set in ascending order; at most 20 per link. A change replaces all
        /// tags of the link.
        tags: Emptied<Tags> = "tags" as "tag",
        /// Your own id for the link: 1 to 128 bytes of UTF-8.
        external_id: Optional<ExternalId> = "externalId",
        /// Note of at most 1000 characters.
        note: Optional<Note> = "note",
        /// Short domain for the short URL: one of the active ones for the link. By default, and while this domain is
        /// not active, the service chooses. The code works on all short domains.
        domain: Optional<ShortDomain> = "domain",
    }
    /// The settings of a link in an answer.
    shown as LinkSettingsBody, named "LinkSettings", of Link; given as Change
}

members! {
    /// The target of a link, for new links and for changes.
    pub struct LinkTarget {
        /// Target of the link: an http or https URL of at most 8192 bytes. Not for a link of a campaign.
        long_url: Required<LongUrl> = "longUrl" as "url",
        /// UTM parameters of the target's query, which replace those in the URL: source, medium, campaign, term
        /// and content. Need a target in the same request.
        utm: Optional<Utm> = "utm",
        /// Name of a query parameter of the target, such as `sl_click`, which gets a unique id of the visit. Report
        /// conversions with this id. Redirects are then 302 instead of 301, and 307 instead of 308. Not for a link of a
        /// campaign, whose campaign has it.
        click_id: Optional<ClickIdName> = "clickId",
        /// Values for the parameters of the campaign's target, for a link of a campaign.
        parameters: Always<Parameters> = "parameters" as "parameter",
    }
}

members! {
    /// Options for issuing a new link.
    pub struct LinkIssue {
        /// Id of the link's campaign, which defines the target.
        campaign_id: Optional<CampaignId> = "campaignId" as "campaign",
        /// Custom code: 1 to 64 letters, digits, hyphens and underscores. Default: a code is issued.
        custom_slug: Optional<Code> = "customSlug" as "slug",
        /// Strategy that issues the code. Default: that of the campaign, else `codes.strategy` of the sidecar.
        strategy: Optional<Strategy> = "strategy",
        /// Number of characters of the code, without the check character. From 1 to 12; sequence 4 to 12, hash
        /// 1 to 8. Default: that of the campaign, else `codes.body_length` to `codes.longest_body_length` of the
        /// sidecar.
        code_length: Optional<CodeLength> = "codeLength",
        /// Return the link of an identical earlier request if it is live and unchanged: `true`, or an object with
        /// `within`, the time since the last identical request: `1s` to `3650d`, with the units s, m, h and d.
        dedupe: Optional<Deduplication> = "dedupe",
    }
}

request! {
    /// A new link. It needs `longUrl`, or `campaignId` with `parameters`: then the campaign defines `longUrl`,
    /// `utm`, `clickId`, `redirectStatus`, `forwardQuery`, `rules` and the targets instead of answers.
    pub NewLink: New, required [], of LinkTarget, PlanMembers, LinkSettings, LinkIssue
}

request! {
    /// A change of a link. Absent members stay as they are; `null` removes an optional member. A link of a campaign has
    /// no `longUrl`, `utm`, `clickId`, `redirectStatus`, `forwardQuery`, `rules` and targets instead of answers of its
    /// own, another link has no `parameters`.
    pub LinkPatch: Patch, required [], of LinkTarget, PlanMembers, LinkSettings
}

/// The columns of `shortlink export`, which an import knows. Their order is the format: a new member comes last.
pub const EXPORTED: [&str; 22] = [
    "shortCode",
    "longUrl",
    "createdAt",
    "validUntil",
    "redirectStatus",
    "state",
    "revokedAt",
    "revision",
    "updatedAt",
    "createdBy",
    "validSince",
    "forwardQuery",
    "maxVisits",
    "pausedAt",
    "externalId",
    "note",
    "tags",
    "campaignId",
    "parameters",
    "strategy",
    "plan",
    "domain",
];

/// All members that a request for a new link can have.
pub fn members() -> impl Iterator<Item = &'static Member> {
    let tables = [
        LinkTarget::MEMBERS,
        PlanMembers::MEMBERS,
        LinkSettings::MEMBERS,
        LinkIssue::MEMBERS,
    ];
    tables.into_iter().flatten()
}
