//! Scopes of API keys.

use crate::named;

named! {
    /// Permission that a key grants.
    pub enum Scope: "scope" {
        /// To read links.
        LinksRead = "links:read",
        /// To create, change and revoke links.
        LinksWrite = "links:write",
        /// To read campaigns.
        CampaignsRead = "campaigns:read",
        /// To create, change and end campaigns.
        CampaignsWrite = "campaigns:write",
        /// To store delivery receipts.
        ReceiptsWrite = "receipts:write",
        /// To read statistics.
        StatsRead = "stats:read",
        /// To create, change and delete webhooks, to which visits are sent.
        WebhooksAdmin = "webhooks:admin",
        /// To report conversions of links.
        ConversionsWrite = "conversions:write",
        /// To create, change, rotate and revoke API keys.
        KeysAdmin = "keys:admin",
        /// Everything.
        Admin = "admin",
    }
}

impl Scope {
    /// The scopes of a list, each once and in the order of [`Scope::ALL`].
    pub fn unique(scopes: &[Self]) -> Vec<Self> {
        let mut unique = Self::ALL.to_vec();
        unique.retain(|scope| scopes.contains(scope));
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scopes_are_read_as_they_are_written() {
        for scope in Scope::ALL {
            assert_eq!(scope.name().parse(), Ok(scope));
        }
        for name in ["", "links", "Admin", "links:write ", "keys:write"] {
            assert!(name.parse::<Scope>().is_err(), "{name:?}");
        }
        assert_eq!(Scope::ALL.map(Scope::name).join(", "), Scope::NAMES);
    }

    #[test]
    fn a_list_of_scopes_names_each_once() {
        let scopes = [Scope::Admin, Scope::LinksRead, Scope::Admin];
        assert_eq!(Scope::unique(&scopes), [Scope::LinksRead, Scope::Admin]);
    }
}
