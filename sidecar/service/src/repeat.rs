//! Idempotent requests.
//!
//! A client that does not know whether its request took effect repeats it with the same idempotency
//! key, and gets the same answer with the same codes. For that, the transaction that stores the
//! links of a chunk also stores the outcomes of its rows.

use std::collections::{HashMap, HashSet};

use sha2::{Digest, Sha256};
use shortlink_core::boxed;
use shortlink_core::link::Link;
use shortlink_core::ports::{
    Chunk, ChunkCreated, ChunkKey, NewChunk, Receipt, RowOutcome, StoreError,
};
use vocabulary::Code;

use super::issue::{Drawn, Issuer, Parts};
use super::new_link::{LinkError, NewLink, Stored};

/// The most attempts to complete a chunk; each one ends with some of the drawn codes taken.
const MAX_ATTEMPTS: u32 = 32;

/// A row of a chunk: a link to create, or the problem to report.
pub type Row = Result<NewLink, String>;

/// The result of a row.
#[derive(Debug)]
pub enum RowResult {
    /// A link, created now or by an earlier attempt of the request.
    Link(Box<Stored>),
    /// No link was created: the stored problem.
    Problem(String),
    /// No link was created by this attempt.
    Failed(LinkError),
}

/// The reason a chunk has no results.
#[derive(Debug, thiserror::Error)]
pub enum RepeatError {
    /// The key was used for another request.
    #[error("the key was used for another request")]
    Different,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Digest of the rows, by which a repeated request is recognised.
#[derive(Clone, Default)]
pub struct RowsDigest(Sha256);

impl RowsDigest {
    /// Adds a row as the client sent it.
    pub fn add(&mut self, row: &[u8]) {
        self.0.update((row.len() as u64).to_be_bytes());
        self.0.update(row);
    }

    /// Returns the digest of all rows.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// A chunk in progress.
struct Progress<'a> {
    parts: &'a Parts,
    rows: &'a [Row],
    chunk: Chunk,
    /// Rows whose custom code is taken.
    taken: HashSet<usize>,
    /// Rows without a link after this attempt.
    failed: HashMap<usize, LinkError>,
    /// Links that this attempt created.
    made: HashMap<Code, Link>,
    receipt: Receipt,
}

impl Issuer {
    /// Creates the links of a chunk, or finds those that an earlier attempt created. `describe`
    /// renders the problem of a row, such as a taken code.
    ///
    /// # Errors
    /// Fails if the key was used for another chunk, or the store fails.
    #[boxed]
    pub async fn create_chunk(
        &self,
        key: ChunkKey,
        digest: [u8; 32],
        rows: Vec<Row>,
        describe: fn(LinkError) -> String,
    ) -> Result<Vec<RowResult>, RepeatError> {
        let outcomes = rows.iter().map(|row| match row {
            Ok(_) => RowOutcome::Pending,
            Err(problem) => RowOutcome::Problem(problem.clone()),
        });
        let mut progress = Progress {
            parts: self.parts(),
            chunk: Chunk {
                digest,
                rows: outcomes.collect(),
            },
            rows: &rows,
            taken: HashSet::new(),
            failed: HashMap::new(),
            made: HashMap::new(),
            receipt: Receipt::default(),
        };
        let mut before = progress.parts.store.find_chunk(&key).await?;
        for attempt in 0..MAX_ATTEMPTS {
            if let Some(present) = &before {
                if present.digest != digest || present.rows.len() != rows.len() {
                    return Err(RepeatError::Different);
                }
                progress.chunk = present.clone();
            }
            if before.is_some() && progress.is_settled() {
                break;
            }
            before = Some(progress.step(&key, before, attempt, describe).await?);
        }
        progress.finish().await
    }
}

impl Progress<'_> {
    /// Returns true when every row has a link, a problem or an error. One that is no longer valid gets no link.
    fn is_settled(&self) -> bool {
        let mut rows = self.chunk.rows.iter().enumerate();
        !rows.any(|(at, row)| {
            *row == RowOutcome::Pending && self.rows[at].is_ok() && !self.failed.contains_key(&at)
        })
    }

    /// Tries to settle pending rows; returns the stored chunk.
    async fn step(
        &mut self,
        key: &ChunkKey,
        before: Option<Chunk>,
        attempt: u32,
        describe: fn(LinkError) -> String,
    ) -> Result<Chunk, RepeatError> {
        let mut pending = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let (RowOutcome::Pending, Ok(new)) = (&self.chunk.rows[at], row) else {
                continue;
            };
            match new.slug {
                Some(code) if self.taken.contains(&at) => {
                    let problem = describe(LinkError::Taken { code });
                    self.chunk.rows[at] = RowOutcome::Problem(problem);
                }
                _ => pending.push((at, new)),
            }
        }
        let used_up = self
            .parts
            .used_up(pending.iter().map(|(_, new)| *new))
            .await?;
        let mut over = HashMap::new();
        pending.retain(|(at, new)| {
            let used_up = new.quota_owners().find_map(|owner| used_up.get(&owner));
            over.extend(used_up.map(|it| (*at, LinkError::OverQuota(it.clone()))));
            used_up.is_none()
        });
        // Its capacity is reserved until the links are stored, or are not.
        let Drawn {
            links,
            failed,
            reserved: _reserved,
        } = self.parts.draw_for(&pending, attempt).await;
        self.failed = failed;
        self.failed.extend(over);
        let mut chunk = self.chunk.clone();
        for (at, link) in &links {
            chunk.rows[*at] = RowOutcome::Link(link.code);
        }
        let (places, links): (Vec<usize>, Vec<Link>) = links.into_iter().unzip();
        let new = NewChunk {
            key: key.clone(),
            chunk: chunk.clone(),
            before,
            links: links.clone(),
            places: places.clone(),
            now: self.parts.clock.now(),
        };
        match self.parts.store.create_chunk(new).await? {
            ChunkCreated::Exists(present) => Ok(present),
            ChunkCreated::Created(created) => {
                self.receipt.0.extend(created.receipt.0);
                // A code that is taken leaves the place that it took in a quota to another link.
                let is_over = created.taken.is_empty();
                let mut over = created.over.into_iter().peekable();
                let mut taken = created.taken.into_iter().peekable();
                for (index, (link, at)) in links.into_iter().zip(places).enumerate() {
                    if taken.next_if_eq(&index).is_some() {
                        chunk.rows[at] = RowOutcome::Pending;
                        self.taken.insert(at);
                    } else if let Some((_, used_up)) = over.next_if(|&(over, _)| over == index) {
                        chunk.rows[at] = RowOutcome::Pending;
                        if is_over {
                            self.failed.insert(at, LinkError::OverQuota(used_up));
                        }
                    } else {
                        self.made.insert(link.code, link);
                    }
                }
                Ok(chunk)
            }
        }
    }

    /// Publishes new links, looks up those of earlier attempts, and returns the result of each row.
    async fn finish(mut self) -> Result<Vec<RowResult>, RepeatError> {
        let codes = self.chunk.rows.iter().filter_map(|row| match row {
            RowOutcome::Link(code) if !self.made.contains_key(code) => Some(*code),
            _ => None,
        });
        let codes: Vec<Code> = codes.collect();
        let delivery = &self.parts.delivery;
        let of = |link, published| Stored {
            link,
            published,
            // Those of an earlier attempt were new then, and a replay returns the same answer.
            is_new: true,
        };
        let mut published = true;
        if !self.made.is_empty() {
            let links: Vec<Link> = self.made.values().cloned().collect();
            published = delivery.deliver(&links, self.receipt).await;
        }
        let made = self.made.drain();
        let mut stored: HashMap<Code, Stored> = made
            .map(|(code, link)| (code, of(link, published)))
            .collect();
        if !codes.is_empty() {
            let links = self.parts.store.find_links(&codes).await?;
            let published = delivery.deliver(&links, Receipt::default()).await;
            stored.extend(
                links
                    .into_iter()
                    .map(|link| (link.code, of(link, published))),
            );
        }
        let rows = self.chunk.rows.into_iter().enumerate();
        let results = rows.map(|(at, row)| match row {
            RowOutcome::Link(code) => match stored.remove(&code) {
                Some(stored) => RowResult::Link(Box::new(stored)),
                // The link was created, and deleted since.
                None => RowResult::Failed(LinkError::Forgotten { code }),
            },
            RowOutcome::Problem(problem) => RowResult::Problem(problem),
            RowOutcome::Pending => match (self.failed.remove(&at), &self.rows[at]) {
                (Some(error), _) => RowResult::Failed(error),
                (None, Ok(new)) => RowResult::Failed(LinkError::Exhausted {
                    draws: MAX_ATTEMPTS,
                    policy: new.policy,
                }),
                (None, Err(problem)) => RowResult::Problem(problem.clone()),
            },
        });
        Ok(results.collect())
    }
}
