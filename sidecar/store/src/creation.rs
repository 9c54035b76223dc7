//! Creation of links. Both engines insert many with one statement, each in its own way.

use std::collections::HashMap;

use shortlink_core::codes::numbering::Numbering;
use shortlink_core::link::Link;
use shortlink_core::ports::{Created, FoundOrCreated, RequestDigest, StoreError};

use super::db::Db;
use super::postgres::statements::{Comment, Statements};
use super::{Store, postgres, sqlite};

impl Store {
    /// Stores new links, at most [`MAX_TOGETHER`](shortlink_core::ports::MAX_TOGETHER), all that can be
    /// stored or, after an error, none. They are put into the outbox in the same transaction.
    pub async fn create_links(&self, links: Vec<Link>) -> Result<Created, StoreError> {
        let args = (links, self.numbering());
        self.run_tx("store new links", args, |db, (links, numbering)| {
            Box::pin(async move {
                let links: Vec<&Link> = links.iter().collect();
                create(db, &links, numbering).await
            })
        })
        .await
    }

    /// As [`Store::create_links`], but a link is stored only if no link that stands for it
    /// ([`Link::stands_for`], at the creation of the new one) has the same digest. Of concurrent
    /// calls, one stores the link.
    pub async fn find_or_create_links(
        &self,
        links: Vec<(Link, RequestDigest)>,
    ) -> Result<FoundOrCreated, StoreError> {
        let args = (links, self.numbering());
        self.run_tx("find or store new links", args, |db, (links, numbering)| {
            Box::pin(find_or_create(db, links, numbering))
        })
        .await
    }
}

/// Stores links whose codes are free, within a transaction.
pub(super) async fn create(
    db: &mut Db<'_>,
    links: &[&Link],
    numbering: &Numbering,
) -> Result<Created, sqlx::Error> {
    match db {
        Db::Sqlite(connection) => sqlite::creation::create(connection, links, numbering).await,
        Db::Postgres(connection, _) => {
            let mut statements = Statements::new(connection, Comment::current());
            postgres::creation::create(&mut statements, links, numbering).await
        }
    }
}

async fn find_or_create(
    db: &mut Db<'_>,
    links: &[(Link, RequestDigest)],
    numbering: &Numbering,
) -> Result<FoundOrCreated, sqlx::Error> {
    let mut locked = match db {
        Db::Sqlite(_) => None,
        Db::Postgres(connection, _) => {
            let mut statements = Statements::new(connection, Comment::current());
            Some(postgres::digests::lock(&mut statements, links, numbering).await?)
        }
    };
    let mut output = FoundOrCreated::default();
    // Those for which there is no link yet, and those that share their digest.
    let mut new = Vec::new();
    let mut new_places = Vec::new();
    let mut leaders: HashMap<RequestDigest, usize> = HashMap::new();
    let mut followers = Vec::new();
    for (place, (link, digest)) in links.iter().enumerate() {
        if let Some(&leader) = leaders.get(digest) {
            followers.push((place, leader));
            continue;
        }
        let found = match (&mut *db, &locked) {
            (_, Some(locked)) => locked.found.get(digest).cloned(),
            (db, None) => super::links::find_by_digest(db, digest).await?,
        };
        match found.filter(|found| found.stands_for(link, link.created_at)) {
            Some(found) => output.found.push((place, found)),
            None => {
                leaders.insert(*digest, place);
                new.push(link);
                new_places.push(place);
            }
        }
    }
    let created = create(db, &new, numbering).await?;
    output.receipt = created.receipt;
    let taken = created.taken.iter().map(|&index| new_places[index]);
    output.taken = taken.collect();
    let (void, kept): (Vec<usize>, Vec<usize>) = new_places
        .iter()
        .partition(|place| output.taken.binary_search(place).is_ok());
    match (db, locked.take()) {
        (Db::Postgres(connection, _), Some(locked)) => {
            let mut statements = Statements::new(connection, Comment::current());
            locked.settle(&mut statements, links, &kept, &void).await?;
        }
        (Db::Sqlite(connection), _) => {
            for place in kept {
                sqlite::digests::note(connection, &links[place], numbering).await?;
            }
        }
        (Db::Postgres(..), None) => {}
    }
    for (place, leader) in followers {
        if output.taken.contains(&leader) {
            output.taken.push(place);
        } else {
            output.found.push((place, links[leader].0.clone()));
        }
    }
    output.taken.sort_unstable();
    output.found.sort_unstable_by_key(|(place, _)| *place);
    Ok(output)
}
