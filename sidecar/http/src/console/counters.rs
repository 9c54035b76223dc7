//! Counts of sign-ins at the console.

use std::sync::atomic::{AtomicU64, Ordering};

use shortlink_core::named;

named! {
    /// The means of a sign-in.
    pub enum Kind: "kind of sign-in" {
        /// An API key.
        Key = "key",
        /// The provider of OpenID Connect.
        Person = "person",
    }
}

named! {
    /// The outcome of a sign-in. The sign-in page has a text for each of those that are no success.
    pub enum Outcome: "outcome of a sign-in" {
        /// A session has begun.
        Ok = "ok",
        /// The API key is not valid.
        WrongKey = "wrong-key",
        /// The address has made too many attempts.
        Limited = "limited",
        /// The provider cannot be reached, or its answer is none of OpenID Connect.
        ProviderAway = "provider-away",
        /// The provider does not accept the code or this client.
        ProviderRefused = "provider-refused",
        /// The identity token is not valid.
        Token = "token",
        /// The browser has not begun the sign-in, or too long ago.
        State = "state",
        /// The user has cancelled the sign-in at the provider.
        Cancelled = "cancelled",
        /// None of the person's groups gives a role.
        NoRole = "no-role",
        /// The provider sends no groups.
        NoGroups = "no-groups",
        /// An operator has blocked the person.
        Blocked = "blocked",
        /// The database does not take the session.
        Unavailable = "unavailable",
    }
}

/// Sign-ins of this process.
#[derive(Debug, Default)]
pub struct SignInCounters([[AtomicU64; Outcome::ALL.len()]; Kind::ALL.len()]);

impl SignInCounters {
    /// Counts a sign-in.
    pub(super) fn count(&self, kind: Kind, outcome: Outcome) {
        self.0[kind as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers by kind and outcome, of all pairs that can be.
    pub(crate) fn read(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let pairs = Kind::ALL.into_iter().flat_map(|kind| {
            let outcomes = Outcome::ALL.into_iter();
            let can_be = move |outcome: &Outcome| match kind {
                Kind::Key => matches!(outcome, Outcome::Ok | Outcome::WrongKey | Outcome::Limited),
                Kind::Person => *outcome != Outcome::WrongKey,
            };
            outcomes.filter(can_be).map(move |outcome| (kind, outcome))
        });
        pairs.map(|(kind, outcome)| {
            let count = self.0[kind as usize][outcome as usize].load(Ordering::Relaxed);
            (kind.name(), outcome.name(), count)
        })
    }
}
