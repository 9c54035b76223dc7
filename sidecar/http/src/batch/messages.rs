//! Reads rows of messages: the text of each, and a new link for each URL in it.

use std::ops::Range;

use serde_json::{Map, Value};
use shortlink_api::fields::Fields;
use shortlink_api::kinds::link::Parameters;
use shortlink_api::members::{Members, Usage};
use shortlink_api::message;
use shortlink_core::campaign::Campaign;
use shortlink_core::link::Dedupe;
use shortlink_core::message::{MAX_SEGMENTS, MAX_URLS, SURELY_WITHIN, Segments, fill, urls};
use shortlink_core::ports::MAX_TOGETHER;
use shortlink_core::short_url::Owners;
use shortlink_core::target::Target;
use shortlink_service::new_link::NewLink;
use shortlink_service::repeat::{RowResult, RowsDigest};
use vocabulary::MAX_CODE_LENGTH;

use super::chunks::RawChunk;
use super::{Context, Problem, pay};
use crate::campaign_links::Campaigns;
use crate::link_members::LengthsFrom;

/// The text of a message with values instead of variables, and the URLs in it.
pub(super) struct Message {
    pub(super) text: String,
    pub(super) urls: Vec<Range<usize>>,
}

/// A message, and the values of its variables.
struct Filled {
    message: Message,
    values: Map<String, Value>,
}

type Told = (Option<String>, LengthsFrom);

impl Context {
    /// Reads a row, and adds a link for each URL in it. Their number depends only on the row, as a retry requires: if a
    /// link is refused, all links of the message are.
    pub(super) fn read_message(
        &self,
        row: Result<Map<String, Value>, Problem>,
        campaigns: Result<&Campaigns, &Problem>,
        links: &mut Vec<Result<NewLink, Problem>>,
    ) -> (Told, Result<Message, Problem>) {
        let mut members = match row {
            Ok(members) => members,
            Err(problem) => return ((None, LengthsFrom::Configuration), Err(problem)),
        };
        let external_id = members.get("externalId").and_then(Value::as_str);
        let external_id = external_id.map(str::to_owned);
        let mut lengths_from = LengthsFrom::Configuration;
        let Filled { message, values } = match read_text(&mut members) {
            Ok(filled) => filled,
            Err(problem) => return ((external_id, lengths_from), Err(problem)),
        };
        let campaign = campaigns.ok().and_then(|it| it.named_by(&members));
        if let Some(campaign) = campaign {
            let names = campaign.target.names();
            let given = values.iter().filter(|(name, _)| names.contains(name));
            let given = given.map(|(name, value)| (name.clone(), value.clone()));
            members.insert("parameters".to_owned(), Value::Object(given.collect()));
        }
        let is_of_campaign = has(&members, "campaignId");
        let first = links.len();
        let last = message.urls.len().saturating_sub(1);
        let read = message.urls.iter().enumerate();
        let mut read = read.map(|(place, range)| {
            let url = &message.text[range.clone()];
            if let Some(campaign) = campaign {
                self.check_target(url, campaign, &values)?;
            }
            let mut of_link = match place == last {
                true => std::mem::take(&mut members),
                false => members.clone(),
            };
            if !is_of_campaign {
                of_link.insert("longUrl".to_owned(), url.into());
            }
            let ((_, from), link) = self.read(Ok(of_link), campaigns);
            lengths_from = from;
            let describe = |detail: &str| format!("has the URL {url}, which {detail}");
            links.push(Ok(
                link.map_err(|problem| problem.moved("/longUrl", "/text", describe))?
            ));
            Ok(())
        });
        let read = read.try_for_each(|link| link);
        let read = read.and_then(|()| self.check_length(&message, &links[first..]));
        if let Err(problem) = read {
            links.truncate(first);
            links.extend(message.urls.iter().map(|_| Err(problem.clone())));
            if message.urls.is_empty() {
                return ((external_id, lengths_from), Err(problem));
            }
        }
        ((external_id, lengths_from), Ok(message))
    }

    /// A URL in the text of a campaign's message would lead elsewhere if it were not the campaign's target.
    fn check_target(
        &self,
        url: &str,
        campaign: &Campaign,
        values: &Map<String, Value>,
    ) -> Result<(), Problem> {
        let with_names = campaign.target.with_names();
        let parse = |text: &str| Target::parse(text, self.app.policy, &self.domains.own).ok();
        // A value that the campaign needs and the row lacks is a fault of the link.
        let Ok(expected) = fill(&with_names, |name| values.get(name)?.as_str()) else {
            return Ok(());
        };
        match parse(url) {
            Some(found)
                if url == expected
                    || parse(&expected).is_some_and(|it| it.as_str() == found.as_str()) =>
            {
                Ok(())
            }
            _ => {
                // The target itself is for keys that may read campaigns.
                let id = campaign.id;
                let detail = format!(
                    "has the URL {url}, which is not the target of campaign {id}: write the target as the \
                     campaign has it"
                );
                Err(Problem::invalid("/text", detail))
            }
        }
    }

    /// Checks the number of segments before links are created, with the longest short URLs that they can have.
    fn check_length(
        &self,
        message: &Message,
        links: &[Result<NewLink, Problem>],
    ) -> Result<(), Problem> {
        let longest = |link: &NewLink| {
            let owners = Owners {
                campaign: link.destination.campaign(),
                key: &link.created_by,
            };
            let chosen = link.settings.domain.iter().flatten().next();
            let bases = &self.domains.bases;
            let base = match link.dedupe {
                Dedupe::Never => bases.longest(owners, chosen.map(|it| &**it)),
                // The link that stands for it can be that of another key.
                _ => bases.longest_of_all(),
            };
            let code = usize::from(link.policy.lengths.1) + 1;
            let code = link.slug.map_or(code, |code| code.as_str().len());
            base + 1 + code.min(MAX_CODE_LENGTH)
        };
        let lengths = links.iter().flatten().map(longest);
        if message.text.len() + lengths.clone().sum::<usize>() <= SURELY_WITHIN {
            return Ok(());
        }
        let longest = lengths.map(|length| "x".repeat(length).into());
        let text = shortlink_core::message::replace(&message.text, &message.urls, longest);
        let count = Segments::of(&text).count;
        if count <= MAX_SEGMENTS {
            return Ok(());
        }
        let detail = format!(
            "needs {count} segments with short links; at most {MAX_SEGMENTS} are allowed: shorten the text"
        );
        Err(Problem::invalid("/text", detail))
    }

    /// Creates the links of a chunk of messages, some at a time.
    pub(super) async fn create_of_messages(
        &self,
        chunk: &RawChunk,
        digest: RowsDigest,
        mut links: Vec<Result<NewLink, Problem>>,
    ) -> Vec<RowResult> {
        // The chunk's rows are paid for.
        pay(&self.caller, links.len().saturating_sub(chunk.rows.len())).await;
        let first = chunk.number.saturating_mul(MAX_URLS as u32);
        let mut results = Vec::with_capacity(links.len());
        for number in first.. {
            if links.is_empty() {
                break;
            }
            let others = links.split_off(links.len().min(MAX_TOGETHER));
            let some = std::mem::replace(&mut links, others);
            results.extend(self.create_once(number, digest.clone(), some).await);
        }
        results
    }
}

/// Reports whether a member is present and not `null`.
fn has(members: &Map<String, Value>, name: &str) -> bool {
    members.get(name).is_some_and(|value| !value.is_null())
}

/// Takes the text of a row and the values of its variables.
fn read_text(members: &mut Map<String, Value>) -> Result<Filled, Problem> {
    let own = ["text", "parameters"].into_iter();
    let own = own.filter_map(|name| members.remove_entry(name));
    let mut fields = Fields::new(own.collect());
    let given = message::Message::read(&mut fields, Usage::New);
    let values = fields
        .read::<Parameters>("parameters")
        .value()
        .unwrap_or_default();
    for (name, value) in &values {
        if !value.is_string() {
            fields.refuse_at(&["parameters", name], "must be a string");
        }
    }
    if has(members, "longUrl") {
        fields.refuse(
            "longUrl",
            "is not for messages: the URLs of the text are the targets",
        );
    }
    let text = fields.required("text", given.text).unwrap_or_default();
    let filled = fill(&text, |name| values.get(name)?.as_str()).unwrap_or_else(|faults| {
        for fault in faults {
            // A value that is not a string has a fault already.
            if values.get(fault.name()).is_none_or(Value::is_string) {
                fields.refuse_at(&["parameters", fault.name()], fault.to_string());
            }
        }
        String::new()
    });
    let urls = urls(&filled);
    if urls.len() > MAX_URLS {
        let detail = format!("has {} URLs; at most {MAX_URLS} are allowed", urls.len());
        fields.refuse("text", detail);
    }
    if urls.len() > 1 && has(members, "customSlug") {
        fields.refuse(
            "customSlug",
            "is for a text with one URL: only one link can have a custom code",
        );
    }
    fields.finish()?;
    let message = Message { text: filled, urls };
    Ok(Filled { message, values })
}
