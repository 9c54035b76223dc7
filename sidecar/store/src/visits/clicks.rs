//! Clicks: the links with human visits, the times of these, and the number of such links of each campaign.
//!
//! A link has a row in `link_clicks` if and only if it has a human visit that is not erased. `campaign_clicks` has the
//! number of rows that a campaign has got, by the hour of the first click: the clicks of a campaign are read without its
//! links. Both change in the transaction that stores, corrects or erases visits, with the clicked messages
//! ([`super::messages`]). All transactions lock rows of links in the order of their campaigns and keys, behind the counts
//! of visits and before the rows of campaigns. With visits in ClickHouse, clicks are there ([`super::sink`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use shortlink_clickhouse::Clicks;
use shortlink_core::visit::class::Class;
use shortlink_core::visit::stored::{StoredVisit, Verdict};
use vocabulary::Code;

use super::counts::LINK;
use super::erasure::overwrite;
use super::messages;
use super::{ALL, HOUR_MS, LinkKey, OF_LINKS, Taken};
use crate::Scheme;
use crate::db::Db;
use crate::sql::{IN_NUMBERS, Sql, sql, table};
use crate::value::{Row, Value, args};

/// A link, behind its campaign or [`ALL`].
pub(super) type Place<'a> = (i64, LinkKey<'a>);

/// Reads the clicks of a row.
pub(super) fn read(row: &Row) -> Result<Clicks, sqlx::Error> {
    Ok(Clicks {
        first_at: row.get("first_at")?,
        last_at: row.get("last_at")?,
        visits: row.get("visits")?,
    })
}

/// The place of each item of a list, by the item.
fn indices<T: Copy + Eq + Hash>(list: &[T]) -> HashMap<T, usize> {
    list.iter().copied().zip(0..).collect()
}

/// Visits by their links, in the order in which rows are locked.
#[derive(Debug, Default)]
pub(super) struct ByLink<'a>(pub(super) BTreeMap<Place<'a>, Clicks>);

impl<'a> ByLink<'a> {
    pub(super) fn add(&mut self, place: Place<'a>, at: i64) {
        let clicks = Clicks::at(at);
        let of_link = self.0.entry(place).and_modify(|it| *it = it.with(clicks));
        of_link.or_insert(clicks);
    }
}

/// Changes of the numbers of links of campaigns, by the hour of their first click.
#[derive(Debug, Default)]
struct Hours(BTreeMap<(i64, i64), i64>);

impl Hours {
    /// Notes that a link's first click was at a time, and is at another one or at none.
    fn moved(&mut self, campaign: i64, from: i64, to: Option<i64>) {
        self.add(campaign, from, -1);
        if let Some(to) = to {
            self.add(campaign, to, 1);
        }
    }

    /// Notes that the first clicks of so many further links were in the hour of a time.
    fn add(&mut self, campaign: i64, at: i64, links: i64) {
        if campaign != ALL {
            let hour = at.div_euclid(HOUR_MS);
            *self.0.entry((campaign, hour)).or_default() += links;
        }
    }

    async fn store(mut self, db: &mut Db<'_>) -> Result<(), sqlx::Error> {
        self.0.retain(|_, by| *by != 0);
        let rows = self.0.iter();
        let rows = rows.map(|((campaign, hour), by)| [*campaign, *hour, *by].map(Value::from));
        let into = sql!("INSERT INTO campaign_clicks AS kept (campaign_id, hour, links)");
        let end = sql!(
            " ON CONFLICT (campaign_id, hour) DO UPDATE SET links = kept.links + excluded.links"
        );
        db.insert(into, ["bigint"; 3], end, rows).await?;
        let less = self.0.iter().filter(|(_, by)| **by < 0);
        let less = less.map(|((campaign, hour), _)| [*campaign, *hour].map(Value::from));
        let less: Vec<_> = less.collect();
        let from = sql!("DELETE FROM campaign_clicks");
        let key = [(sql!("campaign_id"), "bigint"), (sql!("hour"), "bigint")];
        let end = sql!(" AND links <= 0");
        db.delete(from, key, less.into_iter(), end).await
    }
}

/// Changes of campaigns by the clicks of their links.
struct Changes<'a> {
    hours: Hours,
    messages: messages::Changes<'a>,
}

impl<'a> Changes<'a> {
    /// Begins before rows of links in some campaigns, or in [`ALL`], are locked or stored.
    async fn of(
        db: &mut Db<'_>,
        campaigns: impl Iterator<Item = i64>,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self {
            hours: Hours::default(),
            messages: messages::Changes::of(db, campaigns).await?,
        })
    }

    /// Notes that a link's first click was at a time, and is at another one or at none.
    fn moved(&mut self, place: Place<'a>, from: i64, to: Option<i64>) {
        self.hours.moved(place.0, from, to);
        if to.is_none() {
            self.messages.add(place, -1);
        }
    }

    async fn store(self, db: &mut Db<'_>) -> Result<(), sqlx::Error> {
        self.hours.store(db).await?;
        self.messages.store(db).await
    }
}

/// Counts the human ones among visits that were just stored. Returns the links whose first human visit is one of them, if
/// that is wanted.
pub(super) async fn add<'a>(
    db: &mut Db<'_>,
    visits: &[Taken<'a>],
    wants_first: bool,
) -> Result<Vec<LinkKey<'a>>, sqlx::Error> {
    let mut new = ByLink::default();
    for Taken { visit, key, link } in visits {
        if let (Some(link), Class::Human) = (link, visit.classification.class) {
            let place = (link.campaign.unwrap_or(ALL), *key);
            new.add(place, visit.at.as_millisecond());
        }
    }
    let mut changes = Changes::of(db, new.0.keys().map(|place| place.0)).await?;
    let first = add_some(db, &new, &mut changes, wants_first).await?;
    changes.store(db).await?;
    Ok(first)
}

/// The rows that are added: [`values`].
const NEW: &str = table!("new": 1 "campaign_id" "bigint", 2 "link" "text", 3 "first_at" "bigint",
    4 "last_at" "bigint", 5 "visits" "bigint");

/// The change of first clicks when rows are added: how many come into an hour of a campaign, and each that moves there
/// from a later time. SQLite, which has one writer, is asked before; in PostgreSQL this is the addition. A row that has no
/// visits but the added ones is new; with the parameter `$6`, each of these shows its link, otherwise each in the campaigns
/// of `$7`. The first time of others stays for now, so that the one before shows.
const FIRST: Sql = sql!(
    "WITH new AS MATERIALIZED (SELECT {campaign_id, link, first_at|*} FROM ",
    NEW,
    "), {changed AS (SELECT new.*, kept.first_at AS before FROM new LEFT JOIN link_clicks AS kept \
     ON kept.campaign_id = new.campaign_id AND kept.link_id = new.link \
     WHERE kept.first_at IS NULL OR new.first_at < kept.first_at)\
     |stored AS (INSERT INTO link_clicks AS kept SELECT * FROM new ON CONFLICT (campaign_id, code) \
     DO UPDATE SET last_at = greatest(kept.last_at, excluded.last_at), visits = kept.visits + excluded.visits \
     RETURNING campaign_id, code, first_at, visits), \
     changed AS (SELECT new.*, CASE WHEN stored.visits > new.visits THEN stored.first_at END AS before FROM new \
     JOIN stored ON stored.campaign_id = new.campaign_id AND stored.code = new.link \
     WHERE stored.visits = new.visits OR new.first_at < stored.first_at)} \
     SELECT campaign_id, CASE WHEN $6{|::boolean} \
     OR campaign_id{ IN (SELECT value FROM json_each($7))| = ANY($7::bigint[])} THEN link END AS link, \
     min(first_at) AS first_at, NULL AS before, count(*) AS links FROM changed WHERE before IS NULL GROUP BY 1, 2, first_at / 3600000 \
     UNION ALL SELECT campaign_id, link, first_at, before, 1 FROM changed WHERE before IS NOT NULL"
);

/// Adds visits to the rows of their links; returns the links of new rows, if that is wanted.
async fn add_some<'a>(
    db: &mut Db<'_>,
    new: &ByLink<'a>,
    changes: &mut Changes<'a>,
    wants_first: bool,
) -> Result<Vec<LinkKey<'a>>, sqlx::Error> {
    if new.0.is_empty() {
        return Ok(Vec::new());
    }
    let rows = || {
        let rows = new.0.iter();
        rows.map(|((campaign, key), clicks)| values(*campaign, *key, clicks))
    };
    let is_sqlite = db.scheme() == Scheme::Sqlite;
    let read = |row: &Row| {
        Ok(Changed {
            campaign: row.get("campaign_id")?,
            link: match row {
                Row::Sqlite(_) => row.find("link")?.map(OwnedKey::Id),
                Row::Postgres(_) => row.find("link")?.map(OwnedKey::Code),
            },
            first_at: row.get("first_at")?,
            before: row.find("before")?,
            links: row.get("links")?,
        })
    };
    let mut values = db.table(rows());
    values.push(wants_first.into());
    values.push(changes.messages.campaigns().into());
    let changed: Vec<Changed> = db.all(FIRST, &values, read).await?;
    let first = changed.iter().filter(|it| it.before.is_none());
    let first = first.filter_map(|it| Some((it.campaign, it.link.as_ref()?.key())));
    let first: HashSet<Place<'_>> = first.collect();
    let first = new.0.keys().filter(|place| first.contains(place));
    let mut first: Vec<LinkKey<'a>> = first
        .map(|place| {
            changes.messages.add(*place, 1);
            place.1
        })
        .collect();
    if !wants_first {
        first.clear();
    }
    for it in &changed {
        changes.hours.add(it.campaign, it.first_at, it.links);
        if let Some(before) = it.before {
            changes.hours.add(it.campaign, before, -1);
        }
    }
    if is_sqlite {
        let into = sql!("INSERT INTO link_clicks AS kept");
        let end = sql!(
            " ON CONFLICT (campaign_id, link_id) DO UPDATE SET first_at = min(kept.first_at, excluded.first_at), \
             last_at = max(kept.last_at, excluded.last_at), visits = kept.visits + excluded.visits"
        );
        db.insert(into, [""; 5], end, rows()).await?;
        return Ok(first);
    }
    let earlier = changed.iter().filter(|it| it.before.is_some());
    let earlier = earlier.filter_map(|it| {
        let link = it.link.as_ref()?;
        Some([it.campaign.into(), link.key().into(), it.first_at.into()])
    });
    let earlier: Vec<_> = earlier.collect();
    let sql = sql!(
        "UPDATE link_clicks SET first_at = new.first_at FROM ",
        table!("new": 1 "campaign_id" "bigint", 2 "link" "text", 3 "first_at" "bigint"),
        " WHERE link_clicks.campaign_id = new.campaign_id AND link_clicks.",
        LINK,
        " = new.link"
    );
    db.run_table(sql, earlier.into_iter(), &[]).await?;
    Ok(first)
}

/// The key of a link in a row.
enum OwnedKey {
    Id(i64),
    Code(String),
}

impl OwnedKey {
    fn key(&self) -> LinkKey<'_> {
        match self {
            Self::Id(id) => LinkKey::Id(*id),
            Self::Code(code) => LinkKey::Code(code),
        }
    }
}

/// A row of [`FIRST`].
struct Changed {
    campaign: i64,
    /// The link, if it had a later first click, or new links are wanted.
    link: Option<OwnedKey>,
    first_at: i64,
    /// The time of the first click before.
    before: Option<i64>,
    /// The number of links.
    links: i64,
}

/// The columns of a row.
fn values<'a>(campaign: i64, key: LinkKey<'a>, clicks: &Clicks) -> [Value<'a>; 5] {
    let [first_at, last_at, visits] =
        [clicks.first_at, clicks.last_at, clicks.visits].map(Value::from);
    [campaign.into(), key.into(), first_at, last_at, visits]
}

/// The visits that are human now, and those that no longer are.
pub(super) fn changes<'a>(
    visits: impl IntoIterator<Item = (&'a (StoredVisit, Verdict), LinkKey<'a>)>,
) -> (ByLink<'a>, ByLink<'a>) {
    let (mut more, mut less) = (ByLink::default(), ByLink::default());
    for ((visit, verdict), key) in visits {
        let is_human = [visit.class, verdict.classification.class].map(|it| it == Class::Human);
        let (place, at) = ((visit.campaign, key), visit.at.as_millisecond());
        match is_human {
            [false, true] => more.add(place, at),
            [true, false] => less.add(place, at),
            _ => {}
        }
    }
    (more, less)
}

/// Corrects the clicks of links some of whose visits are of another class now, each with its link; the visits and their
/// counts are corrected already. Returns the links that have their first human visit now, if that is wanted.
pub(super) async fn correct<'a>(
    db: &mut Db<'_>,
    visits: impl IntoIterator<Item = (&'a (StoredVisit, Verdict), LinkKey<'a>)>,
    wants_first: bool,
) -> Result<Vec<LinkKey<'a>>, sqlx::Error> {
    let (mut more, less) = changes(visits);
    let changed: BTreeSet<Place<'_>> = more.0.keys().chain(less.0.keys()).copied().collect();
    let mut changes = Changes::of(db, changed.iter().map(|place| place.0)).await?;
    let stored = lock(db, &changed).await?;
    let weighed = Weighed::of(&stored, &mut more, &less);
    let mut rows = Rows::default();
    for (place, stored, clicks) in weighed.known {
        rows.set(place, &stored, clicks, &mut changes);
    }
    // Those that are left have no row yet.
    let missing = of_links(db, more).await?;
    let unknown = weighed.unknown;
    let keys: BTreeSet<LinkKey<'_>> = unknown.iter().map(|it| it.place.1).collect();
    let since = unknown.iter().map(|it| it.left.first_at).min();
    let counted = count(db, &keys, since.unwrap_or_default()).await?;
    let gone = unknown.iter().map(|it| it.place);
    let gone = gone.filter(|place| !counted.contains_key(place));
    let last = last_counted(db, gone.map(|(_, key)| key).collect()).await?;
    for it in unknown {
        let counted = counted.get(&it.place).copied();
        let clicks = it.settled(counted, last.get(&it.place.1).copied());
        rows.set(it.place, &it.stored, Some(clicks), &mut changes);
    }
    rows.store(db).await?;
    let first = add_some(db, &missing, &mut changes, wants_first).await?;
    changes.store(db).await?;
    Ok(first)
}

/// Links with clicks some of whose visits are of another class now.
#[derive(Debug, Default)]
pub(super) struct Weighed<'a> {
    /// Those whose clicks follow: the clicks before, and now.
    pub(super) known: Vec<(Place<'a>, Clicks, Option<Clicks>)>,
    /// Those that have lost their first or last click, but not all.
    pub(super) unknown: Vec<Unknown<'a>>,
}

/// A link whose first or last click is to be found.
#[derive(Debug)]
pub(super) struct Unknown<'a> {
    pub(super) place: Place<'a>,
    /// The clicks before.
    pub(super) stored: Clicks,
    removed: Clicks,
    /// The clicks now, with times of some that may have been removed.
    pub(super) left: Clicks,
}

impl<'a> Weighed<'a> {
    /// Takes visits that are human now, for links that have clicks, and those that no longer are.
    pub(super) fn of(
        stored: &[(Place<'a>, Clicks)],
        more: &mut ByLink<'a>,
        less: &ByLink<'a>,
    ) -> Self {
        let mut weighed = Self::default();
        for (place, stored) in stored {
            let added = more.0.remove(place);
            let removed = less.0.get(place);
            let visits = stored.visits - removed.map_or(0, |it| it.visits);
            let left = Clicks { visits, ..*stored };
            let with = |left: Clicks| added.map_or(left, |added| left.with(added));
            match removed {
                Some(_) if visits <= 0 => weighed.known.push((*place, *stored, added)),
                Some(it) if it.first_at <= stored.first_at || it.last_at >= stored.last_at => {
                    weighed.unknown.push(Unknown {
                        place: *place,
                        stored: *stored,
                        removed: *it,
                        left: with(left),
                    });
                }
                _ => weighed.known.push((*place, *stored, Some(with(left)))),
            }
        }
        weighed
    }
}

impl Unknown<'_> {
    /// The clicks now: by the stored human visits since `left.first_at`, or without any by the time of the last one that
    /// was counted.
    pub(super) fn settled(&self, counted: Option<Clicks>, last_counted: Option<i64>) -> Clicks {
        match counted {
            // All other visits were later than this one, so that retention has deleted none of them before it.
            Some(counted) if self.removed.first_at <= self.stored.first_at => counted,
            Some(Clicks { last_at, .. }) => Clicks {
                last_at,
                ..self.left
            },
            // Retention has deleted the others. Their counts know about when the last one was.
            None => {
                let last_at = last_counted.unwrap_or_default();
                let last_at = last_at.min(self.left.last_at).max(self.left.first_at);
                Clicks {
                    last_at,
                    ..self.left
                }
            }
        }
    }
}

/// Changes of stored rows.
#[derive(Debug, Default)]
struct Rows<'a> {
    changed: Vec<[Value<'a>; 5]>,
    gone: Vec<[Value<'a>; 2]>,
}

impl<'a> Rows<'a> {
    /// Notes that a link has other clicks than those that are stored, or none.
    fn set(
        &mut self,
        (campaign, key): Place<'a>,
        stored: &Clicks,
        clicks: Option<Clicks>,
        changes: &mut Changes<'a>,
    ) {
        let first_at = clicks.map(|it| it.first_at);
        changes.moved((campaign, key), stored.first_at, first_at);
        match clicks {
            Some(clicks) if clicks == *stored => {}
            Some(clicks) => self.changed.push(values(campaign, key, &clicks)),
            None => self.gone.push([campaign.into(), key.into()]),
        }
    }

    async fn store(self, db: &mut Db<'_>) -> Result<(), sqlx::Error> {
        let sql = sql!(
            "UPDATE link_clicks SET first_at = new.first_at, last_at = new.last_at, \
             visits = new.visits FROM ",
            table!("new": 1 "campaign_id" "bigint", 2 "link" "text", 3 "first_at" "bigint",
                4 "last_at" "bigint", 5 "visits" "bigint"),
            " WHERE link_clicks.campaign_id = new.campaign_id AND link_clicks.",
            LINK,
            " = new.link"
        );
        db.run_table(sql, self.changed.into_iter(), &[]).await?;
        let from = sql!("DELETE FROM link_clicks");
        let key = [(sql!("campaign_id"), "bigint"), (sql!(LINK), "text")];
        let gone = self.gone.into_iter();
        db.delete(from, key, gone, sql!("")).await
    }
}

/// Reads the rows of links that have one, and locks them until the transaction ends.
async fn lock<'a>(
    db: &mut Db<'_>,
    places: &BTreeSet<Place<'a>>,
) -> Result<Vec<(Place<'a>, Clicks)>, sqlx::Error> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let sql = sql!(
        "SELECT kept.campaign_id, kept.",
        LINK,
        " AS link, first_at, last_at, visits FROM ",
        table!("wanted": 1 "campaign_id" "bigint", 2 "link" "text"),
        " CROSS JOIN link_clicks AS kept WHERE kept.campaign_id = wanted.campaign_id AND kept.",
        LINK,
        " = wanted.link ORDER BY kept.campaign_id, kept.",
        LINK,
        "{| FOR UPDATE OF kept}"
    );
    let list: Vec<Place<'a>> = places.iter().copied().collect();
    let by_place = indices(&list);
    let rows = list
        .iter()
        .map(|(campaign, key)| [(*campaign).into(), (*key).into()]);
    let read = |row: &Row| {
        let place = (row.get("campaign_id")?, LinkKey::read(row)?);
        Ok((by_place.get(&place).copied(), read(row)?))
    };
    let values = db.table(rows);
    let found: Vec<(Option<usize>, Clicks)> = db.all(sql, &values, read).await?;
    let found = found.into_iter();
    Ok(found
        .filter_map(|(place, clicks)| Some((list[place?], clicks)))
        .collect())
}

/// Counts the stored human visits of links since a moment.
async fn count<'a>(
    db: &mut Db<'_>,
    keys: &BTreeSet<LinkKey<'a>>,
    since: i64,
) -> Result<HashMap<Place<'a>, Clicks>, sqlx::Error> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql!(
        "SELECT coalesce(campaign_id, 0) AS campaign_id, ",
        LINK,
        " AS link, min(at) AS first_at, max(at) AS last_at, count(*) AS visits FROM visits WHERE ",
        OF_LINKS,
        " AND class = 'human' AND at >= $2 GROUP BY 1, 2"
    );
    let list: Vec<LinkKey<'a>> = keys.iter().copied().collect();
    let by_key = indices(&list);
    let read = |row: &Row| {
        let campaign: i64 = row.get("campaign_id")?;
        let index = by_key.get(&LinkKey::read(row)?).copied();
        Ok((campaign, index, read(row)?))
    };
    let values = [LinkKey::list(db, keys.iter()), since.into()];
    let counted: Vec<(i64, Option<usize>, Clicks)> = db.all(sql, &values, read).await?;
    let counted = counted.into_iter();
    Ok(counted
        .filter_map(|(campaign, index, clicks)| Some(((campaign, list[index?]), clicks)))
        .collect())
}

/// The times of the last human visits of links by their counts.
async fn last_counted<'a>(
    db: &mut Db<'_>,
    keys: Vec<LinkKey<'a>>,
) -> Result<HashMap<LinkKey<'a>, i64>, sqlx::Error> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = sql!(
        "SELECT ",
        LINK,
        " AS link, max(last_at) AS last_at FROM visit_link_hours WHERE ",
        OF_LINKS,
        " AND class = 'human' GROUP BY ",
        LINK
    );
    let by_key = indices(&keys);
    let read = |row: &Row| {
        let index = by_key.get(&LinkKey::read(row)?).copied();
        Ok((index, row.get("last_at")?))
    };
    let wanted = LinkKey::list(db, keys.iter());
    let found: Vec<(Option<usize>, i64)> = db.all(sql, &[wanted], read).await?;
    let found = found.into_iter();
    Ok(found
        .filter_map(|(index, last_at)| Some((keys[index?], last_at)))
        .collect())
}

/// The campaigns of links that exist, or [`ALL`], and the times of their creation in milliseconds since 1970.
pub(super) async fn existing<'a>(
    db: &mut Db<'_>,
    keys: impl Iterator<Item = LinkKey<'a>>,
) -> Result<HashMap<LinkKey<'a>, (i64, i64)>, sqlx::Error> {
    let by_id = LinkKey::ids(db, keys).await?;
    let sql = sql!(
        "SELECT id, coalesce(campaign_id, 0) AS campaign_id, created_at FROM links WHERE id",
        IN_NUMBERS
    );
    let mut ids: Vec<i64> = by_id.keys().copied().collect();
    ids.sort_unstable();
    let read = |row: &Row| {
        let id: i64 = row.get("id")?;
        let link = (row.get("campaign_id")?, row.get("created_at")?);
        Ok(by_id.get(&id).copied().zip(Some(link)))
    };
    let found: Vec<Option<_>> = db.all(sql, args![ids], read).await?;
    Ok(found.into_iter().flatten().collect())
}

/// Those of visits whose links exist. A link that was deleted has no row any more.
async fn of_links<'a>(db: &mut Db<'_>, mut clicks: ByLink<'a>) -> Result<ByLink<'a>, sqlx::Error> {
    if !clicks.0.is_empty() {
        let links = existing(db, clicks.0.keys().map(|(_, key)| *key)).await?;
        clicks
            .0
            .retain(|(of, key), _| links.get(key).is_some_and(|(campaign, _)| campaign == of));
    }
    Ok(clicks)
}

/// Counts the clicks of links again after their visits up to a moment were erased. Their counts are locked.
pub(super) async fn recount(
    db: &mut Db<'_>,
    keys: &HashMap<LinkKey<'_>, &Code>,
    until: i64,
) -> Result<(), sqlx::Error> {
    let links = existing(db, keys.keys().copied()).await?;
    let all = keys.keys().map(|key| (ALL, *key));
    let all = all.chain(
        links
            .into_iter()
            .map(|(key, (campaign, _))| (campaign, key)),
    );
    let all: BTreeSet<Place<'_>> = all.collect();
    let mut changes = Changes::of(db, all.iter().map(|place| place.0)).await?;
    let stored = lock(db, &all).await?;
    let keys = stored.iter().map(|((_, key), _)| *key).collect();
    let counted = count(db, &keys, until.saturating_add(1)).await?;
    let mut rows = Rows::default();
    for (place, stored) in &stored {
        rows.set(*place, stored, counted.get(place).copied(), &mut changes);
    }
    overwrite(db, true).await?;
    let done = rows.store(db).await;
    overwrite(db, false).await?;
    done?;
    changes.store(db).await
}

/// Deletes the rows of links that are being deleted, by their ids. Their campaigns still count them.
pub(crate) async fn remove(db: &mut Db<'_>, ids: &[i64]) -> Result<(), sqlx::Error> {
    let sql = sql!(
        "WITH gone AS MATERIALIZED (SELECT link_clicks.campaign_id, link_clicks.",
        LINK,
        " FROM links {CROSS }JOIN link_clicks ON ",
        OF_LINK,
        " WHERE links.id",
        IN_NUMBERS,
        " ORDER BY 1, 2{| FOR UPDATE OF link_clicks}) \
         DELETE FROM link_clicks WHERE (campaign_id, ",
        LINK,
        ") IN (SELECT * FROM gone)"
    );
    db.run(sql, args![ids]).await?;
    Ok(())
}

/// The condition that a row is that of a link.
pub(crate) const OF_LINK: &str = "link_clicks.campaign_id = coalesce(links.campaign_id, 0) \
     AND link_clicks.{link_id = links.id|code = links.code}";
