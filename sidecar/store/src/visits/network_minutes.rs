//! Human visits of the last hours by minute, short domain and network.
//!
//! They show that a network blocks a domain, and are deleted afterwards. They are not corrected: a second judgement comes
//! too late for them.

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{MAX_COUNTED, NetworkCount, OTHER, StoreError};

use super::counts::{moment, number};
use super::pruning::FREE;
use super::{Counts, MINUTE_MS};
use crate::Store;
use crate::db::Db;
use crate::sql::sql;
use crate::value::{Row, args};

/// Adds visits to the stored counts, in the order of all transactions.
pub(super) async fn add(db: &mut Db<'_>, counts: &Counts<'_>) -> Result<(), sqlx::Error> {
    let rows = counts.networks.iter();
    let rows = rows.map(|((minute, host, network), visits)| {
        [
            (*minute).into(),
            (*host).into(),
            (*network).into(),
            (*visits).into(),
        ]
    });
    let into = sql!("INSERT INTO visit_network_minutes AS kept (minute, host, network, visits)");
    let types = ["bigint", "text", "text", "bigint"];
    let end = sql!(
        " ON CONFLICT (minute, host, network) DO UPDATE SET visits = kept.visits + excluded.visits"
    );
    db.insert(into, types, end, rows).await
}

impl Store {
    /// Counts human visits by domain, network and minute since a moment: of those domains and networks that have at least
    /// `least` together, the latest counts, at most [`MAX_COUNTED`].
    #[boxed]
    pub async fn count_networks(
        &self,
        since: Timestamp,
        least: u64,
    ) -> Result<Vec<NetworkCount>, StoreError> {
        let sql = sql!(
            "SELECT minute, counted.host AS host, counted.network AS network, visits FROM \
             (SELECT host, network FROM visit_network_minutes WHERE minute >= $1 AND network <> $2 \
             GROUP BY host, network HAVING sum(visits) >= $3) AS often \
             JOIN visit_network_minutes AS counted \
             ON counted.host = often.host AND counted.network = often.network \
             WHERE minute >= $1 ORDER BY minute DESC, counted.host, counted.network LIMIT $4"
        );
        let since = since.as_millisecond().div_euclid(MINUTE_MS);
        let read = |row: &Row| {
            Ok(NetworkCount {
                host: row.get("host")?,
                network: row.get("network")?,
                minute: moment(row, "minute", MINUTE_MS)?,
                visits: number(row, "visits")?,
            })
        };
        let values = args![since, OTHER, least, MAX_COUNTED];
        self.all("count the visits of networks", sql, values, read)
            .await
    }

    /// Deletes counts of minutes before a moment, at most `limit`; returns their number.
    #[boxed]
    pub async fn forget_networks(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let sql = sql!(
            "WITH old AS MATERIALIZED (SELECT minute, host, network FROM visit_network_minutes \
             WHERE minute < $1 ORDER BY minute LIMIT $2",
            FREE,
            ") DELETE FROM visit_network_minutes \
             WHERE (minute, host, network) IN (SELECT minute, host, network FROM old)"
        );
        let before = before.as_millisecond().div_euclid(MINUTE_MS);
        self.run("delete old counts", sql, args![before, limit])
            .await
    }
}
