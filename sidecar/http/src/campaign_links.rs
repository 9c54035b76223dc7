//! Campaigns that requests and answers about their links need.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde_json::{Map, Value};
use shortlink_api::fields::Fields;
use shortlink_api::kinds::link as kinds;
use shortlink_core::campaign::{Campaign, ParameterValues};
use shortlink_core::link::{Destination, Link};
use shortlink_core::target::Target;
use shortlink_service::access::Caller;
use vocabulary::parameters::ParametersError;
use vocabulary::{CampaignId, Code, MAX_CODE_LENGTH};

use super::app::App;
use super::problem::Problem;

/// A code of the maximum length, which gives the target of a campaign its maximum length.
static LONGEST_CODE: LazyLock<Option<Code>> =
    LazyLock::new(|| Code::parse(&[b'0'; MAX_CODE_LENGTH]).ok());

/// The members that a link takes from its campaign.
const OF_CAMPAIGN: [&str; 11] = [
    "longUrl",
    "utm",
    "redirectStatus",
    "forwardQuery",
    "rules",
    "variants",
    "preview",
    "clickId",
    "expiredTarget",
    "pausedTarget",
    "notYetTarget",
];

/// The campaigns that some links or requests name, as they are.
#[derive(Default)]
pub(super) struct Campaigns(HashMap<CampaignId, Campaign>);

impl Campaigns {
    /// Finds the campaigns that requests for new links name. Ignores invalid ids, and campaigns that the caller does not
    /// reach.
    pub(super) async fn named(
        app: &App,
        caller: &Caller,
        requests: impl IntoIterator<Item = &Map<String, Value>>,
    ) -> Result<Self, Problem> {
        let ids = requests.into_iter().filter_map(named_id);
        let mut found = Self::find(app, ids.collect()).await?;
        found
            .0
            .retain(|_, campaign| caller.key().reaches(&campaign.created_by));
        Ok(found)
    }

    /// The campaign that a request for a new link names, if there is one.
    pub(super) fn named_by(&self, request: &Map<String, Value>) -> Option<&Campaign> {
        self.0.get(&named_id(request)?)
    }

    /// Finds the campaigns of links.
    pub(super) async fn of<'a>(
        app: &App,
        links: impl IntoIterator<Item = &'a Link>,
    ) -> Result<Self, Problem> {
        let ids = links
            .into_iter()
            .filter_map(|link| link.destination.campaign());
        Self::find(app, ids.collect()).await
    }

    async fn find(app: &App, ids: BTreeSet<CampaignId>) -> Result<Self, Problem> {
        let mut found = HashMap::with_capacity(ids.len());
        for id in ids {
            if let Some(campaign) = app.store.find_campaign(id).await? {
                found.insert(id, campaign);
            }
        }
        Ok(Self(found))
    }

    /// A link's campaign, if it belongs to one.
    pub(super) fn of_link(&self, link: &Link) -> Option<&Campaign> {
        self.of_destination(&link.destination)
    }

    /// The campaign that defines a destination, if any.
    pub(super) fn of_destination(&self, destination: &Destination) -> Option<&Campaign> {
        self.0.get(&destination.campaign()?)
    }
}

fn named_id(request: &Map<String, Value>) -> Option<CampaignId> {
    let id = request.get("campaignId")?.as_str()?;
    CampaignId::parse(id.as_bytes())
}

/// Reads the campaign of a new link and its values; `None` if the link has a target of its own, or
/// if a fault was noted.
pub(super) fn read_membership(
    app: &App,
    fields: &mut Fields,
    caller: &Caller,
    campaigns: &Campaigns,
) -> Option<Destination> {
    if !fields.has("campaignId") {
        fields.ignore("campaignId");
        if fields.has("parameters") {
            fields.refuse(
                "parameters",
                "needs campaignId: only targets of campaigns have parameters",
            );
        }
        fields.ignore("parameters");
        return None;
    }
    for name in OF_CAMPAIGN {
        if fields.has(name) {
            fields.refuse(
                name,
                "cannot be combined with campaignId: the campaign defines it",
            );
        }
        fields.ignore(name);
    }
    let Some(campaign) = read_campaign(app, fields, caller, campaigns) else {
        // Without the campaign the expected parameters are unknown.
        fields.ignore("parameters");
        return None;
    };
    Some(Destination::Campaign {
        id: campaign.id,
        values: read_values(fields, campaign)?,
    })
}

fn read_campaign<'a>(
    app: &App,
    fields: &mut Fields,
    caller: &Caller,
    campaigns: &'a Campaigns,
) -> Option<&'a Campaign> {
    let text = fields.read::<kinds::CampaignId>("campaignId").value()?;
    let id: Option<CampaignId> = text.parse().ok();
    let id = fields.checked("campaignId", id.ok_or("must be the id of a campaign"))?;
    let campaign = campaigns.0.get(&id);
    let campaign = campaign.ok_or("must be the id of an existing campaign");
    let campaign = fields.checked("campaignId", campaign)?;
    if campaign.revoked_at.is_some() {
        fields.refuse(
            "campaignId",
            "must be the id of a campaign that is not revoked",
        );
        return None;
    }
    // Values cannot change the domain: all placeholders are in the path or after it.
    let template = Target::from_stored(campaign.target.template().to_owned());
    app.check_domain(&template, caller)
        .map_err(|error| fields.refuse("campaignId", format!("leads to a domain that {error}")))
        .ok()?;
    Some(campaign)
}

/// Reads a value for each parameter of a campaign.
pub(super) fn read_values(fields: &mut Fields, campaign: &Campaign) -> Option<ParameterValues> {
    // One that is no object has a fault already.
    let given = fields.read::<kinds::Parameters>("parameters").value();
    let mut given = given.unwrap_or_default();
    let names = campaign.target.names();
    let mut values = Vec::with_capacity(names.len());
    for name in names {
        match given.remove(name) {
            Some(Value::String(value)) => values.push(value),
            None => fields.refuse_at(&["parameters", name], "is required by the campaign"),
            Some(_) => fields.refuse_at(&["parameters", name], "must be a string"),
        }
    }
    for name in given.keys() {
        fields.refuse_at(&["parameters", name], "is not a parameter of the campaign");
    }
    if values.len() < names.len() {
        return None;
    }
    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
    let values = match ParameterValues::encode(&texts) {
        Ok(values) => values,
        Err(ParametersError::Value { place, error }) => {
            let name = names.get(place).map_or("", String::as_str);
            fields.refuse_at(&["parameters", name], error.to_string());
            return None;
        }
        Err(error) => {
            fields.refuse("parameters", error.to_string());
            return None;
        }
    };
    let code = LONGEST_CODE.as_ref()?;
    let expanded = campaign.expand(code, &values);
    fields.checked("parameters", expanded).map(|_| values)
}
