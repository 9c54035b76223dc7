//! Creation of links. Both engines insert many with one statement, each in its own way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::link::Link;
use shortlink_core::ports::{
    Created, FoundOrCreated, Identity, Receipt, RequestDigest, StoreError, UsedUp,
};
use shortlink_core::target::Target;
use vocabulary::Code;

use super::db::Db;
use super::quotas::{self, Quotas};
use super::rows::{NewLink, ids_of};
use super::search::Admission;
use super::sql::{IN_NUMBERS, Sql, sql};
use super::value::args;
use super::{Scheme, Store, codes, digests, outbox, search, shared, spellings, tags, uploads};
use crate::postgres::creation as postgres;
use crate::sqlite::creation as sqlite;

/// The manner in which links are created.
#[derive(Clone, Debug, Default)]
pub(super) struct Creation {
    /// Stores the hashes of targets, so that links are found by them.
    pub(super) finds_targets: bool,
    /// Set once this process has met a quota. Until then, a transaction in PostgreSQL reads the quotas with its last
    /// statement, which costs no turn; if there is one after all, it begins anew.
    has_quotas: Arc<AtomicBool>,
    /// Chooses the links that are found by words.
    admission: Arc<Admission>,
    /// The codes of those that it has chosen among the links that are created. They are chosen before the transaction,
    /// which can be repeated.
    admitted: HashSet<Code>,
}

impl Creation {
    pub(super) fn new(finds_targets: bool) -> Self {
        Self {
            finds_targets,
            ..Self::default()
        }
    }

    /// The manner for some links.
    pub(super) fn of<'a>(&self, links: impl Iterator<Item = &'a Link> + Clone) -> Self {
        let by_creator = links.clone().map(|link| (link.created_by.as_str(), link));
        let admitted: HashSet<usize> = HashSet::from_iter(self.admit(by_creator));
        let mut creation = self.clone();
        if !admitted.is_empty() {
            let codes = links.enumerate();
            let codes = codes.filter(|(place, _)| admitted.contains(place));
            creation.admitted = codes.map(|(_, link)| link.code).collect();
        }
        creation
    }

    /// The places of the links that are found by words; each is created or changed by an API key.
    pub(super) fn admit<'a>(&self, links: impl Iterator<Item = (&'a str, &'a Link)>) -> Vec<usize> {
        self.admission.admit(links, Instant::now())
    }
}

/// A quota applies to links that were stored without its lock.
#[derive(Debug, thiserror::Error)]
#[error("the links have a quota, which was not locked")]
struct Unlocked;

/// Returns whether an operation has ended only to begin anew with the locks of quotas.
pub(super) fn begins_anew(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Decode(error) if error.is::<Unlocked>())
}

/// Deletes links by their ids.
pub(super) const DELETE: Sql = sql!("DELETE FROM links WHERE id", IN_NUMBERS);

impl Store {
    /// Stores new links, at most [`MAX_TOGETHER`](shortlink_core::ports::MAX_TOGETHER), all that can be
    /// stored or, after an error, none. They are put into the outbox in the same transaction.
    #[boxed]
    pub async fn create_links(&self, links: Vec<Link>) -> Result<Created, StoreError> {
        let creation = self.creation.of(links.iter());
        let args = (links, creation);
        self.run_tx("store new links", args, |db, (links, creation)| {
            Box::pin(async move {
                let links: Vec<&Link> = links.iter().collect();
                create(db, &links, creation).await
            })
        })
        .await
    }

    /// As [`Store::create_links`] for links that an operator brings along: they count, and no quota refuses them. Their
    /// codes may differ only by case from others: they are in use.
    #[boxed]
    pub async fn import_links(&self, links: Vec<Link>) -> Result<Created, StoreError> {
        let creation = self.creation.of(links.iter());
        let args = (links, creation);
        self.run_tx("store imported links", args, |db, (links, creation)| {
            Box::pin(async move {
                let links: Vec<&Link> = links.iter().collect();
                let mut before = Before::look(db, &links, creation, false).await?;
                before.allows_twins = true;
                let (created, _) = insert(db, &links, before, Vec::new(), creation).await?;
                Ok(created)
            })
        })
        .await
    }

    /// As [`Store::create_links`], but a link is stored only if no link that stands for it
    /// ([`Link::stands_for`], at the creation of the new one) has the same digest and is within its window. Of
    /// concurrent calls, one stores the link.
    #[boxed]
    pub async fn find_or_create_links(
        &self,
        links: Vec<(Link, Identity)>,
    ) -> Result<FoundOrCreated, StoreError> {
        let creation = self.creation.of(links.iter().map(|(link, _)| link));
        let args = (links, creation);
        self.run_tx("find or store new links", args, |db, (links, creation)| {
            Box::pin(find_or_create(db, links, creation))
        })
        .await
    }
}

/// Stores links whose codes are free and whose quotas have a place for them, within a transaction; with the hashes of
/// their targets, if links are found by these.
pub(super) async fn create(
    db: &mut Db<'_>,
    links: &[&Link],
    creation: &Creation,
) -> Result<Created, sqlx::Error> {
    let mut before = Before::look(db, links, creation, true).await?;
    let mut quotas = std::mem::take(&mut before.quotas);
    let places = links.iter().enumerate();
    let over = places.filter_map(|(place, link)| Some((place, quotas.take(link).err()?)));
    let over = over.collect();
    let (created, limited) = insert(db, links, before, over, creation).await?;
    if !limited.iter().all(|owner| quotas.has(owner)) {
        creation.has_quotas.store(true, Ordering::Relaxed);
        return Err(sqlx::Error::Decode(Box::new(Unlocked)));
    }
    Ok(created)
}

/// The state that a transaction reads before it inserts links.
#[derive(Default)]
pub(super) struct Before {
    /// The ids of the links, in their order.
    pub(super) ids: Vec<i64>,
    /// Those that still belong to deleted links. PostgreSQL reads them after the insertion.
    pub(super) removed: HashSet<i64>,
    /// The quotas of the links, locked.
    pub(super) quotas: Quotas,
    /// Set if custom codes may differ only by case from others.
    pub(super) allows_twins: bool,
}

impl Before {
    /// Reads it; the quotas only if they apply. SQLite reads all with one statement.
    async fn look(
        db: &mut Db<'_>,
        links: &[&Link],
        creation: &Creation,
        has_quotas: bool,
    ) -> Result<Self, sqlx::Error> {
        let codes: Vec<&str> = links.iter().map(|link| link.code.as_str()).collect();
        let ids = ids_of(db, &codes).await?;
        if db.scheme() == Scheme::Sqlite {
            return sqlite::look(db, links, ids, creation, has_quotas).await;
        }
        let quotas = if has_quotas && creation.has_quotas.load(Ordering::Relaxed) {
            Quotas::lock(db, links).await?
        } else {
            Quotas::default()
        };
        Ok(Self {
            ids,
            quotas,
            ..Self::default()
        })
    }
}

/// Stores links whose codes are free, within a transaction, but those that are over a quota. In PostgreSQL, also
/// returns the names of the keys and campaigns that have a quota.
async fn insert(
    db: &mut Db<'_>,
    links: &[&Link],
    before: Before,
    over: Vec<(usize, UsedUp)>,
    creation: &Creation,
) -> Result<(Created, Vec<String>), sqlx::Error> {
    let Before {
        ids,
        removed,
        allows_twins,
        ..
    } = before;
    let mut taken = Vec::new();
    let mut seen = HashSet::with_capacity(ids.len());
    let mut rows = Vec::with_capacity(ids.len());
    let is_over = |place| {
        over.binary_search_by_key(&place, |(place, _)| *place)
            .is_ok()
    };
    for (place, (id, &link)) in ids.into_iter().zip(links).enumerate() {
        if is_over(place) {
            continue;
        }
        // Of two new links with one code the first gets it.
        if !removed.contains(&id) && seen.insert(id) {
            let target = link.destination.target().filter(|_| creation.finds_targets);
            rows.push(NewLink {
                id,
                place,
                link,
                target_hash: target.map(Target::hash),
            });
        } else {
            taken.push(place);
        }
    }
    // All transactions insert in the order of the ids, so that two with the same codes wait for each
    // other instead of deadlocking; new rows go to the end of the table, and codes that were issued
    // one after the other share a row of the outbox.
    rows.sort_unstable_by_key(|row| row.id);
    let mut kept = match db.scheme() {
        Scheme::Sqlite => sqlite::insert(db, &rows).await?,
        Scheme::Postgres => postgres::insert(db, &rows).await?,
    };
    kept.sort_unstable();
    leave_out(&mut rows, &mut taken, |id| kept.binary_search(&id).is_ok());
    let twins = spellings::claim(db, &rows).await?;
    if !twins.is_empty() && !allows_twins {
        db.run(DELETE, args![twins.as_slice()]).await?;
        leave_out(&mut rows, &mut taken, |id| !twins.contains(&id));
    }
    let mut settled = Settled::default();
    if let Some(now) = rows.first().map(|row| row.link.updated_at) {
        tags::add(db, &with_ids(&rows)).await?;
        add_words(db, &rows, creation).await?;
        uploads::add(db, rows.iter().map(|row| row.link)).await?;
        settled = settle(db, &rows, now).await?;
        let removed = std::mem::take(&mut settled.removed);
        if !removed.is_empty() {
            undo(db, &rows, &removed, &settled.receipt).await?;
            leave_out(&mut rows, &mut taken, |id| !removed.contains(&id));
            settled = settle(db, &rows, now).await?;
        }
    }
    taken.sort_unstable();
    let created = Created {
        taken,
        over,
        receipt: settled.receipt,
    };
    Ok((created, settled.limited))
}

/// Stores the words of those new links that are found by words.
async fn add_words(
    db: &mut Db<'_>,
    rows: &[NewLink<'_>],
    creation: &Creation,
) -> Result<(), sqlx::Error> {
    if creation.admitted.is_empty() {
        return Ok(());
    }
    let rows = rows.iter();
    let rows = rows.filter(|row| creation.admitted.contains(&row.link.code));
    search::add(db, rows.map(|row| (row.id, row.link))).await
}

fn with_ids<'a>(rows: &[NewLink<'a>]) -> Vec<(i64, &'a Link)> {
    rows.iter().map(|row| (row.id, row.link)).collect()
}

/// The outcome of [`settle`].
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) receipt: Receipt,
    /// The ids that still belong to deleted links, which PostgreSQL knows only now.
    pub(super) removed: Vec<i64>,
    /// The names of the keys and campaigns that have a quota; always empty in SQLite, which reads them before.
    pub(super) limited: Vec<String>,
}

/// Adds inserted links to the outbox and counts them.
async fn settle(
    db: &mut Db<'_>,
    rows: &[NewLink<'_>],
    now: Timestamp,
) -> Result<Settled, sqlx::Error> {
    if rows.is_empty() {
        return Ok(Default::default());
    }
    let spans = shared::spans(rows.iter().map(|row| (row.id, row.link.revision)));
    if db.scheme() == Scheme::Postgres {
        return postgres::settle(db, rows, spans, now).await;
    }
    codes::count(db, rows.iter().map(NewLink::counted), 1).await?;
    quotas::count(db, rows.iter().map(|row| row.link), 1).await?;
    outbox::enqueue(db, &spans, now).await?;
    Ok(Settled {
        receipt: Receipt(spans),
        ..Settled::default()
    })
}

/// Removes the rows whose codes are taken.
fn leave_out(rows: &mut Vec<NewLink<'_>>, taken: &mut Vec<usize>, is_kept: impl Fn(i64) -> bool) {
    rows.retain(|row| {
        let stays = is_kept(row.id);
        if !stays {
            taken.push(row.place);
        }
        stays
    });
}

/// Deletes links that this transaction has inserted, with all that belongs to them.
async fn undo(
    db: &mut Db<'_>,
    rows: &[NewLink<'_>],
    ids: &[i64],
    receipt: &Receipt,
) -> Result<(), sqlx::Error> {
    db.run(DELETE, args![ids]).await?;
    db.run(spellings::RELEASE, args![ids]).await?;
    db.run(search::REMOVE, args![ids]).await?;
    let mut removed = with_ids(rows);
    removed.retain(|(id, _)| ids.contains(id));
    tags::remove(db, &removed).await?;
    let sql = sql!(outbox::DELETE, outbox::DELETED);
    db.run_table(sql, receipt.0.iter().map(outbox::ends), &[])
        .await?;
    quotas::count(db, rows.iter().map(|row| row.link), -1).await?;
    codes::count(db, rows.iter().map(NewLink::counted), -1).await
}

async fn find_or_create(
    db: &mut Db<'_>,
    links: &[(Link, Identity)],
    creation: &Creation,
) -> Result<FoundOrCreated, sqlx::Error> {
    if links.is_empty() {
        return Ok(FoundOrCreated::default());
    }
    let locked = digests::lock(db, links).await?;
    let mut output = FoundOrCreated::default();
    // Those for which there is no link yet, and those that share their digest.
    let mut new = Vec::new();
    let mut new_places = Vec::new();
    let mut leaders: HashMap<RequestDigest, usize> = HashMap::new();
    let mut followers = Vec::new();
    for (place, (link, identity)) in links.iter().enumerate() {
        if let Some(&leader) = leaders.get(&identity.digest) {
            followers.push((place, leader));
            continue;
        }
        let found = locked.found.get(&identity.digest);
        let found = found.map(|(_, found)| found);
        let now = link.created_at;
        match found.filter(|found| {
            identity.is_recent(found.used_at, now) && found.link.stands_for(link, now)
        }) {
            Some(found) => output.found.push((place, found.link.clone())),
            None => {
                leaders.insert(identity.digest, place);
                new.push(link);
                new_places.push(place);
            }
        }
    }
    let created = create(db, &new, creation).await?;
    output.receipt = created.receipt;
    let taken = created.taken.iter().map(|&index| new_places[index]);
    output.taken = taken.collect();
    let over = created.over.into_iter();
    output.over = over
        .map(|(index, used_up)| (new_places[index], used_up))
        .collect();
    let over: HashMap<usize, UsedUp> = output.over.iter().cloned().collect();
    let (void, kept): (Vec<usize>, Vec<usize>) = new_places
        .iter()
        .partition(|place| output.taken.binary_search(place).is_ok() || over.contains_key(place));
    // Equal requests share a row, which is renewed once.
    let mut found: Vec<usize> = output.found.iter().map(|(place, _)| *place).collect();
    let mut renewed = HashSet::with_capacity(found.len());
    found.retain(|&place| renewed.insert(links[place].1.digest));
    locked.settle(db, links, &kept, &found, &void).await?;
    for (place, leader) in followers {
        if output.taken.contains(&leader) {
            output.taken.push(place);
        } else if let Some(used_up) = over.get(&leader) {
            output.over.push((place, used_up.clone()));
        } else {
            output.found.push((place, links[leader].0.clone()));
        }
    }
    output.taken.sort_unstable();
    output.over.sort_unstable_by_key(|(place, _)| *place);
    output.found.sort_unstable_by_key(|(place, _)| *place);
    Ok(output)
}
