//! API keys in SQLite.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::writer::Write;
use super::{SqliteStore, failed, invalid};
use crate::domain::api_key::ApiKey;
use crate::domain::ports::{KeyStore, StoreError};

#[async_trait]
impl KeyStore for SqliteStore {
    async fn create_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.writer.write(CreateKey(key.clone())).await
    }

    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        sqlx::query(
            "SELECT id, name, secret_sha256, scopes, created_at, revoked_at \
             FROM api_keys WHERE id = ?1",
        )
        .bind(id)
        .fetch_optional(&self.readers)
        .await
        .and_then(|row| row.as_ref().map(read).transpose())
        .map_err(failed("find an API key"))
    }

    async fn list_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        sqlx::query(
            "SELECT id, name, secret_sha256, scopes, created_at, revoked_at \
             FROM api_keys ORDER BY created_at, id",
        )
        .fetch_all(&self.readers)
        .await
        .and_then(|rows| rows.iter().map(read).collect())
        .map_err(failed("list API keys"))
    }

    async fn revoke_key(&self, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.writer.write(RevokeKey { id, now }).await
    }
}

fn read(row: &SqliteRow) -> Result<ApiKey, sqlx::Error> {
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

struct CreateKey(ApiKey);

#[async_trait]
impl Write for CreateKey {
    type Output = ();
    const OPERATION: &'static str = "keep a new API key";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let key = &self.0;
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
        sqlx::query(
            "INSERT INTO api_keys (id, name, secret_sha256, scopes, created_at) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .bind(&key.id)
        .bind(&key.name)
        .bind(key.secret_sha256.as_slice())
        .bind(scopes.join(" "))
        .bind(key.created_at.as_millisecond())
        .execute(connection)
        .await?;
        Ok(())
    }
}

struct RevokeKey {
    id: String,
    now: Timestamp,
}

#[async_trait]
impl Write for RevokeKey {
    type Output = bool;
    const OPERATION: &'static str = "revoke an API key";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        let done =
            sqlx::query("UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1")
                .bind(&self.id)
                .bind(self.now.as_millisecond())
                .execute(connection)
                .await?;
        Ok(done.rows_affected() > 0)
    }
}
