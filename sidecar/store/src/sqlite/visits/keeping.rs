//! Stores new visits and their counts, and finds the links that reach their limit of visits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::ports::KeptVisits;
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::Agent;
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use vocabulary::Code;

use crate::sqlite::links::link_ids;
use crate::sqlite::upkeep::json_list;
use crate::sqlite::writer::Write;
use crate::visits::{
    COUNTING, Counts, VisitedLink, add_new, agent_id, origins, parts, ranges, some, with,
};

/// Numbers of rows that a statement inserts; rows go into the largest one that they fill.
const SIZES: [usize; 4] = [256, 32, 4, 1];

type Statement<'q> = Query<'q, Sqlite, SqliteArguments>;

pub(super) struct KeepVisits {
    pub(super) visits: Vec<Visit>,
    pub(super) now: Timestamp,
    pub(super) numbering: Arc<Numbering>,
}

/// A new visit and the values that are derived from it.
struct New<'a> {
    visit: &'a Visit,
    link_id: i64,
    campaign: Option<i64>,
    agent_id: i64,
}

#[async_trait]
impl Write for KeepVisits {
    type Output = KeptVisits;
    const OPERATION: &'static str = "store visits";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<KeptVisits, sqlx::Error> {
        let places = take_new(connection, &self.visits, self.now).await?;
        let visits = places.iter().map(|&place| &self.visits[place]);
        let codes = visits.clone().map(|visit| visit.code.as_str());
        let ids = link_ids(connection, &self.numbering, codes).await?;
        let links = links_of(connection, &ids).await?;
        let new: Vec<New<'_>> = visits
            .zip(ids)
            .map(|(visit, link_id)| New {
                visit,
                link_id,
                campaign: links.get(&link_id).and_then(|link| link.campaign),
                agent_id: agent_id(&visit.user_agent, &visit.agent),
            })
            .collect();
        let counts = Counts::of(new.iter().map(|it| (it.visit, it.link_id, it.campaign)));
        let agents = new.iter();
        let agents = agents.map(|it| (it.agent_id, it.visit.user_agent.as_str(), &*it.visit.agent));
        insert_agent_rows(connection, agents).await?;
        insert_visits(connection, &new).await?;
        add(connection, &counts).await?;
        add_visitors(connection, &counts).await?;
        let ended = ended(connection, &new, &links).await?;
        Ok(KeptVisits { new: places, ended })
    }
}

/// Notes visits as stored; returns the places of those that were not.
async fn take_new(
    connection: &mut SqliteConnection,
    visits: &[Visit],
    now: Timestamp,
) -> Result<Vec<usize>, sqlx::Error> {
    let mut stored = BTreeMap::new();
    for origin in origins(visits) {
        let text: Option<String> =
            sqlx::query_scalar("SELECT ranges FROM visit_origins WHERE origin = ?1")
                .bind(origin)
                .fetch_optional(&mut *connection)
                .await?;
        stored.insert(origin, ranges(text.as_deref().unwrap_or_default())?);
    }
    let new = add_new(visits, &mut stored);
    for (origin, ranges) in stored {
        sqlx::query(
            "INSERT INTO visit_origins (origin, ranges, seen_at) VALUES (?1, ?2, ?3) \
             ON CONFLICT (origin) DO UPDATE SET ranges = excluded.ranges, \
             seen_at = excluded.seen_at",
        )
        .bind(origin)
        .bind(ranges.to_text())
        .bind(now.as_millisecond())
        .execute(&mut *connection)
        .await?;
    }
    Ok(new)
}

/// The links of these ids that belong to a campaign, or are to end.
async fn links_of(
    connection: &mut SqliteConnection,
    ids: &[i64],
) -> Result<HashMap<i64, VisitedLink>, sqlx::Error> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let rows: Vec<(i64, Option<i64>, Option<i64>)> = sqlx::query_as(
        "SELECT links.id, campaign_id, max_visits FROM json_each(?1) AS wanted \
         CROSS JOIN links ON links.id = wanted.value \
         WHERE campaign_id IS NOT NULL OR max_visits IS NOT NULL",
    )
    .bind(json_list(&ids))
    .fetch_all(connection)
    .await?;
    let links = rows.into_iter().map(|(id, campaign, max_visits)| {
        let link = VisitedLink {
            campaign,
            max_visits,
        };
        (id, link)
    });
    Ok(links.collect())
}

/// Lists the codes of links that have reached their limit of visits, in the classes that count
/// towards it.
async fn ended(
    connection: &mut SqliteConnection,
    visits: &[New<'_>],
    links: &HashMap<i64, VisitedLink>,
) -> Result<Vec<Code>, sqlx::Error> {
    let ending = links.iter().filter(|(_, link)| link.max_visits.is_some());
    let ending: Vec<i64> = ending.map(|(id, _)| *id).collect();
    if ending.is_empty() {
        return Ok(Vec::new());
    }
    let counted: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT link_id, sum(visits) FROM json_each(?1) AS wanted \
         CROSS JOIN visit_link_hours ON link_id = wanted.value \
         WHERE class IN (?2, ?3) GROUP BY link_id",
    )
    .bind(json_list(&ending))
    .bind(COUNTING[0])
    .bind(COUNTING[1])
    .fetch_all(connection)
    .await?;
    let codes = visits.iter().map(|it| (it.link_id, &*it.visit.code));
    let codes: HashMap<i64, &str> = codes.collect();
    let ended = counted.into_iter().filter_map(|(id, visits)| {
        let most = links.get(&id)?.max_visits?;
        (visits >= most).then(|| codes.get(&id)?.parse().ok())?
    });
    let mut ended: Vec<Code> = ended.collect();
    ended.sort_unstable_by_key(Code::to_string);
    Ok(ended)
}

/// Stores user agents with their classifications, by their ids.
pub(super) async fn insert_agent_rows(
    connection: &mut SqliteConnection,
    agents: impl Iterator<Item = (i64, &str, &Agent)> + Send,
) -> Result<(), sqlx::Error> {
    let mut agents: BTreeMap<i64, (&str, &Agent)> = agents
        .map(|(id, user_agent, agent)| (id, (user_agent, agent)))
        .collect();
    let ids: Vec<i64> = agents.keys().copied().collect();
    // Most of them are stored already, and need not even be bound.
    let kept: Vec<i64> = sqlx::query_scalar(
        "SELECT visit_agents.id FROM json_each(?1) AS wanted \
         CROSS JOIN visit_agents ON visit_agents.id = wanted.value",
    )
    .bind(json_list(&ids))
    .fetch_all(&mut *connection)
    .await?;
    for id in kept {
        agents.remove(&id);
    }
    let agents: Vec<(i64, (&str, &Agent))> = agents.into_iter().collect();
    insert(
        connection,
        "INSERT INTO visit_agents VALUES",
        8,
        "",
        &agents,
        |query, (id, (user_agent, agent))| {
            let (browser, browser_version) = parts(agent.browser.as_ref());
            let (os, os_version) = parts(agent.os.as_ref());
            query
                .bind(id)
                .bind(user_agent)
                .bind(browser)
                .bind(browser_version)
                .bind(os)
                .bind(os_version)
                .bind(agent.device.kind.name())
                .bind(agent.app)
        },
    )
    .await
}

async fn insert_visits(
    connection: &mut SqliteConnection,
    visits: &[New<'_>],
) -> Result<(), sqlx::Error> {
    const COLUMNS: &str = "at, code, host, client, visitor, agent_id, referrer, referrer_host, \
         language, method, status, purpose, country, province, city, isp, class, reason, ruleset, \
         campaign_id, link_id";
    let visits: Vec<&New<'_>> = visits.iter().collect();
    insert(
        connection,
        &format!("INSERT INTO visits ({COLUMNS}) VALUES"),
        21,
        "",
        &visits,
        |query, new| {
            let visit = new.visit;
            let classification = &visit.classification;
            query
                .bind(visit.at.as_millisecond())
                .bind(&visit.code)
                .bind(&visit.host)
                .bind(visit.client.map(|client| client.to_string()))
                .bind(visit.visitor.as_ref().map(|visitor| visitor.0.to_vec()))
                .bind(new.agent_id)
                .bind(some(&visit.referrer))
                .bind(visit.referrer_host.as_deref())
                .bind(visit.language.as_deref())
                .bind(visit.method_name())
                .bind(visit.status)
                .bind(some(&visit.purpose))
                .bind(visit.place.country.as_deref())
                .bind(visit.place.province.as_deref())
                .bind(visit.place.city.as_deref())
                .bind(visit.place.isp.as_deref())
                .bind(classification.class.name())
                .bind(classification.reason)
                .bind(classification.ruleset)
                .bind(new.campaign)
                .bind(new.link_id)
        },
    )
    .await
}

/// Adds counts to those that are there.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    counts: &Counts<i64>,
) -> Result<(), sqlx::Error> {
    let links: Vec<_> = counts.links.iter().collect();
    insert(
        connection,
        "INSERT INTO visit_link_hours (link_id, hour, class, visits, last_at) VALUES",
        5,
        " ON CONFLICT DO UPDATE SET visits = visits + excluded.visits, \
         last_at = max(last_at, excluded.last_at)",
        &links,
        |query, ((link_id, hour, class), (visits, last_at))| {
            query
                .bind(link_id)
                .bind(hour)
                .bind(class)
                .bind(visits)
                .bind(last_at)
        },
    )
    .await?;
    let hours: Vec<_> = counts.hours.iter().collect();
    insert(
        connection,
        "INSERT INTO visit_hours (campaign_id, dimension, hour, value, class, visits) VALUES",
        6,
        " ON CONFLICT DO UPDATE SET visits = visits + excluded.visits",
        &hours,
        |query, ((campaign, dimension, hour, value, class), visits)| {
            query
                .bind(campaign)
                .bind(dimension)
                .bind(hour)
                .bind(value)
                .bind(class)
                .bind(visits)
        },
    )
    .await?;
    let minutes: Vec<_> = counts.minutes.iter().collect();
    insert(
        connection,
        "INSERT INTO visit_domain_minutes (minute, host, visits) VALUES",
        3,
        " ON CONFLICT DO UPDATE SET visits = visits + excluded.visits",
        &minutes,
        |query, ((minute, host), visits)| query.bind(minute).bind(host).bind(visits),
    )
    .await
}

/// Adds unique visitors.
pub(super) async fn add_visitors(
    connection: &mut SqliteConnection,
    counts: &Counts<i64>,
) -> Result<(), sqlx::Error> {
    for ((campaign, day), visitors) in &counts.visitors {
        let kept: Option<Vec<u8>> = sqlx::query_scalar(
            "SELECT registers FROM visit_sketches WHERE campaign_id = ?1 AND day = ?2",
        )
        .bind(campaign)
        .bind(day)
        .fetch_optional(&mut *connection)
        .await?;
        let sketch = with(kept, visitors)?;
        sqlx::query(
            "INSERT INTO visit_sketches (campaign_id, day, registers) VALUES (?1, ?2, ?3) \
             ON CONFLICT DO UPDATE SET registers = excluded.registers",
        )
        .bind(campaign)
        .bind(day)
        .bind(sketch.as_bytes())
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Inserts rows with a given number of columns, many with one statement.
async fn insert<'q, T: Copy>(
    connection: &mut SqliteConnection,
    begin: &str,
    columns: usize,
    end: &str,
    rows: &'q [T],
    bind: impl Fn(Statement<'q>, T) -> Statement<'q>,
) -> Result<(), sqlx::Error> {
    // Without numbers: for a parameter that has one SQLite walks through the names of all.
    let row = format!("({})", vec!["?"; columns].join(", "));
    let mut rest = rows;
    while !rest.is_empty() {
        let fitting = SIZES.into_iter().find(|&size| size <= rest.len());
        let (some, others) = rest.split_at(fitting.unwrap_or(rest.len()));
        rest = others;
        let rows = vec![row.as_str(); some.len()].join(", ");
        let statement = sqlx::AssertSqlSafe(format!("{begin} {rows}{end}"));
        let mut query = sqlx::query(statement);
        for &row in some {
            query = bind(query, row);
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}
