//! Signs people in at a provider of OpenID Connect: the authorization code flow with PKCE.
//!
//! The provider describes itself at its issuer's address (discovery). The description and the keys are read again when
//! they are old, and when an identity token is signed with an unknown key.
#![forbid(unsafe_code)]

mod http;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use jiff::SignedDuration;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreResponseType,
    CoreRevocableToken, CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AccessToken, AdditionalClaims, AuthType, AuthenticationFlow, AuthorizationCode,
    ClaimsVerificationError, Client, ClientId, ClientSecret, CsrfToken, DiscoveryError,
    EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, IdToken, IdTokenFields,
    IssuerUrl, Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier,
    ProviderMetadataWithLogout, RedirectUrl, RequestTokenError, Scope, SignatureVerificationError,
    StandardErrorResponse, StandardTokenResponse, SubjectIdentifier, TokenResponse, UserInfoClaims,
};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shortlink_core::boxed;
use shortlink_core::causes::causes;
use shortlink_core::clock::Clock;
use shortlink_core::sign_in::{Identity, Provider, ProviderError, Started, find_claim};
use url::Url;

use http::HttpClient;

/// The time for which a description of the provider is used.
const LIFE: Duration = Duration::from_secs(600);

/// The difference of clocks that the times of an identity token may show.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// The age that an identity token has at most.
const OLDEST: SignedDuration = SignedDuration::from_mins(10);

/// The most bytes of a subject; OpenID Connect allows 255.
const LONGEST_SUBJECT: usize = 255;

/// The algorithms of signatures with a public key. Those with the client's secret are left out: with them, a client could
/// sign tokens as the provider does.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// Reports whether a URL is one of https, or of http that leads to this machine.
pub fn check_url(url: &Url) -> bool {
    http::check(url).is_ok()
}

/// The registration of this service at a provider.
#[derive(Clone, Debug)]
pub struct OpenIdOptions {
    /// The provider's issuer, as its description has it.
    pub issuer: Url,
    /// The id of this client.
    pub client_id: String,
    /// Its secret; `None` for a public client.
    pub client_secret: Option<SecretString>,
    /// The scopes beside `openid`.
    pub scopes: Vec<String>,
    /// The claim that decides the role: without it in the identity token, the provider is asked for more claims.
    pub claim: String,
    /// The address to which the provider sends the browser back.
    pub redirect_url: Url,
    /// The address to which it sends the browser after a sign-out.
    pub signed_out_url: Url,
    /// A file with certificates of authorities, in place of those of the system.
    pub ca_file: Option<PathBuf>,
}

/// All claims of a person that the library has no names for.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct OtherClaims(HashMap<String, Value>);

impl AdditionalClaims for OtherClaims {}

type Fields = IdTokenFields<
    OtherClaims,
    EmptyExtraTokenFields,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;

type Token = IdToken<
    OtherClaims,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;

type OpenIdClient = Client<
    OtherClaims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<Fields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// A provider of OpenID Connect.
pub struct OpenId {
    options: OpenIdOptions,
    http: HttpClient,
    clock: Arc<dyn Clock>,
    described: Mutex<Option<(Duration, ProviderMetadataWithLogout)>>,
}

impl OpenId {
    /// Makes a client; asks the provider nothing yet.
    ///
    /// # Errors
    /// Fails if the file with certificates cannot be read.
    pub fn new(options: OpenIdOptions, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        Ok(Self {
            http: HttpClient::new(options.ca_file.as_deref())?,
            options,
            clock,
            described: Mutex::new(None),
        })
    }

    /// Reads the provider's description now.
    ///
    /// # Errors
    /// Fails if the provider does not respond, or its description is of another issuer or lacks something.
    #[boxed]
    pub async fn check(&self) -> Result<(), ProviderError> {
        let metadata = self.discover().await?;
        self.client(&metadata).map(drop)
    }

    async fn description(&self) -> Result<ProviderMetadataWithLogout, ProviderError> {
        let known = self.described.lock().clone();
        match known {
            Some((at, metadata)) if self.clock.elapsed().saturating_sub(at) < LIFE => Ok(metadata),
            _ => self.discover().await,
        }
    }

    async fn discover(&self) -> Result<ProviderMetadataWithLogout, ProviderError> {
        let issuer = &self.options.issuer;
        // The text as the operator wrote it: `https://id.example.com` and `https://id.example.com/` are two issuers, and
        // the type of URLs knows just the second. The description has one of both.
        let text = issuer.as_str();
        let spellings = match issuer.path() {
            "/" => vec![text.trim_end_matches('/'), text],
            _ => vec![text],
        };
        let mut failed = None;
        for spelling in spellings {
            let issuer = IssuerUrl::new(spelling.to_owned());
            let issuer = issuer.map_err(|error| away(&error))?;
            let asked = self.clock.elapsed();
            match ProviderMetadataWithLogout::discover_async(issuer, &self.http).await {
                Ok(metadata) => {
                    *self.described.lock() = Some((asked, metadata.clone()));
                    return Ok(metadata);
                }
                Err(error @ DiscoveryError::Validation(_)) => {
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(away(&error)),
            }
        }
        let failed = failed.map(|error| away(&error));
        Err(failed.unwrap_or_else(|| ProviderError::Away("no issuer".to_owned())))
    }

    fn client(&self, metadata: &ProviderMetadataWithLogout) -> Result<OpenIdClient, ProviderError> {
        let url = metadata.authorization_endpoint().url();
        http::check(url).map_err(|error| away(&error))?;
        let secret = self.options.client_secret.as_ref();
        let secret = secret.map(|it| ClientSecret::new(it.expose_secret().to_owned()));
        let id = ClientId::new(self.options.client_id.clone());
        let redirect = RedirectUrl::from_url(self.options.redirect_url.clone());
        // A provider that says nothing takes the secret in a header.
        let methods = metadata.token_endpoint_auth_methods_supported();
        let posts = methods.is_some_and(|methods| {
            use openidconnect::core::CoreClientAuthMethod::{ClientSecretBasic, ClientSecretPost};
            methods.contains(&ClientSecretPost) && !methods.contains(&ClientSecretBasic)
        });
        let client = OpenIdClient::from_provider_metadata(metadata.clone(), id, secret);
        let client = client.set_redirect_uri(redirect);
        Ok(match posts {
            true => client.set_auth_type(AuthType::RequestBody),
            false => client,
        })
    }

    /// Checks an identity token; `None` when it is signed with an unknown key.
    fn claims(
        &self,
        client: &OpenIdClient,
        token: &Token,
        nonce: &Nonce,
    ) -> Result<Option<(SubjectIdentifier, Identity)>, ProviderError> {
        let now = self.clock.now();
        let earliest = DateTime::from_timestamp(now.as_second() - LEEWAY.as_secs(), 0);
        let earliest = earliest.unwrap_or(DateTime::<Utc>::MAX_UTC);
        let verifier = client
            .id_token_verifier()
            .set_allowed_algs(ALGORITHMS)
            .set_time_fn(move || earliest)
            .set_issue_time_verifier_fn(move |issued| {
                let age = now.as_second().saturating_sub(issued.timestamp());
                let (early, late) = (-LEEWAY.as_secs(), OLDEST.as_secs());
                match (early..=late).contains(&age) {
                    true => Ok(()),
                    false => Err(format!("issued {age} s ago by the clock of this machine")),
                }
            });
        let claims = match token.claims(&verifier, nonce) {
            Ok(claims) => claims,
            Err(ClaimsVerificationError::SignatureVerification(
                SignatureVerificationError::NoMatchingKey,
            )) => return Ok(None),
            Err(error) => return Err(ProviderError::Token(causes(&error))),
        };
        // The library does not look at it.
        let is_other = |party: &ClientId| party.as_str() != self.options.client_id;
        if claims.authorized_party().is_some_and(is_other) {
            let party = "it is meant for another client (azp)".to_owned();
            return Err(ProviderError::Token(party));
        }
        let subject = claims.subject();
        let text = subject.as_str();
        if text.is_empty() || text.len() > LONGEST_SUBJECT || text.contains(char::is_control) {
            return Err(ProviderError::Token("its subject is no name".to_owned()));
        }
        let identity = Identity {
            issuer: claims.issuer().as_str().to_owned(),
            subject: text.to_owned(),
            claims: members(claims)?,
        };
        Ok(Some((subject.clone(), identity)))
    }

    /// Asks the provider for the claims that the identity token lacks.
    async fn more_claims(
        &self,
        client: &OpenIdClient,
        token: AccessToken,
        subject: SubjectIdentifier,
    ) -> Result<Map<String, Value>, ProviderError> {
        let Ok(request) = client.user_info(token, Some(subject)) else {
            return Ok(Map::new());
        };
        let claims: UserInfoClaims<OtherClaims, CoreGenderClaim> = request
            .request_async(&self.http)
            .await
            .map_err(|error| away(&error))?;
        members(&claims)
    }
}

#[async_trait]
impl Provider for OpenId {
    async fn start(&self) -> Result<(Started, String), ProviderError> {
        let client = self.client(&self.description().await?)?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = AuthenticationFlow::<CoreResponseType>::AuthorizationCode;
        let scopes = self.options.scopes.iter().cloned().map(Scope::new);
        let (url, state, nonce) = client
            .authorize_url(flow, CsrfToken::new_random, Nonce::new_random)
            .add_scopes(scopes)
            .set_pkce_challenge(challenge)
            .url();
        let started = Started {
            state: state.into_secret(),
            nonce: nonce.secret().clone(),
            verifier: verifier.into_secret(),
        };
        Ok((started, url.into()))
    }

    async fn finish(&self, started: &Started, code: String) -> Result<Identity, ProviderError> {
        let mut client = self.client(&self.description().await?)?;
        let exchange = client
            .exchange_code(AuthorizationCode::new(code))
            .map_err(|error| away(&error))?
            .set_pkce_verifier(PkceCodeVerifier::new(started.verifier.clone()));
        let answer = match exchange.request_async(&self.http).await {
            Ok(answer) => answer,
            Err(RequestTokenError::ServerResponse(answer)) => {
                let (error, text) = (answer.error(), answer.error_description());
                let text = text.map(|it| format!(" ({it})")).unwrap_or_default();
                return Err(ProviderError::Refused(format!("{error}{text}")));
            }
            // The answer has the tokens, so its text is not for the log.
            Err(RequestTokenError::Parse(error, _)) => {
                let error = format!("an answer that can't be read: {error}");
                return Err(ProviderError::Away(error));
            }
            Err(error) => return Err(away(&error)),
        };
        let token = answer.id_token();
        let token = token.ok_or_else(|| ProviderError::Token("there is none".to_owned()))?;
        let nonce = Nonce::new(started.nonce.clone());
        let mut found = self.claims(&client, token, &nonce)?;
        if found.is_none() {
            client = self.client(&self.discover().await?)?;
            found = self.claims(&client, token, &nonce)?;
        }
        let unknown = || ProviderError::Token("it is signed with an unknown key".to_owned());
        let (subject, mut identity) = found.ok_or_else(unknown)?;
        let claims = &mut identity.claims;
        let has_groups = find_claim(claims, &self.options.claim).is_some();
        if !has_groups || ["name", "email"].iter().any(|it| !claims.contains_key(*it)) {
            let token = answer.access_token().clone();
            let more = match self.more_claims(&client, token, subject).await {
                Err(error) if has_groups => {
                    tracing::warn!(%error, "the provider did not send more claims of a person");
                    Map::new()
                }
                more => more?,
            };
            for (name, value) in more {
                // The signed ones count.
                claims.entry(name).or_insert(value);
            }
        }
        Ok(identity)
    }

    async fn sign_out(&self) -> Result<Option<String>, ProviderError> {
        let metadata = self.description().await?;
        let end = &metadata.additional_metadata().end_session_endpoint;
        let Some(end) = end else { return Ok(None) };
        let mut url = end.url().clone();
        http::check(&url).map_err(|error| away(&error))?;
        url.query_pairs_mut()
            .append_pair("client_id", &self.options.client_id)
            .append_pair(
                "post_logout_redirect_uri",
                self.options.signed_out_url.as_str(),
            );
        Ok(Some(url.into()))
    }
}

fn away(error: &(dyn std::error::Error + 'static)) -> ProviderError {
    ProviderError::Away(causes(error))
}

/// All claims by their names.
fn members(claims: &impl Serialize) -> Result<Map<String, Value>, ProviderError> {
    match serde_json::to_value(claims) {
        Ok(Value::Object(mut members)) => {
            members.retain(|_, value| !value.is_null());
            Ok(members)
        }
        _ => Err(ProviderError::Token("its claims are no object".to_owned())),
    }
}
