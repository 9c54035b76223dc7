//! The files by which phones open the links of a short domain in an app.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::Value;
use vocabulary::domains::Domain;

/// The most bytes of a file that iOS reads.
const MOST_BYTES: usize = 128 << 10;

/// A system with such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Ios,
    Android,
}

/// The systems of phones on which an app can open the links of a domain, and what is wrong with their files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Apps {
    /// `iOS`, `Android`.
    pub(super) systems: Vec<&'static str>,
    /// Reasons for which phones ignore a file.
    pub(super) concerns: Vec<String>,
}

impl Apps {
    /// Examines the files of a domain in the directory of the pages: its own, or those of all domains.
    pub(super) fn read(pages: &Path, domain: &Domain) -> Self {
        let mut apps = Self::default();
        for system in [System::Ios, System::Android] {
            let own = pages.join(domain.base_name());
            let files =
                [own, pages.to_owned()].map(|it| it.join(".well-known").join(system.file()));
            let [own, common] = files.map(|path| (fs::read(&path), path));
            let (found, path) = match &own.0 {
                Err(error) if error.kind() == ErrorKind::NotFound => common,
                _ => own,
            };
            let fault = match found {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => Some(format!("can't be read ({error})")),
                Ok(bytes) => system.fault(&bytes),
            };
            match fault {
                None => apps.systems.push(system.name()),
                Some(fault) => {
                    let name = system.name();
                    let path = path.display();
                    apps.concerns
                        .push(format!("{path} {fault}: {name} opens no app"));
                }
            }
        }
        apps
    }
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Ios => "iOS",
            Self::Android => "Android",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Ios => "apple-app-site-association",
            Self::Android => "assetlinks.json",
        }
    }

    /// The reason for which phones ignore the content of the file.
    fn fault(self, bytes: &[u8]) -> Option<String> {
        if bytes.len() > MOST_BYTES {
            return Some(format!("has more than {MOST_BYTES} bytes"));
        }
        let json: Value = match serde_json::from_slice(bytes) {
            Ok(json) => json,
            Err(error) => return Some(format!("is not JSON ({error})")),
        };
        match self {
            Self::Ios => {
                let details = json.pointer("/applinks/details").and_then(Value::as_array);
                let has_id = |it: &Value| it["appIDs"].is_array() || it["appID"].is_string();
                (!details.is_some_and(|list| !list.is_empty() && list.iter().all(has_id)))
                    .then(|| "has no applinks.details with an appIDs or appID in each".to_owned())
            }
            Self::Android => {
                let is_app = |it: &Value| {
                    let target = &it["target"];
                    it["relation"].is_array()
                        && (target["namespace"] != "android_app"
                            || (target["package_name"].is_string()
                                && target["sha256_cert_fingerprints"].is_array()))
                };
                let list = json.as_array();
                (!list.is_some_and(|list| !list.is_empty() && list.iter().all(is_app))).then(|| {
                    "is not a list of statements with relation and target, and for an android_app with \
                     package_name and sha256_cert_fingerprints"
                        .to_owned()
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vocabulary::domains::Domains;

    use super::*;

    #[test]
    fn files_of_a_domain_are_examined_and_those_of_all_otherwise() {
        let mut domains = Domains::default();
        for name in [b"a.example".as_slice(), b"b.example"] {
            let added = domains.add(&[name, b"active"], |name| Some(name.to_owned()));
            added.expect("a domain");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let write = |folder: &str, name: &str, text: &str| {
            let folder = directory.path().join(folder).join(".well-known");
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join(name), text).expect("a file");
        };
        let read = |place: usize| Apps::read(directory.path(), &domains.entries()[place]);
        assert_eq!(read(0), Apps::default());

        let ios =
            r#"{"applinks":{"details":[{"appIDs":["T.com.example"],"components":[{"/":"/*"}]}]}}"#;
        write("", "apple-app-site-association", ios);
        let android = r#"[{"relation":["delegate_permission/common.handle_all_urls"],"target":
            {"namespace":"android_app","package_name":"com.example","sha256_cert_fingerprints":["14:6D"]}}]"#;
        write("a.example", "assetlinks.json", android);
        assert_eq!(
            (read(0).systems, read(1).systems),
            (vec!["iOS", "Android"], vec!["iOS"])
        );
        assert_eq!(read(0).concerns, [""; 0]);

        for (name, text, part) in [
            ("apple-app-site-association", "{", "is not JSON"),
            ("apple-app-site-association", "{}", "applinks.details"),
            (
                "apple-app-site-association",
                r#"{"applinks":{"details":[{}]}}"#,
                "appIDs",
            ),
            (
                "apple-app-site-association",
                &" ".repeat(MOST_BYTES + 1),
                "bytes",
            ),
            ("assetlinks.json", "{}", "not a list"),
            ("assetlinks.json", "[]", "not a list"),
            (
                "assetlinks.json",
                r#"[{"relation":[],"target":{"namespace":"android_app"}}]"#,
                "package",
            ),
        ] {
            write("a.example", "apple-app-site-association", ios);
            write("a.example", "assetlinks.json", android);
            write("a.example", name, text);
            let apps = read(0);
            let [concern] = &apps.concerns[..] else {
                panic!("{apps:?}")
            };
            assert!(
                concern.contains(part) && concern.contains("a.example"),
                "{concern}"
            );
            assert_eq!(read(1).concerns, [""; 0]);
        }
    }
}
