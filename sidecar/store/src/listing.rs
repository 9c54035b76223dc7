//! Statements of listings.
//!
//! Every listing walks an index that has the links in the order of the listing, from the position
//! on, and stops at its limit: nothing is sorted and no table is read as a whole. The statements name
//! the index, since SQLite would otherwise choose one by estimates.

use shortlink_core::link::{State, UploadId};
use shortlink_core::ports::Listing;
use shortlink_core::target::Target;
use vocabulary::CampaignId;

use super::db::Statement;
use super::sql::{Sql, sql};
use super::visits::clicks::OF_LINK;

/// A condition that finds the least links of a listing, and has an index with them in its order; the
/// other conditions are checked in each link.
#[derive(Clone, Copy, Debug)]
enum Lead<'a> {
    /// A tag.
    Tag(&'a str),
    /// The caller's id.
    ExternalId(&'a str),
    /// Their target.
    Target(&'a Target),
    /// Their campaign.
    Campaign(CampaignId),
    /// The batch that created them.
    Upload(UploadId),
    /// A state that few links have.
    State(State),
    /// The keys that have created them.
    Creator(&'a [String]),
    /// Nothing: all links are looked at.
    Age,
}

impl<'a> Lead<'a> {
    /// The lead of a listing. Few links are of a state other than live, so that one leads before
    /// the creator.
    fn of(listing: &'a Listing) -> Self {
        if let Some(external_id) = &listing.external_id {
            return Self::ExternalId(external_id);
        }
        if let Some(target) = &listing.target {
            return Self::Target(target);
        }
        if let Some(tag) = &listing.tag {
            return Self::Tag(tag);
        }
        if let Some(id) = listing.upload {
            return Self::Upload(id);
        }
        if let Some(id) = listing.campaign {
            return Self::Campaign(id);
        }
        match (listing.state, &listing.created_by) {
            (Some((State::Live, _)) | None, Some(created_by)) => Self::Creator(created_by),
            (Some((State::Live, _)) | None, None) => Self::Age,
            (Some((state, _)), _) => Self::State(state),
        }
    }

    /// Adds the condition that an index finds links by.
    fn push(self, statement: &mut Statement<'a>) {
        match self {
            Self::Tag(tag) => statement.push(sql!(" AND tag = ")).bind(tag),
            Self::ExternalId(id) => statement.push(sql!(" AND external_id = ")).bind(id),
            Self::Target(target) => push_target(statement, target),
            Self::Campaign(id) => statement.push(sql!(" AND campaign_id = ")).bind(id),
            Self::Upload(id) => statement.push(sql!(" AND upload = ")).bind(id),
            Self::State(State::Revoked) => statement.push(sql!(" AND revoked_at IS NOT NULL")),
            Self::State(State::Paused) => statement.push(sql!(" AND paused_at IS NOT NULL")),
            Self::State(State::Scheduled) => statement.push(sql!(" AND valid_since IS NOT NULL")),
            Self::State(State::Expired) => statement.push(sql!(" AND valid_until IS NOT NULL")),
            Self::Creator(ids) => push_creators(statement, ids),
            Self::State(State::Live) | Self::Age => statement,
        };
    }

    /// The tables that are read, and the index that leads.
    fn tables(self) -> Sql {
        match self {
            // Tables of their own lead there.
            Self::Tag(_) => sql!("link_tags {CROSS }JOIN links ON id = link_id"),
            // PostgreSQL merges the two, and reads all later links, unless the second one stays a query.
            Self::Upload(_) => sql!(
                "upload_moments CROSS JOIN {links INDEXED BY links_by_age ON created_at = link_created_at\
                 |LATERAL (SELECT * FROM links WHERE created_at = link_created_at OFFSET 0) AS links}"
            ),
            Self::Age | Self::State(State::Live) => sql!("links {INDEXED BY links_by_age}"),
            Self::ExternalId(_) => sql!("links {INDEXED BY links_by_external_id}"),
            Self::Target(_) => sql!("links {INDEXED BY links_by_target}"),
            Self::Campaign(_) => sql!("links {INDEXED BY links_by_campaign}"),
            Self::State(State::Revoked) => sql!("links {INDEXED BY links_revoked_by_age}"),
            Self::State(State::Paused) => sql!("links {INDEXED BY links_paused_by_age}"),
            Self::State(State::Scheduled) => sql!("links {INDEXED BY links_starting_by_age}"),
            Self::State(State::Expired) => sql!("links {INDEXED BY links_ending_by_age}"),
            Self::Creator(_) => sql!("links {INDEXED BY links_by_creator}"),
        }
    }

    /// Adds the condition that links are behind a creation time in milliseconds and an id.
    fn push_after(self, statement: &mut Statement<'a>, (created_at, id): (i64, i64)) {
        statement.push(match self {
            Self::Tag(_) => sql!("(link_created_at, link_id) < ("),
            _ => sql!("(created_at, id) < ("),
        });
        statement.bind(created_at).push(sql!(", ")).bind(id);
        statement.push(sql!(")"));
        if let Self::Upload(_) = self {
            // Where its own table is read from; the other condition decides among the links of a moment.
            statement
                .push(sql!(" AND link_created_at <= "))
                .bind(created_at);
        }
    }

    /// Adds the condition that links are not behind a creation time and an id.
    fn push_until(self, statement: &mut Statement<'a>, (created_at, id): (i64, i64)) {
        statement.push(match self {
            Self::Tag(_) => sql!(" AND (link_created_at, link_id) >= ("),
            _ => sql!(" AND (created_at, id) >= ("),
        });
        statement.bind(created_at).push(sql!(", ")).bind(id);
        statement.push(sql!(")"));
        if let Self::Upload(_) = self {
            statement
                .push(sql!(" AND link_created_at >= "))
                .bind(created_at);
        }
    }

    /// The order, up to the bound.
    fn order(self) -> Sql {
        match self {
            Self::Tag(_) => sql!(" ORDER BY link_created_at DESC, link_id DESC LIMIT "),
            Self::Upload(_) => sql!(" ORDER BY link_created_at DESC, id DESC LIMIT "),
            _ => sql!(" ORDER BY created_at DESC, id DESC LIMIT "),
        }
    }
}

/// Adds the rest of the statement for a listing, behind a creation time in milliseconds and an id, and
/// up to others.
pub(super) fn query<'a>(
    statement: &mut Statement<'a>,
    listing: &'a Listing,
    after: (i64, i64),
    until: Option<(i64, i64)>,
) {
    // The condition with the least rows leads; the others are checked in each row.
    let lead = Lead::of(listing);
    statement.push(lead.tables()).push(sql!(" WHERE "));
    lead.push_after(statement, after);
    if let Some(until) = until {
        lead.push_until(statement, until);
    }
    if let Some(external_id) = &listing.external_id {
        statement
            .push(sql!(" AND external_id = "))
            .bind(external_id);
    }
    if let Some(target) = &listing.target {
        push_target(statement, target)
            .push(sql!(" AND target = "))
            .bind(target.as_str());
    }
    match &listing.tag {
        Some(tag) if matches!(lead, Lead::Tag(_)) => {
            statement.push(sql!(" AND tag = ")).bind(tag);
        }
        Some(tag) => {
            statement
                .push(sql!(" AND EXISTS (SELECT 1 FROM link_tags WHERE tag = "))
                .bind(tag)
                .push(sql!(" AND link_created_at = created_at AND link_id = id)"));
        }
        None => {}
    }
    if let Some(campaign) = listing.campaign {
        statement.push(sql!(" AND campaign_id = ")).bind(campaign);
    }
    if let Some(upload) = listing.upload {
        statement.push(sql!(" AND upload_id = ")).bind(upload);
        if let Lead::Upload(_) = lead {
            lead.push(statement);
        }
    }
    if let Some(created_by) = &listing.created_by {
        push_creators(statement, created_by);
    }
    if let Some((state, now)) = listing.state {
        push_state(statement, state, now.as_second());
    }
    if let Some(clicked) = listing.clicked {
        statement.push(match clicked {
            true => sql!(
                " AND EXISTS (SELECT 1 FROM link_clicks WHERE ",
                OF_LINK,
                ")"
            ),
            false => sql!(
                " AND NOT EXISTS (SELECT 1 FROM link_clicks WHERE ",
                OF_LINK,
                ")"
            ),
        });
    }
    statement.push(lead.order()).bind(listing.limit);
}

/// Adds the rest of the statement for the position that a listing reaches when it examines `most`
/// links. It reads only an index, in PostgreSQL as far as the visibility map allows.
pub(super) fn reach<'a>(
    statement: &mut Statement<'a>,
    listing: &'a Listing,
    after: (i64, i64),
    most: u32,
) {
    let lead = Lead::of(listing);
    match lead {
        // No link is read.
        Lead::Tag(_) => statement.push(sql!(
            "link_created_at AS created_at, link_id AS id FROM link_tags"
        )),
        _ => statement
            .push(sql!("created_at, id FROM "))
            .push(lead.tables()),
    };
    statement.push(sql!(" WHERE "));
    lead.push_after(statement, after);
    lead.push(statement);
    statement.push(lead.order()).push(sql!("1 OFFSET "));
    statement.bind(most.saturating_sub(1));
}

/// Returns listings that each walk one index from a position on: the index by creators has the links of one creator in
/// the order of the listing.
pub(super) fn walks(listing: &Listing) -> Vec<Listing> {
    let Lead::Creator(ids) = Lead::of(listing) else {
        return vec![listing.clone()];
    };
    let walks = ids.iter().map(|id| Listing {
        created_by: Some(vec![id.clone()]),
        ..listing.clone()
    });
    walks.collect()
}

/// Adds the condition of the hash of the links' target, which the index has. Another target may have the same.
fn push_target<'s, 'a>(statement: &'s mut Statement<'a>, target: &Target) -> &'s mut Statement<'a> {
    statement
        .push(sql!(" AND target_hash = "))
        .bind(target.hash())
}

/// Adds the condition of the links' creators. PostgreSQL needs at least one, and no listing without one is executed.
fn push_creators<'s, 'a>(
    statement: &'s mut Statement<'a>,
    ids: &'a [String],
) -> &'s mut Statement<'a> {
    statement.push(sql!(" AND created_by IN ("));
    for (place, id) in ids.iter().enumerate() {
        if place > 0 {
            statement.push(sql!(", "));
        }
        statement.bind(id);
    }
    statement.push(sql!(")"))
}

/// Adds the condition of a link's state at a second; the same as [`shortlink_core::link::Link::state`].
fn push_state(statement: &mut Statement<'_>, state: State, now: i64) {
    if let State::Revoked = state {
        statement.push(sql!(" AND revoked_at IS NOT NULL"));
        return;
    }
    statement.push(sql!(" AND revoked_at IS NULL"));
    if let State::Expired = state {
        statement.push(sql!(" AND valid_until IS NOT NULL AND valid_until <= "));
        statement.bind(now);
        return;
    }
    statement.push(sql!(" AND (valid_until IS NULL OR valid_until > "));
    statement.bind(now).push(sql!(")"));
    if let State::Paused = state {
        statement.push(sql!(" AND paused_at IS NOT NULL"));
        return;
    }
    statement.push(sql!(" AND paused_at IS NULL"));
    if let State::Scheduled = state {
        statement.push(sql!(" AND valid_since IS NOT NULL AND valid_since > "));
        statement.bind(now);
    } else {
        statement.push(sql!(" AND (valid_since IS NULL OR valid_since <= "));
        statement.bind(now).push(sql!(")"));
    }
}
