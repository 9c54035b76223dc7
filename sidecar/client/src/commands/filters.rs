//! The filters of listings of links.

use clap::Args;

use super::values::campaign_id;

/// Filters of a list of links.
#[derive(Debug, Default, Args)]
pub(super) struct Filters {
    /// Only links in this state: live, scheduled, paused, expired or revoked.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only links with this tag.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only links with this external id.
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Only links with this target. The sidecar needs the setting links.find_by_target.
    #[arg(long, value_name = "URL")]
    long_url: Option<String>,
    /// Only links of this campaign.
    #[arg(long, value_name = "ID", value_parser = campaign_id)]
    campaign: Option<String>,
    /// Only links that this upload created.
    #[arg(long, value_name = "ID")]
    upload: Option<String>,
    /// Only links created with this API key.
    #[arg(long, value_name = "KEY-ID")]
    created_by: Option<String>,
    /// Only links with a human visit (true), or only those without one (false).
    #[arg(long, value_name = "BOOL")]
    clicked: Option<bool>,
}

/// A filter by clicks, as a parameter of a query.
pub(super) fn clicked(filter: Option<bool>) -> Option<(&'static str, String)> {
    Some(("clicked", filter?.to_string()))
}

impl Filters {
    /// All links of a campaign.
    pub(super) fn of_campaign(id: String) -> Self {
        Self {
            campaign: Some(id),
            ..Self::default()
        }
    }

    /// As parameters of a query.
    pub(super) fn parameters(&self) -> Vec<(&'static str, String)> {
        let named = [
            ("state", &self.state),
            ("tag", &self.tag),
            ("externalId", &self.external_id),
            ("longUrl", &self.long_url),
            ("campaignId", &self.campaign),
            ("uploadId", &self.upload),
            ("createdBy", &self.created_by),
        ];
        let named = named.into_iter();
        let named = named.filter_map(|(name, value)| Some((name, value.clone()?)));
        named.chain(clicked(self.clicked)).collect()
    }
}
