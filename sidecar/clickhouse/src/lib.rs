//! Visits in ClickHouse: their tables and all queries.
//!
//! SQL decides which visits are new, numbers them and describes each change of ClickHouse before it is made
//! (`shortlink_store`). So every operation here can be repeated: rows have keys that SQL has drawn, and a row that is
//! inserted again replaces itself.
#![forbid(unsafe_code)]

mod clicks;
mod columns;
mod erasure;
mod fault;
mod insertion;
mod lists;
mod numbers;
mod rows;
mod schema;
mod statistics;
mod top;

use std::fmt;
use std::time::Duration;

use clickhouse::{Client, Compression, RowOwned, RowRead};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;
use url::Url;

pub use clicks::{AllHumanVisits, CLOCKS_DIFFER_MS, ClickedLink, Clicks, HumanVisits, LinkClicks};
pub use columns::Columns;
pub use erasure::{Erased, ErasedValue, Erasure, ErasureOf};
pub use fault::Fault;
pub use insertion::{Batch, LinkCount};
pub use numbers::Numbers;
pub use rows::VisitRow;
pub use top::TopLink;

/// The time limit of an insertion or a question.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time limit of a change of stored rows, which rewrites parts of tables.
const MUTATION_PATIENCE: Duration = Duration::from_secs(600);

/// A ClickHouse server, and a database of it. It is first contacted by the first operation.
pub struct ClickHouse {
    client: Client,
    /// The server without the password, for messages.
    address: String,
    database: String,
    /// Names the SQL database that the visits belong to.
    owner: String,
    /// The retention of visits in days; `None` for ever.
    retention_days: Option<u32>,
    /// Set once the tables have been found to be those of this program and this SQL database.
    checked: OnceCell<()>,
    remembered: clicks::Remembered,
}

impl fmt::Debug for ClickHouse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClickHouse").field(&self.address).finish()
    }
}

/// The reason that a URL does not name a ClickHouse database. It never contains the URL, which may have a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be empty or like clickhouse://user:password@host:8123/database, with ?secure=true behind it for TLS"
)]
pub struct UrlError;

/// The parts of a URL.
struct Place {
    server: String,
    user: String,
    password: String,
    database: String,
}

fn place(url: &str) -> Option<Place> {
    let url = Url::parse(url).ok()?;
    if url.scheme() != "clickhouse" || url.fragment().is_some() {
        return None;
    }
    let is_secure = match url.query() {
        None | Some("secure=false") => false,
        Some("secure=true") => true,
        Some(_) => return None,
    };
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let scheme = if is_secure { "https" } else { "http" };
    let port = url.port().unwrap_or(if is_secure { 8443 } else { 8123 });
    let decoded = |text: &str| {
        let pair = format!("x={}", text.replace('+', "%2B"));
        let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
        pairs.next().map(|(_, value)| value.into_owned())
    };
    let database = url.path().trim_matches('/');
    let is_name = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && text.starts_with(|first: char| !first.is_ascii_digit())
    };
    is_name(database).then_some(())?;
    Some(Place {
        server: format!("{scheme}://{host}:{port}"),
        user: decoded(url.username())?,
        password: decoded(url.password().unwrap_or_default())?,
        database: database.to_owned(),
    })
}

/// Checks a URL.
///
/// # Errors
/// When it does not name a ClickHouse database.
pub fn check_url(url: &str) -> Result<(), UrlError> {
    place(url).map(drop).ok_or(UrlError)
}

impl ClickHouse {
    /// The database that a URL names, for the visits of the SQL database `owner`.
    ///
    /// # Errors
    /// When it does not name a ClickHouse database.
    pub fn new(
        url: &SecretString,
        owner: String,
        retention_days: Option<u32>,
    ) -> Result<Self, UrlError> {
        let place = place(url.expose_secret()).ok_or(UrlError)?;
        let mut client = Client::default()
            .with_url(&place.server)
            .with_compression(Compression::None)
            .with_product_info("shortlink", env!("CARGO_PKG_VERSION"));
        if !place.user.is_empty() {
            client = client.with_user(place.user).with_password(place.password);
        }
        Ok(Self {
            client,
            address: place.server,
            database: place.database,
            owner,
            retention_days,
            checked: OnceCell::new(),
            remembered: clicks::Remembered::default(),
        })
    }

    /// The server, without user and password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A client in the database, once its tables are known to be the right ones.
    async fn database(&self) -> Result<Client, Fault> {
        let check = || self.within(PATIENCE, self.check());
        self.checked.get_or_try_init(check).await?;
        Ok(self.unchecked())
    }

    fn unchecked(&self) -> Client {
        self.client.clone().with_database(&self.database)
    }

    /// Reads rows.
    async fn rows<T>(&self, query: clickhouse::query::Query) -> Result<Vec<T>, Fault>
    where
        T: RowOwned + RowRead,
    {
        let all = async {
            query
                .fetch_all::<T>()
                .await
                .map_err(|error| self.fault(&error))
        };
        self.within(PATIENCE, all).await
    }

    /// Executes a statement without a result.
    async fn execute(
        &self,
        patience: Duration,
        query: clickhouse::query::Query,
    ) -> Result<(), Fault> {
        let done = async { query.execute().await.map_err(|error| self.fault(&error)) };
        self.within(patience, done).await
    }

    async fn within<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        match tokio::time::timeout(patience, work).await {
            Ok(done) => done,
            Err(_) => Err(Fault::Silent {
                address: self.address.clone(),
                seconds: patience.as_secs(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_server_and_a_database() {
        for (url, server, user, password) in [
            (
                "clickhouse://localhost/visits",
                "http://localhost:8123",
                "",
                "",
            ),
            (
                "clickhouse://a:p%40+s@h:9/visits",
                "http://h:9",
                "a",
                "p@+s",
            ),
            (
                "clickhouse://[::1]/visits?secure=true",
                "https://[::1]:8443",
                "",
                "",
            ),
        ] {
            let place = place(url).expect(url);
            assert_eq!((&*place.server, &*place.user), (server, user), "{url}");
            assert_eq!((&*place.password, &*place.database), (password, "visits"));
        }
        for url in [
            "",
            "http://localhost/visits",
            "clickhouse://localhost",
            "clickhouse:///visits",
            "clickhouse://h/a.b",
            "clickhouse://h/1a",
            "clickhouse://h/visits?x=1",
            "clickhouse://h/visits#x",
        ] {
            assert_eq!(check_url(url), Err(UrlError), "{url}");
        }
    }
}
