//! API keys. Every operation that changes one also writes to the audit log, in the same transaction.
//!
//! Only this file names the columns of a key.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::str::FromStr;

use jiff::Timestamp;
use shortlink_core::api_key::{ApiKey, KeyPolicy, Person, RateLimit, Role};
use shortlink_core::audit::AuditEntry;
use shortlink_core::boxed;
use shortlink_core::ports::{
    KeyEdit, KeyEditor, KeyListing, KeyPosition, KeyToEdit, SignIn, SignInEditor, StoreError,
};
use shortlink_core::target::domains::{DomainRule, DomainRules};

use super::db::Db;
use super::sessions;
use super::sql::{IN_TEXTS, Sql, sql};
use super::value::{Row, Value, args, invalid, is_storable};
use super::{Store, audit};
use crate::texts::joined;

/// The columns that a change may change, whose values [`values`] gives.
const CHANGEABLE: &str = "name, scopes, rate_per_second, rate_burst, strategies, min_body_length, \
     max_body_length, allowed_domains, expires_at, revoked_at, successor_id, custom_codes, \
     min_custom_length, max_links, own_links_only, email, role, signed_in_at";

/// The parameters that hold them.
const PARAMETERS: &str =
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18";

/// The other columns.
const FIXED: &str = "id, secret_sha256, created_at, first_id, issuer, subject";

const SELECT: &[&str] = &[
    "SELECT ",
    CHANGEABLE,
    ", ",
    FIXED,
    ", CASE WHEN own_links_only THEN (SELECT {group_concat|string_agg}(of_sequence.id, ' ') \
     FROM api_keys AS of_sequence WHERE of_sequence.first_id = api_keys.first_id) END AS sequence_ids \
     FROM api_keys ",
];
const FIND: Sql = sql!(SELECT; "WHERE id = $1");

/// Advisory lock of a change to a key: "shortkey". Whether another admin key exists depends on all keys,
/// which no single row represents.
const LOCK: i64 = 0x7368_6f72_746b_6579;

impl Store {
    /// Stores a new key.
    #[boxed]
    pub async fn create_key(&self, key: &ApiKey, audit: &AuditEntry) -> Result<(), StoreError> {
        let args = (key.clone(), audit.clone());
        self.run_tx("store a new API key", args, |db, (key, audit)| {
            Box::pin(async move {
                insert(db, key).await?;
                audit::append(db, audit).await
            })
        })
        .await
    }

    /// Finds a key by its id, whatever its state.
    #[boxed]
    pub async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        if !is_storable(id) {
            return Ok(None);
        }
        self.one("find an API key", FIND, args![id], read).await
    }

    /// Lists keys, the latest first, those of one millisecond by id downwards.
    #[boxed]
    pub async fn list_keys(&self, listing: &KeyListing) -> Result<Vec<ApiKey>, StoreError> {
        let (created_at, id) = match &listing.after {
            Some(KeyPosition { id, .. }) if !is_storable(id) => return Ok(Vec::new()),
            Some(KeyPosition { created_at, id }) => (created_at.as_millisecond(), id.as_str()),
            // Behind the last position there is nothing, and everything is behind this one.
            None => (i64::MAX, ""),
        };
        let sql = sql!(
            SELECT;
            "WHERE (created_at, id) < ($1, $2) AND (issuer IS NOT NULL) = $4 \
             ORDER BY created_at DESC, id DESC LIMIT $3"
        );
        let values = args![created_at, id, listing.limit, listing.people];
        self.all("list API keys", sql, values, read).await
    }

    /// Finds the names of keys and people, as they are now.
    #[boxed]
    pub async fn key_names(&self, ids: &[&str]) -> Result<HashMap<String, String>, StoreError> {
        let ids: Vec<&str> = ids.iter().copied().filter(|id| is_storable(id)).collect();
        let sql = sql!("SELECT id, name FROM api_keys WHERE id", IN_TEXTS);
        let read = |row: &Row| Ok((row.get("id")?, row.get("name")?));
        self.all("find names of API keys", sql, args![ids], read)
            .await
    }

    /// Has `editor` decide about the sign-in of a person, and stores that.
    #[boxed]
    pub async fn sign_in(
        &self,
        issuer: &str,
        subject: &str,
        editor: SignInEditor,
    ) -> Result<Option<SignIn>, StoreError> {
        let args = (issuer.to_owned(), subject.to_owned(), editor);
        self.run_tx("sign a person in", args, |db, (issuer, subject, editor)| {
            Box::pin(sign_in(db, issuer, subject, editor))
        })
        .await
    }

    /// Has `editor` decide the change to a key and stores that. No key changes meanwhile, or two
    /// changes that each remove one of the last two administrators would both be allowed.
    #[boxed]
    pub async fn edit_key(
        &self,
        id: &str,
        now: Timestamp,
        editor: KeyEditor,
    ) -> Result<Option<KeyEdit>, StoreError> {
        if !is_storable(id) {
            return Ok(None);
        }
        let args = (id.to_owned(), now, editor);
        self.run_tx("change an API key", args, |db, (id, now, editor)| {
            Box::pin(edit(db, id, *now, editor))
        })
        .await
    }
}

async fn edit(
    db: &mut Db<'_>,
    id: &str,
    now: Timestamp,
    editor: &KeyEditor,
) -> Result<Option<KeyEdit>, sqlx::Error> {
    db.lock(LOCK).await?;
    let Some(key) = db.one(FIND, args![id], read).await? else {
        return Ok(None);
    };
    let find_admin = sql!(
        "SELECT true AS found FROM api_keys WHERE id <> $1 AND issuer IS NULL \
         AND ' ' || scopes || ' ' LIKE '% admin %' AND successor_id IS NULL \
         AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2) LIMIT 1"
    );
    let admin: Option<()> = db.one(find_admin, args![id, now], |_row| Ok(())).await?;
    let edit = editor(KeyToEdit {
        key,
        has_other_admin: admin.is_some(),
    });
    if let KeyEdit::Changed {
        key,
        successor,
        audit,
    } = &edit
    {
        update(db, key).await?;
        if key.revoked_at.is_some() {
            sessions::end_of(db, &key.id).await?;
        }
        if let Some(successor) = successor {
            insert(db, successor).await?;
        }
        for entry in audit {
            audit::append(db, entry).await?;
        }
    }
    Ok(Some(edit))
}

async fn sign_in(
    db: &mut Db<'_>,
    issuer: &str,
    subject: &str,
    editor: &SignInEditor,
) -> Result<Option<SignIn>, sqlx::Error> {
    // Two first sign-ins of a person at once would both be first.
    db.lock(LOCK).await?;
    let find = sql!(SELECT; "WHERE issuer = $1 AND subject = $2");
    let found = db.one(find, args![issuer, subject], read).await?;
    let is_known = found.is_some();
    let Some(edit) = editor(found) else {
        return Ok(None);
    };
    match is_known {
        true => update(db, &edit.key).await?,
        false => insert(db, &edit.key).await?,
    }
    match &edit.session {
        Some(session) => sessions::begin(db, &edit.key.id, session).await?,
        None => {
            sessions::end_of(db, &edit.key.id).await?;
        }
    }
    for entry in &edit.audit {
        audit::append(db, entry).await?;
    }
    Ok(Some(edit))
}

async fn update(db: &mut Db<'_>, key: &ApiKey) -> Result<(), sqlx::Error> {
    let update = sql!(
        "UPDATE api_keys SET (",
        CHANGEABLE,
        ") = (",
        PARAMETERS,
        ") WHERE id = $19"
    );
    db.run(update, &[&values(key)[..], args![&key.id]].concat())
        .await?;
    Ok(())
}

async fn insert(db: &mut Db<'_>, key: &ApiKey) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "INSERT INTO api_keys (",
        CHANGEABLE,
        ", ",
        FIXED,
        ") VALUES (",
        PARAMETERS,
        ", $19, $20, $21, $22, $23, $24)"
    );
    let person = key.person.as_deref();
    let fixed = args![
        &key.id,
        key.secret_sha256.as_slice(),
        key.created_at,
        &key.first_id,
        person.map(|it| &*it.issuer),
        person.map(|it| &*it.subject),
    ];
    db.run(sql, &[&values(key)[..], fixed].concat()).await?;
    Ok(())
}

/// The values of the [`CHANGEABLE`] columns.
fn values(key: &ApiKey) -> [Value<'_>; 18] {
    let (limit, policy, person) = (&key.rate_limit, &key.policy, key.person.as_deref());
    let domains = policy.allowed_domains.as_ref();
    [
        (&key.name).into(),
        joined(&key.scopes).into(),
        limit.map(|limit| limit.per_second().get()).into(),
        limit.map(|limit| limit.burst().get()).into(),
        policy.strategies.as_ref().map(joined).into(),
        policy.min_body_length.into(),
        policy.max_body_length.into(),
        domains.map(|rules| joined(rules.iter())).into(),
        key.expires_at.into(),
        key.revoked_at.into(),
        (&key.successor_id).into(),
        policy.custom_codes.into(),
        policy.min_custom_length.into(),
        policy.max_links.map(NonZeroU64::get).into(),
        policy.own_links_only.into(),
        person.and_then(|it| it.email.as_deref()).into(),
        person.and_then(|it| it.role).map(Role::name).into(),
        person.map(|it| it.signed_in_at).into(),
    ]
}

fn read(row: &Row) -> Result<ApiKey, sqlx::Error> {
    let rate_limit = match (row.find("rate_per_second")?, row.find("rate_burst")?) {
        (Some(per_second), Some(burst)) => {
            let limit = RateLimit::new(per_second, burst);
            Some(limit.ok_or_else(|| invalid("rate_per_second"))?)
        }
        (None, None) => None,
        _ => return Err(invalid("rate_burst")),
    };
    let domains = words::<DomainRule>(row, "allowed_domains")?;
    let mut sequence_ids: Vec<String> = words(row, "sequence_ids")?.unwrap_or_default();
    sequence_ids.sort_unstable();
    Ok(ApiKey {
        id: row.get("id")?,
        name: row.get("name")?,
        secret_sha256: row.get("secret_sha256")?,
        scopes: words(row, "scopes")?.unwrap_or_default(),
        rate_limit,
        policy: KeyPolicy {
            strategies: words(row, "strategies")?,
            min_body_length: row.find("min_body_length")?,
            max_body_length: row.find("max_body_length")?,
            allowed_domains: domains.map(DomainRules::from_iter),
            custom_codes: row.get("custom_codes")?,
            min_custom_length: row.find("min_custom_length")?,
            max_links: row.find("max_links")?,
            own_links_only: row.get("own_links_only")?,
        },
        created_at: row.get("created_at")?,
        expires_at: row.find("expires_at")?,
        revoked_at: row.find("revoked_at")?,
        successor_id: row.find("successor_id")?,
        first_id: row.get("first_id")?,
        sequence_ids,
        person: person(row)?,
    })
}

/// Reads the part of a key that only a person has.
fn person(row: &Row) -> Result<Option<Box<Person>>, sqlx::Error> {
    let Some(issuer) = row.find("issuer")? else {
        return Ok(None);
    };
    let role = row.find::<&str>("role")?.map(str::parse).transpose();
    Ok(Some(Box::new(Person {
        issuer,
        subject: row.get("subject")?,
        email: row.find("email")?,
        role: role.map_err(|_error| invalid("role"))?,
        signed_in_at: row.get("signed_in_at")?,
    })))
}

/// Reads words that are separated by spaces.
fn words<T: FromStr>(row: &Row, column: &'static str) -> Result<Option<Vec<T>>, sqlx::Error> {
    let Some(text) = row.find::<&str>(column)? else {
        return Ok(None);
    };
    let words = text.split_ascii_whitespace().map(str::parse);
    let words: Result<_, _> = words.collect();
    words.map(Some).map_err(|_error| invalid(column))
}
