//! The configuration file, and the permissions of files with secrets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;
use shortlink_store as store;

use super::Finding;
use crate::config::Config;

/// The file in which the packages store secrets.
const ENVIRONMENT_FILE: &str = "/etc/shortlink/shortlink.env";

/// The permission of others to read.
const OF_ALL: u32 = 0o004;

/// The permission of others to enter a directory.
const ENTERED_BY_ALL: u32 = 0o001;

/// The configuration, which could be read.
pub(super) fn configuration(file: Option<&Path>) -> Finding {
    match file {
        Some(file) => Finding::ok("configuration", file.display().to_string()),
        None => Finding::warn(
            "configuration",
            "no file is named: every setting has its default",
            "pass --config FILE or set SHORTLINK_CONFIG if the service has one",
        ),
    }
}

/// The files that hold secrets.
pub(super) fn secrets(config: &Config, file: Option<&Path>) -> Vec<Finding> {
    let has_password = |url: &str| {
        let url = url::Url::parse(url).ok();
        url.is_some_and(|url| url.password().is_some())
    };
    let mut files: Vec<PathBuf> = Vec::new();
    // The environment may bring a password instead; then the file has none.
    if let Some(file) = file {
        let alone = Config::load(Some(file), []);
        let config = alone.as_ref().unwrap_or(config);
        let urls = [&config.redis.url, &config.database.url];
        let visits = config.database.visits.as_ref().map(|it| &it.url);
        let replica = config.database.replica.as_ref().map(|it| &it.url);
        if urls
            .into_iter()
            .chain(visits)
            .chain(replica)
            .any(|url| has_password(url.expose_secret()))
        {
            files.push(file.to_owned());
        }
    }
    files.extend(config.codes.keys_file.clone());
    files.extend(config.http.proxy_secret_file.clone());
    files.extend(config.sign_in.secret_file.clone());
    files.push(ENVIRONMENT_FILE.into());
    let open: Vec<String> = files
        .iter()
        .filter(|file| is_open(file))
        .map(|file| file.display().to_string())
        .collect();
    let mut findings = vec![if open.is_empty() {
        Finding::ok(
            "secrets",
            "only their owner and group may read the files with secrets",
        )
    } else {
        let open = open.join(" ");
        let found = format!("every user of this machine may read {open}");
        Finding::fail("secrets", found, format!("chmod o= {open}"))
    }];
    let database = store::file(&config.database).filter(|file| is_open(file));
    findings.extend(database.map(|file| {
        let shown = file.display();
        let found = format!("every user of this machine may read {shown}, and with it all codes");
        Finding::warn("secrets", found, format!("chmod o= {shown}"))
    }));
    findings
}

/// Reports whether others may read a file and enter its directories.
fn is_open(file: &Path) -> bool {
    let mode = |path: &Path| fs::metadata(path).map(|it| it.mode());
    let Ok(whole) = std::path::absolute(file) else {
        return false;
    };
    let mut above = whole.ancestors().skip(1);
    mode(&whole).is_ok_and(|mode| mode & OF_ALL != 0)
        && above.all(|path| mode(path).is_ok_and(|mode| mode & ENTERED_BY_ALL != 0))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_open_when_everybody_gets_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        fs::write(&file, "x").expect("a file");
        let set = |path: &Path, mode: u32| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
        };
        for (of_directory, of_file, open) in [
            (0o755, 0o644, true),
            (0o700, 0o644, false),
            (0o755, 0o640, false),
        ] {
            set(directory.path(), of_directory);
            set(&file, of_file);
            assert_eq!(is_open(&file), open, "{of_directory:o} {of_file:o}");
        }
        assert!(!is_open(&directory.path().join("none")));
    }

    #[test]
    fn a_file_without_the_password_may_be_open() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("its mode");
        let file = directory.path().join("shortlink.toml");
        let url = "postgres://user:secret@127.0.0.1/links";
        for (text, environment, is_named) in [
            (format!("[database]\nurl = \"{url}\"\n"), vec![], true),
            (
                String::new(),
                vec![("DATABASE_URL".to_owned(), url.to_owned())],
                false,
            ),
        ] {
            fs::write(&file, text).expect("a file");
            fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("its mode");
            let config = Config::load(Some(&file), environment).expect("a configuration");
            let findings = secrets(&config, Some(&file));
            let shown = file.display().to_string();
            assert_eq!(findings[0].found.contains(&shown), is_named, "{findings:?}");
        }
    }
}
