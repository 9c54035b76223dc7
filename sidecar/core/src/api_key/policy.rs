//! Limits of a key beyond its scopes: the rate of its requests, and the links that it may create.

use std::num::{NonZeroU32, NonZeroU64};

use serde::Serialize;
use vocabulary::{BodyLengths, Code, MAX_CODE_LENGTH};

use crate::codes::strategy::{CodePolicy, StrategyName};
use crate::target::domains::DomainRules;

/// The rate limit of a key's requests.
///
/// A bucket that holds `burst` units and is filled with `per_second` of them each second. A
/// request takes one unit; a batch takes one for each of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    #[serde(rename = "requestsPerSecond")]
    per_second: NonZeroU32,
    burst: NonZeroU32,
}

impl RateLimit {
    /// The most units, a second or at once, that a limit may allow.
    pub const MOST: u32 = 1_000_000;

    /// A limit; `None` unless both are from 1 to [`RateLimit::MOST`].
    pub fn new(per_second: u32, burst: u32) -> Option<Self> {
        let bounded = |units| NonZeroU32::new(units).filter(|units| units.get() <= Self::MOST);
        Some(Self {
            per_second: bounded(per_second)?,
            burst: bounded(burst)?,
        })
    }

    /// Returns the units refilled each second.
    pub fn per_second(self) -> NonZeroU32 {
        self.per_second
    }

    /// Returns the most units available at once.
    pub fn burst(self) -> NonZeroU32 {
        self.burst
    }
}

/// Restrictions on the links created with a key. `None` means unrestricted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyPolicy {
    /// The strategies that codes may be issued with; never an empty list.
    pub strategies: Option<Vec<StrategyName>>,
    /// The fewest characters that the body of an issued code has.
    pub min_body_length: Option<u8>,
    /// The most characters that the body of an issued code has.
    pub max_body_length: Option<u8>,
    /// The domains that targets may lead to; never an empty list.
    pub allowed_domains: Option<DomainRules>,
    /// True if links can have custom codes.
    pub custom_codes: bool,
    /// The fewest characters that a custom code has.
    pub min_custom_length: Option<u8>,
    /// The most links that can be created with the key and those that it was rotated from and to, including those that
    /// have ended or were deleted.
    pub max_links: Option<NonZeroU64>,
    /// True if the key reaches only the links and campaigns that were created with it or with those that it was rotated
    /// from and to.
    pub own_links_only: bool,
}

impl Default for KeyPolicy {
    /// Restricts nothing.
    fn default() -> Self {
        Self {
            strategies: None,
            min_body_length: None,
            max_body_length: None,
            allowed_domains: None,
            custom_codes: true,
            min_custom_length: None,
            max_links: None,
            own_links_only: false,
        }
    }
}

impl KeyPolicy {
    /// Reports whether the policy restricts nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that the policy can be stored: its lists and its range are not empty, and its lengths
    /// are valid for a body.
    ///
    /// # Errors
    /// Fails if one of these does not hold.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        if self.strategies.as_ref().is_some_and(Vec::is_empty) {
            return Err(InvalidPolicy::NoStrategy);
        }
        if self
            .allowed_domains
            .as_ref()
            .is_some_and(DomainRules::is_empty)
        {
            return Err(InvalidPolicy::NoDomain);
        }
        let lengths = 1..=BodyLengths::LONGEST;
        for length in [self.min_body_length, self.max_body_length] {
            if length.is_some_and(|length| !lengths.contains(&length)) {
                return Err(InvalidPolicy::Length);
            }
        }
        let custom_lengths = 1..=MAX_CODE_LENGTH;
        if self
            .min_custom_length
            .is_some_and(|length| !custom_lengths.contains(&length.into()))
        {
            return Err(InvalidPolicy::CustomLength);
        }
        match (self.min_body_length, self.max_body_length) {
            (Some(min), Some(max)) if min > max => Err(InvalidPolicy::Lengths),
            _ => Ok(()),
        }
    }

    /// Returns the policy of codes for a request that specifies none: the default where this policy
    /// allows it, else the nearest that it allows.
    pub fn narrow(&self, default: CodePolicy) -> CodePolicy {
        let strategy = match &self.strategies {
            Some(allowed) if !allowed.contains(&default.strategy) => {
                allowed.first().copied().unwrap_or(default.strategy)
            }
            _ => default.strategy,
        };
        let (least, most) = strategy.lengths();
        let least = self.min_body_length.map_or(least, |min| min.max(least));
        let most = self.max_body_length.map_or(most, |max| max.min(most));
        let (shortest, longest) = default.lengths;
        let within = |length: u8| length.min(most).max(least);
        CodePolicy {
            strategy,
            lengths: (within(shortest), within(longest)),
        }
    }

    /// Checks that the policy allows a strategy.
    ///
    /// # Errors
    /// Fails if the policy does not list it.
    pub fn check_strategy(&self, strategy: StrategyName) -> Result<(), PolicyError> {
        match &self.strategies {
            Some(allowed) if !allowed.contains(&strategy) => Err(PolicyError::Strategy {
                strategy,
                allowed: allowed.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Checks that the policy allows a custom code.
    ///
    /// # Errors
    /// Fails if the policy allows none, or only longer ones.
    pub fn check_custom_code(&self, code: &Code) -> Result<(), PolicyError> {
        if !self.custom_codes {
            return Err(PolicyError::CustomCode);
        }
        let length = code.as_bytes().len();
        match self.min_custom_length {
            Some(min) if length < usize::from(min) => {
                Err(PolicyError::CustomLength { length, min })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the policy allows a length of the body, without the check character. Custom
    /// codes are not issued, so this does not restrict them.
    ///
    /// # Errors
    /// Fails if the length is out of the policy's bounds.
    pub fn check_body_length(&self, length: u8) -> Result<(), PolicyError> {
        let min = self.min_body_length.unwrap_or(1);
        let max = self.max_body_length.unwrap_or(BodyLengths::LONGEST);
        if (min..=max).contains(&length) {
            Ok(())
        } else {
            Err(PolicyError::BodyLength { length, min, max })
        }
    }
}

/// Reason for the refusal of a request by a key's policy, worded for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The key does not allow the strategy.
    #[error(
        "this API key does not allow the strategy {strategy}; it allows {}",
        names(allowed)
    )]
    Strategy {
        /// Requested strategy.
        strategy: StrategyName,
        /// Strategies that the policy allows.
        allowed: Vec<StrategyName>,
    },
    /// The key does not allow the length.
    #[error("this API key allows bodies of {min} to {max} characters, not of {length}")]
    BodyLength {
        /// Requested length.
        length: u8,
        /// The fewest characters.
        min: u8,
        /// The most characters.
        max: u8,
    },
    /// The key does not allow custom codes.
    #[error("this API key does not allow custom codes; omit customSlug to get an issued code")]
    CustomCode,
    /// The key allows only longer custom codes.
    #[error("this API key allows custom codes of {min} or more characters, not of {length}")]
    CustomLength {
        /// Requested length.
        length: usize,
        /// The fewest characters.
        min: u8,
    },
}

/// Reason for the rejection of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// No strategy would be allowed.
    #[error("at least one strategy must be allowed")]
    NoStrategy,
    /// No target would be allowed.
    #[error("at least one target domain must be allowed")]
    NoDomain,
    /// No body has such a length.
    #[error("a body has 1 to {} characters", BodyLengths::LONGEST)]
    Length,
    /// No custom code has such a length.
    #[error("a custom code has 1 to {MAX_CODE_LENGTH} characters")]
    CustomLength,
    /// No length would be allowed.
    #[error("the minimum body length must not exceed the maximum")]
    Lengths,
}

fn names(strategies: &[StrategyName]) -> String {
    let names: Vec<&str> = strategies.iter().map(|strategy| strategy.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bounded_on_both_sides() {
        for (per_second, burst, is_limit) in [
            (1, 1, true),
            (RateLimit::MOST, RateLimit::MOST, true),
            (0, 1, false),
            (1, 0, false),
            (RateLimit::MOST + 1, 1, false),
            (1, u32::MAX, false),
        ] {
            let limit = RateLimit::new(per_second, burst);
            assert_eq!(limit.is_some(), is_limit, "{per_second} {burst}");
        }
    }

    #[test]
    fn names_of_strategies_are_read_as_they_are_written() {
        for strategy in StrategyName::ALL {
            assert_eq!(strategy.name().parse(), Ok(strategy));
        }
        assert!("Hash".parse::<StrategyName>().is_err());
        assert_eq!(names(&StrategyName::ALL), StrategyName::NAMES);
    }

    #[test]
    fn a_policy_restricts_just_what_it_names() {
        let free = KeyPolicy::default();
        assert!(free.is_empty());
        let strict = KeyPolicy {
            strategies: Some(vec![StrategyName::Pool]),
            min_body_length: Some(6),
            max_body_length: Some(8),
            ..KeyPolicy::default()
        };
        for (strategy, length, allowed) in [
            (StrategyName::Pool, 6, (true, true)),
            (StrategyName::Pool, 8, (true, true)),
            (StrategyName::Hash, 5, (false, false)),
            (StrategyName::Permuted, 9, (false, false)),
        ] {
            assert_eq!(free.check_strategy(strategy), Ok(()));
            assert_eq!(free.check_body_length(length), Ok(()));
            let checked = (
                strict.check_strategy(strategy).is_ok(),
                strict.check_body_length(length).is_ok(),
            );
            assert_eq!(checked, allowed, "{strategy} {length}");
        }
    }

    #[test]
    fn custom_codes_are_forbidden_or_have_a_least_length() {
        let free = KeyPolicy::default();
        let issued_only = KeyPolicy {
            custom_codes: false,
            ..KeyPolicy::default()
        };
        let long = KeyPolicy {
            min_custom_length: Some(4),
            ..KeyPolicy::default()
        };
        for (policy, code, verdict) in [
            (&free, "a", Ok(())),
            (&issued_only, "abcdef", Err(PolicyError::CustomCode)),
            (&long, "abcd", Ok(())),
            (
                &long,
                "abc",
                Err(PolicyError::CustomLength { length: 3, min: 4 }),
            ),
        ] {
            let code = code.parse().expect("a code");
            assert_eq!(policy.check_custom_code(&code), verdict, "{code}");
        }
    }

    #[test]
    fn a_policy_that_would_allow_nothing_is_not_kept() {
        let with_lengths = |min, max| KeyPolicy {
            min_body_length: min,
            max_body_length: max,
            ..KeyPolicy::default()
        };
        for (policy, verdict) in [
            (KeyPolicy::default(), Ok(())),
            (
                KeyPolicy {
                    strategies: Some(vec![]),
                    ..KeyPolicy::default()
                },
                Err(InvalidPolicy::NoStrategy),
            ),
            (
                KeyPolicy {
                    allowed_domains: Some(DomainRules::default()),
                    ..KeyPolicy::default()
                },
                Err(InvalidPolicy::NoDomain),
            ),
            (
                KeyPolicy {
                    min_custom_length: Some(65),
                    ..KeyPolicy::default()
                },
                Err(InvalidPolicy::CustomLength),
            ),
            (with_lengths(Some(5), None), Ok(())),
            (with_lengths(Some(5), Some(5)), Ok(())),
            (with_lengths(Some(0), None), Err(InvalidPolicy::Length)),
            (with_lengths(None, Some(13)), Err(InvalidPolicy::Length)),
            (with_lengths(Some(6), Some(5)), Err(InvalidPolicy::Lengths)),
        ] {
            assert_eq!(policy.validate(), verdict, "{policy:?}");
        }
    }
}
