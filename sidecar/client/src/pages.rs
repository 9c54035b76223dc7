//! Listings, a page after the other.

use serde::Deserialize;
use serde_json::value::RawValue;
use url::form_urlencoded::Serializer;

use super::{Client, Failure};

/// The most that a page may have.
const LONGEST_PAGE: u64 = 1000;

/// Reads a listing.
#[derive(Debug)]
pub struct Pager<'a> {
    client: &'a Client,
    path: &'a str,
    filters: Vec<(&'static str, String)>,
    /// The number of items still to be read; `None` for all.
    left: Option<u64>,
    cursor: Option<String>,
    is_over: bool,
}

/// A page of any listing.
#[derive(Deserialize)]
struct Page {
    #[serde(
        alias = "links",
        alias = "campaigns",
        alias = "history",
        alias = "jobs",
        alias = "recipients"
    )]
    items: Vec<Box<RawValue>>,
    #[serde(rename = "nextCursor")]
    next_cursor: Option<String>,
}

impl<'a> Pager<'a> {
    /// Reads the pages of `path` with the filters, at most `limit` items.
    pub fn new(
        client: &'a Client,
        path: &'a str,
        filters: Vec<(&'static str, String)>,
        limit: Option<u64>,
    ) -> Self {
        Self {
            client,
            path,
            filters,
            left: limit,
            cursor: None,
            is_over: false,
        }
    }

    /// Reads the next items as the API returns them; `None` after the last or at the limit.
    pub async fn next(&mut self) -> Result<Option<Vec<Box<RawValue>>>, Failure> {
        if self.is_over || self.left == Some(0) {
            return Ok(None);
        }
        let limit = self
            .left
            .map_or(LONGEST_PAGE, |left| left.min(LONGEST_PAGE));
        let mut query = Serializer::new(String::new());
        query.append_pair("limit", &limit.to_string());
        query.extend_pairs(&self.filters);
        if let Some(cursor) = &self.cursor {
            query.append_pair("cursor", cursor);
        }
        let path = format!("{}?{}", self.path, query.finish());
        let answer = self.client.get(&path).await?;
        let page: Page = serde_json::from_slice(&answer).map_err(|error| {
            let error = anyhow::Error::new(error);
            Failure::Other(error.context("the service's answer is not a page of a list"))
        })?;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(page.items.len() as u64);
        }
        self.is_over = page.next_cursor.is_none();
        self.cursor = page.next_cursor;
        Ok(Some(page.items))
    }

    /// True if there are more items than the limit.
    pub fn has_more(&self) -> bool {
        !self.is_over
    }
}
