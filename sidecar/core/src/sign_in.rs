//! Signing people in at a provider of OpenID Connect: the requests to the provider, and the role that follows from its
//! answer.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::api_key::{MAX_NAME_LENGTH, Role};

/// A sign-in that has begun in a browser. Its parts are secret until it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Returns with the browser.
    pub state: String,
    /// Returns in the identity token.
    pub nonce: String,
    /// Proves to the provider that the code comes from the same sign-in (PKCE).
    pub verifier: String,
}

/// The provider's statement about a person who has signed in there. Its signature, issuer, audience, expiry and nonce
/// have been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The provider.
    pub issuer: String,
    /// The provider's name for the person, which never changes.
    pub subject: String,
    /// All claims.
    pub claims: Map<String, Value>,
}

impl Identity {
    /// The name to show: the full name, else the user name, the address or the subject.
    pub fn name(&self) -> String {
        let names = ["name", "preferred_username", "email"];
        let mut names = names.into_iter().filter_map(|claim| self.text(claim));
        let name = names.next().unwrap_or_else(|| self.subject.clone());
        name.chars().take(MAX_NAME_LENGTH).collect()
    }

    /// The address, unless the provider says that it was not verified.
    pub fn email(&self) -> Option<String> {
        let is_refuted = self.claims.get("email_verified") == Some(&Value::Bool(false));
        self.text("email").filter(|_| !is_refuted)
    }

    /// A claim that is a text with something to see, without control characters.
    fn text(&self, claim: &str) -> Option<String> {
        let text = self.claims.get(claim)?.as_str()?;
        let text: String = text.chars().filter(|it| !it.is_control()).collect();
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// A group at the provider, and the role of its members: `<group>=<role>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleOfGroup {
    /// The value of the claim.
    pub group: String,
    /// The role.
    pub role: Role,
}

impl FromStr for RoleOfGroup {
    type Err = String;

    /// Reads the text. The name of a group may contain `=`, as those of LDAP do.
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("<group>=<role>, where the role is one of {}", Role::NAMES);
        let (group, role) = text.rsplit_once('=').ok_or_else(shape)?;
        let role = role.trim().parse().map_err(|_unknown| shape())?;
        match group.trim() {
            "" => Err(shape()),
            group => Ok(Self {
                group: group.to_owned(),
                role,
            }),
        }
    }
}

/// The rule by which the claims of a person give a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRules {
    /// The claim that has the groups: its name, or names with dots between them for a claim inside others.
    pub claim: String,
    /// The roles of the groups.
    pub roles: Vec<RoleOfGroup>,
}

/// The role that someone has, and the groups that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The greatest role of their groups.
    pub role: Option<Role>,
    /// Their groups; `None` when the claim is missing or is no text and no list of texts.
    pub groups: Option<Vec<String>>,
}

impl RoleRules {
    /// Reports whether a group has a role.
    pub fn give(&self, role: Role) -> bool {
        self.roles.iter().any(|it| it.role == role)
    }

    /// Finds the role. The claim `email` counts only if the provider says that it has verified the address: at some
    /// providers, users enter any.
    pub fn judge(&self, identity: &Identity) -> Judged {
        let is_verified = identity.claims.get("email_verified") == Some(&Value::Bool(true));
        let claim = find_claim(&identity.claims, &self.claim);
        let claim = claim.filter(|_| self.claim != "email" || is_verified);
        let groups = claim.and_then(texts);
        let given = groups.iter().flatten().flat_map(|group| {
            let roles = self.roles.iter().filter(move |it| it.group == *group);
            roles.map(|it| it.role)
        });
        Judged {
            role: given.max_by_key(|role| Role::ALL.iter().position(|it| it == role)),
            groups,
        }
    }
}

/// Finds a claim by its whole name first, which may contain dots as URLs do, then step by step.
pub fn find_claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(claim) = claims.get(name) {
        return Some(claim);
    }
    let dots = name.match_indices('.').map(|(place, _)| place);
    dots.into_iter().find_map(|dot| {
        let inner = claims.get(&name[..dot])?.as_object()?;
        find_claim(inner, &name[dot + 1..])
    })
}

fn texts(claim: &Value) -> Option<Vec<String>> {
    match claim {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(items) => {
            let texts = items.iter().map(|it| it.as_str().map(str::to_owned));
            texts.collect()
        }
        _ => None,
    }
}

/// The reason that a sign-in at the provider has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider cannot be reached, or its answer is none of OpenID Connect.
    #[error("the provider does not work: {0}")]
    Away(String),
    /// The provider does not accept the code, or this client.
    #[error("the provider refused the sign-in: {0}")]
    Refused(String),
    /// The identity token is not to be believed.
    #[error("the identity token is not valid: {0}")]
    Token(String),
}

/// A provider of OpenID Connect, at which this service is registered as a client.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Draws the secrets of a sign-in, and returns the address at the provider to which the browser goes.
    async fn start(&self) -> Result<(Started, String), ProviderError>;

    /// Exchanges the code with which the browser has returned for the identity of the person.
    async fn finish(&self, started: &Started, code: String) -> Result<Identity, ProviderError>;

    /// The address at the provider to which a browser goes to sign out there too, if the provider has one.
    async fn sign_out(&self) -> Result<Option<String>, ProviderError>;
}

impl fmt::Display for RoleOfGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.group, self.role)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(claims: &Value) -> Identity {
        Identity {
            issuer: "https://id.example.com".to_owned(),
            subject: "7".to_owned(),
            claims: claims.as_object().cloned().unwrap_or_default(),
        }
    }

    fn rules(claim: &str) -> RoleRules {
        let roles = ["staff=viewer", "ops=operator", "CN=Ops,DC=example=marketer"];
        RoleRules {
            claim: claim.to_owned(),
            roles: roles.map(|it| it.parse().expect("a rule")).into(),
        }
    }

    #[test]
    fn the_greatest_role_of_the_groups_counts_and_no_group_gives_none() {
        let plain = "groups";
        for (claim, claims, role, groups) in [
            (
                plain,
                json!({"groups": ["staff"]}),
                Some(Role::Viewer),
                Some(1),
            ),
            (
                plain,
                json!({"groups": ["ops", "staff"]}),
                Some(Role::Operator),
                Some(2),
            ),
            (
                plain,
                json!({"groups": "CN=Ops,DC=example"}),
                Some(Role::Marketer),
                Some(1),
            ),
            (plain, json!({"groups": ["Staff", "other"]}), None, Some(2)),
            (plain, json!({"groups": []}), None, Some(0)),
            (plain, json!({}), None, None),
            (plain, json!({"groups": null}), None, None),
            (plain, json!({"groups": {"staff": true}}), None, None),
            (plain, json!({"groups": ["staff", 1]}), None, None),
            (
                "realm.roles",
                json!({"realm": {"roles": ["staff"]}}),
                Some(Role::Viewer),
                Some(1),
            ),
            ("realm.roles", json!({"realm": ["staff"]}), None, None),
            (
                "https://example.com/groups",
                json!({"https://example.com/groups": ["staff"]}),
                Some(Role::Viewer),
                Some(1),
            ),
            (
                "a.b.c",
                json!({"a.b": {"c": ["staff"]}}),
                Some(Role::Viewer),
                Some(1),
            ),
        ] {
            let judged = rules(claim).judge(&identity(&claims));
            assert_eq!(judged.role, role, "{claim} {claims}");
            assert_eq!(judged.groups.map(|it| it.len()), groups, "{claim} {claims}");
        }
    }

    #[test]
    fn an_unverified_address_gives_no_role() {
        let rules = RoleRules {
            claim: "email".to_owned(),
            roles: vec!["ann@example.com=admin".parse().expect("a rule")],
        };
        for (is_verified, role) in [
            (json!(true), Some(Role::Admin)),
            (json!(null), None),
            (json!("true"), None),
            (json!(false), None),
        ] {
            let claims = json!({"email": "ann@example.com", "email_verified": is_verified});
            assert_eq!(rules.judge(&identity(&claims)).role, role, "{is_verified}");
        }
    }

    #[test]
    fn the_name_is_what_people_know_on_one_line() {
        for (claims, name) in [
            (json!({"name": "Ann\nLee", "email": "a@b"}), "AnnLee"),
            (json!({"name": " ", "preferred_username": "ann"}), "ann"),
            (json!({"name": 1, "email": "a@b"}), "a@b"),
            (json!({}), "7"),
        ] {
            assert_eq!(identity(&claims).name(), name);
        }
        let long = identity(&json!({"name": "é".repeat(300)}));
        assert_eq!(crate::api_key::parse_name(&long.name()), Ok(long.name()));
    }

    #[test]
    fn a_rule_names_a_group_and_a_role() {
        for text in ["", "staff", "staff=", "=viewer", "staff=owner", " =viewer"] {
            assert!(text.parse::<RoleOfGroup>().is_err(), "{text:?}");
        }
        let rule: RoleOfGroup = "a=b = admin".parse().expect("a rule");
        assert_eq!((&*rule.group, rule.role), ("a=b", Role::Admin));
    }
}
