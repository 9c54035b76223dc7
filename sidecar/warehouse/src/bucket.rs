//! The settings of S3, from variables of the environment (`AWS_…`).

use std::time::Duration;

use hyper::Uri;
use object_store::RetryConfig;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as Key};

use crate::WarehouseError;
use crate::connection::Connector;

/// The time for which requests are retried.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sources of credentials, each complete with all of its variables.
const CREDENTIALS: [&[Key]; 5] = [
    &[Key::AccessKeyId, Key::SecretAccessKey],
    &[Key::WebIdentityTokenFile, Key::RoleArn],
    &[Key::ContainerCredentialsRelativeUri],
    &[
        Key::ContainerCredentialsFullUri,
        Key::ContainerAuthorizationTokenFile,
    ],
    &[Key::MetadataEndpoint],
];

/// Prepares requests to a bucket; sends none.
///
/// # Errors
/// Fails if a variable is invalid, or none has credentials.
pub(crate) fn open(
    bucket: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<AmazonS3, WarehouseError> {
    let mut builder = AmazonS3Builder::new();
    for (name, value) in variables {
        let key = name.to_ascii_lowercase().parse::<Key>();
        let (true, false, Ok(key)) = (name.starts_with("AWS_"), value.is_empty(), key) else {
            continue;
        };
        let is_endpoint = matches!(key, Key::Endpoint | Key::S3Endpoint | Key::MetadataEndpoint);
        if is_endpoint && !is_server(&value) {
            return Err(WarehouseError::Setting(
                name,
                "http:// or https:// and a server",
            ));
        }
        // They become parts of URLs and headers.
        if !value
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
        {
            return Err(WarehouseError::Setting(name, "printable ASCII characters"));
        }
        builder = builder.with_config(key, value);
    }
    // Otherwise S3's library would look for credentials at the metadata service of a machine of Amazon's.
    let has = |key: &Key| builder.get_config_value(key).is_some();
    if !CREDENTIALS.iter().any(|keys| keys.iter().all(has)) {
        return Err(WarehouseError::NoCredentials);
    }
    let builder = builder
        .with_bucket_name(bucket)
        .with_http_connector(Connector)
        .with_retry(RetryConfig {
            retry_timeout: PATIENCE,
            ..RetryConfig::default()
        });
    builder
        .build()
        .map_err(|error| WarehouseError::Settings(crate::cause(&error)))
}

/// Returns whether a text is the URL of a server.
fn is_server(url: &str) -> bool {
    let url: Result<Uri, _> = url.parse();
    url.is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(variables: &[(&str, &str)]) -> Result<AmazonS3, String> {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        super::open("bucket", variables).map_err(|error| error.to_string())
    }

    #[test]
    fn credentials_and_settings_are_those_of_the_environment() {
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        let with = |name, value| open(&[&keys[..], &[(name, value)]].concat());
        for (opened, part) in [
            (open(&[]), "no credentials"),
            (open(&keys[..1]), "no credentials"),
            (
                open(&[("AWS_REGION", "eu-central-1"), ("HOME", "/")]),
                "no credentials",
            ),
            (
                open(&[("AWS_ACCESS_KEY_ID", ""), keys[1]]),
                "no credentials",
            ),
            (
                with("AWS_ENDPOINT_URL", "not a url"),
                "AWS_ENDPOINT_URL is invalid",
            ),
            (
                with("AWS_ENDPOINT_URL", "127.0.0.1:9000"),
                "AWS_ENDPOINT_URL is invalid",
            ),
            (
                with("AWS_ENDPOINT_URL_S3", "ftp://a.example"),
                "allowed are http://",
            ),
            (with("AWS_REGION", "eu\n"), "AWS_REGION is invalid"),
            (with("AWS_S3_EXPRESS", "perhaps"), "perhaps"),
        ] {
            let error = opened.expect_err(part);
            assert!(error.contains(part), "{error}");
        }
        for opened in [
            open(&keys),
            with("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"),
            with("AWS_UNKNOWN", "1"),
            open(&[("AWS_METADATA_ENDPOINT", "http://192.0.2.1")]),
        ] {
            assert_eq!(opened.err(), None);
        }
    }
}
