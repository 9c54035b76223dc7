//! Stores new visits and their counts, and finds the links that reach their limit of visits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use jiff::Timestamp;
use shortlink_core::codes::numbering::Numbering;
use shortlink_core::ports::KeptVisits;
use shortlink_core::visit::Visit;
use shortlink_core::visit::agent::Agent;
use shortlink_core::visit::sketch::Sketch;
use vocabulary::Code;

use super::copy::CopyRows;
use crate::postgres::links::known_ids;
use crate::postgres::statements::Statements;
use crate::postgres::work::Work;
use crate::visits::{
    COUNTING, Counts, VisitedLink, add_new, agent_id, origins, parts, ranges, some, with,
};

pub(super) struct KeepVisits<'a> {
    pub(super) visits: &'a [Visit],
    pub(super) now: Timestamp,
    pub(super) numbering: &'a Numbering,
}

#[async_trait]
impl Work for KeepVisits<'_> {
    type Output = KeptVisits;
    const OPERATION: &'static str = "store visits";

    async fn run(&mut self, connection: &mut Statements<'_>) -> Result<KeptVisits, sqlx::Error> {
        let places = take_new(connection, self.visits, self.now).await?;
        let new: Vec<&Visit> = places.iter().map(|&place| &self.visits[place]).collect();
        let links = links_of(connection, self.numbering, &new).await?;
        let counted = new.iter().map(|visit| {
            let campaign = campaign_of(visit, &links);
            (*visit, visit.code.as_str(), campaign)
        });
        let counts = Counts::of(counted);
        insert_agents(connection, &new).await?;
        insert_visits(connection, &new, &links).await?;
        add(connection, &counts).await?;
        add_visitors(connection, &counts).await?;
        let mut ended = Vec::new();
        let ending: Vec<&str> = links
            .iter()
            .filter(|(_, link)| link.max_visits.is_some())
            .map(|(code, _)| code.as_str())
            .collect();
        if !ending.is_empty() {
            let counted: Vec<(String, i64)> = sqlx::query_as(
                "SELECT code, sum(visits)::bigint FROM visit_link_hours \
                 WHERE code = ANY($1::text[]) AND class = ANY($2::text[]) GROUP BY code",
            )
            .bind(ending)
            .bind(COUNTING.as_slice())
            .fetch_all(connection)
            .await?;
            let codes = counted.iter().filter_map(|(code, visits)| {
                let code: Code = code.parse().ok()?;
                let most = links.get(&code)?.max_visits?;
                (*visits >= most).then_some(code)
            });
            ended.extend(codes);
            ended.sort_unstable_by_key(|code| code.to_string());
        }
        Ok(KeptVisits { new: places, ended })
    }
}

/// Notes visits as stored; returns the places of those that were not. Other transactions with visits
/// of these origins wait, in the order of the origins.
async fn take_new(
    connection: &mut Statements<'_>,
    visits: &[Visit],
    now: Timestamp,
) -> Result<Vec<usize>, sqlx::Error> {
    let mut stored = BTreeMap::new();
    for origin in origins(visits) {
        let text: String = sqlx::query_scalar(
            "INSERT INTO visit_origins (origin, ranges, seen_at) VALUES ($1, '', $2) \
             ON CONFLICT (origin) DO UPDATE SET seen_at = excluded.seen_at RETURNING ranges",
        )
        .bind(origin)
        .bind(now.as_millisecond())
        .fetch_one(&mut *connection)
        .await?;
        stored.insert(origin, ranges(&text)?);
    }
    let new = add_new(visits, &mut stored);
    for (origin, ranges) in stored {
        sqlx::query("UPDATE visit_origins SET ranges = $2 WHERE origin = $1")
            .bind(origin)
            .bind(ranges.to_text())
            .execute(&mut *connection)
            .await?;
    }
    Ok(new)
}

/// The links that were visited and belong to a campaign, or are to end.
async fn links_of(
    connection: &mut Statements<'_>,
    numbering: &Numbering,
    visits: &[&Visit],
) -> Result<HashMap<Code, VisitedLink>, sqlx::Error> {
    let codes: BTreeSet<&str> = visits.iter().map(|visit| visit.code.as_str()).collect();
    let codes: Vec<Code> = codes.iter().filter_map(|text| text.parse().ok()).collect();
    let ids = known_ids(connection, numbering, &codes).await?;
    let known = ids.into_iter().zip(&codes);
    let by_id: HashMap<i64, Code> = known.filter_map(|(id, code)| Some((id?, *code))).collect();
    let mut ids: Vec<i64> = by_id.keys().copied().collect();
    ids.sort_unstable();
    // The limit makes PostgreSQL look each id up by itself, in the one part of the table that can have
    // it. `ANY` would look all ids up in each part, and the planner would weigh each of them.
    let rows: Vec<(i64, Option<i64>, Option<i64>)> = sqlx::query_as(
        "SELECT asked.id, campaign_id, max_visits FROM unnest($1::bigint[]) AS asked (id), \
         LATERAL (SELECT campaign_id, max_visits FROM links WHERE links.id = asked.id LIMIT 1) link \
         WHERE campaign_id IS NOT NULL OR max_visits IS NOT NULL",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(visited_links(rows, &by_id))
}

/// Converts rows with an id, a campaign and a number of visits to links; `codes` are those of the ids.
fn visited_links(
    rows: Vec<(i64, Option<i64>, Option<i64>)>,
    codes: &HashMap<i64, Code>,
) -> HashMap<Code, VisitedLink> {
    let links = rows.into_iter().filter_map(|(id, campaign, max_visits)| {
        let link = VisitedLink {
            campaign,
            max_visits,
        };
        Some((*codes.get(&id)?, link))
    });
    links.collect()
}

/// The campaign that a visit is counted for.
fn campaign_of(visit: &Visit, links: &HashMap<Code, VisitedLink>) -> Option<i64> {
    let code = Code::parse(visit.code.as_bytes()).ok()?;
    links.get(&code)?.campaign
}

async fn insert_agents(
    connection: &mut Statements<'_>,
    visits: &[&Visit],
) -> Result<(), sqlx::Error> {
    let agents = visits.iter();
    let agents = agents.map(|visit| (visit.user_agent.as_str(), &*visit.agent));
    insert_agent_rows(connection, agents).await
}

/// Stores user agents with their classifications.
pub(super) async fn insert_agent_rows(
    connection: &mut Statements<'_>,
    agents: impl Iterator<Item = (&str, &Agent)>,
) -> Result<(), sqlx::Error> {
    // By id: all transactions insert them in the same order.
    let agents: BTreeMap<i64, (&str, &Agent)> = agents
        .map(|(user_agent, agent)| (agent_id(user_agent, agent), (user_agent, agent)))
        .collect();
    let (ids, agents): (Vec<i64>, Vec<(&str, &Agent)>) = agents.into_iter().unzip();
    let (texts, agents): (Vec<&str>, Vec<&Agent>) = agents.into_iter().unzip();
    let browsers = agents.iter().map(|agent| parts(agent.browser.as_ref()));
    let (browsers, browser_versions): (Vec<_>, Vec<_>) = browsers.unzip();
    let systems = agents.iter().map(|agent| parts(agent.os.as_ref()));
    let (systems, system_versions): (Vec<_>, Vec<_>) = systems.unzip();
    let devices = agents.iter().map(|agent| agent.device.kind.name());
    let devices: Vec<&str> = devices.collect();
    let apps: Vec<Option<&str>> = agents.iter().map(|agent| agent.app).collect();
    sqlx::query(
        "INSERT INTO visit_agents SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], \
         $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) ON CONFLICT DO NOTHING",
    )
    .bind(ids)
    .bind(texts)
    .bind(browsers)
    .bind(browser_versions)
    .bind(systems)
    .bind(system_versions)
    .bind(devices)
    .bind(apps)
    .execute(connection)
    .await?;
    Ok(())
}

async fn insert_visits(
    connection: &mut Statements<'_>,
    visits: &[&Visit],
    links: &HashMap<Code, VisitedLink>,
) -> Result<(), sqlx::Error> {
    let mut rows = CopyRows::new(20);
    for visit in visits {
        let client = visit.client.map(|client| client.to_string());
        rows.row()
            .long(visit.at.as_millisecond())
            .text(visit.code.as_str())
            .text(visit.host.as_str())
            .text(client.as_deref())
            .bytes(visit.visitor.as_ref().map(|id| id.0.as_slice()))
            .long(agent_id(&visit.user_agent, &visit.agent))
            .text(some(&visit.referrer))
            .text(visit.referrer_host.as_deref())
            .text(visit.language.as_deref())
            .text(visit.method_name())
            .int(i32::from(visit.status))
            .text(some(&visit.purpose))
            .text(visit.place.country.as_deref())
            .text(visit.place.province.as_deref())
            .text(visit.place.city.as_deref())
            .text(visit.place.isp.as_deref())
            .text(visit.classification.class.name())
            .text(visit.classification.reason)
            .int(i32::from(visit.classification.ruleset))
            .long(campaign_of(visit, links));
    }
    rows.send(
        connection,
        "COPY visits (at, code, host, client, visitor, agent_id, referrer, referrer_host, \
         language, method, status, purpose, country, province, city, isp, class, reason, ruleset, \
         campaign_id) FROM STDIN (FORMAT binary)",
    )
    .await
}

/// Adds counts to the stored ones. All transactions add in the same order.
pub(super) async fn add(
    connection: &mut Statements<'_>,
    counts: &Counts<&str>,
) -> Result<(), sqlx::Error> {
    let links = counts.links.iter();
    let columns = links.map(|((code, hour, class), (visits, last_at))| {
        ((*code, *hour), (*class, *visits), *last_at)
    });
    let (mut codes, mut hours, mut classes, mut visits, mut lasts) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((code, hour), (class, count), last_at) in columns {
        codes.push(code);
        hours.push(hour);
        classes.push(class);
        visits.push(count);
        lasts.push(last_at);
    }
    sqlx::query(
        "INSERT INTO visit_link_hours AS kept SELECT * FROM unnest($1::text[], $2::bigint[], \
         $3::text[], $4::bigint[], $5::bigint[]) ON CONFLICT (code, hour, class) DO UPDATE SET \
         visits = kept.visits + excluded.visits, \
         last_at = greatest(kept.last_at, excluded.last_at)",
    )
    .bind(codes)
    .bind(hours)
    .bind(classes)
    .bind(visits)
    .bind(lasts)
    .execute(&mut *connection)
    .await?;
    let (mut campaigns, mut dimensions, mut hours) = (Vec::new(), Vec::new(), Vec::new());
    let (mut values, mut classes, mut visits) = (Vec::new(), Vec::new(), Vec::new());
    for ((campaign, dimension, hour, value, class), count) in &counts.hours {
        campaigns.push(*campaign);
        dimensions.push(*dimension);
        hours.push(*hour);
        values.push(value.as_str());
        classes.push(*class);
        visits.push(*count);
    }
    sqlx::query(
        "INSERT INTO visit_hours AS kept SELECT * FROM unnest($1::bigint[], $2::text[], \
         $3::bigint[], $4::text[], $5::text[], $6::bigint[]) \
         ON CONFLICT (campaign_id, dimension, hour, value, class) \
         DO UPDATE SET visits = kept.visits + excluded.visits",
    )
    .bind(campaigns)
    .bind(dimensions)
    .bind(hours)
    .bind(values)
    .bind(classes)
    .bind(visits)
    .execute(&mut *connection)
    .await?;
    let (mut minutes, mut hosts, mut visits) = (Vec::new(), Vec::new(), Vec::new());
    for ((minute, host), count) in &counts.minutes {
        minutes.push(*minute);
        hosts.push(host.as_str());
        visits.push(*count);
    }
    sqlx::query(
        "INSERT INTO visit_domain_minutes AS kept SELECT * FROM unnest($1::bigint[], $2::text[], \
         $3::bigint[]) ON CONFLICT (minute, host) \
         DO UPDATE SET visits = kept.visits + excluded.visits",
    )
    .bind(minutes)
    .bind(hosts)
    .bind(visits)
    .execute(connection)
    .await?;
    Ok(())
}

/// Adds unique visitors. Other transactions for the same day wait, in the order of the rows.
pub(super) async fn add_visitors(
    connection: &mut Statements<'_>,
    counts: &Counts<&str>,
) -> Result<(), sqlx::Error> {
    for ((campaign, day), visitors) in &counts.visitors {
        let nobody = Sketch::default();
        // The update changes nothing, but returns and locks an existing row.
        let kept: Vec<u8> = sqlx::query_scalar(
            "INSERT INTO visit_sketches AS kept (campaign_id, day, registers) \
             VALUES ($1, $2, $3) ON CONFLICT (campaign_id, day) \
             DO UPDATE SET registers = kept.registers RETURNING registers",
        )
        .bind(campaign)
        .bind(day)
        .bind(nobody.as_bytes())
        .fetch_one(&mut *connection)
        .await?;
        let sketch = with(Some(kept), visitors)?;
        sqlx::query("UPDATE visit_sketches SET registers = $3 WHERE campaign_id = $1 AND day = $2")
            .bind(campaign)
            .bind(day)
            .bind(sketch.as_bytes())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
