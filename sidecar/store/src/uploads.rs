//! Uploads, by which links are found.
//!
//! An upload has as many links as a file has rows, so none has an entry of its own: noted are the moments at which an
//! upload has created links, one for each part that was stored together, and the index by age has the links of a moment.
//! The end of an upload is an event of webhooks.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value as Json};
use shortlink_core::boxed;
use shortlink_core::link::{Link, UploadId};
use shortlink_core::ports::{Chunk, ChunkKey, StoreError};
use shortlink_core::webhook::EventType;
use vocabulary::CampaignId;

use super::Store;
use super::db::Db;
use super::idempotency;
use super::sql::{Sql, sql, table};
use super::webhooks::events::{self, NewEvent};

const ADD: Sql = sql!(
    "INSERT INTO upload_moments (upload, link_created_at) SELECT upload, created_at FROM ",
    table!("made": 1 "upload" "bigint", 2 "created_at" "bigint"),
    " WHERE true ON CONFLICT DO NOTHING"
);

/// Has new links found by their uploads.
pub(super) async fn add(
    db: &mut Db<'_>,
    links: impl Iterator<Item = &Link>,
) -> Result<(), sqlx::Error> {
    let mut moments: Vec<(u64, i64)> = Vec::new();
    for link in links {
        let moment = link
            .upload
            .map(|id| (id.get(), link.created_at.as_millisecond()));
        // Nearly always the one of the link before.
        if let Some(moment) = moment
            && moments.last() != Some(&moment)
        {
            moments.push(moment);
        }
    }
    let moments: BTreeSet<(u64, i64)> = moments.into_iter().collect();
    let rows = moments.into_iter();
    let rows = rows.map(|(upload, at)| [upload.cast_signed().into(), at.into()]);
    db.run_table(ADD, rows, &[]).await?;
    Ok(())
}

/// Forgets the moments, each with its upload, of deleted links. A moment with another link of the upload stays.
pub(super) async fn remove(
    db: &mut Db<'_>,
    moments: impl Iterator<Item = (i64, i64)>,
) -> Result<(), sqlx::Error> {
    let moments: BTreeSet<(i64, i64)> = moments.collect();
    let rows = moments.into_iter();
    let rows = rows.map(|(upload, at)| [upload.into(), at.into()]);
    let from = sql!("DELETE FROM upload_moments");
    let key = [
        (sql!("upload"), "bigint"),
        (sql!("link_created_at"), "bigint"),
    ];
    let end = sql!(
        " AND NOT EXISTS (SELECT 1 FROM links \
         WHERE links.created_at = kept.link_created_at AND upload_id = kept.upload)"
    );
    db.delete(from, key, rows, end).await
}

/// The end of a batch, all of whose rows were processed.
#[derive(Clone, Debug)]
pub struct UploadEnd {
    /// The upload.
    pub upload: UploadId,
    /// The campaign that the request names for its rows.
    pub campaign: Option<CampaignId>,
    /// The id of the API key and the idempotency key of the request: its end is reported once, however often it is sent.
    pub request: Option<(String, String)>,
    /// The kind of its rows and their numbers, as a webhook gets them.
    pub data: Map<String, Json>,
}

/// The number of the chunk that stands for the end of a request. No request has so many chunks.
const END: u32 = u32::MAX;

impl Store {
    /// Reports the end of a batch to webhooks, if there are any.
    #[boxed]
    pub async fn finish_upload(&self, end: UploadEnd, now: Timestamp) -> Result<(), StoreError> {
        let found = self.one("look for webhooks", events::ANY, &[], |_row| Ok(()));
        if found.await?.is_none() {
            return Ok(());
        }
        let args = (end, now);
        self.run_tx("store the end of an upload", args, |db, (end, now)| {
            Box::pin(finish(db, end, *now))
        })
        .await
    }
}

async fn finish(db: &mut Db<'_>, end: &UploadEnd, now: Timestamp) -> Result<(), sqlx::Error> {
    if let Some((key_id, idempotency_key)) = &end.request {
        let key = ChunkKey {
            key_id: key_id.clone(),
            idempotency_key: idempotency_key.clone(),
            chunk: END,
        };
        let chunk = Chunk {
            digest: [0; 32],
            rows: Vec::new(),
        };
        if !idempotency::insert(db, &key, &chunk, now).await? {
            return Ok(());
        }
    }
    let mut data = Map::new();
    data.insert("uploadId".to_owned(), end.upload.to_string().into());
    let campaign = end.campaign.map(|id| id.to_string());
    data.insert("campaignId".to_owned(), campaign.into());
    data.extend(end.data.clone());
    let event = NewEvent {
        event: EventType::UploadFinished,
        campaign: end.campaign.map(|id| id.get().cast_signed()),
        subject: format!("upload:{}", end.upload),
        visit: None,
        data: Some(Json::from(data).to_string()),
    };
    events::report(db, &[event], now).await
}
