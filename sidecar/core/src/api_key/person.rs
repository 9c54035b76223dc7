//! People: users of the console who sign in at a provider of OpenID Connect.
//!
//! A person is an API key without a secret. All that an API key does or may do, its rights, its links, its changes in the
//! history and the audit log, holds for people without a second mechanism.

use jiff::Timestamp;

use super::Scope;
use crate::named;

named! {
    /// The rights of a person, as their groups at the provider give them. Each role includes those before it.
    pub enum Role: "role" {
        /// Reads links, campaigns and statistics.
        Viewer = "viewer",
        /// Also creates, changes and revokes links and campaigns, with uploads and messages.
        Marketer = "marketer",
        /// Also manages webhooks, receipts, conversions, API keys and people: all but the audit log.
        Operator = "operator",
        /// Everything.
        Admin = "admin",
    }
}

named! {
    /// The state of a person.
    pub enum PersonState: "state" {
        /// The person can sign in.
        Active = "active",
        /// The person cannot sign in, and has no sessions.
        Blocked = "blocked",
    }
}

impl Role {
    /// The scopes that the role grants.
    pub fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Viewer => &[Scope::LinksRead, Scope::CampaignsRead, Scope::StatsRead],
            Self::Marketer => &[
                Scope::LinksRead,
                Scope::LinksWrite,
                Scope::CampaignsRead,
                Scope::CampaignsWrite,
                Scope::StatsRead,
            ],
            Self::Operator => &[
                Scope::LinksRead,
                Scope::LinksWrite,
                Scope::CampaignsRead,
                Scope::CampaignsWrite,
                Scope::ReceiptsWrite,
                Scope::StatsRead,
                Scope::WebhooksAdmin,
                Scope::ConversionsWrite,
                Scope::KeysAdmin,
            ],
            Self::Admin => &[Scope::Admin],
        }
    }
}

/// The part of an API key that only a person has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The provider that knows the person.
    pub issuer: String,
    /// The provider's name for the person, which never changes.
    pub subject: String,
    /// The address of the person, as of the last sign-in.
    pub email: Option<String>,
    /// The role, as of the last sign-in; `None` when their groups gave none then.
    pub role: Option<Role>,
    /// The time of the last sign-in.
    pub signed_in_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_grants_what_the_one_before_it_grants_and_only_the_last_one_everything() {
        let allows = |role: Role, scope| {
            let scopes = role.scopes();
            scopes.contains(&scope) || scopes.contains(&Scope::Admin)
        };
        for pair in Role::ALL.windows(2) {
            let scopes = pair[0].scopes();
            assert!(
                scopes.iter().all(|scope| allows(pair[1], *scope)),
                "{pair:?}"
            );
            assert!(!Scope::ALL.iter().all(|scope| allows(pair[0], *scope)));
        }
        assert!(Scope::ALL.iter().all(|scope| allows(Role::Admin, *scope)));
        for role in Role::ALL {
            assert_eq!(Scope::unique(role.scopes()), role.scopes(), "{role}");
        }
    }
}
