//! The tables of visits.
//!
//! All replace rows with the same key, so that an insertion can be repeated. A visit's key is its number. A count of a
//! link is a contribution of one batch, and its key is the batch with a place in it; the link's counts are the sums. Clicks
//! are contributions, too ([`crate::clicks`]).

use clickhouse::{Client, Row};
use serde::Deserialize;
use shortlink_core::boxed;

use crate::clicks::CLICKS;
use crate::insertion::COUNTS;
use crate::{ClickHouse, Fault, MUTATION_PATIENCE, PATIENCE, VisitRow};

/// The version of the tables: since 2 with clicks, since 3 with variants.
pub(crate) const VERSION: u32 = 3;

/// The version without clicks.
const WITHOUT_CLICKS: u32 = 1;

/// The column of variants, which tables of earlier versions lack.
const VARIANT: &str = "variant LowCardinality(String) CODEC(ZSTD)";

/// The number of blocks of each table among which ClickHouse drops a repeated one. The key of a row replaces what comes
/// later than that.
const WINDOW: u32 = 1000;

/// The statements that make the tables. A repetition changes nothing.
fn tables() -> [String; 4] {
    let window = format!("non_replicated_deduplication_window = {WINDOW}");
    [
        "CREATE TABLE IF NOT EXISTS visits_owner (owner String, version UInt32) \
         ENGINE = MergeTree ORDER BY owner"
            .to_owned(),
        // A question of a link reads a few visits from all over the table, and the rest of their granules: these are small,
        // for 1% more bytes than ClickHouse's defaults take. Tables of an earlier version keep the defaults.
        // Numbers follow the order of storing, which is nearly that of time: neighbours resemble each other. The user
        // agent and its recognition result are one text, and an address of IPv4 is a number: this saves 4 bytes.
        format!(
            "CREATE TABLE IF NOT EXISTS visits (\
             number Int64 CODEC(Delta, ZSTD), \
             batch Int64 CODEC(Delta, ZSTD), \
             at DateTime64(3, 'UTC') CODEC(Delta, ZSTD), \
             code String CODEC(ZSTD(3)), \
             campaign Int64 CODEC(T64, ZSTD), \
             host LowCardinality(String) CODEC(ZSTD), \
             client_v4 UInt32 CODEC(T64, ZSTD), \
             client_other String CODEC(ZSTD), \
             client String ALIAS if(client_v4 = 0, client_other, IPv4NumToString(client_v4)), \
             visitor Nullable(FixedString(16)) CODEC(ZSTD), \
             agent LowCardinality(String) CODEC(ZSTD), \
             browser String ALIAS splitByChar('\t', agent)[1], \
             browser_version String ALIAS splitByChar('\t', agent)[2], \
             os String ALIAS splitByChar('\t', agent)[3], \
             os_version String ALIAS splitByChar('\t', agent)[4], \
             device String ALIAS splitByChar('\t', agent)[5], \
             app String ALIAS splitByChar('\t', agent)[6], \
             user_agent String ALIAS replaceRegexpOne(agent, '^([^\t]*\t){{6}}', ''), \
             referrer String CODEC(ZSTD), \
             referrer_host LowCardinality(String) CODEC(ZSTD), \
             language LowCardinality(String) CODEC(ZSTD), \
             method LowCardinality(String) CODEC(ZSTD), \
             status UInt16 CODEC(ZSTD), \
             purpose LowCardinality(String) CODEC(ZSTD), \
             evidence UInt32 CODEC(T64, ZSTD), \
             country LowCardinality(String) CODEC(ZSTD), \
             province LowCardinality(String) CODEC(ZSTD), \
             city LowCardinality(String) CODEC(ZSTD), \
             isp LowCardinality(String) CODEC(ZSTD), \
             asn Nullable(UInt32) CODEC(T64, ZSTD), \
             class LowCardinality(String) CODEC(ZSTD), \
             reason LowCardinality(String) CODEC(ZSTD), \
             ruleset UInt16 CODEC(ZSTD), \
             {VARIANT}, \
             INDEX by_time at TYPE minmax GRANULARITY 1, \
             INDEX by_code code TYPE bloom_filter(0.01) GRANULARITY 1\
             ) ENGINE = ReplacingMergeTree(batch) PARTITION BY toYYYYMM(at) ORDER BY (number, code) \
             SETTINGS {window}, merge_with_ttl_timeout = 3600, index_granularity = 2048, \
             min_compress_block_size = 16384"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS visit_counts (\
             code String CODEC(ZSTD(7)), \
             batch Int64 CODEC(T64, ZSTD), \
             place UInt32 CODEC(ZSTD), \
             at DateTime64(3, 'UTC') CODEC(T64, ZSTD), \
             class LowCardinality(String) CODEC(ZSTD), \
             visits Int32 CODEC(ZSTD), \
             is_earlier UInt8 CODEC(ZSTD)\
             ) ENGINE = ReplacingMergeTree ORDER BY (code, batch, place) \
             SETTINGS {window}, index_granularity = 256"
        ),
        // The links of a campaign in the order of their creation: pages of a listing are near each other. Most links have
        // one visit, so that the time from the first to the last one takes no space.
        format!(
            "CREATE TABLE IF NOT EXISTS link_clicks (\
             campaign Int64 CODEC(Delta, ZSTD), \
             created Int64 CODEC(Delta, ZSTD), \
             code String CODEC(ZSTD(3)), \
             batch Int64 CODEC(T64, ZSTD), \
             since Int64 CODEC(T64, ZSTD), \
             first_at DateTime64(3, 'UTC') CODEC(T64, ZSTD), \
             lasted Int64 CODEC(T64, ZSTD), \
             visits Int32 CODEC(T64, ZSTD)\
             ) ENGINE = ReplacingMergeTree ORDER BY (campaign, created, code, batch) \
             SETTINGS {window}, index_granularity = 1024"
        ),
    ]
}

#[derive(Row, Deserialize)]
struct Owner {
    owner: String,
    version: u32,
}

#[derive(Row, Deserialize)]
struct Text {
    text: String,
}

impl ClickHouse {
    /// Makes the database and its tables as far as they are missing, and has visits expire. Returns false if the tables
    /// are of the version that had no clicks: they are empty until [`ClickHouse::finish_migration`].
    ///
    /// # Errors
    /// When the server can't do it, or the tables belong to another SQL database or another version.
    #[boxed]
    pub async fn migrate(&self) -> Result<bool, Fault> {
        let create = format!("CREATE DATABASE IF NOT EXISTS {}", self.database);
        self.execute(PATIENCE, self.client.query(&create)).await?;
        let client = self.unchecked();
        for table in tables() {
            self.execute(PATIENCE, client.query(&table)).await?;
        }
        if self.owners(&client).await?.is_empty() {
            let insert = "INSERT INTO visits_owner (owner, version) VALUES (?, ?)";
            let insert = client.query(insert).bind(&self.owner).bind(VERSION);
            self.execute(PATIENCE, insert).await?;
        }
        match self.check().await {
            Err(Fault::Version { version, .. }) if version < VERSION => {
                let add = format!("ALTER TABLE visits ADD COLUMN IF NOT EXISTS {VARIANT}");
                self.execute(PATIENCE, client.query(&add)).await?;
                if version > WITHOUT_CLICKS {
                    return self.finish_migration().await.map(|()| true);
                }
                let truncate = client.query("TRUNCATE TABLE link_clicks");
                self.execute(MUTATION_PATIENCE, truncate).await?;
                // The next step of the migration fills the table.
                let _ = self.checked.set(());
                Ok(false)
            }
            checked => checked.map(|()| true),
        }
    }

    /// Notes that the tables of an earlier version have all that this one has.
    ///
    /// # Errors
    /// As [`ClickHouse::migrate`].
    #[boxed]
    pub async fn finish_migration(&self) -> Result<(), Fault> {
        let note = "ALTER TABLE visits_owner UPDATE version = ? WHERE version < ?";
        let note = self.unchecked().query(note).bind(VERSION);
        self.mutate(note.bind(VERSION)).await?;
        self.check().await
    }

    /// Deletes all visits and counts.
    ///
    /// # Errors
    /// When they can't be deleted.
    #[boxed]
    pub async fn clear(&self) -> Result<(), Fault> {
        let client = self.database().await?;
        for table in ["visits", "visit_counts", "link_clicks"] {
            let truncate = client.query(&format!("TRUNCATE TABLE {table}"));
            self.execute(MUTATION_PATIENCE, truncate).await?;
        }
        Ok(())
    }

    async fn owners(&self, client: &Client) -> Result<Vec<Owner>, Fault> {
        self.rows(client.query("SELECT owner, version FROM visits_owner"))
            .await
    }

    /// Checks that the tables are those of this program, and that visits expire as they should.
    pub(crate) async fn check(&self) -> Result<(), Fault> {
        self.verify().await?;
        self.expire(&self.unchecked()).await
    }

    /// Asks the server for its version.
    ///
    /// # Errors
    /// When it can't be asked.
    #[boxed]
    pub async fn version(&self) -> Result<String, Fault> {
        let version = self.client.query("SELECT version() AS text");
        let rows = self.rows::<Text>(version).await?;
        Ok(rows.into_iter().map(|row| row.text).collect())
    }

    /// Checks that the tables are those of this program, and changes nothing.
    ///
    /// # Errors
    /// When they can't be read, or belong to another SQL database or another version.
    #[boxed]
    pub async fn verify(&self) -> Result<(), Fault> {
        let client = self.unchecked();
        let owners = self.owners(&client).await?;
        let address = || self.address.clone();
        let Some(Owner { owner, version }) = owners.first() else {
            return Err(Fault::Missing {
                address: address(),
                reason: "visits_owner is empty".to_owned(),
            });
        };
        if *owner != self.owner || owners.len() > 1 {
            return Err(Fault::Owner { address: address() });
        }
        if *version != VERSION {
            return Err(Fault::Version {
                address: address(),
                version: *version,
                own: VERSION,
                advice: match *version > VERSION {
                    true => "install the version of this program that made them",
                    false => "run `shortlink migrate`",
                },
            });
        }
        // Names and types of all columns.
        let visits = client.query("SELECT ?fields FROM visits WHERE 0");
        self.rows::<VisitRow>(visits).await?;
        let counts = client.query(&format!("SELECT {COUNTS} FROM visit_counts WHERE 0"));
        self.execute(PATIENCE, counts).await?;
        let clicks = client.query(&format!("SELECT {CLICKS} FROM link_clicks WHERE 0"));
        self.execute(PATIENCE, clicks).await
    }

    /// Sets the time after which ClickHouse deletes visits, if it is another one.
    async fn expire(&self, client: &Client) -> Result<(), Fault> {
        let query =
            "SELECT engine_full AS text FROM system.tables WHERE database = ? AND name = 'visits'";
        let found = self
            .rows::<Text>(client.query(query).bind(&self.database))
            .await?;
        let found = found.first().map_or("", |it| &it.text);
        let days = self
            .retention_days
            .map(|days| format!("toIntervalDay({days})"));
        let change = match &days {
            Some(days) if !found.contains(&format!("+ {days}")) => {
                format!("ALTER TABLE visits MODIFY TTL toDateTime(at) + {days}")
            }
            None if found.contains(" TTL ") => "ALTER TABLE visits REMOVE TTL".to_owned(),
            _ => return Ok(()),
        };
        // Later merges delete what is due: nothing is rewritten now.
        let change = client
            .query(&change)
            .with_setting("materialize_ttl_after_modify", "0");
        self.execute(MUTATION_PATIENCE, change).await
    }
}
