//! The search for links and campaigns.
//!
//! Whole values, and the beginnings of external ids, tags and custom codes, are found by existing indexes.
//! `search_words` has the words of targets and notes, stored in the transaction that stores the link, for those links
//! that [`Admission`] chooses: most links of a mailing have none, so that they cost nothing. It has the words of every
//! campaign. A walk adds those of links and campaigns that are older than the table.
//!
//! Each question reads a bounded number of rows of an index, whatever the number of links.

pub(super) mod admission;

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use shortlink_core::boxed;
use shortlink_core::campaign::Campaign;
use shortlink_core::link::Link;
use shortlink_core::ports::StoreError;
use shortlink_core::search::{
    FoundBy, MOST_CAMPAIGNS, MOST_OF_MEMBER, Question, after_prefix, without_query, words_of_link,
    words_of_text,
};
use vocabulary::Code;

use super::db::{Db, Statement};
use super::rows::{columns, find, find_id, read};
use super::sql::{FOR_UPDATE, IN_NUMBERS, Sql, sql};
use super::value::{Row, Value, args, is_storable};
use super::{Store, campaigns};
pub use admission::Admission;

/// The most rows of an index that a question reads in one order.
const MOST_EXAMINED: u32 = 1_000;

/// The most rows of a word, and of longer words that begin with it.
const MOST_OF_WORD: u32 = 2_500;

/// Removes the words of links.
pub(super) const REMOVE: Sql = sql!(
    "DELETE FROM search_words WHERE id",
    IN_NUMBERS,
    " AND member < 3"
);

/// A member with words, as a number of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Target = 1,
    Note = 2,
    Campaign = 3,
}

impl Store {
    /// Finds links, each by the first member that has the question: at most [`MOST_OF_MEMBER`] by each, the latest first;
    /// whole values come before begins of values. With `own`, only links that were created with one of these API keys are
    /// found. Links are found by their whole target only if they all have its hash.
    #[boxed]
    pub async fn search_links(
        &self,
        question: &Question,
        own: Option<&[String]>,
        by_target: bool,
    ) -> Result<Vec<(FoundBy, Link)>, StoreError> {
        if !is_storable(&question.text) {
            return Ok(Vec::new());
        }
        let args = (question, own, by_target);
        self.read("search links", args, |db, (question, own, by_target)| {
            Box::pin(search(db, question, *own, *by_target))
        })
        .await
    }

    /// Finds campaigns that have the words of a question in their names, external ids, targets and notes: the latest
    /// [`MOST_CAMPAIGNS`], among those of the API keys in `own` if it is given.
    #[boxed]
    pub async fn search_campaigns(
        &self,
        question: &Question,
        own: Option<&[String]>,
    ) -> Result<Vec<Campaign>, StoreError> {
        if question.words.is_empty() {
            return Ok(Vec::new());
        }
        self.read(
            "search campaigns",
            (question, own),
            |db, (question, own)| Box::pin(search_campaigns(db, question, *own)),
        )
        .await
    }

    /// Adds the words of the next `limit` campaigns or links that are older than the search; returns true if there may be
    /// more. Of several processes, one goes on where another one has stopped.
    #[boxed]
    pub async fn fill_search(
        &self,
        limit: u32,
        admission: std::sync::Arc<Admission>,
    ) -> Result<bool, StoreError> {
        let args = (limit, admission);
        self.run_tx("add the words of links", args, |db, (limit, admission)| {
            Box::pin(fill(db, *limit, admission))
        })
        .await
    }
}

async fn search(
    db: &mut Db<'_>,
    question: &Question,
    own: Option<&[String]>,
    by_target: bool,
) -> Result<Vec<(FoundBy, Link)>, sqlx::Error> {
    let mut found = Results::default();
    if let Some(code) = &question.code {
        let link = match find_id(db, code).await? {
            Some(id) => find(db, id, code).await?,
            None => None,
        };
        let link = link.filter(|link| own.is_none_or(|own| own.contains(&link.created_by)));
        found.add(FoundBy::Code, link.into_iter().collect());
    }
    for source in sources(question, by_target) {
        let left = found.left(source.by);
        if left > 0 {
            let links = source.links(db, own, left).await?;
            found.add(source.by, links);
        }
    }
    for (by, member) in [
        (FoundBy::Target, Member::Target),
        (FoundBy::Note, Member::Note),
    ] {
        let left = found.left(by);
        if left > 0 && !question.words.is_empty() {
            let words = Words::of(db, member, &question.words).await?;
            let inner = |statement: &mut Statement<'_>| words.push(statement);
            found.add(by, links(db, &inner, own, left).await?);
        }
    }
    Ok(found.links)
}

/// The results so far.
#[derive(Default)]
struct Results {
    links: Vec<(FoundBy, Link)>,
    codes: HashSet<Code>,
    counts: BTreeMap<&'static str, u32>,
}

impl Results {
    /// The number of links to read for a member, 0 if it has enough: those that another one has found are read once more.
    fn left(&self, by: FoundBy) -> u32 {
        match self.counts.get(by.name()) {
            Some(&count) if count >= MOST_OF_MEMBER => 0,
            _ => MOST_OF_MEMBER + self.links.len() as u32,
        }
    }

    fn add(&mut self, by: FoundBy, links: Vec<Link>) {
        let count = self.counts.entry(by.name()).or_default();
        for link in links {
            if *count < MOST_OF_MEMBER && self.codes.insert(link.code) {
                *count += 1;
                self.links.push((by, link));
            }
        }
    }
}

/// A way to find links without words.
struct Source<'q> {
    by: FoundBy,
    /// Reads the creation times (`found_at`) and ids (`found_id`) of links, up to the first condition.
    select: Sql,
    conditions: Vec<(Sql, Value<'q>)>,
    /// The order of the index.
    order: Sql,
}

/// The ways to find links without words, in the order of their results.
fn sources(question: &Question, by_target: bool) -> Vec<Source<'_>> {
    const EXTERNAL_ID: Sql = sql!(
        "SELECT created_at AS found_at, id AS found_id FROM links {INDEXED BY links_by_external_id}"
    );
    const TAG: Sql = sql!("SELECT link_created_at AS found_at, link_id AS found_id FROM link_tags");
    const SPELLING: Sql = sql!("SELECT link_id AS found_at, link_id AS found_id FROM spellings");
    const TARGET: Sql = sql!(
        "SELECT created_at AS found_at, id AS found_id FROM links {INDEXED BY links_by_target}"
    );
    const LATEST: Sql = sql!(" ORDER BY created_at DESC, id DESC");
    const LATEST_TAGGED: Sql = sql!(" ORDER BY link_created_at DESC, link_id DESC");
    let text = question.text.as_str();
    let lower = text.to_lowercase();
    let whole = |by, select, column, value, order| Source {
        by,
        select,
        conditions: vec![(column, value)],
        order,
    };
    let begin = |by, select, from, to, prefix: &str, order| Source {
        by,
        select,
        conditions: vec![
            (from, prefix.to_owned().into()),
            (to, after_prefix(prefix).into()),
        ],
        order,
    };
    let is_tag = sql!(" WHERE tag = ");
    let is_id = sql!(" WHERE external_id = ");
    let mut sources = vec![
        begin(
            FoundBy::Code,
            SPELLING,
            sql!(" WHERE folded >= "),
            sql!(" AND folded < "),
            &lower,
            sql!(" ORDER BY folded"),
        ),
        whole(FoundBy::ExternalId, EXTERNAL_ID, is_id, text.into(), LATEST),
        whole(FoundBy::Tag, TAG, is_tag, text.into(), LATEST_TAGGED),
    ];
    if lower != text {
        let value = lower.clone().into();
        sources.push(whole(FoundBy::Tag, TAG, is_tag, value, LATEST_TAGGED));
    }
    if let (Some(target), true) = (&question.target, by_target) {
        sources.push(Source {
            by: FoundBy::Target,
            select: TARGET,
            conditions: vec![
                (sql!(" WHERE target_hash = "), target.hash().into()),
                (sql!(" AND target = "), target.as_str().into()),
            ],
            order: LATEST,
        });
    }
    let mut begins = vec![text];
    begins.extend((lower != text).then_some(&*lower));
    sources.push(begin(
        FoundBy::ExternalId,
        EXTERNAL_ID,
        sql!(" WHERE external_id > "),
        sql!(" AND external_id < "),
        text,
        sql!(" ORDER BY external_id, created_at, id"),
    ));
    for prefix in begins {
        sources.push(begin(
            FoundBy::Tag,
            TAG,
            sql!(" WHERE tag > "),
            sql!(" AND tag < "),
            prefix,
            sql!(" ORDER BY tag, link_created_at, link_id"),
        ));
    }
    sources
}

impl Source<'_> {
    async fn links(
        &self,
        db: &mut Db<'_>,
        own: Option<&[String]>,
        limit: u32,
    ) -> Result<Vec<Link>, sqlx::Error> {
        let inner = |statement: &mut Statement<'_>| {
            statement.push(self.select);
            for (condition, value) in &self.conditions {
                statement.push(*condition).bind(value.to_owned());
            }
            statement.push(self.order).push(sql!(" LIMIT "));
            statement.bind(MOST_EXAMINED);
        };
        links(db, &inner, own, limit).await
    }
}

/// Reads the latest of the links whose creation times and ids a statement finds, a bounded number.
async fn links(
    db: &mut Db<'_>,
    inner: &(dyn Fn(&mut Statement<'_>) + Sync),
    own: Option<&[String]>,
    limit: u32,
) -> Result<Vec<Link>, sqlx::Error> {
    const LATEST: Sql = sql!(" ORDER BY found_at DESC, found_id DESC LIMIT ");
    let mut statement = db.statement(sql!(
        "SELECT ",
        columns!(),
        " FROM (SELECT found_at, found_id FROM ("
    ));
    inner(&mut statement);
    statement.push(sql!(") AS examined"));
    if own.is_none() {
        // Only these are read.
        statement.push(LATEST).bind(limit);
    }
    statement.push(sql!(") AS found {CROSS }JOIN links ON links.id = found_id"));
    if let Some(own) = own {
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        statement.push(sql!(
            " WHERE created_by {IN (SELECT value FROM json_each(|= ANY(}"
        ));
        statement
            .bind(Value::from(own).to_owned())
            .push(sql!("{))|::text[])}"));
    }
    statement.push(LATEST).bind(limit);
    db.all(&statement, &statement.values, read).await
}

/// A question by words.
struct Words<'q> {
    member: Member,
    /// The place of the word that fewest rows have.
    lead: usize,
    words: &'q [String],
}

impl<'q> Words<'q> {
    async fn of(db: &mut Db<'_>, member: Member, words: &'q [String]) -> Result<Self, sqlx::Error> {
        Ok(Self {
            member,
            lead: lead(db, member, words).await?,
            words,
        })
    }

    /// Adds the statement that reads the rows of one word, each of an item that has all others.
    fn push(&self, statement: &mut Statement<'_>) {
        let word = &self.words[self.lead];
        statement.push(sql!(
            "SELECT DISTINCT created_at AS found_at, id AS found_id FROM (SELECT created_at, id FROM \
             (SELECT created_at, id FROM search_words WHERE member = "
        ));
        self.bind_member(statement).push(sql!(" AND word = "));
        statement
            .bind(word.clone())
            .push(sql!(" ORDER BY created_at DESC, id DESC LIMIT "));
        statement.bind(MOST_OF_WORD).push(sql!(
            ") AS whole UNION ALL SELECT created_at, id FROM \
             (SELECT created_at, id FROM search_words WHERE member = "
        ));
        self.bind_member(statement).push(sql!(" AND word > "));
        statement.bind(word.clone()).push(sql!(" AND word < "));
        statement
            .bind(after_prefix(word))
            .push(sql!(" ORDER BY word, created_at, id LIMIT "));
        statement
            .bind(MOST_OF_WORD)
            .push(sql!(") AS longer) AS lead"));
        let others = self.words.iter().enumerate();
        let others = others.filter(|(place, _)| *place != self.lead);
        for (count, (_, word)) in others.enumerate() {
            // PostgreSQL would join all rows of both words, unless this stays a query for each row.
            statement.push(match count {
                0 => sql!(" WHERE "),
                _ => sql!(" AND "),
            });
            statement.push(sql!(
                "EXISTS (SELECT 1 FROM search_words AS other {INDEXED BY search_words_by_id }\
                 WHERE other.id = lead.id AND other.member = "
            ));
            self.bind_member(statement)
                .push(sql!(" AND other.word >= "));
            statement
                .bind(word.clone())
                .push(sql!(" AND other.word < "));
            statement
                .bind(after_prefix(word))
                .push(sql!("{| OFFSET 0})"));
        }
    }

    fn bind_member<'s, 'a>(&self, statement: &'s mut Statement<'a>) -> &'s mut Statement<'a> {
        statement.bind(self.member as i64)
    }
}

/// Finds the place of the word that the fewest rows have, as far as they are counted.
async fn lead(db: &mut Db<'_>, member: Member, words: &[String]) -> Result<usize, sqlx::Error> {
    if words.len() < 2 {
        return Ok(0);
    }
    let mut statement = db.statement(sql!("SELECT "));
    for (place, word) in words.iter().enumerate() {
        if place > 0 {
            statement.push(sql!(" UNION ALL SELECT "));
        }
        statement.bind(place as u64).push(sql!(
            "{| ::bigint} AS place, (SELECT count(*) FROM (SELECT 1 FROM search_words WHERE member = "
        ));
        statement
            .bind(member as i64)
            .push(sql!(" AND word >= "))
            .bind(word)
            .push(sql!(" AND word < "));
        statement.bind(after_prefix(word)).push(sql!(" LIMIT "));
        statement
            .bind(2 * MOST_OF_WORD)
            .push(sql!(") AS counted) AS count"));
    }
    let read = |row: &Row| Ok((row.get::<i64>("count")?, row.get::<u64>("place")? as usize));
    let counts: Vec<(i64, usize)> = db.all(&statement, &statement.values, read).await?;
    Ok(counts.into_iter().min().map_or(0, |(_, place)| place))
}

async fn search_campaigns(
    db: &mut Db<'_>,
    question: &Question,
    own: Option<&[String]>,
) -> Result<Vec<Campaign>, sqlx::Error> {
    let words = Words::of(db, Member::Campaign, &question.words).await?;
    let mut statement = db.statement(sql!("SELECT found_id FROM ("));
    words.push(&mut statement);
    statement
        .push(sql!(") AS found ORDER BY found_id DESC LIMIT "))
        .bind(MOST_EXAMINED);
    let ids: Vec<i64> = db
        .all(&statement, &statement.values, |row| row.get("found_id"))
        .await?;
    campaigns::find_latest(db, ids, own, MOST_CAMPAIGNS).await
}

/// Adds the words of links, each with its id.
pub(super) async fn add<'a>(
    db: &mut Db<'_>,
    links: impl Iterator<Item = (i64, &'a Link)>,
) -> Result<(), sqlx::Error> {
    let words = links.flat_map(|(id, link)| {
        let words = words_of_link(link).into_iter();
        words.map(move |(by, word)| {
            let member = match by {
                FoundBy::Note => Member::Note,
                _ => Member::Target,
            };
            row(member, word, link.created_at.as_millisecond(), id)
        })
    });
    insert(db, words.collect()).await
}

/// Replaces the words of a changed link, which is locked, if it was changed in what it is found by; a link that had none gets
/// some if it is admitted.
pub(super) async fn replace(
    db: &mut Db<'_>,
    id: i64,
    before: &Link,
    link: &Link,
    is_admitted: impl Fn(&Link) -> bool,
) -> Result<(), sqlx::Error> {
    let is_same = before.destination.target() == link.destination.target();
    if is_same && before.note == link.note {
        return Ok(());
    }
    let removed = db.run(REMOVE, args![vec![id]]).await?;
    if removed > 0 || is_admitted(link) {
        add(db, std::iter::once((id, link))).await?;
    }
    Ok(())
}

/// Stores the words of a campaign in place of those that it had before.
pub(super) async fn replace_campaign(
    db: &mut Db<'_>,
    campaign: &Campaign,
) -> Result<(), sqlx::Error> {
    let id = campaign.id.get().cast_signed();
    let remove = sql!("DELETE FROM search_words WHERE id = $1 AND member = 3");
    db.run(remove, args![id]).await?;
    let at = campaign.created_at.as_millisecond();
    let words = words_of_text(&searched(campaign)).into_iter();
    let words = words.map(|word| row(Member::Campaign, word, at, id));
    insert(db, words.collect()).await
}

/// The text that a campaign is found by.
fn searched(campaign: &Campaign) -> String {
    let target = without_query(campaign.target.template());
    let others = [&campaign.external_id, &campaign.note]
        .into_iter()
        .flatten();
    let mut text = format!("{} {target}", campaign.name);
    for other in others {
        text.push(' ');
        text.push_str(other);
    }
    text
}

fn row(member: Member, word: String, created_at: i64, id: i64) -> [Value<'static>; 4] {
    [
        (member as i64).into(),
        word.into(),
        created_at.into(),
        id.into(),
    ]
}

async fn insert(db: &mut Db<'_>, rows: Vec<[Value<'_>; 4]>) -> Result<(), sqlx::Error> {
    let into = sql!("INSERT INTO search_words (member, word, created_at, id)");
    let types = ["bigint", "text", "bigint", "bigint"];
    let end = sql!(" ON CONFLICT DO NOTHING");
    db.insert(into, types, end, rows.into_iter()).await
}

async fn fill(db: &mut Db<'_>, limit: u32, admission: &Admission) -> Result<bool, sqlx::Error> {
    // Another process that continues the walk waits until this one is done.
    let sql = sql!(
        "SELECT campaign_place, link_place FROM search_fill",
        FOR_UPDATE
    );
    let read_places = |row: &Row| Ok((row.find("campaign_place")?, row.find("link_place")?));
    let places: (Option<i64>, Option<i64>) = db.get(sql, args![], read_places).await?;
    match places {
        (Some(after), _) => {
            let found = campaigns::lock_some(db, after, limit).await?;
            for campaign in &found {
                replace_campaign(db, campaign).await?;
            }
            let last = found.last().map(|it| it.id.get().cast_signed());
            db.run(
                sql!("UPDATE search_fill SET campaign_place = $1"),
                args![last],
            )
            .await?;
            Ok(true)
        }
        (None, Some(after)) => {
            let last = fill_links(db, after, limit, admission).await?;
            db.run(sql!("UPDATE search_fill SET link_place = $1"), args![last])
                .await?;
            Ok(last.is_some())
        }
        (None, None) => Ok(false),
    }
}

/// Adds the words of the next links; returns the id of the last one.
async fn fill_links(
    db: &mut Db<'_>,
    after: i64,
    limit: u32,
    admission: &Admission,
) -> Result<Option<i64>, sqlx::Error> {
    const LINKS: &[&str] = &["SELECT id, ", columns!(), " FROM links WHERE id"];
    let with_id = |row: &Row| Ok((row.get("id")?, read(row)?));
    let page = sql!(LINKS; " > $1 ORDER BY id LIMIT $2");
    let page: Vec<(i64, Link)> = db.all(page, args![after, limit], with_id).await?;
    let links = page
        .iter()
        .map(|(_, link)| (link.created_by.as_str(), link));
    let admitted = admission.admit(links, Instant::now()).into_iter();
    let ids: Vec<i64> = admitted.map(|place| page[place].0).collect();
    if !ids.is_empty() {
        // Read once more, locked: a change at the same time has removed the words that it had.
        let sql = sql!(LINKS; IN_NUMBERS, " ORDER BY id", FOR_UPDATE);
        let locked: Vec<(i64, Link)> = db.all(sql, args![ids], with_id).await?;
        add(db, locked.iter().map(|(id, link)| (*id, link))).await?;
    }
    Ok(page.last().map(|(id, _)| *id))
}
