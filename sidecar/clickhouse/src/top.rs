//! The links with the most clicks.

use clickhouse::Row;
use serde::Deserialize;
use shortlink_core::boxed;

use crate::clicks::{COUNTED, TOGETHER};
use crate::{ClickHouse, Clicks, Fault};

/// A link with clicks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopLink {
    /// Its code.
    pub code: String,
    /// The time of its creation, in milliseconds since 1970. A later link of the code is another one.
    pub created: i64,
    /// Its clicks.
    pub clicks: Clicks,
}

#[derive(Row, Deserialize)]
struct Found {
    code: String,
    created: i64,
    first_at: i64,
    last_at: i64,
    visits: i64,
    /// The number of links that were compared.
    compared: u64,
}

impl ClickHouse {
    /// The links of a campaign, or of 0 for none, with the most clicks, also those that were deleted; and whether all were
    /// compared. Of more than `most` clicked links some are left out, about as many as there are above it.
    ///
    /// # Errors
    /// When ClickHouse can't be asked.
    #[boxed]
    pub async fn most_clicked(
        &self,
        campaign: i64,
        most: u32,
        limit: u32,
    ) -> Result<(Vec<TopLink>, bool), Fault> {
        // Without a bound, the memory for a comparison would grow with the links.
        let query = format!(
            "SELECT code, created, first_at, last_at, visits, count() OVER () AS compared FROM \
             (SELECT code, created, {TOGETHER} FROM (SELECT code, created, {COUNTED} FROM link_clicks WHERE campaign = ? AND code != '' \
             GROUP BY created, code SETTINGS max_rows_to_group_by = {most}, group_by_overflow_mode = 'any') \
             WHERE notEmpty(counted)) AS found ORDER BY visits DESC, last_at DESC, code LIMIT ?"
        );
        let query = self.database().await?.query(&query);
        let rows = self.rows::<Found>(query.bind(campaign).bind(limit)).await?;
        let is_complete = rows.first().is_none_or(|it| it.compared < most.into());
        let links = rows.into_iter().map(|row| TopLink {
            code: row.code,
            created: row.created,
            clicks: Clicks {
                first_at: row.first_at,
                last_at: row.last_at,
                visits: row.visits,
            },
        });
        Ok((links.collect(), is_complete))
    }
}
