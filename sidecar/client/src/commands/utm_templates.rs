//! `shortlink utm-templates`

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};
use url::form_urlencoded::byte_serialize;

use super::links::confirm;
use super::session::Session;
use super::show::{Table, block, cells, elements, heads};
use super::values::{Pair, object};
use crate::Failure;
use crate::columns::Columns;

/// Path of all templates.
const ALL: &str = "/v1/utm-templates";

const TABLE: Table<4> = [
    ("NAME", "/name"),
    ("UTM", "/utm"),
    ("CHANGED", "/updatedAt"),
    ("BY", "/updatedByName"),
];

/// Commands for templates of UTM parameters.
#[derive(Debug, Subcommand)]
pub enum UtmTemplatesCommand {
    /// List all templates, by their names.
    List,
    /// Store a template, in place of the one with its name. Links do not change with it.
    Set(SetArguments),
    /// Delete a template. Links do not change with it.
    Delete {
        #[command(flatten)]
        template: OneTemplate,
        /// Delete without asking for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub struct OneTemplate {
    /// Name of the template: 1 to 64 characters.
    name: String,
}

#[derive(Debug, Args)]
pub struct SetArguments {
    #[command(flatten)]
    template: OneTemplate,
    /// UTM parameters: source, medium, campaign, term and content, each of up to 255 characters. Can be repeated.
    #[arg(long, value_name = "NAME=VALUE", required = true)]
    utm: Vec<Pair>,
}

impl UtmTemplatesCommand {
    /// Runs the command.
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::List => session.get(ALL, table).await,
            Self::Set(SetArguments { template, utm }) => {
                let members = Map::from_iter([
                    ("name".to_owned(), json!(template.name)),
                    ("utm".to_owned(), object(&utm)),
                ]);
                session
                    .send(Method::PUT, ALL, &[], Some(members), describe)
                    .await
            }
            Self::Delete { template, yes } => {
                let name = &template.name;
                if !yes {
                    confirm(&format!("All users lose the template {name}."))?;
                }
                let path = path(name);
                session
                    .send(Method::DELETE, &path, &[], None, describe)
                    .await
            }
        }
    }
}

/// The path of a template.
fn path(name: &str) -> String {
    let name: String = byte_serialize(name.as_bytes()).collect();
    // A plus sign stands for a space in forms only.
    format!("{ALL}/{}", name.replace('+', "%20"))
}

/// All templates as a table.
fn table(answer: &Value) -> String {
    let rows = elements(answer, "templates").iter();
    let rows: Vec<[String; 4]> = rows.map(|it| cells(it, &TABLE)).collect();
    Columns::new(heads(&TABLE), &[]).rows(&rows)
}

/// A template as text.
fn describe(template: &Value) -> String {
    block(
        template,
        &[
            ("name", "/name"),
            ("utm", "/utm"),
            ("changed", "/updatedAt"),
            ("by", "/updatedByName"),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn any_name_is_one_part_of_a_path() {
        assert_eq!(path("a+b c/ü?"), "/v1/utm-templates/a%2Bb%20c%2F%C3%BC%3F");
    }
}
