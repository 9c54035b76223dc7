//! `/v1/people`: the users who sign in at a provider of OpenID Connect.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use shortlink_api::person::PersonBody;
use shortlink_core::api_key::{ApiKey, Scope};
use shortlink_core::ports::{KeyListing, KeyPosition, KeyRefusal};
use shortlink_service::keys::Actor;

use super::app::SharedApp;
use super::auth::MayManageKeys;
use super::cursor;
use super::extract::in_path;
use super::operation::operations;
use super::operation::parameter::{parameters, string};
use super::problem::Problem;
use super::query::{Asked, PageQuery, cut, one_more};

in_path! {
    /// The id in the path.
    IdInPath(String): ID, no_such_person
}

/// 404: the person in the path is unknown.
fn no_such_person() -> Problem {
    Problem::not_found("There is no person with this id.")
}

parameters! {
    ID: path "id", "PersonId", "Id of the person.", string;
}

operations! {
    get "/v1/people", "listPeople", "Lists people, the latest first sign-in first", list {
        .answers::<PageBody>(200, "A page of people.")
    }
    get "/v1/people/{id}", "getPerson", "Shows a person", find {
        .answers::<PersonBody>(200, "The person.")
    }
    post "/v1/people/{id}/end-sessions", "endSessions", "Ends all sessions of a person", end_sessions {
        .text("The person may sign in again.")
        .answers::<PersonBody>(200, "The person after the change.")
        .problems([KeyRefusal::Scope(Scope::Admin).into()])
    }
    post "/v1/people/{id}/block", "blockPerson", "Blocks a person: ends their sessions and refuses their sign-ins", block {
        .text("API keys that the person has created stay valid.")
        .answers::<PersonBody>(200, "The person after the change.")
        .problems([KeyRefusal::Scope(Scope::Admin).into()])
    }
    post "/v1/people/{id}/unblock", "unblockPerson", "Unblocks a person", unblock {
        .text("Needs the scope admin: a blocked person may have created an API key.")
        .answers::<PersonBody>(200, "The person after the change.")
        .problems([KeyRefusal::Scope(Scope::Admin).into()])
    }
}

/// `GET /v1/people`
async fn list(
    State(app): State<SharedApp>,
    _: MayManageKeys,
    Asked(asked): Asked<PageQuery>,
) -> Result<Json<PageBody>, Problem> {
    let after = cursor::decode(cursor::PEOPLE, asked.cursor)?;
    let listing = KeyListing {
        people: true,
        after: after.map(|cursor::Dated(created_at, id)| KeyPosition { created_at, id }),
        limit: one_more(asked.limit),
    };
    let people = app.store.list_keys(&listing).await?;
    let (people, next_cursor) = cut(people, listing.limit, |last| {
        cursor::encode(cursor::PEOPLE, cursor::Dated(last.created_at, &last.id))
    });
    let people = bodies(&app, &people).await?;
    Ok(Json(PageBody {
        people,
        next_cursor,
    }))
}

/// `GET /v1/people/{id}`
async fn find(
    State(app): State<SharedApp>,
    _: MayManageKeys,
    IdInPath(id): IdInPath,
) -> Result<Json<PersonBody>, Problem> {
    let person = app.keys.find_person(&id).await?;
    shown(&app, person).await
}

/// `POST /v1/people/{id}/end-sessions`
async fn end_sessions(
    State(app): State<SharedApp>,
    MayManageKeys(caller): MayManageKeys,
    IdInPath(id): IdInPath,
) -> Result<Json<PersonBody>, Problem> {
    app.keys.end_sessions(&Actor::Key(caller), &id).await?;
    let person = app.keys.find_person(&id).await?;
    shown(&app, person).await
}

/// `POST /v1/people/{id}/block`
async fn block(
    State(app): State<SharedApp>,
    MayManageKeys(caller): MayManageKeys,
    IdInPath(id): IdInPath,
) -> Result<Json<PersonBody>, Problem> {
    let person = app.keys.block(&Actor::Key(caller), &id).await?;
    shown(&app, person).await
}

/// `POST /v1/people/{id}/unblock`
async fn unblock(
    State(app): State<SharedApp>,
    MayManageKeys(caller): MayManageKeys,
    IdInPath(id): IdInPath,
) -> Result<Json<PersonBody>, Problem> {
    let person = app.keys.unblock(&Actor::Key(caller), &id).await?;
    shown(&app, person).await
}

async fn shown(app: &SharedApp, person: Option<ApiKey>) -> Result<Json<PersonBody>, Problem> {
    let person = person.ok_or_else(no_such_person)?;
    let bodies = bodies(app, std::slice::from_ref(&person)).await?;
    let body = bodies.into_iter().next();
    body.map(Json).ok_or_else(Problem::internal)
}

/// Describes people with the numbers of their sessions.
async fn bodies(app: &SharedApp, people: &[ApiKey]) -> Result<Vec<PersonBody>, Problem> {
    let sessions = app.sessions.count(people).await?;
    let bodies = people.iter().filter_map(|person| {
        let mut body = PersonBody::new(person)?;
        body.sessions = Some(sessions.get(&person.id).copied().unwrap_or_default());
        Some(body)
    });
    Ok(bodies.collect())
}

/// A page of the listing.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PersonPage")]
pub(crate) struct PageBody {
    /// The people.
    people: Vec<PersonBody>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}
