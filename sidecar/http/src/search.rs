//! `/v1/search`: links and campaigns by any text.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use shortlink_api::campaign::CampaignBody;
use shortlink_core::api_key::Scope;
use shortlink_core::search::{CHARACTERS, MOST_CAMPAIGNS, MOST_OF_MEMBER, Question, QuestionError};
use shortlink_store::TargetSearch;

use super::app::SharedApp;
use super::auth::{MayRead, own_ids};
use super::extract::Domains;
use super::links::bodies;
use super::operation::operations;
use super::operation::parameter::parameters;
use super::problem::Problem;
use super::query::{Asked, Value, query};
use super::wire::LinkBody;
use super::words;

operations! {
    get "/v1/search", "search", "Finds links and campaigns by any text", search {
        .text(
            "Finds a link by its code, custom code, short URL, `externalId`, a tag, its target, or words of its target or \
             note. The text can be the beginning of a custom code, an `externalId`, a tag or a word; a link must have all words. The \
             answer has at most 10 links by each member and 10 campaigns: whole values first, then the latest. A campaign is \
             found by words of its name, `externalId`, target and note, and only by an API key with the scope \
             `campaigns:read`; links of a campaign are found by their own members. Of many links of one API key with the \
             same target, only some are found by its words."
        )
        .answers::<FoundBody>(200, "The links and campaigns.")
    }
}

parameters! {
    TEXT: query required "q", "SearchText", "Text to search for.",
        |_| json!({ "type": "string", "minLength": CHARACTERS[0], "maxLength": CHARACTERS[1] });
}

impl Value for Question {
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|error| error.to_string())
    }
}

query! {
    /// The query of a search.
    SearchQuery { text: Question = TEXT, }
}

/// Links and campaigns that a search has found.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SearchResults")]
struct FoundBody {
    /// The links, each once.
    #[schemars(length(max = 5 * MOST_OF_MEMBER))]
    links: Vec<FoundLinkBody>,
    /// The campaigns, the latest first.
    #[schemars(length(max = MOST_CAMPAIGNS))]
    campaigns: Vec<CampaignBody>,
}

/// A link that a search has found.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FoundLink")]
struct FoundLinkBody {
    /// The member that the link was found by.
    #[schemars(with = "words::FoundBy")]
    found_by: &'static str,
    link: LinkBody,
}

/// `GET /v1/search`
async fn search(
    State(app): State<SharedApp>,
    MayRead(caller): MayRead,
    domains: Domains,
    Asked(asked): Asked<SearchQuery>,
) -> Result<Json<FoundBody>, Problem> {
    let missing = || Problem::query(format!("q must be {QuestionError}."));
    let question = asked.text.ok_or_else(missing)?;
    let own = own_ids(&caller);
    let by_target = match question.target {
        Some(_) => app.listings.target_search().await? == TargetSearch::Complete,
        None => false,
    };
    let found = app
        .listings
        .search_links(&question, own.as_deref(), by_target);
    let (members, links): (Vec<_>, Vec<_>) = found.await?.into_iter().unzip();
    let campaigns = match caller.key().allows(Scope::CampaignsRead) {
        true => {
            app.listings
                .search_campaigns(&question, own.as_deref())
                .await?
        }
        false => Vec::new(),
    };
    let now = app.clock.now();
    let bodies = bodies(&app, &domains, &links).await?;
    let links = members.into_iter().zip(bodies);
    Ok(Json(FoundBody {
        links: links
            .map(|(member, link)| FoundLinkBody {
                found_by: member.name(),
                link,
            })
            .collect(),
        campaigns: campaigns
            .iter()
            .map(|campaign| CampaignBody::new(campaign, now))
            .collect(),
    }))
}
