//! Counts of created links by API key and by campaign, and the quotas for them.
//!
//! Counts only grow, so that a check reads one number however many links there are. A transaction that creates links
//! with a quota locks the quota before it inserts them, and counts them before it commits: however many processes
//! create links at once, no quota is exceeded. In PostgreSQL, transactions without a quota count in different rows,
//! and do not wait for each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU64;

use shortlink_core::boxed;
use shortlink_core::link::Link;
use shortlink_core::ports::{QuotaOwner, StoreError, UsedUp};
use vocabulary::CampaignId;

use super::Store;
use super::db::Db;
use super::sql::{IN_TEXTS, Sql, sql, table};
use super::value::{Row, Value, args};

/// Begins an addition to the counts; behind it is a table `new` with the kinds and ids of owners, and their links.
pub(super) const COUNT: &str = "INSERT INTO link_counts (owner, {|slot, }links) \
     SELECT coalesce('key:' || first_id, owner_kind || owner_id), {|pg_backend_pid() % 16, }\
     CAST(sum(new.links) AS bigint) FROM ";

/// Ends it. All transactions count in the order of the owners.
pub(super) const COUNTED: &str = " LEFT JOIN api_keys ON owner_kind = 'key:' AND id = owner_id \
     WHERE true GROUP BY 1 ORDER BY 1 ON CONFLICT (owner{|, slot}) \
     DO UPDATE SET links = link_counts.links + excluded.links";

/// Rows of the counts.
const ROWS: &str = table!("new": 1 "owner_kind" "text", 2 "owner_id" "text", 3 "links" "bigint");

/// The quotas of the keys `$1` and the campaigns `$2`.
pub(super) const LIMITS: &str = "SELECT 'key:' || id AS name, 'key:' || first_id AS owner, max_links FROM api_keys \
     WHERE max_links IS NOT NULL AND id{ IN (SELECT value FROM json_each($1))| = ANY($1::text[])} \
     UNION ALL SELECT 'campaign:' || id, 'campaign:' || id, max_links FROM campaigns \
     WHERE max_links IS NOT NULL AND id\
     { IN (SELECT value FROM json_each($2))| = ANY($2::bigint[])}";

/// The counts of some owners.
const COUNTS: Sql = sql!(
    "SELECT owner, CAST(sum(links) AS bigint) AS links FROM link_counts WHERE owner",
    IN_TEXTS,
    " GROUP BY owner"
);

/// Rows of [`COUNTED`]: the kind and the id of each owner, and the number of its links.
pub(super) fn rows<'a>(links: impl Iterator<Item = &'a Link>, sign: i64) -> Vec<[Value<'a>; 3]> {
    let mut keys: BTreeMap<&str, i64> = BTreeMap::new();
    let mut campaigns: BTreeMap<CampaignId, i64> = BTreeMap::new();
    for link in links {
        *keys.entry(&link.created_by).or_default() += sign;
        if let Some(id) = link.destination.campaign() {
            *campaigns.entry(id).or_default() += sign;
        }
    }
    let keys = keys.into_iter();
    let keys = keys.map(|(id, links)| ["key:".into(), id.into(), links.into()]);
    let campaigns = campaigns.into_iter();
    let campaigns =
        campaigns.map(|(id, links)| ["campaign:".into(), id.to_string().into(), links.into()]);
    keys.chain(campaigns).collect()
}

/// Values of [`LIMITS`]: the keys and the campaigns of links.
pub(super) fn owners<'a>(links: impl Iterator<Item = &'a Link> + Clone) -> [Value<'a>; 2] {
    let keys = links.clone().map(|link| &*link.created_by).collect();
    limited(
        keys,
        links
            .filter_map(|link| link.destination.campaign())
            .collect(),
    )
}

fn limited<'a>(keys: BTreeSet<&'a str>, campaigns: BTreeSet<CampaignId>) -> [Value<'a>; 2] {
    let keys: Vec<&str> = keys.into_iter().collect();
    let campaigns = campaigns.into_iter();
    let campaigns: Vec<i64> = campaigns.map(|id| id.get().cast_signed()).collect();
    [keys.into(), campaigns.into()]
}

/// Adds new links to the counts in the transaction that stores them, or takes them back with `sign` -1.
pub(super) async fn count(
    db: &mut Db<'_>,
    links: impl Iterator<Item = &Link>,
    sign: i64,
) -> Result<(), sqlx::Error> {
    let sql = sql!(COUNT, ROWS, COUNTED);
    db.run_table(sql, rows(links, sign).into_iter(), &[])
        .await?;
    Ok(())
}

/// A quota: the name of its key or campaign, the owner of its count, and its limit.
pub(super) type Limit = (String, (String, NonZeroU64));

/// Reads a row of [`LIMITS`]; `None` for a row without a name.
pub(super) fn limit(row: &Row) -> Result<Option<Limit>, sqlx::Error> {
    let Some(name) = row.find("name")? else {
        return Ok(None);
    };
    Ok(Some((name, (row.get("owner")?, row.get("max_links")?))))
}

/// Quotas, and how much of each is used.
#[derive(Default)]
pub(super) struct Quotas {
    /// By the name of a key or campaign: the owner of its count, and its limit.
    limits: HashMap<String, (String, NonZeroU64)>,
    /// By the owner.
    used: HashMap<String, u64>,
}

impl Quotas {
    /// Reads the quotas of links in PostgreSQL, and locks them until the end of the transaction.
    pub(super) async fn lock(db: &mut Db<'_>, links: &[&Link]) -> Result<Self, sqlx::Error> {
        let quotas = Self::limits(db, &owners(links.iter().copied())).await?;
        if quotas.limits.is_empty() {
            return Ok(quotas);
        }
        // The next statement sees the commit of the transaction that held the lock before.
        let lock = sql!(
            "INSERT INTO link_counts (owner, slot, links) \
             SELECT owner, -1, 0 FROM unnest($1::text[]) AS locked (owner) ORDER BY owner \
             ON CONFLICT (owner, slot) DO UPDATE SET links = link_counts.links"
        );
        db.run(lock, args![quotas.owners()]).await?;
        Self::of(db, quotas.limits).await
    }

    /// Returns whether a key or campaign, given by its name in [`LIMITS`], has one.
    pub(super) fn has(&self, name: &str) -> bool {
        self.limits.contains_key(name)
    }

    /// Counts the links of quotas that were read.
    pub(super) async fn of(
        db: &mut Db<'_>,
        limits: HashMap<String, (String, NonZeroU64)>,
    ) -> Result<Self, sqlx::Error> {
        let mut quotas = Self {
            limits,
            used: HashMap::new(),
        };
        if !quotas.limits.is_empty() {
            quotas.count(db).await?;
        }
        Ok(quotas)
    }

    async fn limits(db: &mut Db<'_>, owners: &[Value<'_>; 2]) -> Result<Self, sqlx::Error> {
        let limits: Vec<Option<Limit>> = db.all(sql!(LIMITS), owners, limit).await?;
        Ok(Self {
            limits: limits.into_iter().flatten().collect(),
            used: HashMap::new(),
        })
    }

    fn owners(&self) -> Vec<&str> {
        let owners = self.limits.values().map(|(owner, _)| &**owner);
        owners.collect::<BTreeSet<_>>().into_iter().collect()
    }

    async fn count(&mut self, db: &mut Db<'_>) -> Result<(), sqlx::Error> {
        let read = |row: &Row| Ok((row.get("owner")?, links(row)?));
        self.used = db.all(COUNTS, args![self.owners()], read).await?;
        Ok(())
    }

    /// Takes a place for a link in each of its quotas.
    ///
    /// # Errors
    /// Fails if one of them has none, and takes no place then.
    pub(super) fn take(&mut self, link: &Link) -> Result<(), UsedUp> {
        if self.limits.is_empty() {
            return Ok(());
        }
        let key = QuotaOwner::Key(link.created_by.clone());
        let campaign = link.destination.campaign().map(QuotaOwner::Campaign);
        let mut owners = Vec::new();
        for owner in [key].into_iter().chain(campaign) {
            if let Some(used_up) = self.used_up(&owner) {
                return Err(used_up);
            }
            let limit = self.limits.get(&name(&owner));
            owners.extend(limit.map(|(owner, _)| owner.clone()));
        }
        for owner in owners {
            *self.used.entry(owner).or_default() += 1;
        }
        Ok(())
    }

    fn used_up(&self, owner: &QuotaOwner) -> Option<UsedUp> {
        let (counted, limit) = self.limits.get(&name(owner))?;
        let used = self.used.get(counted).copied().unwrap_or_default();
        (used >= limit.get()).then(|| UsedUp {
            owner: owner.clone(),
            limit: *limit,
            used,
        })
    }
}

fn links(row: &Row) -> Result<u64, sqlx::Error> {
    Ok(row.get::<i64>("links")?.max(0).unsigned_abs())
}

fn name(owner: &QuotaOwner) -> String {
    match owner {
        QuotaOwner::Key(id) => format!("key:{id}"),
        QuotaOwner::Campaign(id) => format!("campaign:{id}"),
    }
}

impl Store {
    /// Returns those of some quotas that are used up.
    #[boxed]
    pub async fn used_up_quotas(
        &self,
        owners: BTreeSet<QuotaOwner>,
    ) -> Result<Vec<UsedUp>, StoreError> {
        self.read("read quotas", owners, |db, owners| {
            Box::pin(async move {
                let (mut keys, mut campaigns) = (BTreeSet::new(), BTreeSet::new());
                for owner in owners {
                    match owner {
                        QuotaOwner::Key(id) => _ = keys.insert(&**id),
                        QuotaOwner::Campaign(id) => _ = campaigns.insert(*id),
                    }
                }
                let mut quotas = Quotas::limits(db, &limited(keys, campaigns)).await?;
                quotas.count(db).await?;
                let used_up = owners.iter().filter_map(|owner| quotas.used_up(owner));
                Ok(used_up.collect())
            })
        })
        .await
    }

    /// Counts the links that were ever created with the keys of some sequences of rotations, each given by the id of its
    /// first key, or in some campaigns. Owners without links are left out.
    #[boxed]
    pub async fn created_links(
        &self,
        owners: &[QuotaOwner],
    ) -> Result<HashMap<QuotaOwner, u64>, StoreError> {
        if owners.is_empty() {
            return Ok(HashMap::new());
        }
        let names: Vec<String> = owners.iter().map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let read = |row: &Row| Ok((row.get("owner")?, links(row)?));
        let values = args![names];
        let counts = self.all("count created links", COUNTS, values, read);
        let counts: HashMap<String, u64> = counts.await?;
        let owners = owners.iter();
        let counted = owners.filter_map(|owner| Some((owner.clone(), *counts.get(&name(owner))?)));
        Ok(counted.collect())
    }
}
