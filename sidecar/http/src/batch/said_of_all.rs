//! Options for all rows of a batch, from its query.

use std::collections::BTreeSet;

use serde_json::json;
use shortlink_api::csv_parser::DELIMITERS;
use shortlink_core::link::UploadId;
use shortlink_service::access::Caller;
use shortlink_service::repeat::RowsDigest;
use vocabulary::CampaignId;

use super::rows::{Csv, Format};
use crate::app::App;
use crate::auth::check_reach;
use crate::campaigns::no_such_campaign;
use crate::operation::parameter::{Parameter, of, parameters, string};
use crate::problem::Problem;
use crate::query::{Query, query};
use crate::words;

parameters! {
    CAMPAIGN: query "campaignId", "CampaignOfRows",
        "Campaign of the rows that specify none.", of::<words::CampaignId>;
    COLUMNS: query "columns", "Columns",
        "For CSV: names of the columns instead of those in the first line, separated by commas. A \
         column with an empty name is ignored.", string;
    DELIMITER: query "delimiter", "Delimiter",
        "For CSV: separator of values. Default: the most frequent of them in the first line; the comma if there is \
         none.", |_| {
        // Without `default`: some generated clients send it, also with rows of JSON.
        json!({ "type": "string", "enum": DELIMITERS.map(|(name, _)| name) })
    };
    UPLOAD: query "uploadId", "UploadOfRows",
        "Upload that the links belong to, for a file that is sent in several requests: the id in \
         the answer to the first one. Default: derived from the Idempotency-Key, else a new \
         one.", of::<words::UploadId>;
    SUMMARY: query "summary", "Summary",
        "Adds a last line with the numbers of rows, outcomes and bytes that were read. Only for answers of \
         application/x-ndjson.", |_| json!({ "type": "boolean" });
}

/// The parameters of rows that are no links.
pub(super) const OF_OTHERS: [Parameter; 4] = [CAMPAIGN, COLUMNS, DELIMITER, SUMMARY];

query! {
    /// The query of a batch.
    BatchQuery {
        campaign_id: CampaignId = CAMPAIGN,
        columns: String = COLUMNS,
        delimiter: String = DELIMITER,
        upload_id: UploadId = UPLOAD,
        summary: bool = SUMMARY,
    }
}

/// 400: the delimiter is unknown.
pub(super) fn bad_delimiter() -> Problem {
    Problem::query("delimiter must be comma, semicolon or tab.")
}

/// Options for all rows of a batch.
pub(super) struct SaidOfAll {
    /// The campaign of rows that name none.
    pub(super) campaign_id: Option<CampaignId>,
    /// The format of CSV.
    pub(super) csv: Csv,
    /// The upload of the links.
    pub(super) upload: Option<UploadId>,
    /// The answer ends with a summary.
    pub(super) has_summary: bool,
    /// The options that rows depend on.
    text: String,
}

impl SaidOfAll {
    /// Reads a query.
    ///
    /// # Errors
    /// Fails if a parameter is invalid or the campaign is unknown.
    pub(super) async fn read(
        app: &App,
        caller: &Caller,
        text: &str,
        format: Format,
    ) -> Result<Self, Problem> {
        let said = Self::parse(text, format)?;
        if let Some(id) = said.campaign_id {
            let campaign = app.store.find_campaign(id).await?;
            let creator = campaign.as_ref().map(|campaign| &*campaign.created_by);
            check_reach(caller, creator, no_such_campaign)?;
        }
        Ok(said)
    }

    fn parse(text: &str, format: Format) -> Result<Self, Problem> {
        let asked = BatchQuery::read(text)?;
        let of_csv = [
            ("columns", asked.columns.is_some()),
            ("delimiter", asked.delimiter.is_some()),
        ];
        if format != Format::Csv
            && let Some((name, _)) = of_csv.iter().find(|(_, is_given)| *is_given)
        {
            return Err(Problem::query(format!("{name} is for text/csv.")));
        }
        let columns = asked.columns.as_deref().map(read_columns);
        let mut csv = Csv {
            columns: columns.transpose()?,
            ..Csv::default()
        };
        if let Some(name) = asked.delimiter {
            let known = DELIMITERS.iter().find(|(known, _)| *known == name);
            csv.delimiter = Some(known.ok_or_else(bad_delimiter)?.1);
        }
        let text = text.split('&').filter(|it| !it.starts_with("summary="));
        Ok(Self {
            campaign_id: asked.campaign_id,
            csv,
            upload: asked.upload_id,
            has_summary: asked.summary.unwrap_or_default(),
            text: text.collect::<Vec<_>>().join("&"),
        })
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
        assert_eq!(said.csv.delimiter, Some(b'\t'));
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
            ("colums=a", Format::Csv, "The allowed parameters are"),
        ] {
            let told = refused(text, format);
            assert!(told.contains(part), "{text}: {told}");
        }
    }
}
