//! Stores new visits and their counts, and finds the links that reach their limit of visits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::Timestamp;
use shortlink_clickhouse::{Batch, Columns};
use shortlink_core::boxed;
use shortlink_core::ports::{KeptVisits, StoreError};
use shortlink_core::visit::Visit;
use vocabulary::Code;

use super::agents::{NewAgent, insert_agents};
use super::counts::LINK;
use super::sink::{self, Pending};
use super::values::name;
use super::watch::note_stretch;
use super::{
    ALL, Counts, LinkKey, Map, OF_LINKS, Taken, VisitedLink, add_new, click_ids, clicks, erasure,
    evidence_column, first_clicks, minutes, network_minutes, ranges, sketches, some, variants,
};
use crate::db::Db;
use crate::rows::ids_of;
use crate::shared::DAY_MS;
use crate::sql::{IN_NUMBERS, Sql, sql};
use crate::value::{Row, Value, args};
use crate::{Engine, Scheme, Store, postgres, webhooks};

impl Store {
    /// The most visits that this store takes together: all of them share what a transaction costs.
    pub fn visits_together(&self) -> usize {
        match self.engine {
            // Its other writers wait for the transaction.
            Engine::Sqlite(_) => 5000,
            Engine::Postgres(_) => 16_384,
        }
    }

    /// Stores visits and counts them, all or, after an error, none; duplicates, by their ids, are
    /// left out. At most [`Store::visits_together`].
    ///
    /// Counts are by hour: per link by class, and per campaign and for all links together by class
    /// and [`Dimension`](shortlink_core::ports::Dimension). They outlive the visits that they were
    /// counted from.
    #[boxed]
    pub async fn keep_visits(
        &self,
        visits: Vec<Visit>,
        now: Timestamp,
    ) -> Result<KeptVisits, StoreError> {
        if let Some(sink) = &self.sink {
            self.renew_ids(sink).await?;
            // While a batch can't be inserted, no other is stored: visits wait in Redis.
            if self.has_unsent.load(Ordering::Relaxed) {
                self.flush_visits().await?;
                self.has_unsent.store(false, Ordering::Relaxed);
            }
            let stored = self.store_visits(visits, now, true).await;
            let (kept, pending) = stored.inspect_err(|_error| self.doubt_ids())?;
            let Some(Pending { batch, limits }) = pending else {
                return Ok(kept);
            };
            let mut ended = sink::known_ended(&limits);
            let sent = async {
                self.send(sink, &batch).await?;
                self.ended(sink, limits).await
            };
            match sent.await {
                Ok(all) => ended = all,
                // The visits are stored in SQL, from where they are inserted before any others.
                Err(error) => {
                    self.has_unsent.store(true, Ordering::Relaxed);
                    tracing::warn!(error = %error.source, "visits wait in SQL for ClickHouse");
                }
            }
            return Ok(KeptVisits { ended, ..kept });
        }
        if let Engine::Postgres(store) = &self.engine {
            self.make_days(&store.days, &visits, now).await?;
        }
        let (kept, _) = self.store_visits(visits, now, false).await?;
        Ok(kept)
    }

    async fn store_visits(
        &self,
        visits: Vec<Visit>,
        now: Timestamp,
        in_clickhouse: bool,
    ) -> Result<(KeptVisits, Option<Pending>), StoreError> {
        let args = (visits, now, in_clickhouse);
        self.run_tx("store visits", args, |db, (visits, now, in_clickhouse)| {
            Box::pin(keep(db, visits, *now, *in_clickhouse))
        })
        .await
    }
}

async fn keep(
    db: &mut Db<'_>,
    visits: &[Visit],
    now: Timestamp,
    in_clickhouse: bool,
) -> Result<(KeptVisits, Option<Pending>), sqlx::Error> {
    let numbered = match in_clickhouse {
        true => Some(sink::number(db, visits.len()).await?),
        false => {
            sink::stay_in_sql(db).await?;
            None
        }
    };
    let mut places = take_new(db, visits, now).await?;
    let mut new: Vec<&Visit> = places.iter().map(|&place| &visits[place]).collect();
    let codes: Vec<&str> = new.iter().map(|visit| visit.code.as_str()).collect();
    let keys = match in_clickhouse {
        true => codes.iter().copied().map(LinkKey::Code).collect(),
        false => keys(db, &codes).await?,
    };
    let links = links_of(db, &codes, &keys, in_clickhouse).await?;
    let taken = new.iter().zip(&keys).map(|(visit, key)| Taken {
        visit,
        key: *key,
        link: links.get(key),
    });
    let mut taken: Vec<Taken<'_>> = taken.collect();
    let alive = erasure::alive(db, &taken).await?;
    let erased = (taken.len() - alive.len()) as u64;
    taken = alive.iter().map(|&place| taken[place]).collect();
    places = alive.iter().map(|&place| places[place]).collect();
    new = taken.iter().map(|it| it.visit).collect();
    let mut counts = Counts::of(&taken, minutes::since(now));
    let mut pending = None;
    let ids = if let Some((id, first)) = numbered {
        let rows = taken.iter().zip(first..);
        let rows = rows
            .map(|(it, number)| Columns::new(it.visit, number, id, it.campaign().unwrap_or(ALL)));
        let of_links = sink::of_links(&mut counts);
        let limited = links.values();
        let limited = limited.filter_map(|link| Some((link.code, link.most_visits?)));
        let limited: Vec<(&str, i64)> = limited.collect();
        let limits = sink::limits(db, &of_links, &limited, id).await?;
        if !taken.is_empty() {
            let clicks = sink::clicks::new(&taken);
            let batch = Batch::new(id, rows, of_links, clicks);
            sink::store(db, &batch, now).await?;
            pending = Some(Pending { batch, limits });
        }
        (first, first + taken.len() as i64 - 1)
    } else {
        insert(db, &taken, now).await?
    };
    note_stretch(db, &new, ids, now).await?;
    name(db, &mut counts).await?;
    add(db, &counts).await?;
    let mut first = Vec::new();
    if !in_clickhouse {
        let wants_first = webhooks::wants_first_clicks(db).await?;
        first = clicks::add(db, &taken, wants_first).await?;
    }
    variants::add(db, &taken).await?;
    click_ids::add(db, &taken, ids).await?;
    sketches::add(db, &counts.visitors).await?;
    let ended = match in_clickhouse {
        true => Vec::new(),
        false => ended(db, &links).await?,
    };
    first_clicks::report_new(db, &first, &new, ids, now).await?;
    let kept = KeptVisits {
        new: places,
        erased,
        ended,
    };
    Ok((kept, pending))
}

/// The user agents of visits, each in its visit's place.
fn agents<'a>(visits: &[Taken<'a>]) -> Vec<NewAgent<'a>> {
    let mut known: Map<(&str, usize), NewAgent<'a>> = Map::default();
    let agents = visits.iter().map(|Taken { visit, .. }| {
        let (user_agent, agent) = (&*visit.user_agent, &visit.agent);
        let key = (user_agent, Arc::as_ptr(agent).addr());
        let of = known.entry(key);
        *of.or_insert_with(|| (user_agent, &**agent).into())
    });
    agents.collect()
}

/// Inserts visits and their user agents; returns their first and last id.
async fn insert(
    db: &mut Db<'_>,
    visits: &[Taken<'_>],
    now: Timestamp,
) -> Result<(i64, i64), sqlx::Error> {
    let agents = agents(visits);
    insert_agents(db, &agents, now).await?;
    let first = next_id(db, visits.len()).await?;
    let rows = visits.iter().zip(&agents).enumerate();
    let rows = rows.map(|(place, (taken, agent))| values(taken, agent.0, first + place as i64));
    if db.scheme() == Scheme::Postgres {
        postgres::copy(db, COPY, COLUMNS, &INTEGERS, rows).await?;
        return Ok((first, last_id(db).await?));
    }
    db.insert(INSERT, [""; COLUMNS + 2], sql!(""), rows).await?;
    let last = first - 1 + visits.len() as i64;
    note_days(db, visits, last).await?;
    Ok((first, last))
}

/// Takes ids for some visits, from the returned one on, that no visit ever had. PostgreSQL takes only this one; those of
/// visits that this session stores next are greater.
async fn next_id(db: &mut Db<'_>, visits: usize) -> Result<i64, sqlx::Error> {
    // In SQLite, earlier versions of this program store visits without taking ids here.
    let sql = sql!(
        "{UPDATE visit_ids SET last_id = max(last_id, coalesce((SELECT max(id) FROM visits), 0)) + $1 \
         RETURNING last_id - $1 + 1 AS id|\
         SELECT nextval('visit_ids') AS id FROM (SELECT $1::bigint) AS visits}"
    );
    db.get(sql, args![visits as i64], |row| row.get("id")).await
}

/// The id of the visit that was just inserted last into PostgreSQL.
async fn last_id(db: &mut Db<'_>) -> Result<i64, sqlx::Error> {
    let sql = sql!("SELECT currval('visit_ids') AS id");
    db.get(sql, &[], |row| row.get("id")).await
}

/// Notes which ids the visits of each day have: those that were just inserted into SQLite, in this order.
async fn note_days(db: &mut Db<'_>, visits: &[Taken<'_>], last: i64) -> Result<(), sqlx::Error> {
    let mut days: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (it, id) in visits.iter().rev().zip((0..=last).rev()) {
        let day = it.visit.at.as_millisecond().div_euclid(DAY_MS);
        days.entry(day).or_insert((id, id)).0 = id;
    }
    let days = days.into_iter();
    let rows = days.map(|(day, (first, last))| [day, first, last].map(Value::from));
    let end = sql!(
        " ON CONFLICT (day) DO UPDATE SET first_id = min(kept.first_id, excluded.first_id), \
         last_id = max(kept.last_id, excluded.last_id)"
    );
    let into = sql!("INSERT INTO visit_days AS kept (day, first_id, last_id)");
    db.insert(into, [""; 3], end, rows).await
}

/// Notes visits as stored; returns the places of those that were not. Other transactions with visits
/// of these origins wait, in the order of the origins.
async fn take_new(
    db: &mut Db<'_>,
    visits: &[Visit],
    now: Timestamp,
) -> Result<Vec<usize>, sqlx::Error> {
    let origins = visits.iter().map(|visit| visit.id.origin.cast_signed());
    let mut stored = BTreeMap::new();
    for origin in origins.collect::<BTreeSet<i64>>() {
        let sql = sql!(
            "{SELECT ranges FROM visit_origins WHERE origin = $1|\
             INSERT INTO visit_origins (origin, ranges, seen_at) VALUES ($1, '', $2) \
             ON CONFLICT (origin) DO UPDATE SET seen_at = excluded.seen_at RETURNING ranges}"
        );
        let read = |row: &Row| ranges(row.get("ranges")?);
        let found = db.one(sql, args![origin, now], read).await?;
        stored.insert(origin, found.unwrap_or_default());
    }
    let new = add_new(visits, &mut stored);
    for (origin, ranges) in stored {
        let sql = sql!(
            "{INSERT INTO visit_origins (origin, ranges, seen_at) VALUES ($1, $2, $3) \
             ON CONFLICT (origin) DO UPDATE SET ranges = excluded.ranges, \
             seen_at = excluded.seen_at|\
             UPDATE visit_origins SET ranges = $2, seen_at = $3 WHERE origin = $1}"
        );
        db.run(sql, args![origin, ranges.to_text(), now]).await?;
    }
    Ok(new)
}

/// The keys of the visits of codes, each in its code's place.
pub(super) async fn keys<'a>(
    db: &mut Db<'_>,
    codes: &[&'a str],
) -> Result<Vec<LinkKey<'a>>, sqlx::Error> {
    Ok(match db.scheme() {
        Scheme::Sqlite => {
            let ids = ids_of(db, codes).await?;
            ids.into_iter().map(LinkKey::Id).collect()
        }
        Scheme::Postgres => codes.iter().copied().map(LinkKey::Code).collect(),
    })
}

/// The condition that a plan has variants; of few other plans it is true as well.
const HAS_VARIANTS: &str = "plan LIKE '%;v=%'";

/// The links of visits, of those that exist. They are read in groups of those that are alike: a row for each would cost
/// more than all else about it.
async fn links_of<'a>(
    db: &mut Db<'_>,
    codes: &[&'a str],
    keys: &[LinkKey<'a>],
    with_created: bool,
) -> Result<Map<LinkKey<'a>, VisitedLink<'a>>, sqlx::Error> {
    let distinct: Map<LinkKey<'a>, &'a str> =
        keys.iter().copied().zip(codes.iter().copied()).collect();
    let by_id = LinkKey::ids(db, distinct.keys().copied()).await?;
    // The limit makes PostgreSQL look each id up by itself, in the one part of the table that can have
    // it. `ANY` would look all ids up in each part, and the planner would weigh each of them.
    let mut statement = db.statement(sql!(
        "SELECT campaign_id, max_visits, CASE WHEN ",
        HAS_VARIANTS,
        " THEN 1 ELSE 0 END AS has_variants, {json_group_array(links.id)|array_agg(asked.id)} AS ids"
    ));
    if with_created {
        let created = sql!(", {json_group_array|array_agg}(created_at) AS created");
        statement.push(created);
    }
    statement.push(sql!(
        " FROM {json_each($1) AS asked CROSS JOIN links ON links.id = asked.value|\
         unnest($1::bigint[]) AS asked (id), \
         LATERAL (SELECT campaign_id, max_visits, created_at, plan FROM links WHERE links.id = asked.id LIMIT 1) \
         AS link} GROUP BY campaign_id, max_visits, has_variants"
    ));
    let mut ids: Vec<i64> = by_id.keys().copied().collect();
    ids.sort_unstable();
    let read = |row: &Row| {
        let ids: Vec<i64> = row.get("ids")?;
        let created: Vec<i64> = match with_created {
            true => row.get("created")?,
            false => vec![0; ids.len()],
        };
        let has_variants = row.get::<i64>("has_variants")? != 0;
        let of = (
            row.find("campaign_id")?,
            row.find("max_visits")?,
            has_variants,
        );
        Ok((of, ids, created))
    };
    let groups: Vec<_> = db.all(&statement, args![ids], read).await?;
    let campaigns: BTreeSet<i64> = groups.iter().filter_map(|((id, ..), ..)| *id).collect();
    let campaigns = Vec::from_iter(campaigns);
    let mut with_variants: BTreeSet<i64> = BTreeSet::new();
    if !campaigns.is_empty() {
        let sql = sql!(
            "SELECT id FROM campaigns WHERE id",
            IN_NUMBERS,
            " AND ",
            HAS_VARIANTS
        );
        let found: Vec<i64> = db.all(sql, args![campaigns], |row| row.get("id")).await?;
        with_variants.extend(found);
    }
    let links =
        groups
            .into_iter()
            .flat_map(|((campaign, max_visits, has_variants), ids, created)| {
                let of_campaign = campaign.is_some_and(|id| with_variants.contains(&id));
                let has_variants = has_variants || of_campaign;
                let (by_id, distinct) = (&by_id, &distinct);
                ids.into_iter()
                    .zip(created)
                    .filter_map(move |(id, created)| {
                        let key = *by_id.get(&id)?;
                        let link = VisitedLink {
                            code: distinct.get(&key)?,
                            campaign,
                            created,
                            most_visits: max_visits,
                            has_variants,
                        };
                        Some((key, link))
                    })
            });
    Ok(links.collect())
}

/// Lists the codes of links that have reached their limit of visits, to which only human ones
/// count.
async fn ended(
    db: &mut Db<'_>,
    links: &Map<LinkKey<'_>, VisitedLink<'_>>,
) -> Result<Vec<Code>, sqlx::Error> {
    let ending = links.iter().filter(|(_, link)| link.most_visits.is_some());
    let ending: Vec<LinkKey<'_>> = ending.map(|(key, _)| *key).collect();
    if ending.is_empty() {
        return Ok(Vec::new());
    }
    let sql = sql!(
        "SELECT ",
        LINK,
        " AS link, CAST(sum(visits) AS bigint) AS visits FROM visit_link_hours WHERE ",
        OF_LINKS,
        " AND class = 'human' GROUP BY ",
        LINK
    );
    let read = |row: &Row| {
        let visits: i64 = row.get("visits")?;
        let link = links.get(&LinkKey::read(row)?);
        let link = link.filter(|link| link.most_visits.is_some_and(|most| visits >= most));
        Ok(link.and_then(|link| link.code.parse().ok()))
    };
    let wanted = LinkKey::list(db, ending.iter());
    let counted: Vec<Option<Code>> = db.all(sql, &[wanted], read).await?;
    let mut ended: Vec<Code> = counted.into_iter().flatten().collect();
    ended.sort_unstable_by_key(Code::to_string);
    Ok(ended)
}

/// The columns of a visit that both engines have.
const VISIT: &str = "(at, code, host, client, visitor, agent_id, referrer, referrer_host, \
     language, method, status, purpose, country, province, city, isp, class, reason, ruleset, \
     campaign_id, evidence, asn, variant";

/// The number of these columns.
const COLUMNS: usize = 23;

/// Those that are integers in PostgreSQL, by their places: the status, the ruleset and the evidence.
const INTEGERS: [usize; 3] = [10, 18, 20];

const INSERT: Sql = sql!("INSERT INTO visits ", VISIT, ", link_id, id)");
const COPY: Sql = sql!("COPY visits ", VISIT, ") FROM STDIN (FORMAT binary)");

/// The values of the columns of a [`VISIT`], the key of its link, and its id in SQLite.
fn values<'a>(taken: &Taken<'a>, agent: i64, id: i64) -> [Value<'a>; COLUMNS + 2] {
    let visit = taken.visit;
    let (place, classification) = (&visit.place, &visit.classification);
    [
        visit.at.into(),
        (&visit.code).into(),
        (&visit.host).into(),
        visit.client.map(|client| client.to_string()).into(),
        visit.visitor.as_ref().map(|id| id.0.as_slice()).into(),
        agent.into(),
        some(&visit.referrer).into(),
        (&visit.referrer_host).into(),
        (&visit.language).into(),
        visit.method_name().into(),
        visit.status.into(),
        some(&visit.purpose).into(),
        (&place.country).into(),
        (&place.province).into(),
        (&place.city).into(),
        (&place.isp).into(),
        classification.class.name().into(),
        classification.reason.into(),
        classification.ruleset.into(),
        taken.campaign().into(),
        evidence_column(visit.evidence).into(),
        place.asn.into(),
        (&visit.variant).into(),
        taken.key.into(),
        id.into(),
    ]
}

/// Adds counts to the stored ones. All transactions add in the same order.
pub(super) async fn add(db: &mut Db<'_>, counts: &Counts<'_>) -> Result<(), sqlx::Error> {
    let links = counts.links.iter();
    let links = links.map(|((key, hour, class), (visits, last_at))| {
        let [hour, visits, last_at] = [hour, visits, last_at].map(|number| (*number).into());
        [(*key).into(), hour, (*class).into(), visits, last_at]
    });
    let into = sql!(
        "INSERT INTO visit_link_hours AS kept (",
        LINK,
        ", hour, class, visits, last_at)"
    );
    let types = ["text", "bigint", "text", "bigint", "bigint"];
    let end = sql!(
        " ON CONFLICT (",
        LINK,
        ", hour, class) DO UPDATE SET visits = kept.visits + excluded.visits, \
         last_at = {max|greatest}(kept.last_at, excluded.last_at)"
    );
    db.insert(into, types, end, links).await?;
    let hours = counts.hours.iter();
    let hours = hours.map(|((campaign, dimension, hour, value, class), visits)| {
        let [campaign, hour, visits] = [campaign, hour, visits].map(|number| (*number).into());
        [
            campaign,
            (*dimension).into(),
            hour,
            (*value).into(),
            (*class).into(),
            visits,
        ]
    });
    let into = sql!(
        "INSERT INTO visit_hours AS kept (campaign_id, dimension, hour, value, class, visits)"
    );
    let types = ["bigint", "text", "bigint", "text", "text", "bigint"];
    let end = sql!(
        " ON CONFLICT (campaign_id, dimension, hour, value, class) \
         DO UPDATE SET visits = kept.visits + excluded.visits"
    );
    db.insert(into, types, end, hours).await?;
    minutes::add(db, counts).await?;
    let domains = counts.domains.iter();
    let domains = domains
        .map(|((minute, host), visits)| [(*minute).into(), (*host).into(), (*visits).into()]);
    let into = sql!("INSERT INTO visit_domain_minutes AS kept (minute, host, visits)");
    let types = ["bigint", "text", "bigint"];
    let end =
        sql!(" ON CONFLICT (minute, host) DO UPDATE SET visits = kept.visits + excluded.visits");
    db.insert(into, types, end, domains).await?;
    network_minutes::add(db, counts).await
}
