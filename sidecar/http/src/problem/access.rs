//! Problems of authentication, permissions and rate limits.

use std::error::Error;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use shortlink_core::api_key::PolicyError;
use shortlink_core::ports::KeyRefusal;
use shortlink_service::access::ChargeError;
use shortlink_service::keys::KeyError;

use super::{FieldError, Problem};

impl Problem {
    /// 409: the request conflicts with the current state.
    fn conflict(name: &'static str, title: &'static str, detail: &'static str) -> Self {
        Self::new(StatusCode::CONFLICT, name, title, detail)
    }
}

impl Problem {
    /// 401: the key for signing in is missing or invalid. Every cause has the same answer.
    pub(crate) fn wrong_key() -> Self {
        let mut problem = Self::unauthorized();
        problem.0.errors.push(FieldError {
            pointer: "/apiKey".to_owned(),
            detail: "is not a valid API key".to_owned(),
        });
        problem
    }

    /// 403: a request with a session does not come from the console.
    pub(crate) fn not_from_console() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "not-from-console",
            "The request does not come from the console",
            "With a session of the console only the console itself may change anything: the header \
             X-Shortlink-Console is missing, or the request comes from another site.",
        )
    }

    /// 429: too many attempts to sign in.
    pub(crate) fn too_many_sign_ins(error: ChargeError) -> Self {
        let mut problem = Self::from(error);
        problem.0.detail = "Too many attempts to sign in. The header Retry-After says how many \
                            seconds to wait."
            .into();
        problem
    }
}

impl From<ChargeError> for Problem {
    fn from(error: ChargeError) -> Self {
        match error {
            ChargeError::Exceeded { retry_after } => {
                // Rounded up, so that a client that waits this long succeeds.
                let seconds = retry_after.as_millis().div_ceil(1000).max(1);
                let mut problem = Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "rate-limited",
                    "Too many requests",
                    "The rate limit of this API key is exceeded. The header Retry-After says \
                     how many seconds to wait.",
                );
                if let Ok(seconds) = HeaderValue::from_str(&seconds.to_string()) {
                    problem.0.header = Some((RETRY_AFTER, seconds));
                }
                problem
            }
            // No 429: waiting does not help.
            ChargeError::TooMany { most } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "batch-too-large",
                "The batch is too large",
                format!("The rate limit of this API key allows {most} rows at once at most."),
            ),
        }
    }
}

impl From<PolicyError> for Problem {
    /// Points to no member, since the request did not specify the rejected value.
    fn from(error: PolicyError) -> Self {
        let title = "The API key does not allow this";
        let detail = format!("The policy: {error}.");
        Self::new(StatusCode::FORBIDDEN, "forbidden", title, detail)
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
            KeyRefusal::Scope(scope) => Self::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "The API key does not allow this",
                format!("Only a key that has the scope {scope} itself may do this."),
            ),
            KeyRefusal::Revoked => Self::conflict(
                "revoked",
                "The API key is revoked",
                "A revoked API key can't be changed or rotated.",
            ),
            KeyRefusal::Expired => Self::conflict(
                "expired",
                "The API key has expired",
                "An API key that has expired can't be rotated.",
            ),
            KeyRefusal::Rotated => Self::conflict(
                "rotated",
                "The API key has been rotated already",
                "Its successorId names the key to rotate.",
            ),
            KeyRefusal::LastAdmin => Self::conflict(
                "last-admin",
                "This is the last administrator's key",
                "Create another API key with the scope admin first, or use the command line.",
            ),
        }
    }
}
