//! Settings of the sign-in of people at a provider of OpenID Connect.

use std::path::PathBuf;

use anyhow::bail;
use jiff::SignedDuration;
use shortlink_core::sign_in::{RoleOfGroup, RoleRules};
use shortlink_openid::{OpenIdOptions, check_url};
use shortlink_service::sessions::PeopleLimits;
use url::Url;

use super::{Settings, fault};

/// The file with the secret of this client.
const SECRET: &str = "sign_in.client_secret_file";

/// The settings of sign-ins.
#[derive(Debug)]
pub struct SignIn {
    /// The bounds of sessions.
    pub limits: PeopleLimits,
    /// The provider, if people sign in at one.
    pub openid: Option<OpenIdSettings>,
    /// The file with the secret of this client.
    pub secret_file: Option<PathBuf>,
}

/// The settings of the provider.
#[derive(Clone, Debug)]
pub struct OpenIdSettings {
    /// The registration at the provider.
    pub options: OpenIdOptions,
    /// The roles of groups.
    pub rules: RoleRules,
    /// The name of the provider on the sign-in page.
    pub name: String,
    /// The address of the console's server.
    pub console_url: Url,
    /// False if the sign-in page hides the form for API keys.
    pub shows_api_key: bool,
}

impl Settings {
    pub(super) fn sign_in(&self) -> anyhow::Result<SignIn> {
        let hours = self.number("sign_in.session_hours", 1, 24 * 30)?;
        let idle = self.number("sign_in.idle_minutes", 5, 24 * 60 * 30)?;
        Ok(SignIn {
            limits: PeopleLimits {
                life: SignedDuration::from_hours(hours),
                idle: SignedDuration::from_mins(idle),
            },
            openid: self.openid()?,
            secret_file: self.file(SECRET),
        })
    }

    fn openid(&self) -> anyhow::Result<Option<OpenIdSettings>> {
        let text = |key| self.get::<String>(key);
        if text("sign_in.issuer").is_empty() {
            return Ok(None);
        }
        let allowed = "a URL of https without a query, such as https://id.example.com/realms/main; \
                       http leads just to this machine";
        let issuer = self.parsed("sign_in.issuer", allowed, |text| {
            let url = Url::parse(text).ok()?;
            (check_url(&url) && url.query().is_none() && url.fragment().is_none()).then_some(url)
        })?;
        let allowed = "the address of the console's server without a path, such as \
                       https://links.corp.example; http leads just to this machine";
        let console_url = self.parsed("sign_in.console_url", allowed, |text| {
            let url = Url::parse(text).ok()?;
            let is_bare = url.path() == "/" && url.query().is_none() && url.username().is_empty();
            (check_url(&url) && is_bare).then_some(url)
        })?;
        let client_id = text("sign_in.client_id");
        if client_id.is_empty() {
            bail!("sign_in.client_id must be set when sign_in.issuer is");
        }
        let roles = self.get::<Vec<String>>("sign_in.roles").into_iter();
        let roles = roles.map(|text| {
            let rule = text.parse::<RoleOfGroup>();
            rule.map_err(|allowed| fault("sign_in.roles", &text, format!("items {allowed}")))
        });
        let roles = roles.collect::<anyhow::Result<Vec<_>>>()?;
        if roles.is_empty() {
            bail!(
                "sign_in.roles must have an item when sign_in.issuer is set: without a role, no person can sign in"
            );
        }
        let claim = text("sign_in.groups_claim");
        if claim.is_empty() {
            bail!("sign_in.groups_claim must be the name of a claim, such as groups");
        }
        let name = self.parsed("sign_in.name", "1 to 60 characters on one line", |text| {
            let is_name = (1..=60).contains(&text.chars().count())
                && !text.chars().any(char::is_control)
                && !text.trim().is_empty();
            is_name.then(|| text.to_owned())
        })?;
        let secret = self.read_file(SECRET, std::fs::read_to_string)?;
        let client_secret = match secret {
            None => None,
            Some((the_file, text)) if text.trim().is_empty() => bail!("{the_file} is empty"),
            Some((_, text)) => Some(text.trim().to_owned().into()),
        };
        let at = |path| console_url.join(path);
        Ok(Some(OpenIdSettings {
            options: OpenIdOptions {
                issuer,
                client_id,
                client_secret,
                scopes: self.get("sign_in.scopes"),
                claim: claim.clone(),
                redirect_url: at("/console/sign-in/callback")?,
                signed_out_url: at("/console")?,
                ca_file: self.file("sign_in.ca_file"),
            },
            rules: RoleRules { claim, roles },
            name,
            shows_api_key: self.get("sign_in.show_api_key"),
            console_url,
        }))
    }
}
