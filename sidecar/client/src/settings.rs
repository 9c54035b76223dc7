//! The service's address and the API key: from options, the environment or a file, in this order.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

use super::Failure;

/// The internal server of the supplied nginx configuration.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8081";

/// Rights of others than a file's owner.
const OF_OTHERS: u32 = 0o077;

/// The most bytes that are read of a client file or a file with an API key.
const MOST_BYTES: u64 = 64 * 1024;

/// Options for the connection to the service and for the output.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ClientArguments {
    /// Base URL of the internal server. Default: SHORTLINK_SERVER, else `server` in
    /// ~/.config/shortlink/client.toml, else http://127.0.0.1:8081.
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,
    /// File that contains only the API key. Default: the key in SHORTLINK_KEY, else the file in
    /// SHORTLINK_KEY_FILE, else `key` or `key_file` in ~/.config/shortlink/client.toml.
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// Time limit for a response, in seconds: 1 to 3600. `links import` allows at least 300.
    #[arg(long, value_name = "SECONDS", global = true, default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print the API's responses as JSON; lists as one object per line.
    #[arg(long, global = true)]
    pub json: bool,
}

/// The settings of a client.
#[derive(Debug)]
pub(super) struct Settings {
    /// The service's URL, without a slash at its end.
    pub(super) server: String,
    /// The key.
    pub(super) key: SecretString,
    /// The source of the API key, for error messages.
    pub(super) key_origin: String,
    /// The time limit of an answer.
    pub(super) timeout: Duration,
}

impl Settings {
    /// The settings for public requests.
    pub(super) fn anonymous(server: &str, timeout: Duration) -> Result<Self, Failure> {
        Ok(Self {
            server: checked_server(server)?,
            key: String::new().into(),
            key_origin: String::new(),
            timeout,
        })
    }
}

/// `client.toml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientFile {
    server: Option<String>,
    key: Option<String>,
    key_file: Option<PathBuf>,
}

impl ClientArguments {
    /// Merges options, environment and file; `variable` reads the environment.
    pub(super) fn settle(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Settings, Failure> {
        // An empty variable means the same as none.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let server = self.server.clone().or_else(|| variable("SHORTLINK_SERVER"));
        let (text, path) = (variable("SHORTLINK_KEY"), variable("SHORTLINK_KEY_FILE"));
        let key = match (&self.key_file, text, path) {
            (Some(path), ..) => Some(key_in(path)?),
            (None, Some(key), _) => Some((key.into(), "SHORTLINK_KEY".to_owned())),
            (None, None, path) => path.map(|path| key_in(Path::new(&path))).transpose()?,
        };
        // The client file is read only if something is missing.
        let is_missing = server.is_none() || key.is_none();
        let path = client_file(variable).filter(|_| is_missing);
        let file = path.as_deref().map(read_client_file).transpose()?;
        let mut file = file.flatten().unwrap_or_default();
        let server = server.or(file.server.take());
        let (key, key_origin) = key.map_or_else(|| key_of(file, path.as_deref()), Ok)?;
        Ok(Settings {
            server: checked_server(server.as_deref().unwrap_or(DEFAULT_SERVER))?,
            key,
            key_origin,
            timeout: Duration::from_secs(self.timeout),
        })
    }
}

/// The key that a client file names.
fn key_of(file: ClientFile, path: Option<&Path>) -> Result<(SecretString, String), Failure> {
    let shown = path.map_or("client.toml".to_owned(), |path| path.display().to_string());
    match (file.key, file.key_file) {
        (Some(_), Some(_)) => Err(Failure::Usage(format!(
            "{shown} has both key and key_file: leave one of them out"
        ))),
        (Some(key), None) => Ok((key.into(), shown)),
        (None, Some(key_file)) => {
            // A relative path is relative to the client file.
            let beside = path.and_then(Path::parent).map(|it| it.join(&key_file));
            key_in(&beside.unwrap_or(key_file))
        }
        (None, None) => Err(Failure::Usage(format!(
            "there is no API key: give --key-file FILE, SHORTLINK_KEY in the environment, or key in \
             {shown}"
        ))),
    }
}

/// The path of the client file, which need not exist.
fn client_file(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let directory =
        absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    directory.map(|directory| directory.join("shortlink/client.toml"))
}

/// Reads it, if it is there.
fn read_client_file(path: &Path) -> Result<Option<ClientFile>, Failure> {
    if !path.exists() {
        return Ok(None);
    }
    let (text, mode) = read(path)?;
    // The text of the error could contain the API key, so only its place is reported.
    let file: ClientFile = toml::from_str(&text).map_err(|error: toml::de::Error| {
        let line = error
            .span()
            .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let line = line.map_or(String::new(), |line| format!(":{line}"));
        let path = path.display();
        Failure::Usage(format!("{path}{line}: {}", error.message()))
    })?;
    if file.key.is_some() && mode & OF_OTHERS != 0 {
        let path = path.display();
        return Err(Failure::Usage(format!(
            "{path} holds a key and others may read it: chmod 600 {path}"
        )));
    }
    Ok(Some(file))
}

/// The key in a file of its own.
fn key_in(path: &Path) -> Result<(SecretString, String), Failure> {
    let (text, mode) = read(path)?;
    let shown = path.display().to_string();
    // Only a warning: containers get secrets with such modes.
    if mode & OF_OTHERS != 0 && fs::metadata(path).is_ok_and(|it| it.is_file()) {
        eprintln!("shortlink: others may read the key in {shown}: chmod 600 {shown}");
    }
    Ok((text.into(), shown))
}

fn read(path: &Path) -> Result<(String, u32), Failure> {
    let failed = |error: std::io::Error| {
        Failure::Usage(format!("{} can't be read: {error}", path.display()))
    };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    let mut text = String::new();
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok((text, mode))
}

/// The URL of a service without a slash at its end.
fn checked_server(server: &str) -> Result<String, Failure> {
    let wrong = |reason: &str| {
        Failure::Usage(format!(
            "the server {server:?} {reason}: give a URL like {DEFAULT_SERVER}"
        ))
    };
    let url = Url::parse(server).map_err(|error| wrong(&format!("is no URL ({error})")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::Usage(
            "the server's URL must not have a user or password".to_owned(),
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query or fragment"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use secrecy::ExposeSecret;
    use tempfile::TempDir;

    use super::*;

    /// A home with a client file.
    struct Home(TempDir);

    impl Home {
        fn with(text: &str, mode: u32) -> Self {
            let home = tempfile::tempdir().expect("a directory");
            let path = home.path().join(".config/shortlink/client.toml");
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(&path, text).expect("a file");
            set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
            Self(home)
        }

        fn settle(
            &self,
            arguments: &ClientArguments,
            variables: &[(&str, &str)],
        ) -> Result<Settings, Failure> {
            let home = self.0.path().display().to_string();
            arguments.settle(|name| {
                let given = variables.iter().find(|(known, _)| *known == name);
                let value = given.map(|(_, value)| (*value).to_owned());
                value.or_else(|| (name == "HOME").then(|| home.clone()))
            })
        }
    }

    fn usage(settled: Result<Settings, Failure>) -> String {
        match settled {
            Err(Failure::Usage(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    const FILE: &str = "server = \"https://file.example.com/\"\nkey = \"of-file\"\n";

    #[test]
    fn options_outrank_the_environment_and_that_the_file() {
        let home = Home::with(FILE, 0o600);
        let key_file = home.0.path().join("key");
        fs::write(&key_file, "of-option\n").expect("a file");
        let none = ClientArguments::default();
        let all = ClientArguments {
            server: Some("http://option.example.com".to_owned()),
            key_file: Some(key_file.clone()),
            ..none.clone()
        };
        let variables = [
            ("SHORTLINK_SERVER", "http://variable.example.com:81/api/"),
            ("SHORTLINK_KEY", "of-variable"),
        ];
        for (arguments, variables, server, key) in [
            (&none, &[][..], "https://file.example.com", "of-file"),
            (
                &none,
                &variables,
                "http://variable.example.com:81/api",
                "of-variable",
            ),
            (&all, &variables, "http://option.example.com", "of-option"),
            (
                &none,
                &[("SHORTLINK_SERVER", ""), ("SHORTLINK_KEY", "")],
                "https://file.example.com",
                "of-file",
            ),
            (
                &none,
                &[("SHORTLINK_KEY", "of-variable")],
                "https://file.example.com",
                "of-variable",
            ),
        ] {
            let settings = home.settle(arguments, variables).expect("settings");
            assert_eq!(settings.server, server);
            assert_eq!(settings.key.expose_secret().trim(), key);
        }
        let path = key_file.display().to_string();
        let settings = home
            .settle(&none, &[("SHORTLINK_KEY_FILE", &path)])
            .expect("settings");
        assert_eq!(settings.key.expose_secret().trim(), "of-option");
        assert_eq!(settings.key_origin, path);
    }

    #[test]
    fn without_any_file_the_server_is_that_of_make_run() {
        let home = Home(tempfile::tempdir().expect("a directory"));
        let settings = home.settle(&ClientArguments::default(), &[("SHORTLINK_KEY", "k")]);
        assert_eq!(settings.expect("settings").server, DEFAULT_SERVER);
        let said = usage(home.settle(&ClientArguments::default(), &[]));
        assert!(said.contains("there is no API key"), "{said}");
        assert!(said.contains("client.toml"), "{said}");
    }

    #[test]
    fn a_file_with_a_key_that_others_may_read_is_refused() {
        for mode in [0o640, 0o604, 0o666] {
            let said = usage(Home::with(FILE, mode).settle(&ClientArguments::default(), &[]));
            assert!(said.contains("chmod 600"), "{said}");
        }
        // Without a key there is nothing to hide.
        let home = Home::with("server = \"http://a.example.com\"\n", 0o644);
        let settled = home.settle(&ClientArguments::default(), &[("SHORTLINK_KEY", "k")]);
        assert_eq!(settled.expect("settings").server, "http://a.example.com");
    }

    #[test]
    fn a_key_file_is_found_beside_the_client_file() {
        let home = Home::with("key_file = \"key\"\n", 0o644);
        let path = home.0.path().join(".config/shortlink/key");
        fs::write(&path, "beside\n").expect("a file");
        let settings = home.settle(&ClientArguments::default(), &[]);
        let settings = settings.expect("settings");
        assert_eq!(settings.key.expose_secret().trim(), "beside");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_without_what_it_holds() {
        for (text, part) in [
            ("key = \"secret\"\nkeys = 1\n", "client.toml:2"),
            ("key = \"secret\"\nkey_file = \"a\"\n", "leave one of them"),
            ("server = 1\nkey = \"secret\"", "client.toml:1"),
            ("key = \"secret", "client.toml:1"),
        ] {
            let said = usage(Home::with(text, 0o600).settle(&ClientArguments::default(), &[]));
            assert!(said.contains(part), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn servers_are_urls() {
        for (server, reason) in [
            ("127.0.0.1:8081", "URL"),
            ("ftp://a.example.com", "neither http nor https"),
            ("http://u:p@a.example.com", "user or password"),
            ("http://a.example.com/?a=b", "query"),
        ] {
            let arguments = ClientArguments {
                server: Some(server.to_owned()),
                ..ClientArguments::default()
            };
            let said =
                usage(arguments.settle(|name| (name == "SHORTLINK_KEY").then(|| "k".into())));
            assert!(said.contains(reason), "{said}");
        }
    }
}
