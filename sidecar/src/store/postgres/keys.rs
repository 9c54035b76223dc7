//! API keys in PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::PostgresStore;
use super::work::Work;
use crate::domain::api_key::ApiKey;
use crate::domain::ports::{KeyStore, StoreError};
use crate::store::shared::invalid;

/// What is kept of a key, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "id, name, secret_sha256, scopes, created_at, revoked_at"
    };
}

#[async_trait]
impl KeyStore for PostgresStore {
    async fn create_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.run(CreateKey(key)).await
    }

    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        self.run(FindKey(id)).await
    }

    async fn list_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        self.run(ListKeys).await
    }

    async fn revoke_key(&self, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        self.run(RevokeKey { id, now }).await
    }
}

/// Reads a key from a row with [`columns!`].
fn read(row: &PgRow) -> Result<ApiKey, sqlx::Error> {
    let moment = |column: &'static str, millisecond: i64| {
        Timestamp::from_millisecond(millisecond).map_err(|_error| invalid("api_keys", column))
    };
    let secret_sha256: &[u8] = row.try_get("secret_sha256")?;
    let scopes: &str = row.try_get("scopes")?;
    let revoked_at: Option<i64> = row.try_get("revoked_at")?;
    Ok(ApiKey {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        secret_sha256: secret_sha256
            .try_into()
            .map_err(|_error| invalid("api_keys", "secret_sha256"))?,
        scopes: scopes
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_error| invalid("api_keys", "scopes"))?,
        created_at: moment("created_at", row.try_get("created_at")?)?,
        revoked_at: revoked_at
            .map(|millisecond| moment("revoked_at", millisecond))
            .transpose()?,
    })
}

struct CreateKey<'a>(&'a ApiKey);

#[async_trait]
impl Work for CreateKey<'_> {
    type Output = ();
    const OPERATION: &'static str = "keep a new API key";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let key = self.0;
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
        sqlx::query(concat!(
            "INSERT INTO api_keys (",
            columns!(),
            ") VALUES ($1, $2, $3, $4, $5, $6)"
        ))
        .bind(&key.id)
        .bind(&key.name)
        .bind(key.secret_sha256.as_slice())
        .bind(scopes.join(" "))
        .bind(key.created_at.as_millisecond())
        .bind(key.revoked_at.map(Timestamp::as_millisecond))
        .execute(connection)
        .await?;
        Ok(())
    }
}

struct FindKey<'a>(&'a str);

#[async_trait]
impl Work for FindKey<'_> {
    type Output = Option<ApiKey>;
    const OPERATION: &'static str = "find an API key";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<Option<ApiKey>, sqlx::Error> {
        let row = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM api_keys WHERE id = $1"
        ))
        .bind(self.0)
        .fetch_optional(connection)
        .await?;
        row.as_ref().map(read).transpose()
    }
}

struct ListKeys;

#[async_trait]
impl Work for ListKeys {
    type Output = Vec<ApiKey>;
    const OPERATION: &'static str = "list API keys";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<Vec<ApiKey>, sqlx::Error> {
        let rows = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM api_keys ORDER BY created_at, id"
        ))
        .fetch_all(connection)
        .await?;
        rows.iter().map(read).collect()
    }
}

struct RevokeKey<'a> {
    id: &'a str,
    now: Timestamp,
}

#[async_trait]
impl Work for RevokeKey<'_> {
    type Output = bool;
    const OPERATION: &'static str = "revoke an API key";

    async fn run(&mut self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let done =
            sqlx::query("UPDATE api_keys SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1")
                .bind(self.id)
                .bind(self.now.as_millisecond())
                .execute(connection)
                .await?;
        Ok(done.rows_affected() > 0)
    }
}
