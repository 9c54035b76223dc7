//! Problems of authentication, permissions and rate limits.

use std::error::Error;

use shortlink_core::api_key::PolicyError;
use shortlink_core::ports::KeyRefusal;
use shortlink_service::access::ChargeError;
use shortlink_service::keys::KeyError;

use super::Problem;

impl From<ChargeError> for Problem {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::Exceeded { retry_after } => Self::rate_limited(retry_after),
            ChargeError::TooMany { most } => Self::batch_too_large(most),
        }
    }
}

impl From<PolicyError> for Problem {
    /// Points to no member, since the request did not specify the rejected value.
    fn from(error: PolicyError) -> Self {
        Self::forbidden(format!("The policy: {error}."))
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        let refusal = match error {
            KeyError::Store(error) => return error.into(),
            KeyError::Refused(refusal) => refusal,
        };
        tracing::info!(
            error = &refusal as &dyn Error,
            "a change of an API key was refused"
        );
        refusal.into()
    }
}

impl From<KeyRefusal> for Problem {
    fn from(refusal: KeyRefusal) -> Self {
        match refusal {
            KeyRefusal::Scope(scope) => Self::forbidden(format!(
                "Only a key that has the scope {scope} itself may do this."
            )),
            KeyRefusal::Revoked => Self::key_revoked(),
            KeyRefusal::Expired => Self::key_expired(),
            KeyRefusal::Rotated => Self::key_rotated(),
            KeyRefusal::LastAdmin => Self::last_admin(),
        }
    }
}
