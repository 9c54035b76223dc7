//! Leases of what new links need: numbers, codes out of the pool, and capacity of a length.
//!
//! A lease has a holder, which reports how far it is. It gives back the rest that it does not use. The rest of a holder
//! that was killed is taken back once its reports have stopped ([`Store::end_lease`]).

use jiff::Timestamp;
use shortlink_core::boxed;
use shortlink_core::ports::{CapacityGrant, CodeLease, StoreError};
use vocabulary::Code;

use super::Store;
use super::codes::take_pooled;
use super::db::Db;
use super::rows::ids_of;
use super::sql::{relaxed, sql, table};
use super::value::{Row, args, invalid};

/// The holder of numbers that were given back.
const FREE: &str = "";

/// Numbers that a process asks for.
#[derive(Clone, Debug)]
pub struct NumbersWanted<'a> {
    /// The counter.
    pub counter: &'a str,
    /// Numbers that the counter has not reached are leased from here on.
    pub floor: u64,
    /// The most numbers to lease.
    pub size: u64,
    /// The number after the last one that there is.
    pub limit: u64,
    /// The number after the last one of the lease that the holder has used up; 0 without one.
    pub used_up: u64,
}

/// Codes out of the pool that a process asks for.
#[derive(Clone, Debug)]
pub struct PooledWanted {
    /// The length of the codes, check character included.
    pub length: usize,
    /// The most codes to lease.
    pub count: u32,
    /// The codes that the holder has left.
    pub held: Vec<Code>,
    /// The number of the request, from 1 on. One that is repeated because its answer was lost has the same number.
    pub request: u64,
}

/// Capacity that a process asks for.
#[derive(Clone, Copy, Debug)]
pub struct CapacityWanted {
    /// The length of the codes, check character included.
    pub length: usize,
    /// Links that wait for it.
    pub wanted: u64,
    /// Links that the process may store already.
    pub unspent: u64,
    /// Those among them that are being stored. These stay, even if the lease was taken back.
    pub in_flight: u64,
    /// The most links of the length.
    pub most: u64,
    /// A process gets one of so many parts of what is free, unless it needs more at once.
    pub parts: u64,
}

/// The name of the lease of capacity of a length, check character included.
pub fn capacity_name(length: usize) -> String {
    format!("capacity:{length}")
}

/// The name of the lease of codes out of the pool of a length, check character included.
pub fn pool_name(length: usize) -> String {
    format!("pool:{length}")
}

impl Store {
    /// Leases numbers to a holder, which has used up its last lease of that counter: those that it has leased by a request
    /// whose answer was lost, else those that were given back, else those that the counter has not reached. Returns the
    /// first and the one after the last, `None` if there are none.
    #[boxed]
    pub async fn lease_numbers<'a>(
        &self,
        wanted: NumbersWanted<'a>,
        holder: &'a str,
        now: Timestamp,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let NumbersWanted {
            floor,
            size,
            limit,
            used_up,
            ..
        } = wanted;
        let limit = limit.min(i64::MAX as u64);
        let args = (
            wanted.counter.to_owned(),
            holder.to_owned(),
            (floor, size, limit, used_up),
            now,
        );
        self.run_tx(
            "lease codes",
            args,
            |db, (counter, holder, (floor, size, limit, used_up), now)| {
                Box::pin(async move {
                    end(db, counter, holder, *used_up).await?;
                    if let Some(lost) = lost(db, counter, holder, *now).await? {
                        return Ok(Some(lost));
                    }
                    let found = match given_back(db, counter, *size).await? {
                        Some(found) => Some(found),
                        None => advance(db, counter, *floor, *size, *limit).await?,
                    };
                    if let Some((next, until)) = found {
                        let sql = sql!(
                            "INSERT INTO code_leases (name, holder, until, next, reported_at) \
                         SELECT $1, $2, CAST($3 AS bigint), CAST($4 AS bigint), CAST($5 AS bigint)",
                            concat!("{| FROM ", relaxed!(), "}")
                        );
                        db.run(sql, args![counter, holder, until, next, *now])
                            .await?;
                    }
                    Ok(found)
                })
            },
        )
        .await
    }

    /// Leases unused codes of a length out of the pool to a holder; the same ones when it repeats a request.
    #[boxed]
    pub async fn lease_pooled(
        &self,
        wanted: PooledWanted,
        holder: &str,
        now: Timestamp,
    ) -> Result<Vec<Code>, StoreError> {
        let args = (wanted, holder.to_owned(), now);
        let operation = "lease codes of the pool";
        self.run_tx(operation, args, |db, (wanted, holder, now)| {
            Box::pin(lease_pooled(db, wanted, holder, *now))
        })
        .await
    }

    /// Leases capacity: stored links and what processes may still store never exceed the most.
    #[boxed]
    pub async fn lease_capacity(
        &self,
        wanted: CapacityWanted,
        holder: &str,
        now: Timestamp,
    ) -> Result<CapacityGrant, StoreError> {
        let args = (wanted, holder.to_owned(), now);
        self.run_tx("lease capacity", args, |db, (wanted, holder, now)| {
            Box::pin(lease_capacity(db, wanted, holder, *now))
        })
        .await
    }

    /// Reports how far a holder is with its leases, each as its name, its `until` and its `next`; returns those that
    /// were taken back.
    #[boxed]
    pub async fn report_leases(
        &self,
        leases: Vec<(String, u64, u64)>,
        holder: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let args = (leases, holder.to_owned(), now);
        self.run_tx(
            "report leases of codes",
            args,
            |db, (leases, holder, now)| {
                Box::pin(async move {
                    let mut lost = Vec::new();
                    for (name, until, next) in leases {
                        let sql = sql!(
                            "UPDATE code_leases SET next = $4, beat = beat + 1, reported_at = $5 \
                         WHERE name = $1 AND holder = $2 AND until = $3"
                        );
                        let values = args![name, holder, *until, *next, *now];
                        if db.run(sql, values).await? == 0 {
                            lost.push(name.clone());
                        }
                    }
                    let sql = sql!(
                        "DELETE FROM code_leases \
                     WHERE holder = $1 AND until = 0 AND next = 0 AND codes IS NULL"
                    );
                    db.run(sql, args![holder]).await?;
                    Ok(lost)
                })
            },
        )
        .await
    }

    /// Returns all leases, and the numbers that were given back, whose holder is empty.
    #[boxed]
    pub async fn leases(&self) -> Result<Vec<CodeLease>, StoreError> {
        let sql = sql!(
            "SELECT name, holder, until, next, beat, reported_at FROM code_leases ORDER BY name, next"
        );
        let read = |row: &Row| {
            Ok(CodeLease {
                name: row.get("name")?,
                holder: row.get("holder")?,
                until: row.get("until")?,
                next: row.get("next")?,
                beat: row.get("beat")?,
                reported_at: row.get("reported_at")?,
            })
        };
        self.all("read leases of codes", sql, args![], read).await
    }

    /// Ends a lease: its numbers from `next` on, its codes without links and its capacity are free for others. With
    /// the `beat` at which it was read, it is ended only if its holder has not reported since. Returns whether it was.
    #[boxed]
    pub async fn end_lease(
        &self,
        lease: CodeLease,
        next: u64,
        beat: Option<i64>,
    ) -> Result<bool, StoreError> {
        let args = (lease, next, beat);
        self.run_tx("end leases of codes", args, |db, (lease, next, beat)| {
            Box::pin(end_lease(db, lease, *next, *beat))
        })
        .await
    }

    /// Advances a counter of a restored database by so many numbers; numbers that were given back before its backup may
    /// have been used since, and are not leased again.
    #[boxed]
    pub async fn skip_numbers(&self, counter: &str, count: u64) -> Result<(), StoreError> {
        self.lease(counter, 0, count).await?;
        let sql = sql!("DELETE FROM code_leases WHERE name = $1");
        self.run("skip codes", sql, args![counter]).await?;
        Ok(())
    }

    /// Ends the leases of pooled codes of a restored database; these stay used.
    #[boxed]
    pub async fn forget_pooled(&self, length: usize) -> Result<(), StoreError> {
        let sql = sql!("DELETE FROM code_leases WHERE name = $1");
        let name = pool_name(length);
        self.run("forget leased codes of the pool", sql, args![name])
            .await?;
        Ok(())
    }

    /// Returns the codes of a length, check character included, of the links created since a time.
    #[boxed]
    pub async fn codes_since(
        &self,
        length: usize,
        since: Timestamp,
    ) -> Result<Vec<Code>, StoreError> {
        let sql = sql!("SELECT code FROM links WHERE created_at >= $1 AND length(code) = $2");
        let values = args![since, length as u64];
        self.all("read new codes", sql, values, |row| row.get("code"))
            .await
    }
}

async fn end_lease(
    db: &mut Db<'_>,
    lease: &CodeLease,
    next: u64,
    beat: Option<i64>,
) -> Result<bool, sqlx::Error> {
    let sql = sql!(
        "DELETE FROM code_leases WHERE name = $1 AND holder = $2 AND until = $3 \
         AND beat = coalesce(CAST($4 AS bigint), beat) RETURNING codes, reported_at"
    );
    let values = args![&lease.name, &lease.holder, lease.until, beat];
    let read = |row: &Row| {
        let codes = row.find::<&str>("codes")?.map(str::to_owned);
        Ok((codes, row.get::<i64>("reported_at")?))
    };
    let Some((codes, reported_at)) = db.one(sql, values, read).await? else {
        return Ok(false);
    };
    if let Some(codes) = codes {
        return_pooled(db, &codes).await?;
    }
    if next < lease.until {
        let sql = sql!(
            "INSERT INTO code_leases (name, holder, until, next, reported_at) \
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
        );
        let values = args![&lease.name, FREE, lease.until, next, reported_at];
        db.run(sql, values).await?;
    }
    Ok(true)
}

/// Ends the lease of a holder that has used all of it.
async fn end(
    db: &mut Db<'_>,
    counter: &str,
    holder: &str,
    used_up: u64,
) -> Result<(), sqlx::Error> {
    let sql = sql!("DELETE FROM code_leases WHERE name = $1 AND holder = $2 AND until = $3");
    db.run(sql, args![counter, holder, used_up]).await?;
    Ok(())
}

/// Finds a lease that its holder does not know: the answer to the request for it was lost.
async fn lost(
    db: &mut Db<'_>,
    counter: &str,
    holder: &str,
    now: Timestamp,
) -> Result<Option<(u64, u64)>, sqlx::Error> {
    let sql = sql!(
        "UPDATE code_leases SET beat = beat + 1, reported_at = $3 WHERE name = $1 AND holder = $2 AND until = \
         (SELECT min(until) FROM code_leases WHERE name = $1 AND holder = $2) RETURNING next, until"
    );
    let read = |row: &Row| Ok((row.get("next")?, row.get("until")?));
    db.one(sql, args![counter, holder, now], read).await
}

async fn lease_pooled(
    db: &mut Db<'_>,
    wanted: &PooledWanted,
    holder: &str,
    now: Timestamp,
) -> Result<Vec<Code>, sqlx::Error> {
    let name = pool_name(wanted.length);
    // Waits for the same request, if it is still in progress on a connection that was lost.
    let sql = sql!(
        "INSERT INTO code_leases (name, holder, until, next, reported_at) VALUES ($1, $2, 0, 0, $3) \
         ON CONFLICT (name, holder, until) DO UPDATE SET \
         beat = code_leases.beat + 1, reported_at = excluded.reported_at RETURNING request, fresh, codes"
    );
    let read = |row: &Row| {
        let fresh = usize::try_from(row.get::<i64>("fresh")?).unwrap_or_default();
        let codes = row.find::<&str>("codes")?.unwrap_or_default();
        let mut codes: Vec<_> = codes.rsplit(' ').take(fresh).collect();
        codes.reverse();
        let codes: Result<Vec<Code>, _> = codes.into_iter().map(str::parse).collect();
        let codes = codes.map_err(|_error| invalid("codes"))?;
        Ok((row.get::<u64>("request")?, codes))
    };
    let (last, leased) = db.get(sql, args![&name, holder, now], read).await?;
    let codes = if last == wanted.request {
        leased
    } else {
        take_pooled(db, wanted.length as u64, wanted.count).await?
    };
    let all = wanted.held.iter().chain(&codes).map(Code::as_str);
    let all = all.collect::<Vec<_>>().join(" ");
    let sql = sql!(
        "UPDATE code_leases SET codes = $3, request = $4, fresh = $5 \
         WHERE name = $1 AND holder = $2 AND until = 0"
    );
    let values = args![&name, holder, all, wanted.request, codes.len() as u64];
    db.run(sql, values).await?;
    Ok(codes)
}

/// Takes numbers that were given back, at most `size`.
async fn given_back(
    db: &mut Db<'_>,
    counter: &str,
    size: u64,
) -> Result<Option<(u64, u64)>, sqlx::Error> {
    let sql = sql!(
        "SELECT next, until FROM code_leases WHERE name = $1 AND holder = '' \
         ORDER BY next LIMIT 1{| FOR UPDATE SKIP LOCKED}"
    );
    let read = |row: &Row| Ok((row.get::<u64>("next")?, row.get::<u64>("until")?));
    let Some((next, until)) = db.one(sql, args![counter], read).await? else {
        return Ok(None);
    };
    let end = next.saturating_add(size).min(until);
    let sql = if end < until {
        sql!("UPDATE code_leases SET next = $3 WHERE name = $1 AND holder = '' AND until = $2")
    } else {
        sql!(
            "DELETE FROM code_leases WHERE name = $1 AND holder = '' AND until = $2 AND next <= $3"
        )
    };
    db.run(sql, args![counter, until, end]).await?;
    Ok(Some((next, end)))
}

/// Advances a counter, at most to its limit.
async fn advance(
    db: &mut Db<'_>,
    counter: &str,
    floor: u64,
    size: u64,
    limit: u64,
) -> Result<Option<(u64, u64)>, sqlx::Error> {
    let next = lock(db, counter).await?.max(floor);
    if next >= limit {
        return Ok(None);
    }
    let end = next.saturating_add(size).min(limit);
    let sql = sql!("UPDATE code_counters SET next = $2 WHERE name = $1");
    db.run(sql, args![counter, end]).await?;
    Ok(Some((next, end)))
}

/// Locks a counter for the transaction; returns its value.
async fn lock(db: &mut Db<'_>, counter: &str) -> Result<u64, sqlx::Error> {
    let sql = sql!("INSERT INTO code_counters (name, next) VALUES ($1, 0) ON CONFLICT DO NOTHING");
    db.run(sql, args![counter]).await?;
    let sql = sql!("SELECT next FROM code_counters WHERE name = $1{| FOR UPDATE}");
    db.get(sql, args![counter], |row| row.get("next")).await
}

async fn lease_capacity(
    db: &mut Db<'_>,
    wanted: &CapacityWanted,
    holder: &str,
    now: Timestamp,
) -> Result<CapacityGrant, sqlx::Error> {
    let name = capacity_name(wanted.length);
    // One transaction at a time counts, after it has seen what the one before has granted.
    lock(db, &name).await?;
    let sql = sql!(
        "SELECT CAST(coalesce((SELECT sum(links) FROM code_usage WHERE length = $3), 0) AS bigint) AS links, \
         CAST(coalesce((SELECT sum(next) FROM code_leases WHERE name = $1 AND holder <> $2), 0) AS bigint) \
         AS others, \
         EXISTS (SELECT 1 FROM code_leases WHERE name = $1 AND holder = $2) AS kept"
    );
    let read = |row: &Row| {
        let count = |column| row.get::<i64>(column).map(|it| it.max(0).unsigned_abs());
        Ok((count("links")?, count("others")?, row.get::<bool>("kept")?))
    };
    let values = args![&name, holder, wanted.length as u64];
    let (links, others, kept) = db.get(sql, values, read).await?;
    let unspent = if kept {
        wanted.unspent
    } else {
        wanted.in_flight
    };
    let most = wanted.most.min(i64::MAX as u64);
    let used = links.saturating_add(others).saturating_add(unspent);
    let free = most.saturating_sub(used);
    let missing = wanted
        .wanted
        .saturating_sub(unspent - wanted.in_flight.min(unspent));
    let granted = missing.max(free / wanted.parts.max(1)).min(free);
    let sql = sql!(
        "INSERT INTO code_leases (name, holder, until, next, reported_at) VALUES ($1, $2, 0, $3, $4) \
         ON CONFLICT (name, holder, until) DO UPDATE SET \
         next = excluded.next, beat = code_leases.beat + 1, reported_at = excluded.reported_at"
    );
    db.run(sql, args![&name, holder, unspent + granted, now])
        .await?;
    Ok(CapacityGrant {
        granted,
        free,
        links,
        others,
        kept,
    })
}

/// Puts codes back into the pool, without those that links have or had.
async fn return_pooled(db: &mut Db<'_>, codes: &str) -> Result<(), sqlx::Error> {
    let codes: Vec<&str> = codes.split_whitespace().collect();
    let ids = ids_of(db, &codes).await?;
    let sql = sql!(
        "UPDATE code_pool SET status = 'unused' FROM ",
        table!("held": 1 "id" "bigint", 2 "code" "text"),
        " WHERE code_pool.code = held.code AND code_pool.status = 'used' \
         AND NOT EXISTS (SELECT 1 FROM links WHERE links.id = held.id) \
         AND NOT EXISTS (SELECT 1 FROM removed_links WHERE removed_links.id = held.id)"
    );
    let rows: Vec<_> = ids.into_iter().zip(codes).collect();
    let rows = rows.into_iter().map(|(id, code)| [id.into(), code.into()]);
    db.run_table(sql, rows, &[]).await?;
    Ok(())
}
