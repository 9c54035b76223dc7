//! `shortlink check-keys`: the file of check keys, which nginx and the sidecars share.
//!
//! A code is never issued with a key that an nginx may not accept yet: a new key is the last line
//! first, and becomes the first line when every nginx and every sidecar has read the file.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Subcommand;
use rand::RngExt;
use shortlink_client::output::print;
use vocabulary::siphash::siphash24;
use vocabulary::{CheckKeys, CheckKeysError};

use crate::random;

/// The mode of a new file: the sidecar reads it as a member of its group.
const MODE: u32 = 0o640;

/// The comment of a key that is accepted and not used for new codes yet, before its fingerprint.
const PENDING: &str = "# Not active yet: ";

#[derive(Debug, Subcommand)]
pub(super) enum CheckKeysCommand {
    /// List the check keys of a file by their fingerprints.
    List {
        /// File with the check keys.
        file: PathBuf,
    },
    /// Add a new check key to a file, or create the file with one.
    ///
    /// nginx and sidecars accept the new key when they have read the file. New codes use it after
    /// `--activate`. Old codes stay valid.
    Rotate {
        /// File with the check keys.
        file: PathBuf,
        /// Use the newest key for new codes, instead of adding one. Every nginx and every sidecar
        /// must accept it already.
        #[arg(long)]
        activate: bool,
    },
    /// Remove a check key from a file. Its codes become invalid.
    Remove {
        /// File with the check keys.
        file: PathBuf,
        /// Fingerprint of the check key, as shown by `check-keys list`.
        fingerprint: String,
    },
}

impl CheckKeysCommand {
    /// Does what the command line says.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::List { file } => print(&list(&KeyFile::read(file)?)),
            Self::Rotate {
                file,
                activate: false,
            } => print(&add(file)?),
            Self::Rotate { file, .. } => print(&activate(file)?),
            Self::Remove { file, fingerprint } => print(&remove(file, fingerprint)?),
        }
    }
}

/// A file of check keys as it was read: the lines of its keys, and all others.
#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
    comments: Vec<String>,
    keys: Vec<String>,
}

impl KeyFile {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("{path:?} can't be read"))?;
        match CheckKeys::parse(text.as_bytes()) {
            Ok(_) | Err(CheckKeysError::Empty) => {}
            Err(error) => bail!("{path:?}: {error}"),
        }
        let lines = text.lines().map(|line| line.trim().to_owned());
        let (comments, keys) = lines
            .filter(|line| !line.is_empty())
            .partition(|line| line.starts_with('#'));
        Ok(Self {
            path: path.to_owned(),
            comments,
            keys,
        })
    }

    /// Replaces the file, or creates it. A process that reads it meanwhile finds the old keys or
    /// the new ones.
    fn write(&self) -> anyhow::Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        let file = File::options().write(true).create_new(true).open(&new);
        let file = file.with_context(|| {
            format!("{new:?} can't be created (remove it if an earlier change was interrupted)")
        })?;
        let written = self.write_to(file).and_then(|()| {
            fs::rename(&new, &self.path)?;
            // The name lasts when its directory is on the disk.
            let directory = self.path.parent().filter(|it| !it.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        });
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written.with_context(|| format!("{:?} can't be written", self.path))
    }

    fn write_to(&self, mut file: File) -> std::io::Result<()> {
        let mode = match fs::metadata(&self.path) {
            Ok(old) => {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
                old.mode() & 0o777
            }
            Err(_) => MODE,
        };
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        for line in self.comments.iter().chain(&self.keys) {
            writeln!(file, "{line}")?;
        }
        file.sync_all()
    }
}

impl KeyFile {
    /// The place of the key that was added and not activated yet.
    fn pending(&self) -> Option<usize> {
        let shown = self
            .comments
            .iter()
            .find_map(|it| it.strip_prefix(PENDING))?;
        self.keys.iter().position(|key| fingerprint(key) == shown)
    }

    fn forget_pending(&mut self) {
        self.comments.retain(|line| !line.starts_with(PENDING));
    }
}

/// The fingerprint of a key, which reveals nothing of it: a keyed function of a constant.
fn fingerprint(key: &str) -> String {
    let bytes = u128::from_str_radix(key, 16)
        .unwrap_or_default()
        .to_be_bytes();
    format!("{:08x}", siphash24(&bytes, b"fingerprint") >> 32)
}

fn list(file: &KeyFile) -> String {
    let pending = file.pending();
    let lines = file.keys.iter().enumerate().map(|(index, key)| {
        let state = match index {
            0 => "new codes",
            _ if Some(index) == pending => "accepted, not active yet",
            _ => "accepted",
        };
        format!("{}  {state}\n", fingerprint(key))
    });
    lines.collect()
}

fn add(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let is_new = !path
        .try_exists()
        .with_context(|| format!("{path:?} can't be read"))?;
    let mut file = if is_new {
        let about = "# Check keys, one per line: the first is for new codes, and all are accepted.";
        KeyFile {
            path: path.to_owned(),
            comments: vec![about.to_owned()],
            keys: Vec::new(),
        }
    } else {
        KeyFile::read(path)?
    };
    if file.keys.len() == CheckKeys::MOST {
        bail!(
            "{path:?} has {} check keys, the maximum: remove one that no code in use has \
             (shortlink check-keys list, remove)",
            CheckKeys::MOST
        );
    }
    if let Some(pending) = file.pending() {
        bail!(
            "{path:?} has the check key {} that is not active yet: shortlink check-keys rotate \
             --activate",
            fingerprint(&file.keys[pending])
        );
    }
    let key = format!("{:032x}", random::generator()?.random::<u128>());
    let added = fingerprint(&key);
    file.keys.push(key);
    file.forget_pending();
    if !is_new {
        file.comments.push(format!("{PENDING}{added}"));
    }
    file.write()?;
    Ok(if is_new {
        format!(
            "created {shown} with the check key {added}\n\
             nginx:    shortlink_check keyed body=7 keys={shown};\n\
             sidecar:  [codes] check = \"keyed\", check_keys_file = \"{shown}\"\n"
        )
    } else {
        format!(
            "added the check key {added} to {shown}: it is accepted, and not used for new codes yet\n\
             1. Copy {shown} to every nginx and every sidecar.\n\
             2. On each nginx: nginx -t && nginx -s reload\n\
             3. Restart the sidecars, one after the other.\n\
             4. shortlink check-keys rotate --activate {shown}\n"
        )
    })
}

fn activate(path: &Path) -> anyhow::Result<String> {
    let mut file = KeyFile::read(path)?;
    let Some(pending) = file.pending() else {
        bail!(
            "{path:?} has no check key that could be activated: add one with shortlink check-keys \
             rotate, without --activate"
        );
    };
    file.keys[..=pending].rotate_right(1);
    file.forget_pending();
    file.write()?;
    let shown = path.display();
    Ok(format!(
        "new codes use the check key {} as soon as the sidecars are restarted\n\
         1. Copy {shown} to every nginx and every sidecar.\n\
         2. Restart the sidecars, one after the other. nginx needs no reload.\n",
        fingerprint(&file.keys[0])
    ))
}

fn remove(path: &Path, wanted: &str) -> anyhow::Result<String> {
    let mut file = KeyFile::read(path)?;
    let Some(index) = file.keys.iter().position(|key| fingerprint(key) == wanted) else {
        bail!("{path:?} has no check key {wanted:?}: shortlink check-keys list shows them");
    };
    if index == 0 {
        bail!(
            "{wanted} is the check key for new codes: activate another one first (shortlink \
             check-keys rotate)"
        );
    }
    if file.pending() == Some(index) {
        file.forget_pending();
    }
    file.keys.remove(index);
    file.write()?;
    let shown = path.display();
    Ok(format!(
        "removed the check key {wanted} from {shown}: its codes are invalid as soon as nginx is \
         reloaded\n\
         1. Copy {shown} to every nginx and every sidecar.\n\
         2. On each nginx: nginx -t && nginx -s reload\n\
         3. Restart the sidecars, one after the other.\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(path: &Path) -> CheckKeys {
        CheckKeys::parse(&fs::read(path).expect("a file")).expect("check keys")
    }

    #[test]
    fn a_new_key_is_accepted_before_it_is_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("check-keys");
        let created = add(&path).expect("a file");
        assert!(
            created.contains("shortlink_check keyed body=7 keys="),
            "{created}"
        );
        let mode = || fs::metadata(&path).expect("a file").mode() & 0o777;
        assert_eq!(mode(), MODE);
        let first = *keys_of(&path).current();
        assert!(activate(&path).is_err(), "there is no second key");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
        let added = add(&path).expect("a key");
        assert!(added.contains("--activate"), "{added}");
        assert_eq!(mode(), 0o600, "the mode stays");
        let both = keys_of(&path);
        assert_eq!((both.current(), both.all().len()), (&first, 2));
        assert!(add(&path).is_err(), "the last one is not active yet");
        let shown = list(&KeyFile::read(&path).expect("a file"));
        assert!(shown.ends_with("accepted, not active yet\n"), "{shown}");

        activate(&path).expect("another order");
        let both = keys_of(&path);
        assert_eq!((both.all()[1], both.all().len()), (first, 2));
        assert_ne!(both.current(), &first);
        assert!(activate(&path).is_err(), "the old key must not come back");

        let file = KeyFile::read(&path).expect("a file");
        let (current, old) = (fingerprint(&file.keys[0]), fingerprint(&file.keys[1]));
        assert_eq!(
            list(&file),
            format!("{current}  new codes\n{old}  accepted\n")
        );
        assert!(remove(&path, &current).is_err(), "it is used");
        assert!(remove(&path, "00000000").is_err(), "it is not there");
        remove(&path, &old).expect("one key less");
        assert_eq!(keys_of(&path).all().len(), 1);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.starts_with("# Check keys"), "{text}");
    }

    #[test]
    fn a_file_takes_four_keys_and_what_is_wrong_with_it_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("check-keys");
        add(&path).expect("a file");
        for _ in 1..CheckKeys::MOST {
            add(&path).expect("a key");
            activate(&path).expect("another order");
        }
        let before = fs::read(&path).expect("a file");
        let error = add(&path).expect_err("a fifth key").to_string();
        assert!(error.contains("the maximum"), "{error}");
        assert_eq!(fs::read(&path).expect("a file"), before);
        fs::write(&path, "00\n").expect("a file");
        let error = add(&path).expect_err("no key").to_string();
        assert!(error.contains("line 1"), "{error}");
        fs::write(directory.path().join("check-keys.new"), "").expect("a file");
        fs::remove_file(&path).expect("a file");
        let error = format!("{:#}", add(&path).expect_err("another change"));
        assert!(error.contains("interrupted"), "{error}");
    }
}
