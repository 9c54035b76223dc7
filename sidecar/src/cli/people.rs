//! `shortlink people`

use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use shortlink_api::person::PersonBody;
use shortlink_client::columns::Columns;
use shortlink_client::output::print;
use shortlink_core::api_key::{ApiKey, Role};
use shortlink_core::clock::SystemClock;
use shortlink_service::keys::{Actor, Keys};
use shortlink_store::Store;

use super::keys::all;
use crate::random;

#[derive(Debug, Subcommand)]
pub(super) enum PeopleCommand {
    /// List the people who have signed in to the console at the provider of OpenID Connect.
    List {
        /// Print one JSON object, with the people as the API returns them.
        #[arg(long)]
        json: bool,
    },
    /// End all sessions of a person, or of all people. They may sign in again.
    ///
    /// Running sidecars reject the sessions at once.
    EndSessions {
        /// Id of the person, as shown by `people list`.
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// End the sessions of all people.
        #[arg(long, conflicts_with = "id")]
        all: bool,
    },
    /// Block a person: end their sessions, and refuse their sign-ins.
    ///
    /// Running sidecars reject the sessions at once. API keys that the person has created stay valid.
    Block {
        /// Id of the person, as shown by `people list`.
        id: String,
    },
    /// Unblock a person, who may sign in again.
    Unblock {
        /// Id of the person, as shown by `people list`.
        id: String,
    },
}

impl PeopleCommand {
    pub(super) async fn run(self, store: &Arc<Store>) -> anyhow::Result<()> {
        let rng = random::generator()?;
        let keys = Keys::new(Arc::clone(store), Arc::new(SystemClock), rng, None);
        let actor = Actor::Operator;
        let no_such_person =
            |id: &str| format!("there is no person {id:?}; `shortlink people list` shows all");
        let done = match self {
            Self::List { json } => {
                let people = all(&keys, true).await?;
                return print(&if json {
                    let people: Vec<_> = people.iter().filter_map(PersonBody::new).collect();
                    format!("{}\n", json!({ "people": people }))
                } else {
                    table(&people)
                });
            }
            Self::EndSessions { id: Some(id), .. } => {
                let ended = keys.end_sessions(&actor, &id).await?;
                let ended = ended.with_context(|| no_such_person(&id))?;
                format!("{ended} sessions of person {id} are ended")
            }
            Self::EndSessions { id: None, .. } => {
                let mut ended = 0;
                for person in all(&keys, true).await? {
                    let of_person = keys.end_sessions(&actor, &person.id).await?;
                    ended += of_person.unwrap_or_default();
                }
                format!("{ended} sessions of all people are ended")
            }
            Self::Block { id } => {
                let blocked = keys.block(&actor, &id).await?;
                blocked.with_context(|| no_such_person(&id))?;
                format!("person {id} is blocked")
            }
            Self::Unblock { id } => {
                let unblocked = keys.unblock(&actor, &id).await?;
                unblocked.with_context(|| no_such_person(&id))?;
                format!("person {id} may sign in")
            }
        };
        eprintln!("shortlink: {done}");
        Ok(())
    }
}

/// The people as a table.
fn table(people: &[ApiKey]) -> String {
    let heads = [
        "ID",
        "NAME",
        "EMAIL",
        "ROLE",
        "STATE",
        "SIGNED IN",
        "SUBJECT",
    ];
    let rows = people.iter().filter_map(|key| {
        let person = key.person.as_deref()?;
        let email = person.email.as_deref().unwrap_or("-");
        Some([
            key.id.clone(),
            key.name.escape_debug().to_string(),
            email.escape_debug().to_string(),
            person.role.map_or("-", Role::name).to_owned(),
            key.person_state().name().to_owned(),
            person.signed_in_at.to_string(),
            person.subject.escape_debug().to_string(),
        ])
    });
    Columns::new(heads, &[]).rows(&rows.collect::<Vec<_>>())
}
