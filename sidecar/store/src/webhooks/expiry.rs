//! The expiry of links as events: a pass over the links in the order of their expiries, whose place is stored.
//!
//! Nothing happens at the moment at which a link expires. So a job reports, in bounded steps, those whose time is over
//! since its last step. A change that lets a link expire before the place of the pass, such as the visit after which it
//! has had enough, reports that itself: it holds the place until it is stored, so that each expiry is reported once.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shortlink_core::audit::{Action, Subject};
use shortlink_core::boxed;
use shortlink_core::link::{Link, Second};
use shortlink_core::ports::{EndPlace, Place, Slice, StoreError};
use shortlink_core::webhook::{EventType, WebhookSettings};

use super::events::{NewEvent, append, hold_webhooks};
use super::from_json;
use crate::Store;
use crate::claims::{note_of, write_note};
use crate::db::Db;
use crate::rows::find_by_id;
use crate::sql::{IN_TEXTS, sql};
use crate::upkeep::expired;
use crate::value::{Row, args, invalid};

/// The name of the note with the place of the pass.
const NOTE: &str = "expired links reported";

/// The time until an expiry from which a change holds the place of the pass. A transaction that has begun before is over
/// when the pass gets there.
const NEAR: SignedDuration = SignedDuration::from_mins(5);

/// Reports whether the expiry of links is an event of a stored webhook.
async fn is_wanted(db: &mut Db<'_>) -> Result<bool, sqlx::Error> {
    let wants = |row: &Row| Ok(from_json(row.get("settings")?).is_some_and(|it| it.wants_expiry()));
    let sql = sql!("SELECT settings FROM webhooks");
    let webhooks: Vec<bool> = db.all(sql, &[], wants).await?;
    Ok(webhooks.contains(&true))
}

/// Lets the pass begin now for a webhook that is about to be stored, if it is the first one to want it.
pub(super) async fn begin(
    db: &mut Db<'_>,
    settings: &WebhookSettings,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if settings.wants_expiry() && !is_wanted(db).await? {
        let place = EndPlace {
            at: now.as_second(),
            place: Place(i64::MAX),
        };
        write_note(db, NOTE, &place.to_string()).await?;
    }
    Ok(())
}

/// Locks the place of the pass until the transaction ends; `None` if no webhook has ever wanted it.
async fn place(db: &mut Db<'_>) -> Result<Option<EndPlace>, sqlx::Error> {
    let note = note_of(db, NOTE).await?;
    let place = note.map(|text| EndPlace::read(&text).ok_or_else(|| invalid("note")));
    place.transpose()
}

/// Reports changed links that the pass would not find any more; each with its id and the end that it had before. The
/// transaction locks nothing after this.
pub(crate) async fn report_changed(
    db: &mut Db<'_>,
    links: impl Iterator<Item = (i64, Option<Second>, &Link)>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let near = Second::at(now + NEAR);
    let ending = links.filter(|(_, before, link)| {
        link.revoked_at.is_none()
            && link.valid_until != *before
            && link.valid_until.is_some_and(|until| Some(until) <= near)
    });
    let ending: Vec<(i64, &Link)> = ending.map(|(id, _, link)| (id, link)).collect();
    if ending.is_empty() {
        return Ok(());
    }
    hold_webhooks(db).await?;
    let Some(place) = place(db).await? else {
        return Ok(());
    };
    let passed = ending.into_iter().filter(|(id, link)| {
        let at = link.valid_until.map_or(i64::MAX, seconds);
        (at, *id) <= (place.at, place.place.0)
    });
    let passed: Vec<&Link> = passed.map(|(_, link)| link).collect();
    if !passed.is_empty() && is_wanted(db).await? {
        let events = events(db, &passed).await?;
        append(db, &events, now).await?;
    }
    Ok(())
}

fn seconds(second: Second) -> i64 {
    second.get().cast_signed()
}

/// The events of expired links.
async fn events(db: &mut Db<'_>, links: &[&Link]) -> Result<Vec<NewEvent>, sqlx::Error> {
    let reasons = reasons(db, links).await?;
    let events = links.iter().map(|link| {
        let reason = link.valid_until.and_then(|until| {
            let subject = Subject::Link(link.code).to_string();
            reasons.get(&(subject, until)).copied()
        });
        event(link, reason.unwrap_or("time"))
    });
    Ok(events.collect())
}

/// The reasons of those of some links that the service has ended, by subject and second: it sets the end to the second of
/// the change, which the audit log has.
async fn reasons(
    db: &mut Db<'_>,
    links: &[&Link],
) -> Result<HashMap<(String, Second), &'static str>, sqlx::Error> {
    let changed = links
        .iter()
        .filter(|link| Second::at(link.updated_at) >= link.valid_until);
    let subjects: Vec<String> = changed
        .map(|link| Subject::Link(link.code).to_string())
        .collect();
    if subjects.is_empty() {
        return Ok(HashMap::new());
    }
    let subjects: Vec<&str> = subjects.iter().map(String::as_str).collect();
    let sql = sql!(
        "SELECT subject, at, action FROM audit_log WHERE subject",
        IN_TEXTS,
        " AND action IN ($2, $3)"
    );
    let [visits, unvisited] = [Action::LinkEnd, Action::LinkExpire].map(Action::name);
    let read = |row: &Row| {
        let action: &str = row.get("action")?;
        let reason = if action == visits {
            "visits"
        } else {
            "unvisited"
        };
        let subject: String = row.get("subject")?;
        let at = Second::at(row.get("at")?);
        Ok(at.map(|at| ((subject, at), reason)))
    };
    let values = args![subjects, visits, unvisited];
    let found: Vec<Option<_>> = db.all(sql, values, read).await?;
    Ok(found.into_iter().flatten().collect())
}

fn event(link: &Link, reason: &str) -> NewEvent {
    let campaign = link.destination.campaign();
    let until = link
        .valid_until
        .and_then(|it| Timestamp::from_second(seconds(it)).ok());
    let data = json!({
        "shortCode": link.code.as_str(),
        "externalId": link.external_id,
        "campaignId": campaign.map(|id| id.to_string()),
        "validUntil": until,
        "reason": reason,
        "tags": link.tags,
        "uploadId": link.upload.map(|id| id.to_string()),
    });
    NewEvent {
        event: EventType::LinkExpired,
        campaign: campaign.map(|id| id.get().cast_signed()),
        subject: link.code.to_string(),
        visit: None,
        data: Some(data.to_string()),
    }
}

impl Store {
    /// Reports some of the links that have expired since the last call, up to a time, at most `limit`; returns their
    /// number. Does nothing while no webhook wants it.
    #[boxed]
    pub async fn report_expired(
        &self,
        until: Timestamp,
        limit: u32,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let wanted = self.read("look for webhooks", (), |db, ()| Box::pin(is_wanted(db)));
        if !wanted.await? {
            return Ok(0);
        }
        let args = (until, limit, now);
        self.run_tx("report expired links", args, |db, args| {
            let (until, limit, now) = *args;
            Box::pin(report(db, until, limit, now))
        })
        .await
    }
}

async fn report(
    db: &mut Db<'_>,
    until: Timestamp,
    limit: u32,
    now: Timestamp,
) -> Result<u64, sqlx::Error> {
    let Some(after) = place(db).await? else {
        return Ok(0);
    };
    let (ids, next) = expired(db, after, until, limit, Slice::default()).await?;
    let Some(next) = next else {
        return Ok(0);
    };
    let count = ids.len() as u64;
    let mut links: Vec<(i64, Link)> = find_by_id(db, ids).await?;
    links.retain(|(_, link)| link.revoked_at.is_none());
    links.sort_unstable_by_key(|(id, link)| (link.valid_until.map(seconds), *id));
    let links: Vec<&Link> = links.iter().map(|(_, link)| link).collect();
    let events = events(db, &links).await?;
    write_note(db, NOTE, &next.to_string()).await?;
    append(db, &events, now).await?;
    Ok(count)
}
