//! Visitors of the visits that have to be counted again.

use shortlink_core::ports::{PeoplePage, StaleDay};

use crate::shared::DAY_MS;
use crate::visits::visitor_id;

/// The number, time and campaign of a visit, and its visitor if it is of a person.
pub(crate) type PersonRow = (i64, i64, Option<i64>, Option<Vec<u8>>);

/// Converts rows to a page, with the visitors of the days from the first to the last.
pub(crate) fn people_page(rows: Vec<PersonRow>, days: (i64, i64)) -> PeoplePage {
    let mut page = PeoplePage::default();
    for (id, at, campaign, visitor) in rows {
        page.last = Some(id);
        let day = at.div_euclid(DAY_MS);
        if let Some(visitor) = visitor_id(visitor.as_deref())
            && (days.0..=days.1).contains(&day)
        {
            page.people
                .push((campaign.unwrap_or_default(), day, visitor));
        }
    }
    page
}

/// Makes days of rows with a campaign, a day and a generation.
pub(crate) fn stale_days(rows: Vec<(i64, i64, i64)>) -> Vec<StaleDay> {
    let days = rows
        .into_iter()
        .map(|(campaign, day, generation)| StaleDay {
            campaign,
            day,
            generation,
        });
    days.collect()
}
