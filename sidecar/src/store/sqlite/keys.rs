//! API keys in SQLite.

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Row, Sqlite};

use super::audit::append_audit;
use super::writer::Write;
use super::{SqliteStore, invalid};
use crate::core::api_key::{ApiKey, KeyPolicy, RateLimit};
use crate::core::audit::AuditEntry;
use crate::core::ports::{
    KeyEdit, KeyEditor, KeyListing, KeyPosition, KeyStore, KeyToEdit, StoreError,
};
use crate::core::target::domains::{DomainRule, DomainRules};
use crate::store::shared::Operation;
use crate::store::texts::{joined, words};

/// What [`read`] reads, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "id, name, secret_sha256, scopes, rate_per_second, rate_burst, strategies, \
         min_body_length, max_body_length, allowed_domains, created_at, expires_at, revoked_at, \
         successor_id"
    };
}

#[async_trait]
impl KeyStore for SqliteStore {
    async fn create_key(&self, key: &ApiKey, audit: &AuditEntry) -> Result<(), StoreError> {
        let create = CreateKey {
            key: key.clone(),
            audit: audit.clone(),
        };
        self.writer.write(create).await
    }

    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        find(&self.readers, id).operation("find an API key").await
    }

    async fn list_keys(&self, listing: &KeyListing) -> Result<Vec<ApiKey>, StoreError> {
        let (created_at, id) = match &listing.after {
            Some(KeyPosition { created_at, id }) => (created_at.as_millisecond(), id.as_str()),
            // Behind the last position there is nothing, and everything is behind this one.
            None => (i64::MAX, ""),
        };
        sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM api_keys WHERE (created_at, id) < (?1, ?2) \
             ORDER BY created_at DESC, id DESC LIMIT ?3"
        ))
        .bind(created_at)
        .bind(id)
        .bind(listing.limit)
        .fetch_all(&self.readers)
        .map(|rows| rows.and_then(|rows| rows.iter().map(read).collect()))
        .operation("list API keys")
        .await
    }

    async fn edit_key(
        &self,
        id: &str,
        now: Timestamp,
        editor: KeyEditor,
    ) -> Result<Option<KeyEdit>, StoreError> {
        let edit = EditKey {
            id: id.to_owned(),
            now,
            editor: Some(editor),
        };
        self.writer.write(edit).await
    }
}

fn read(row: &SqliteRow) -> Result<ApiKey, sqlx::Error> {
    let bad = |column| invalid("api_keys", column);
    let moment = |column: &'static str| -> Result<Option<Timestamp>, sqlx::Error> {
        row.try_get::<Option<i64>, _>(column)?
            .map(|millisecond| Timestamp::from_millisecond(millisecond).map_err(|_| bad(column)))
            .transpose()
    };
    let secret_sha256: &[u8] = row.try_get("secret_sha256")?;
    let rate: (Option<u32>, Option<u32>) =
        (row.try_get("rate_per_second")?, row.try_get("rate_burst")?);
    let rate_limit = match rate {
        (Some(per_second), Some(burst)) => {
            Some(RateLimit::new(per_second, burst).ok_or_else(|| bad("rate_per_second"))?)
        }
        (None, None) => None,
        _ => return Err(bad("rate_burst")),
    };
    let domains = words::<DomainRule>(
        row.try_get("allowed_domains")?,
        "api_keys",
        "allowed_domains",
    )?;
    Ok(ApiKey {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        secret_sha256: secret_sha256
            .try_into()
            .map_err(|_error| bad("secret_sha256"))?,
        scopes: words(Some(row.try_get("scopes")?), "api_keys", "scopes")?.unwrap_or_default(),
        rate_limit,
        policy: KeyPolicy {
            strategies: words(row.try_get("strategies")?, "api_keys", "strategies")?,
            min_body_length: row.try_get("min_body_length")?,
            max_body_length: row.try_get("max_body_length")?,
            allowed_domains: domains.map(DomainRules::from_iter),
        },
        created_at: moment("created_at")?.ok_or_else(|| bad("created_at"))?,
        expires_at: moment("expires_at")?,
        revoked_at: moment("revoked_at")?,
        successor_id: row.try_get("successor_id")?,
    })
}

async fn find<'e>(
    executor: impl sqlx::Executor<'e, Database = Sqlite>,
    id: &str,
) -> Result<Option<ApiKey>, sqlx::Error> {
    sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM api_keys WHERE id = ?1"
    ))
    .bind(id)
    .fetch_optional(executor)
    .await?
    .as_ref()
    .map(read)
    .transpose()
}

/// Binds the fields that may change as the parameters from the second to the eleventh; the first
/// is the id.
fn bind_changeable<'q>(
    query: sqlx::query::Query<'q, Sqlite, SqliteArguments>,
    key: &'q ApiKey,
) -> sqlx::query::Query<'q, Sqlite, SqliteArguments> {
    let policy = &key.policy;
    query
        .bind(&key.id)
        .bind(&key.name)
        .bind(joined(&key.scopes))
        .bind(key.rate_limit.map(|limit| limit.per_second().get()))
        .bind(key.rate_limit.map(|limit| limit.burst().get()))
        .bind(policy.strategies.as_ref().map(joined))
        .bind(policy.min_body_length)
        .bind(policy.max_body_length)
        .bind(
            policy
                .allowed_domains
                .as_ref()
                .map(|rules| joined(rules.iter())),
        )
        .bind(key.expires_at.map(Timestamp::as_millisecond))
        .bind(key.revoked_at.map(Timestamp::as_millisecond))
        .bind(&key.successor_id)
}

async fn insert(connection: &mut SqliteConnection, key: &ApiKey) -> Result<(), sqlx::Error> {
    let query = sqlx::query(
        "INSERT INTO api_keys (id, name, scopes, rate_per_second, rate_burst, strategies, \
         min_body_length, max_body_length, allowed_domains, expires_at, revoked_at, successor_id, \
         secret_sha256, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    );
    bind_changeable(query, key)
        .bind(key.secret_sha256.as_slice())
        .bind(key.created_at.as_millisecond())
        .execute(connection)
        .await?;
    Ok(())
}

struct CreateKey {
    key: ApiKey,
    audit: AuditEntry,
}

#[async_trait]
impl Write for CreateKey {
    type Output = ();
    const OPERATION: &'static str = "keep a new API key";

    async fn apply(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        insert(connection, &self.key).await?;
        append_audit(connection, &self.audit).await
    }
}

struct EditKey {
    id: String,
    now: Timestamp,
    /// Taken when it is called, which is once.
    editor: Option<KeyEditor>,
}

#[async_trait]
impl Write for EditKey {
    type Output = Option<KeyEdit>;
    const OPERATION: &'static str = "change an API key";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<Option<KeyEdit>, sqlx::Error> {
        let Some(key) = find(&mut *connection, &self.id).await? else {
            return Ok(None);
        };
        let has_other_admin = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM api_keys WHERE id <> ?1 \
             AND ' ' || scopes || ' ' LIKE '% admin %' AND successor_id IS NULL \
             AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2))",
        )
        .bind(&self.id)
        .bind(self.now.as_millisecond())
        .fetch_one(&mut *connection)
        .await?;
        let Some(editor) = self.editor.take() else {
            return Ok(None);
        };
        let edit = editor(KeyToEdit {
            key,
            has_other_admin,
        });
        if let KeyEdit::Changed {
            key,
            successor,
            audit,
        } = &edit
        {
            let query = sqlx::query(
                "UPDATE api_keys SET name = ?2, scopes = ?3, rate_per_second = ?4, \
                 rate_burst = ?5, strategies = ?6, min_body_length = ?7, max_body_length = ?8, \
                 allowed_domains = ?9, expires_at = ?10, revoked_at = ?11, successor_id = ?12 \
                 WHERE id = ?1",
            );
            bind_changeable(query, key)
                .execute(&mut *connection)
                .await?;
            if let Some(successor) = successor {
                insert(connection, successor).await?;
            }
            for entry in audit {
                append_audit(connection, entry).await?;
            }
        }
        Ok(Some(edit))
    }
}
