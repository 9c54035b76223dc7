//! The provider at which people sign in.

use std::sync::Arc;

use shortlink_core::clock::SystemClock;
use shortlink_openid::OpenId;

use super::Finding;
use crate::config::Config;

/// Asks the provider for its description; none without a provider.
pub(super) async fn examine(config: &Config) -> Option<Finding> {
    let check = "sign-in";
    let settings = config.sign_in.openid.as_ref()?;
    let options = settings.options.clone();
    let (issuer, redirect) = (options.issuer.clone(), options.redirect_url.clone());
    let asked = match OpenId::new(options, Arc::new(SystemClock)) {
        Ok(provider) => provider.check().await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    Some(match asked {
        Ok(()) => Finding::ok(
            check,
            format!("{issuer} responds; its client needs the redirect URI {redirect}"),
        ),
        Err(error) => Finding::fail(
            check,
            error,
            "check that sign_in.issuer is the issuer exactly as the provider's discovery document has it, and that it \
             can be reached from here; meanwhile, sign in with an API key",
        ),
    })
}
