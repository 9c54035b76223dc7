//! API keys in PostgreSQL.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use super::PostgresStore;
use super::audit::append_audit;
use super::rows::is_storable;
use super::statements::Statements;
use super::work::Work;
use crate::core::api_key::{ApiKey, KeyPolicy, RateLimit};
use crate::core::audit::AuditEntry;
use crate::core::ports::{
    KeyEdit, KeyEditor, KeyListing, KeyPosition, KeyStore, KeyToEdit, StoreError,
};
use crate::core::target::domains::{DomainRule, DomainRules};
use crate::store::shared::invalid;
use crate::store::texts::{joined, words};

/// What [`read`] reads, as a macro since statements are literals.
macro_rules! columns {
    () => {
        "id, name, secret_sha256, scopes, rate_per_second, rate_burst, strategies, \
         min_body_length, max_body_length, allowed_domains, created_at, expires_at, revoked_at, \
         successor_id"
    };
}

/// The advisory lock of whoever changes a key: "shortkey". Whether somebody else may do everything
/// is a question about all keys, and no row of theirs stands for all.
const LOCK: i64 = 0x7368_6f72_746b_6579;

#[async_trait]
impl KeyStore for PostgresStore {
    async fn create_key(&self, key: &ApiKey, audit: &AuditEntry) -> Result<(), StoreError> {
        self.transact(CreateKey { key, audit }).await
    }

    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        if !is_storable(id) {
            return Ok(None);
        }
        self.run(FindKey(id)).await
    }

    async fn list_keys(&self, listing: &KeyListing) -> Result<Vec<ApiKey>, StoreError> {
        self.run(ListKeys(listing)).await
    }

    async fn edit_key(
        &self,
        id: &str,
        now: Timestamp,
        editor: KeyEditor,
    ) -> Result<Option<KeyEdit>, StoreError> {
        if !is_storable(id) {
            return Ok(None);
        }
        let edit = EditKey {
            id,
            now,
            editor: Some(editor),
        };
        self.transact(edit).await
    }
}

struct FindKey<'a>(&'a str);

#[async_trait]
impl Work for FindKey<'_> {
    type Output = Option<ApiKey>;
    const OPERATION: &'static str = "find an API key";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<ApiKey>, sqlx::Error> {
        find(connection, self.0).await
    }
}

struct ListKeys<'a>(&'a KeyListing);

#[async_trait]
impl Work for ListKeys<'_> {
    type Output = Vec<ApiKey>;
    const OPERATION: &'static str = "list API keys";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<Vec<ApiKey>, sqlx::Error> {
        let (created_at, id) = match &self.0.after {
            Some(KeyPosition { id, .. }) if !is_storable(id) => return Ok(Vec::new()),
            Some(KeyPosition { created_at, id }) => (created_at.as_millisecond(), id.as_str()),
            // Behind the last position there is nothing, and everything is behind this one.
            None => (i64::MAX, ""),
        };
        let rows = sqlx::query(concat!(
            "SELECT ",
            columns!(),
            " FROM api_keys WHERE (created_at, id) < ($1, $2) \
             ORDER BY created_at DESC, id DESC LIMIT $3"
        ))
        .bind(created_at)
        .bind(id)
        .bind(i64::from(self.0.limit))
        .fetch_all(connection)
        .await?;
        rows.iter().map(read).collect()
    }
}

fn read(row: &PgRow) -> Result<ApiKey, sqlx::Error> {
    let bad = |column| invalid("api_keys", column);
    let moment = |column: &'static str| -> Result<Option<Timestamp>, sqlx::Error> {
        row.try_get::<Option<i64>, _>(column)?
            .map(|millisecond| Timestamp::from_millisecond(millisecond).map_err(|_| bad(column)))
            .transpose()
    };
    let secret_sha256: &[u8] = row.try_get("secret_sha256")?;
    let units = |column: &'static str| -> Result<Option<u32>, sqlx::Error> {
        let units = row.try_get::<Option<i64>, _>(column)?.map(u32::try_from);
        units.transpose().map_err(|_error| bad(column))
    };
    let length = |column: &'static str| -> Result<Option<u8>, sqlx::Error> {
        let length = row.try_get::<Option<i64>, _>(column)?.map(u8::try_from);
        length.transpose().map_err(|_error| bad(column))
    };
    let rate_limit = match (units("rate_per_second")?, units("rate_burst")?) {
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
            min_body_length: length("min_body_length")?,
            max_body_length: length("max_body_length")?,
            allowed_domains: domains.map(DomainRules::from_iter),
        },
        created_at: moment("created_at")?.ok_or_else(|| bad("created_at"))?,
        expires_at: moment("expires_at")?,
        revoked_at: moment("revoked_at")?,
        successor_id: row.try_get("successor_id")?,
    })
}

async fn find(connection: &mut Statements<'_>, id: &str) -> Result<Option<ApiKey>, sqlx::Error> {
    let row = sqlx::query(concat!(
        "SELECT ",
        columns!(),
        " FROM api_keys WHERE id = $1"
    ))
    .bind(id)
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(read).transpose()
}

/// Binds the fields that may change as the parameters from the second to the eleventh; the first
/// is the id.
fn bind_changeable<'q>(
    query: Query<'q, Postgres, PgArguments>,
    key: &'q ApiKey,
) -> Query<'q, Postgres, PgArguments> {
    let policy = &key.policy;
    query
        .bind(&key.id)
        .bind(&key.name)
        .bind(joined(&key.scopes))
        .bind(
            key.rate_limit
                .map(|limit| i64::from(limit.per_second().get())),
        )
        .bind(key.rate_limit.map(|limit| i64::from(limit.burst().get())))
        .bind(policy.strategies.as_ref().map(joined))
        .bind(policy.min_body_length.map(i64::from))
        .bind(policy.max_body_length.map(i64::from))
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

async fn insert(connection: &mut Statements<'_>, key: &ApiKey) -> Result<(), sqlx::Error> {
    let query = sqlx::query(
        "INSERT INTO api_keys (id, name, scopes, rate_per_second, rate_burst, strategies, \
         min_body_length, max_body_length, allowed_domains, expires_at, revoked_at, successor_id, \
         secret_sha256, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    );
    bind_changeable(query, key)
        .bind(key.secret_sha256.as_slice())
        .bind(key.created_at.as_millisecond())
        .execute(connection)
        .await?;
    Ok(())
}

struct CreateKey<'a> {
    key: &'a ApiKey,
    audit: &'a AuditEntry,
}

#[async_trait]
impl Work for CreateKey<'_> {
    type Output = ();
    const OPERATION: &'static str = "keep a new API key";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<(), sqlx::Error> {
        insert(connection, self.key).await?;
        append_audit(connection, self.audit).await
    }
}

struct EditKey<'a> {
    id: &'a str,
    now: Timestamp,
    /// Taken when it is called, which is once.
    editor: Option<KeyEditor>,
}

#[async_trait]
impl Work for EditKey<'_> {
    type Output = Option<KeyEdit>;
    const OPERATION: &'static str = "change an API key";

    async fn run(
        &mut self,
        connection: &mut Statements<'_>,
    ) -> Result<Option<KeyEdit>, sqlx::Error> {
        // The statements that follow see what whoever had the lock before has committed.
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(LOCK)
            .execute(&mut *connection)
            .await?;
        let Some(key) = find(connection, self.id).await? else {
            return Ok(None);
        };
        let has_other_admin = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM api_keys WHERE id <> $1 \
             AND ' ' || scopes || ' ' LIKE '% admin %' AND successor_id IS NULL \
             AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2))",
        )
        .bind(self.id)
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
                "UPDATE api_keys SET name = $2, scopes = $3, rate_per_second = $4, \
                 rate_burst = $5, strategies = $6, min_body_length = $7, max_body_length = $8, \
                 allowed_domains = $9, expires_at = $10, revoked_at = $11, successor_id = $12 \
                 WHERE id = $1",
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

    /// What an editor has decided on may be another key when all is done again.
    fn is_repeatable(&self) -> bool {
        self.editor.is_some()
    }
}
