//! Storing visits: those that are new, what is counted of them, and whom they end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use vocabulary::Code;

use crate::domain::codes::numbering::Numbering;
use crate::domain::ports::KeptVisits;
use crate::domain::visit::Visit;
use crate::domain::visit::agent::Agent;
use crate::store::sqlite::links::find_id;
use crate::store::sqlite::writer::Write;
use crate::store::visits::{
    COUNTING, Counts, VisitedLink, add_new, agent_id, campaign_of, counts_of, origins, parts,
    ranges, some, visited_links, with,
};

/// How many rows a statement inserts; rows are dealt to the largest that can be filled.
const SIZES: [usize; 4] = [256, 32, 4, 1];

type Statement<'q> = Query<'q, Sqlite, SqliteArguments>;

pub(super) struct KeepVisits {
    pub(super) visits: Vec<Visit>,
    pub(super) now: Timestamp,
    pub(super) numbering: Arc<Numbering>,
}

#[async_trait]
impl Write for KeepVisits {
    type Output = KeptVisits;
    const OPERATION: &'static str = "keep visits";

    async fn apply(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<KeptVisits, sqlx::Error> {
        let places = take_new(connection, &self.visits, self.now).await?;
        let new: Vec<&Visit> = places.iter().map(|&place| &self.visits[place]).collect();
        let links = links_of(connection, &self.numbering, &new).await?;
        let counts = counts_of(&new, &links);
        insert_agents(connection, &new).await?;
        insert_visits(connection, &new, &links).await?;
        add(connection, &counts).await?;
        add_visitors(connection, &counts).await?;
        let mut ended = Vec::new();
        for (code, link) in links {
            if let Some(most) = link.max_visits
                && counted(connection, &code).await? >= most
            {
                ended.push(code);
            }
        }
        ended.sort_unstable_by_key(|code| code.to_string());
        Ok(KeptVisits { new: places, ended })
    }
}

/// Notes visits as stored; answers the places of those that were not.
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

/// The links that were visited and belong to a campaign, or are to end.
async fn links_of(
    connection: &mut SqliteConnection,
    numbering: &Numbering,
    visits: &[&Visit],
) -> Result<HashMap<Code, VisitedLink>, sqlx::Error> {
    let codes: BTreeSet<&str> = visits.iter().map(|visit| visit.code.as_str()).collect();
    let mut by_id = HashMap::with_capacity(codes.len());
    for code in codes.iter().filter_map(|text| text.parse::<Code>().ok()) {
        if let Some(id) = find_id(&mut *connection, numbering, &code).await? {
            by_id.insert(id, code);
        }
    }
    let mut ids: Vec<i64> = by_id.keys().copied().collect();
    ids.sort_unstable();
    let rows: Vec<(i64, Option<i64>, Option<i64>)> = sqlx::query_as(
        "SELECT links.id, campaign_id, max_visits FROM json_each(?1) AS wanted \
         CROSS JOIN links ON links.id = wanted.value \
         WHERE campaign_id IS NOT NULL OR max_visits IS NOT NULL",
    )
    .bind(serde_json::json!(ids).to_string())
    .fetch_all(connection)
    .await?;
    Ok(visited_links(rows, &by_id))
}

/// How often a link was visited by whoever counts for its end.
async fn counted(connection: &mut SqliteConnection, code: &Code) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT coalesce(sum(visits), 0) FROM visit_link_hours \
         WHERE code = ?1 AND class IN (?2, ?3)",
    )
    .bind(code.as_str())
    .bind(COUNTING[0])
    .bind(COUNTING[1])
    .fetch_one(connection)
    .await
}

async fn insert_agents(
    connection: &mut SqliteConnection,
    visits: &[&Visit],
) -> Result<(), sqlx::Error> {
    let agents = visits.iter();
    let agents = agents.map(|visit| (visit.user_agent.as_str(), &*visit.agent));
    insert_agent_rows(connection, agents).await
}

/// Keeps what user agents were found to be.
pub(super) async fn insert_agent_rows(
    connection: &mut SqliteConnection,
    agents: impl Iterator<Item = (&str, &Agent)>,
) -> Result<(), sqlx::Error> {
    let agents: BTreeMap<i64, (&str, &Agent)> = agents
        .map(|(user_agent, agent)| (agent_id(user_agent, agent), (user_agent, agent)))
        .collect();
    let agents: Vec<(i64, (&str, &Agent))> = agents.into_iter().collect();
    insert(
        connection,
        "INSERT OR IGNORE INTO visit_agents VALUES",
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
    visits: &[&Visit],
    links: &HashMap<Code, VisitedLink>,
) -> Result<(), sqlx::Error> {
    const COLUMNS: &str = "at, code, host, client, visitor, agent_id, referrer, referrer_host, \
         language, method, status, purpose, country, province, city, isp, class, reason, ruleset, \
         campaign_id";
    insert(
        connection,
        &format!("INSERT INTO visits ({COLUMNS}) VALUES"),
        20,
        "",
        visits,
        |query, visit| {
            let classification = &visit.classification;
            query
                .bind(visit.at.as_millisecond())
                .bind(&visit.code)
                .bind(&visit.host)
                .bind(visit.client.map(|client| client.to_string()))
                .bind(visit.visitor.as_ref().map(|visitor| visitor.0.to_vec()))
                .bind(agent_id(&visit.user_agent, &visit.agent))
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
                .bind(campaign_of(visit, links))
        },
    )
    .await
}

/// Adds counts to those that are there.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    counts: &Counts,
) -> Result<(), sqlx::Error> {
    let links: Vec<_> = counts.links.iter().collect();
    insert(
        connection,
        "INSERT INTO visit_link_hours (code, hour, class, visits, last_at) VALUES",
        5,
        " ON CONFLICT DO UPDATE SET visits = visits + excluded.visits, \
         last_at = max(last_at, excluded.last_at)",
        &links,
        |query, ((code, hour, class), (visits, last_at))| {
            query
                .bind(code)
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

/// Adds who came.
pub(super) async fn add_visitors(
    connection: &mut SqliteConnection,
    counts: &Counts,
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

/// Inserts rows of so many columns, many with one statement.
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
