//! Walks through all links that several lanes share.
//!
//! The note of a walk has the place up to which parts of it were given out; each lane has a note with the part that it is
//! working on. A lane takes the next part in one transaction, so no link is left out and no part is taken twice; a lane
//! that another process takes over continues with its part. A pass ends when all parts are done.

use shortlink_core::boxed;
use shortlink_core::ports::{Place, StoreError};

use crate::Store;
use crate::claims::{begin_note, delete_note, note_of, write_note};
use crate::db::Db;
use crate::sql::sql;
use crate::value::{Row, args};

/// The results of comparing links, which add up over a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Number of links that need no record any more.
    pub ended: u64,
    /// Number of records that are newer than the database.
    pub newer: u64,
}

/// A part of a walk, for one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pass: u64,
    /// The place that the links of this part begin behind.
    pub from: Place,
    /// The last place of this part.
    pub to: Place,
    /// Found so far.
    pub found: Found,
}

/// The next work of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Links to compare.
    Part(Part),
    /// Nothing, until other lanes have finished their parts.
    Wait,
    /// All parts are done: the pass is to be ended ([`Store::end_pass`]).
    End(Pass),
}

/// A pass whose parts are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    number: u64,
    /// Found in all parts.
    pub found: Found,
}

/// The walk of some lanes.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The name of the notes.
    pub name: &'static str,
    /// The number of lanes.
    pub lanes: u32,
    /// The number of links of a part.
    pub links: u32,
    /// The generation of a Redis that this pass compares as a whole; the pass begins again for another one.
    pub generation: Option<u64>,
}

/// The place that no further part begins behind.
const END: Place = Place(i64::MAX);

/// The state of a walk.
#[derive(Clone, Copy)]
struct State {
    /// The place up to which parts were given out.
    next: Place,
    found: Found,
    pass: u64,
    generation: Option<u64>,
}

impl State {
    /// Reads a note; of earlier versions, it has only the first numbers.
    fn read(note: Option<&str>) -> Self {
        let mut words = note.unwrap_or_default().split(' ');
        let next = words.next().and_then(|it| it.parse().ok());
        let mut number = || words.next().and_then(|it| it.parse().ok());
        let found = Found {
            ended: number().unwrap_or_default(),
            newer: number().unwrap_or_default(),
        };
        Self {
            next: next.map_or(Place::START, Place),
            found,
            pass: number().unwrap_or_default(),
            generation: number(),
        }
    }

    fn text(&self) -> String {
        let (Place(next), Found { ended, newer }) = (self.next, self.found);
        let generation = self.generation.map_or("-".to_owned(), |it| it.to_string());
        format!("{next} {ended} {newer} {} {generation}", self.pass)
    }

    /// The state before the first part of the next pass.
    fn next_pass(&self, generation: Option<u64>) -> Self {
        Self {
            next: Place::START,
            found: Found::default(),
            pass: self.pass + 1,
            generation,
        }
    }
}

impl Part {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<i64>().ok();
        Some(Self {
            pass: number()?.cast_unsigned(),
            from: Place(number()?),
            to: Place(number()?),
            found: Found {
                ended: number()?.cast_unsigned(),
                newer: number()?.cast_unsigned(),
            },
        })
    }

    fn text(&self) -> String {
        let Found { ended, newer } = self.found;
        format!(
            "{} {} {} {ended} {newer}",
            self.pass, self.from.0, self.to.0
        )
    }
}

impl Store {
    /// Takes the next part of a walk for a lane, or the one that it has not finished.
    #[boxed]
    pub async fn take_part(&self, walk: Walk, lane: u32) -> Result<Share, StoreError> {
        self.run_tx("take a part of a walk", (walk, lane), |db, (walk, lane)| {
            Box::pin(take(db, walk, *lane))
        })
        .await
    }

    /// Stores how far a lane is with its part; `false` if the pass began again.
    #[boxed]
    pub async fn note_part(&self, name: &str, lane: u32, part: Part) -> Result<bool, StoreError> {
        let args = (name.to_owned(), lane, part);
        self.run_tx("note a part of a walk", args, |db, (name, lane, part)| {
            Box::pin(async move {
                if !holds(db, name, *lane, part).await? {
                    return Ok(false);
                }
                write_note(db, &of_lane(name, *lane), &part.text()).await?;
                Ok(true)
            })
        })
        .await
    }

    /// Finishes the part of a lane, adds up what was found, and takes the next part. Finishes nothing if the pass began
    /// again.
    #[boxed]
    pub async fn finish_part(
        &self,
        walk: Walk,
        lane: u32,
        part: Part,
    ) -> Result<Share, StoreError> {
        let args = (walk, lane, part);
        self.run_tx("finish a part of a walk", args, |db, (walk, lane, part)| {
            Box::pin(async move {
                let name = walk.name;
                let mut state = State::read(note_of(db, name).await?.as_deref());
                if holds(db, name, *lane, part).await? {
                    delete_note(db, &of_lane(name, *lane)).await?;
                    state.found.ended += part.found.ended;
                    state.found.newer += part.found.newer;
                    write_note(db, name, &state.text()).await?;
                }
                take(db, walk, *lane).await
            })
        })
        .await
    }

    /// Ends a pass, and takes a part of the next one. Ends nothing if another lane has done so.
    #[boxed]
    pub async fn end_pass(&self, walk: Walk, lane: u32, pass: Pass) -> Result<Share, StoreError> {
        self.run_tx(
            "end a walk",
            (walk, lane, pass),
            |db, (walk, lane, pass)| {
                Box::pin(async move {
                    let state = State::read(note_of(db, walk.name).await?.as_deref());
                    if state.pass == pass.number && state.next == END {
                        let state = state.next_pass(walk.generation);
                        write_note(db, walk.name, &state.text()).await?;
                    }
                    take(db, walk, *lane).await
                })
            },
        )
        .await
    }
}

fn of_lane(name: &str, lane: u32) -> String {
    format!("{name}:{lane}")
}

/// Returns whether a lane still has a part: of the same pass and with the same end.
async fn holds(db: &mut Db<'_>, name: &str, lane: u32, part: &Part) -> Result<bool, sqlx::Error> {
    let note = note_of(db, &of_lane(name, lane)).await?;
    let now = note.as_deref().and_then(Part::read);
    Ok(now.is_some_and(|it| (it.pass, it.to) == (part.pass, part.to)))
}

async fn take(db: &mut Db<'_>, walk: &Walk, lane: u32) -> Result<Share, sqlx::Error> {
    let name = walk.name;
    // Without a row there is nothing to lock: of two lanes that begin at the same time, the second waits here.
    begin_note(db, name, &State::read(None).text()).await?;
    let mut state = State::read(note_of(db, name).await?.as_deref());
    let mut parts = parts(db, name).await?;
    if state.generation != walk.generation {
        state = state.next_pass(walk.generation);
        for (lane, _) in parts.drain(..) {
            delete_note(db, &of_lane(name, lane)).await?;
        }
        write_note(db, name, &state.text()).await?;
    }
    parts.retain(|(_, part)| part.pass == state.pass);
    if let Some((_, part)) = parts.iter().find(|(of, _)| *of == lane) {
        return Ok(Share::Part(*part));
    }
    if state.next != END {
        let from = state.next;
        let (to, next) = end_of_part(db, walk, from).await?;
        state.next = next;
        let part = Part {
            pass: state.pass,
            from,
            to,
            found: Found::default(),
        };
        write_note(db, &of_lane(name, lane), &part.text()).await?;
        write_note(db, name, &state.text()).await?;
        return Ok(Share::Part(part));
    }
    // There were more lanes when this part was taken.
    if let Some((gone, part)) = parts.iter().find(|(of, _)| *of >= walk.lanes) {
        delete_note(db, &of_lane(name, *gone)).await?;
        write_note(db, &of_lane(name, lane), &part.text()).await?;
        return Ok(Share::Part(*part));
    }
    if !parts.is_empty() {
        return Ok(Share::Wait);
    }
    Ok(Share::End(Pass {
        number: state.pass,
        found: state.found,
    }))
}

/// The parts that lanes are working on.
async fn parts(db: &mut Db<'_>, name: &str) -> Result<Vec<(u32, Part)>, sqlx::Error> {
    let sql = sql!(
        "SELECT {substr(name, length('note:') + length($1) + 1) AS rest, CAST(value AS TEXT) AS note \
         FROM settings WHERE substr(name, 1, length('note:') + length($1)) = concat('note:', $1)|\
         substr(name, length($1) + 1) AS rest, note FROM notes WHERE starts_with(name, $1)}"
    );
    let read = |row: &Row| Ok((row.get::<String>("rest")?, row.get::<String>("note")?));
    let rows: Vec<_> = db.all(sql, args![format!("{name}:")], read).await?;
    let parts = rows.iter();
    let parts = parts.filter_map(|(lane, note)| Some((lane.parse().ok()?, Part::read(note)?)));
    Ok(parts.collect())
}

/// The last place of a part that begins behind a place, and the place that the next part begins behind. The last part ends
/// at the last link that there is now: links that are created meanwhile must not prolong the pass. One lane needs no
/// parts.
async fn end_of_part(
    db: &mut Db<'_>,
    walk: &Walk,
    from: Place,
) -> Result<(Place, Place), sqlx::Error> {
    let id = |row: &Row| row.get::<i64>("id").map(Place);
    if walk.lanes > 1 {
        let sql = sql!("SELECT id FROM links WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2");
        let values = args![from.0, walk.links.saturating_sub(1)];
        if let Some(last) = db.one(sql, values, id).await? {
            return Ok((last, last));
        }
    }
    let sql = sql!("SELECT id FROM links WHERE id > $1 ORDER BY id DESC LIMIT 1");
    let last = db.one(sql, args![from.0], id).await?;
    Ok((last.unwrap_or(from), END))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shortlink_core::testing::{link, moment};

    use super::*;
    use crate::in_every_store;
    use crate::testing::{Fixture, NOW};

    in_every_store! {
        lanes_share_all_links_and_the_last_one_ends_the_pass,
        a_pass_begins_again_for_another_generation,
        parts_of_lanes_that_are_gone_are_taken_over,
    }

    const NAME: &str = "reconcile";

    fn walk(lanes: u32) -> Walk {
        Walk {
            name: NAME,
            lanes,
            links: 3,
            generation: None,
        }
    }

    async fn take(fixture: &Fixture, walk: Walk, lane: u32) -> Share {
        fixture
            .store
            .take_part(walk, lane)
            .await
            .expect("a working store")
    }

    async fn part(fixture: &Fixture, walk: Walk, lane: u32) -> Part {
        match take(fixture, walk, lane).await {
            Share::Part(part) => part,
            other => panic!("{other:?}"),
        }
    }

    async fn codes(fixture: &Fixture, part: Part) -> Vec<String> {
        let page = fixture
            .store
            .records_between(part.from, part.to, 100, moment(NOW))
            .await;
        let page = page.expect("a working store");
        page.records.iter().map(|it| it.code.to_string()).collect()
    }

    async fn lanes_share_all_links_and_the_last_one_ends_the_pass(fixture: Fixture) {
        let all: Vec<String> = (0..10).map(|n| format!("abc{n}")).collect();
        let links = all.iter().map(|code| link(code));
        fixture
            .store
            .create_links(links.collect())
            .await
            .expect("a working store");
        let (store, mut seen) = (&fixture.store, BTreeSet::new());
        let mut shares = [
            take(&fixture, walk(2), 0).await,
            take(&fixture, walk(2), 1).await,
        ];
        let mut lane = 0;
        let pass = loop {
            match shares[lane] {
                Share::Part(mut part) => {
                    let number = lane as u32;
                    // A lane that was cut off continues.
                    assert_eq!(take(&fixture, walk(2), number).await, Share::Part(part));
                    for code in codes(&fixture, part).await {
                        assert!(seen.insert(code));
                    }
                    part.found.ended = 1;
                    assert!(store.note_part(NAME, number, part).await.expect("a store"));
                    let next = store.finish_part(walk(2), number, part).await;
                    shares[lane] = next.expect("a store");
                    // Again, as after an answer that was lost.
                    let again = store.finish_part(walk(2), number, part).await;
                    assert_eq!(again.expect("a store"), shares[lane]);
                }
                Share::Wait => shares[lane] = take(&fixture, walk(2), lane as u32).await,
                Share::End(pass) => break pass,
            }
            lane = 1 - lane;
        };
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
        assert_eq!(pass.found, Found { ended: 4, newer: 0 });
        let next = store.end_pass(walk(2), 1, pass).await.expect("a store");
        assert!(matches!(next, Share::Part(part) if part.from == Place::START));
        // The other lane has seen the same end.
        let next = store.end_pass(walk(2), 0, pass).await.expect("a store");
        assert!(matches!(next, Share::Part(part) if part.from != Place::START));
    }

    async fn a_pass_begins_again_for_another_generation(fixture: Fixture) {
        let links = (0..10).map(|n| link(&format!("abc{n}")));
        fixture
            .store
            .create_links(links.collect())
            .await
            .expect("a working store");
        let old = part(&fixture, walk(2), 0).await;
        part(&fixture, walk(2), 1).await;
        let whole = Walk {
            generation: Some(7),
            ..walk(2)
        };
        let first = part(&fixture, whole, 1).await;
        assert_eq!((first.from, first.to), (old.from, old.to));
        assert!(
            !fixture
                .store
                .note_part(NAME, 0, old)
                .await
                .expect("a store")
        );
        let next = fixture.store.finish_part(whole, 0, old).await;
        assert!(matches!(next.expect("a store"), Share::Part(part) if part.from == first.to));
    }

    async fn parts_of_lanes_that_are_gone_are_taken_over(fixture: Fixture) {
        let links = (0..4).map(|n| link(&format!("abc{n}")));
        fixture
            .store
            .create_links(links.collect())
            .await
            .expect("a working store");
        let lost = part(&fixture, walk(3), 2).await;
        let last = part(&fixture, walk(3), 0).await;
        let store = &fixture.store;
        let next = store.finish_part(walk(3), 0, last).await;
        assert_eq!(next.expect("a store"), Share::Wait);
        assert_eq!(part(&fixture, walk(2), 0).await, lost);
        let next = store.finish_part(walk(2), 0, lost).await;
        assert!(matches!(next.expect("a store"), Share::End(_)));
    }
}
