//! Listings in PostgreSQL: each has an index with the links in the order of the listing.

use sqlx::{Postgres, QueryBuilder};

use super::rows::{columns, is_storable};
use crate::core::ports::Listing;
use crate::store::shared::{Lead, push_state};

/// Whether any link may be in a listing.
pub(super) fn is_possible(listing: &Listing) -> bool {
    let asked = [&listing.tag, &listing.external_id, &listing.created_by];
    asked.into_iter().flatten().all(|text| is_storable(text))
}

/// The statement for a listing, behind a creation time in milliseconds and an id, and up to others.
pub(super) fn query(
    listing: &Listing,
    (created_at, id): (i64, i64),
    until: Option<(i64, i64)>,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(concat!("SELECT ", columns!(), " FROM "));
    // What is found by the least rows leads; the rest is looked at in each row.
    let by_tag = listing.external_id.is_none() && listing.tag.is_some();
    query.push(if by_tag {
        "link_tags JOIN links ON id = link_id WHERE (link_created_at, link_id) < ("
    } else {
        "links WHERE (created_at, id) < ("
    });
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
        query.push(" AND external_id = ").push_bind(external_id);
    }
    match &listing.tag {
        Some(tag) if by_tag => {
            query.push(" AND tag = ").push_bind(tag);
        }
        Some(tag) => {
            query
                .push(" AND EXISTS (SELECT 1 FROM link_tags WHERE tag = ")
                .push_bind(tag)
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
        query.push(" AND created_by = ").push_bind(created_by);
    }
    if let Some((state, now)) = listing.state {
        push_state(&mut query, state, now.as_second());
    }
    query.push(if by_tag {
        " ORDER BY link_created_at DESC, link_id DESC LIMIT "
    } else {
        " ORDER BY created_at DESC, id DESC LIMIT "
    });
    query.push_bind(i64::from(listing.limit));
    query
}

/// The statement for where a listing comes to when it looks at `most` links. It reads an index
/// alone, as far as PostgreSQL knows that everybody may see what is there.
pub(super) fn reach(
    listing: &Listing,
    (created_at, id): (i64, i64),
    most: u32,
) -> QueryBuilder<Postgres> {
    let lead = Lead::of(listing);
    let is_by_tag = matches!(lead, Lead::Tag(_));
    let mut query = QueryBuilder::new(match is_by_tag {
        true => {
            "SELECT link_created_at, link_id FROM link_tags WHERE (link_created_at, link_id) < ("
        }
        false => "SELECT created_at, id FROM links WHERE (created_at, id) < (",
    });
    query.push_bind(created_at).push(", ");
    query.push_bind(id).push(")");
    lead.push(&mut query);
    query.push(match is_by_tag {
        true => " ORDER BY link_created_at DESC, link_id DESC LIMIT 1 OFFSET ",
        false => " ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ",
    });
    query.push_bind(i64::from(most.saturating_sub(1)));
    query
}
