//! The generation of a data set: how it shows itself, and the mark that the worker of the outbox sets.
//!
//! A cluster has one mark for each master, in a slot that the master owns. Its data set is as far as the
//! master that is furthest behind.

use futures_util::future::try_join_all;
use redis::{RedisError, Value};
use shortlink_core::ports::{DataSet, Mark, PublishError, Session};
use vocabulary::KeyPrefix;
use vocabulary::generation::Generation;
use vocabulary::keys::GENERATION_TAGS;
use vocabulary::slot::slot_of_tag;

use super::connection::{Connection, Open};
use super::servers::Handle;

pub(super) const IDENTITY: &str = "report its identity";

/// Sets generation, watermark and beat. A later generation stays, and so does a data set that has been emptied or has gone
/// back since it was inspected, or whose server is none of those that were inspected: a replica that has taken over since
/// may lack what its mark would say. The watermark of a generation only rises. A full Redis refuses the first write of a
/// script if it takes memory, so that is a deletion.
const MARK: &str = r"
-- Redis 6 with lua-replicate-commands no writes nothing behind INFO otherwise.
if redis.replicate_commands then redis.replicate_commands() end
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if not run_id or not string.find(ARGV[6], run_id, 1, true) then
    return 0
end
local present = redis.pcall('GET', KEYS[1])
local generation, watermark, beat
if type(present) == 'string' then
    generation, watermark, beat = string.match(present, '^(%d+) (%d+) (%d+)$')
end
generation, watermark, beat = tonumber(generation) or 0, tonumber(watermark) or 0, tonumber(beat) or 0
local wanted, raised = tonumber(ARGV[1]), tonumber(ARGV[2])
if generation > wanted and math.floor(generation / 1048576) == math.floor(wanted / 1048576) then
    return 0
end
local stood, least = tonumber(ARGV[4]), tonumber(ARGV[5])
if stood > 0 and generation ~= wanted and generation ~= stood then
    return 0
end
if generation == stood and watermark < least then
    return 0
end
if generation == wanted and watermark > raised then
    raised = watermark
end
beat = beat + tonumber(ARGV[3])
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], string.format('%.0f %.0f %.0f', wanted, raised, beat))
return 1
";

/// The most keys of a data set that was probably emptied. The continuous comparison repairs so many records within
/// seconds.
const FEW: i64 = 10_000;

/// Reads how the data set shows itself, all over one connection.
pub(super) async fn inspect(
    connection: &Connection,
    prefix: &KeyPrefix,
) -> Result<(Session, DataSet), PublishError> {
    let (session, about, values) = connection
        .run(IDENTITY, async |mut open| {
            let session = Session(open.number);
            let mut commands = vec![redis::cmd("INFO"), redis::cmd("DBSIZE")];
            commands[0].arg("server");
            let keys = keys(&open, prefix).await?;
            // In a cluster through the library: it learns from a redirection that there is another master, and asks
            // that one for its identity, too.
            let values = keys.iter().map(async |key| {
                let mut redis = open.redis.clone();
                redis::Cmd::get(key).query_async(&mut redis).await
            });
            let values: Vec<Value> = try_join_all(values).await?;
            let answers = open.redis.send(commands).await?;
            Ok((session, answers, values))
        })
        .await?;
    let incarnation = incarnation_of(&about[0])?;
    let seen: Vec<Option<Generation>> = values
        .iter()
        .map(|value| match value {
            Value::BulkString(text) => Generation::parse(text),
            _ => None,
        })
        .collect();
    let latest = seen.iter().flatten().map(|it| it.generation).max();
    let of_latest = |it: &Option<Generation>| it.filter(|it| Some(it.generation) == latest);
    let watermarks = seen
        .iter()
        .map(|it| of_latest(it).map_or(0, |it| it.watermark));
    let standing = latest.zip(watermarks.min());
    Ok((
        session,
        DataSet {
            incarnation,
            standing,
            is_whole: seen.iter().all(|it| of_latest(it).is_some()),
            is_nearly_empty: matches!(about[1], Value::Int(..=FEW)),
        },
    ))
}

/// Sets a mark, only over the connection that it is for. `false` if a master has not taken it.
pub(super) async fn mark(
    connection: &Connection,
    prefix: &KeyPrefix,
    mark: &Mark,
) -> Result<bool, PublishError> {
    let operation = "mark the data set";
    let done = connection
        .run(operation, async |mut open| {
            if mark.session != Session(open.number) {
                return Ok(None);
            }
            let keys = keys(&open, prefix).await?;
            let (stood, least) = mark.stands.unwrap_or_default();
            let commands = keys.iter().map(|key| {
                let mut command = redis::cmd("EVAL");
                command.arg(MARK).arg(1).arg(key);
                command
                    .arg(mark.generation)
                    .arg(mark.watermark)
                    .arg(u8::from(mark.beat))
                    .arg(stood)
                    .arg(least)
                    .arg(&mark.incarnation);
                command
            });
            open.redis.send(commands.collect()).await.map(Some)
        })
        .await?;
    let answers = done.ok_or(PublishError::Away { operation })?;
    Ok(answers.iter().all(|answer| *answer == Value::Int(1)))
}

/// The keys of the marks: one, or in a cluster one for each master.
async fn keys(open: &Open, prefix: &KeyPrefix) -> Result<Vec<String>, RedisError> {
    let Handle::Cluster(masters) = &open.redis else {
        return Ok(vec![prefix.generation_key(None)]);
    };
    let map = masters.read_map().await?;
    let tags = map.masters.iter().filter_map(|master| {
        (0..GENERATION_TAGS).find(|tag| {
            let slot = slot_of_tag(*tag);
            master.slots.iter().any(|slots| slots.contains(&slot))
        })
    });
    Ok(tags.map(|tag| prefix.generation_key(Some(tag))).collect())
}

/// The names that the servers gave themselves when they started, in what `INFO server` was answered.
pub(super) fn incarnation_of(info: &Value) -> Result<String, PublishError> {
    // One server answers with a text, a cluster with one for each of its nodes.
    let mut run_ids = Vec::new();
    collect_run_ids(info, &mut run_ids);
    if run_ids.is_empty() {
        return Err(PublishError::Refused {
            operation: IDENTITY,
            source: "INFO server has no run_id".into(),
        });
    }
    run_ids.sort_unstable();
    Ok(run_ids.join(" "))
}

/// Finds the run ids in whatever `INFO server` was answered.
fn collect_run_ids(info: &Value, run_ids: &mut Vec<String>) {
    let text = match info {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Map(nodes) => {
            for (_, info) in nodes {
                collect_run_ids(info, run_ids);
            }
            return;
        }
        _ => return,
    };
    let run_id = text.lines().find_map(|line| line.strip_prefix("run_id:"));
    run_ids.extend(run_id.map(|run_id| run_id.trim_end().to_owned()));
}
