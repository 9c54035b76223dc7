//! Keeping new links in PostgreSQL, all with one statement.

use jiff::Timestamp;
use shortlink_core::ports::{OutboxSpan, Receipt};

use crate::changes;
use crate::codes::{COUNT, COUNTED};
use crate::db::Db;
use crate::outbox::WAIT_AGAIN;
use crate::quotas;
use crate::rows::{LISTS, NewLink, columns, values};
use crate::shared::usage;
use crate::sql::sql;
use crate::targets;
use crate::value::{Value, args, lists};

/// Maximum number of rows of the outbox for new links that each cover all links between two. More links
/// share one row with their ids.
const FEW_SPANS: usize = 4;

/// The statement that inserts links, with the name and the list of a further column, and with a column of the answer.
macro_rules! insertion {
    ($column:expr, $list:expr, $answer:expr) => {
        // One row with all ids costs less on the way than a row for each.
        sql!(
            "WITH kept AS (INSERT INTO links (id, ",
            columns!(),
            $column,
            ") SELECT * FROM unnest(",
            LISTS,
            $list,
            ") ON CONFLICT DO NOTHING RETURNING id) \
             SELECT coalesce(array_agg(id), ARRAY[]::bigint[]) AS ids",
            $answer,
            " FROM kept"
        )
    };
}

/// Stores the links whose ids are free; returns these ids in no order.
pub(crate) async fn insert(db: &mut Db<'_>, rows: &[NewLink<'_>]) -> Result<Vec<i64>, sqlx::Error> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut values: Vec<Value<'_>> = lists(rows.iter().map(|row| values(row.link)));
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    values.insert(0, ids.into());
    let sql = if rows.iter().any(|row| row.target_hash.is_some()) {
        let hashes = rows.iter().map(|row| row.target_hash);
        values.push(Value::Numbers(hashes.collect()));
        insertion!(", target_hash", ", $22::bigint[]", "")
    } else if targets::lack_hash(rows) {
        insertion!("", "", targets::CREATE_WITHOUT_HASH)
    } else {
        insertion!("", "", "")
    };
    db.get(sql, &values, |row| row.get("ids")).await
}

/// Adds inserted links to the outbox and counts them, in the transaction that stores them; returns the
/// ids among them that still belong to deleted links.
///
/// Only now is this known: if a link is deleted while this transaction waits for its id, the
/// transaction gets the id, but its statement is too old to see that the code is not free yet.
pub(crate) async fn settle(
    db: &mut Db<'_>,
    rows: &[NewLink<'_>],
    spans: Vec<OutboxSpan>,
    now: Timestamp,
) -> Result<(Receipt, Vec<i64>), sqlx::Error> {
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
         SELECT first_id, last_id, 1, $3, \
         CASE WHEN place = cardinality($1) AND cardinality($4::bigint[]) > 0 THEN $4 END \
         FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS new (first_id, last_id, place)",
        WAIT_AGAIN,
        "), counted AS (",
        COUNT,
        "unnest($6::bigint[], $7::bigint[], $8::bigint[]) AS new (length, day, links)",
        COUNTED,
        "), owned AS (",
        quotas::COUNT,
        "unnest($9::text[], $10::text[], $11::bigint[]) AS new (owner_kind, owner_id, links)",
        quotas::COUNTED,
        "), marked AS (UPDATE target_fill SET is_stale = true WHERE $12 AND NOT is_stale\
         ) SELECT id FROM removed_links WHERE id = ANY($5::bigint[])"
    );
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let ends: (Vec<i64>, Vec<i64>) = new.iter().map(|span| (span.first, span.last)).unzip();
    let mut values = args![ends.0, ends.1, now, scattered, ids].to_vec();
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
    let removed = db.all(sql, &values, |row| row.get("id")).await?;
    spans.extend(new);
    Ok((Receipt(spans), removed))
}
