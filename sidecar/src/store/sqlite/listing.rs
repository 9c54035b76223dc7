//! Listings in SQLite.
//!
//! Every listing walks an index that has the links in the order of the listing, from the position
//! on, and stops at its limit: nothing is sorted and no table is read as a whole. SQLite would
//! choose an index by what it guesses of the data; so the index is named.

use sqlx::{QueryBuilder, Sqlite};

use super::links::columns;
use crate::core::link::State;
use crate::core::ports::Listing;
use crate::store::shared::{Lead, push_state};

/// The statement for a listing, behind a creation time in milliseconds and an id, and up to others.
/// `prefix` stands before everything else.
pub(super) fn query(
    prefix: &str,
    listing: &Listing,
    (created_at, id): (i64, i64),
    until: Option<(i64, i64)>,
) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new(prefix);
    query.push(concat!("SELECT ", columns!(), " FROM "));
    // What is found by the least rows leads; the rest is looked at in each row.
    let by_tag = listing.external_id.is_none() && listing.tag.is_some();
    if by_tag {
        query.push(
            "link_tags CROSS JOIN links ON id = link_id WHERE (link_created_at, link_id) < (",
        );
    } else {
        query.push("links INDEXED BY ");
        query.push(index(Lead::of(listing)));
        query.push(" WHERE (created_at, id) < (");
    }
    query
        .push_bind(created_at)
        .push(", ")
        .push_bind(id)
        .push(")");
    if let Some((created_at, id)) = until {
        query.push(match by_tag {
            true => " AND (link_created_at, link_id) >= (",
            false => " AND (created_at, id) >= (",
        });
        query.push_bind(created_at).push(", ");
        query.push_bind(id).push(")");
    }
    if let Some(external_id) = &listing.external_id {
        query
            .push(" AND external_id = ")
            .push_bind(external_id.clone());
    }
    match &listing.tag {
        Some(tag) if by_tag => {
            query.push(" AND tag = ").push_bind(tag.clone());
        }
        Some(tag) => {
            query
                .push(" AND EXISTS (SELECT 1 FROM link_tags WHERE tag = ")
                .push_bind(tag.clone())
                .push(" AND link_created_at = created_at AND link_id = id)");
        }
        None => {}
    }
    if let Some(campaign) = listing.campaign {
        query
            .push(" AND campaign_id = ")
            .push_bind(campaign.get() as i64);
    }
    if let Some(created_by) = &listing.created_by {
        query
            .push(" AND created_by = ")
            .push_bind(created_by.clone());
    }
    if let Some((state, now)) = listing.state {
        push_state(&mut query, state, now.as_second());
    }
    query.push(if by_tag {
        " ORDER BY link_created_at DESC, link_id DESC LIMIT "
    } else {
        " ORDER BY created_at DESC, id DESC LIMIT "
    });
    query.push_bind(listing.limit);
    query
}

/// The statement for where a listing comes to when it looks at `most` links. It reads an index
/// alone.
pub(super) fn reach(
    prefix: &str,
    listing: &Listing,
    (created_at, id): (i64, i64),
    most: u32,
) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::new(prefix);
    let lead = Lead::of(listing);
    let is_by_tag = matches!(lead, Lead::Tag(_));
    if is_by_tag {
        query.push(
            "SELECT link_created_at, link_id FROM link_tags WHERE (link_created_at, link_id) < (",
        );
    } else {
        query.push("SELECT created_at, id FROM links INDEXED BY ");
        query.push(index(lead)).push(" WHERE (created_at, id) < (");
    }
    query.push_bind(created_at).push(", ");
    query.push_bind(id).push(")");
    lead.push(&mut query);
    query.push(if is_by_tag {
        " ORDER BY link_created_at DESC, link_id DESC LIMIT 1 OFFSET "
    } else {
        " ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET "
    });
    query.push_bind(most.saturating_sub(1));
    query
}

/// The index that leads.
fn index(lead: Lead<'_>) -> &'static str {
    match lead {
        // A table of its own leads there.
        Lead::Tag(_) | Lead::Age | Lead::State(State::Live) => "links_by_age",
        Lead::ExternalId(_) => "links_by_external_id",
        Lead::Campaign(_) => "links_by_campaign",
        Lead::State(State::Revoked) => "links_revoked_by_age",
        Lead::State(State::Paused) => "links_paused_by_age",
        Lead::State(State::Scheduled) => "links_starting_by_age",
        Lead::State(State::Expired) => "links_ending_by_age",
        Lead::Creator(_) => "links_by_creator",
    }
}
