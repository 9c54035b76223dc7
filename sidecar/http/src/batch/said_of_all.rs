//! Options for all rows of a batch, from its query.

use std::collections::BTreeSet;

use serde_json::json;
use shortlink_service::repeat::RowsDigest;
use vocabulary::CampaignId;

use super::rows::{Csv, Format};
use crate::app::App;
use crate::campaigns::no_such_campaign;
use crate::operation::parameter::{Parameter, of, parameters, string};
use crate::problem::Problem;
use crate::{query, words};

parameters! {
    CAMPAIGN: query "campaignId", "CampaignOfRows",
        "Campaign of the rows that specify none.", of::<words::CampaignId>;
    COLUMNS: query "columns", "Columns",
        "For CSV: names of the columns instead of those in the first line, separated by commas. A \
         column with an empty name is ignored.", string;
    DELIMITER: query "delimiter", "Delimiter", "For CSV: separator of values.", |_| {
        let names = DELIMITERS.map(|(name, _)| name);
        json!({ "type": "string", "enum": names, "default": "comma" })
    };
}

/// The parameters of the query.
pub(super) const QUERY: [Parameter; 3] = [CAMPAIGN, COLUMNS, DELIMITER];

/// The names that a delimiter has in a query.
const DELIMITERS: [(&str, u8); 3] = [("comma", b','), ("semicolon", b';'), ("tab", b'\t')];

/// 400: the delimiter is unknown.
pub(super) fn bad_delimiter() -> Problem {
    Problem::query("delimiter must be comma, semicolon or tab.")
}

/// Options for all rows of a batch.
#[derive(Default)]
pub(super) struct SaidOfAll {
    /// The campaign of rows that name none.
    pub(super) campaign_id: Option<CampaignId>,
    /// The format of CSV.
    pub(super) csv: Csv,
    text: String,
}

impl SaidOfAll {
    /// Reads a query.
    ///
    /// # Errors
    /// Fails if a parameter is invalid or the campaign is unknown.
    pub(super) async fn read(app: &App, text: &str, format: Format) -> Result<Self, Problem> {
        let said = Self::parse(text, format)?;
        if let Some(id) = said.campaign_id {
            app.campaigns.find(id).await?.ok_or_else(no_such_campaign)?;
        }
        Ok(said)
    }

    fn parse(text: &str, format: Format) -> Result<Self, Problem> {
        let mut said = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            match &*name {
                "campaignId" => {
                    let id = CampaignId::parse(value.as_bytes());
                    let id = id.ok_or_else(|| {
                        Problem::query("campaignId must be the id of a campaign.")
                    })?;
                    said.campaign_id = Some(id);
                }
                "columns" | "delimiter" if format != Format::Csv => {
                    return Err(Problem::query(format!("{name} is for text/csv.")));
                }
                "columns" => said.csv.columns = Some(read_columns(&value)?),
                "delimiter" => {
                    let known = DELIMITERS.iter().find(|(known, _)| *known == value);
                    let (_, byte) = known.ok_or_else(bad_delimiter)?;
                    said.csv.delimiter = *byte;
                }
                _ => return Err(query::only(&QUERY)),
            }
        }
        Ok(said)
    }

    /// Adds the options to the digest that identifies a retry: the same rows for another campaign
    /// are another request.
    pub(super) fn add_to(&self, digest: &mut RowsDigest) {
        if !self.text.is_empty() {
            digest.add(self.text.as_bytes());
        }
    }
}

/// Reads names in the order of the columns; one without a name is left out.
fn read_columns(value: &str) -> Result<Vec<Option<String>>, Problem> {
    let mut known = BTreeSet::new();
    let names = value.split(',').map(str::trim);
    let columns = names.map(|name| match name {
        "" => Ok(None),
        name if known.insert(name) => Ok(Some(name.to_owned())),
        name => Err(Problem::query(format!("columns has {name} twice."))),
    });
    columns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, format: Format) -> String {
        let problem = SaidOfAll::parse(text, format).err().expect("a problem");
        problem.to_json().1
    }

    #[test]
    fn a_query_says_which_campaign_and_which_columns() {
        let text = "campaignId=7&delimiter=tab&columns=parameters.member,,tags";
        let said = SaidOfAll::parse(text, Format::Csv).expect("a query");
        assert_eq!(said.campaign_id, CampaignId::parse(b"7"));
        assert_eq!(said.csv.delimiter, b'\t');
        let names = [Some("parameters.member"), None, Some("tags")];
        let names = names.map(|name| name.map(str::to_owned));
        assert_eq!(said.csv.columns.as_deref(), Some(&names[..]));
    }

    #[test]
    fn what_is_wrong_with_a_query_is_told_by_name() {
        for (text, format, part) in [
            ("campaignId=", Format::Json, "campaignId must be"),
            ("columns=a", Format::Ndjson, "columns is for text/csv"),
            ("delimiter=tab", Format::Json, "delimiter is for text/csv"),
            ("delimiter=,", Format::Csv, "delimiter must be"),
            ("columns=a,%20a", Format::Csv, "columns has a twice"),
            ("colums=a", Format::Csv, "There are only"),
        ] {
            let told = refused(text, format);
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
