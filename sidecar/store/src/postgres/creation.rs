//! Stores new links in PostgreSQL, all with one statement.

use std::sync::LazyLock;

use jiff::Timestamp;
use shortlink_core::ports::{OutboxSpan, Receipt};

use crate::changes;
use crate::codes::{COUNT, COUNTED};
use crate::creation::Settled;
use crate::db::Db;
use crate::outbox::WAIT_AGAIN;
use crate::quotas;
use crate::rows::{Columns, NewLink, TYPES, values};
use crate::shared::usage;
use crate::sql::{Sql, sql};
use crate::targets;
use crate::value::{Row, Value, args, lists};

/// Maximum number of rows of the outbox for new links that each cover all links between two. More links
/// share one row with their ids.
const FEW_SPANS: usize = 4;

/// A duty of a statement that inserts links, besides that.
#[derive(Clone, Copy, Debug)]
enum Besides {
    Nothing,
    /// Stores the hashes of targets, in a list behind those of the columns.
    Hashes,
    /// Takes the lock of links without a hash.
    Lock,
}

/// The statement that inserts links with some columns. One row with all ids as the answer costs less on the way than a row
/// for each.
fn insertion(columns: Columns, besides: Besides) -> Sql {
    static STATEMENTS: LazyLock<[[Sql; 3]; 3]> = LazyLock::new(|| {
        let each = [Besides::Nothing, Besides::Hashes, Besides::Lock];
        Columns::EACH.map(|columns| each.map(|besides| statement(columns, besides)))
    });
    STATEMENTS[columns as usize][besides as usize]
}

/// Makes one of the statements, once for the process.
fn statement(columns: Columns, besides: Besides) -> Sql {
    let mut names = vec!["id"];
    names.extend(columns.names());
    let mut types = vec!["bigint"];
    types.extend(columns.pick(TYPES));
    let answer = match besides {
        Besides::Nothing => "",
        Besides::Hashes => {
            names.push("target_hash");
            types.push("bigint");
            ""
        }
        Besides::Lock => targets::CREATE_WITHOUT_HASH,
    };
    let names = names.join(", ");
    let lists = types.iter().zip(1..);
    let lists: Vec<String> = lists
        .map(|(it, place)| format!("${place}::{it}[]"))
        .collect();
    let lists = lists.join(", ");
    let text = format!(
        "WITH kept AS (INSERT INTO links ({names}) SELECT * FROM unnest({lists}) \
         ON CONFLICT DO NOTHING RETURNING id) \
         SELECT coalesce(array_agg(id), ARRAY[]::bigint[]) AS ids{answer} FROM kept"
    );
    Sql::new(&[], text.leak().as_bytes())
}

/// Stores the links whose ids are free; returns these ids in no order.
pub(crate) async fn insert(db: &mut Db<'_>, rows: &[NewLink<'_>]) -> Result<Vec<i64>, sqlx::Error> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let columns = Columns::of_all(rows.iter().map(|row| row.link));
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let mut parameters = vec![ids.into()];
    parameters.extend(lists(rows.iter().map(|row| columns.pick(values(row.link)))));
    let mut besides = Besides::Nothing;
    if rows.iter().any(|row| row.target_hash.is_some()) {
        let hashes = rows.iter().map(|row| row.target_hash);
        parameters.push(Value::Numbers(hashes.collect()));
        besides = Besides::Hashes;
    } else if targets::lack_hash(rows) {
        besides = Besides::Lock;
    }
    let sql = insertion(columns, besides);
    db.get(sql, &parameters, |row| row.get("ids")).await
}

/// Adds inserted links to the outbox and counts them, in the transaction that stores them.
///
/// Only now is it known which ids still belong to deleted links: if a link is deleted while this transaction waits for its id, the
/// transaction gets the id, but its statement is too old to see that the code is not free yet.
pub(crate) async fn settle(
    db: &mut Db<'_>,
    rows: &[NewLink<'_>],
    spans: Vec<OutboxSpan>,
    now: Timestamp,
) -> Result<Settled, sqlx::Error> {
    let (mut new, mut spans): (Vec<_>, Vec<_>) = spans.into_iter().partition(|it| it.revision == 1);
    changes::append(db, spans.iter(), now).await?;
    let mut scattered = Vec::new();
    if new.len() > FEW_SPANS {
        let ids = rows.iter().filter(|row| row.link.revision == 1);
        scattered.extend(ids.map(|row| row.id));
        new = vec![OutboxSpan {
            last: new[new.len() - 1].last,
            ..new[0]
        }];
    }
    let sql = sql!(
        "WITH waiting AS (INSERT INTO outbox (first_id, last_id, revision, enqueued_at, ids) \
         SELECT first_id, last_id, 1, $5, \
         CASE WHEN place = cardinality($3) AND cardinality($6::bigint[]) > 0 THEN $6 END \
         FROM unnest($3::bigint[], $4::bigint[]) WITH ORDINALITY AS new (first_id, last_id, place)",
        WAIT_AGAIN,
        "), counted AS (",
        COUNT,
        "unnest($8::bigint[], $9::bigint[], $10::bigint[]) AS new (length, day, links)",
        COUNTED,
        "), owned AS (",
        quotas::COUNT,
        "unnest($11::text[], $12::text[], $13::bigint[]) AS new (owner_kind, owner_id, links)",
        quotas::COUNTED,
        ") SELECT id, false AS is_fresh, NULL AS name FROM removed_links WHERE id = ANY($7::bigint[]) \
         UNION ALL SELECT NULL, true, NULL FROM target_fill WHERE $14 AND NOT is_stale \
         UNION ALL SELECT NULL, false, name FROM (",
        quotas::LIMITS,
        ") AS quotas"
    );
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let ends: (Vec<i64>, Vec<i64>) = new.iter().map(|span| (span.first, span.last)).unzip();
    let mut values = quotas::owners(rows.iter().map(|row| row.link)).to_vec();
    values.extend(args![ends.0, ends.1, now, scattered, ids].iter().cloned());
    let usage: Vec<_> = usage(rows.iter().map(NewLink::counted))
        .into_iter()
        .collect();
    let usage = usage.into_iter();
    values.extend(lists(usage.map(|((length, day), links)| {
        [length.into(), day.into(), links.into()]
    })));
    let owners = quotas::rows(rows.iter().map(|row| row.link), 1);
    values.extend(lists(owners.into_iter()));
    values.push(targets::lack_hash(rows).into());
    let read = |row: &Row| Ok((row.find("id")?, row.get("is_fresh")?, row.find("name")?));
    let answer: Vec<(Option<i64>, bool, Option<String>)> = db.all(sql, &values, read).await?;
    if answer.iter().any(|(_, is_fresh, _)| *is_fresh) {
        db.run(targets::MARK_STALE, &[]).await?;
    }
    spans.extend(new);
    Ok(Settled {
        receipt: Receipt(spans),
        removed: answer.iter().filter_map(|(id, ..)| *id).collect(),
        limited: answer.into_iter().filter_map(|(.., name)| name).collect(),
    })
}
