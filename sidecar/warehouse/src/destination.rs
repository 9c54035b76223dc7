//! The place that files are written to.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use shortlink_core::boxed;

use crate::{Progress, WarehouseError, bucket, cause};

/// A directory, or the objects of a bucket below a prefix.
#[derive(Debug)]
pub struct Destination {
    /// As it was given, without a slash at its end.
    name: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Directory(PathBuf),
    Bucket { store: AmazonS3, prefix: String },
}

impl Destination {
    /// Takes a directory, or a URL `s3://BUCKET/PREFIX` with the settings of S3 in the environment (`AWS_…`).
    ///
    /// # Errors
    /// Fails if the text or the settings are invalid. Nothing is read or written yet.
    pub fn new(text: &str) -> Result<Self, WarehouseError> {
        let wrong = |reason| WarehouseError::Destination(text.to_owned(), reason);
        let name = text.trim_end_matches('/').to_owned();
        let place = match text.split_once("://") {
            None if text.is_empty() => return Err(wrong("the destination is empty")),
            None => Place::Directory(PathBuf::from(text)),
            Some(("s3", rest)) => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(wrong("the URL names no bucket"));
                }
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                if !bucket.bytes().all(is_name) {
                    return Err(wrong("the bucket's name is invalid"));
                }
                let prefix = prefix.trim_end_matches('/').to_owned();
                if !prefix.is_empty() && Key::parse(&prefix).is_err() {
                    return Err(wrong("the prefix is not one of S3"));
                }
                let store = bucket::open(bucket, std::env::vars_os().filter_map(text_of))?;
                Place::Bucket { store, prefix }
            }
            Some(_) => return Err(wrong("unknown scheme")),
        };
        Ok(Self { name, place })
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads how far an export into this place has come; `None` before the first one.
    ///
    /// # Errors
    /// Fails if the place is not readable, or the note is not one of this program.
    #[boxed]
    pub async fn progress(&self) -> Result<Option<Progress>, WarehouseError> {
        let named = self.named(Progress::NAME);
        let note = match &self.place {
            Place::Directory(directory) => match fs::read(directory.join(Progress::NAME)) {
                Ok(note) => note,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(WarehouseError::File(named, "read", error)),
            },
            Place::Bucket { store, prefix } => {
                let found = async { store.get(&key(prefix, Progress::NAME)).await?.bytes().await };
                match found.await {
                    Ok(note) => note.to_vec(),
                    Err(object_store::Error::NotFound { .. }) => return Ok(None),
                    Err(error) => return Err(failed(named, "read", &error)),
                }
            }
        };
        let progress = Progress::read(&note);
        let progress = progress.map_err(|wrong| WarehouseError::Progress(named, wrong))?;
        Ok(Some(progress))
    }

    /// Writes how far the export has come.
    ///
    /// # Errors
    /// Fails if the place is not writable.
    #[boxed]
    pub async fn note(&self, progress: &Progress) -> Result<(), WarehouseError> {
        self.write(Progress::NAME, progress.write()).await
    }

    /// Writes a file, or replaces it, as a whole; afterwards it survives a crash of the machine.
    ///
    /// # Errors
    /// Fails if the place is not writable.
    #[boxed]
    pub async fn write(&self, path: &str, bytes: Vec<u8>) -> Result<(), WarehouseError> {
        match &self.place {
            Place::Directory(directory) => {
                let path = directory.join(path);
                replace(&path, &bytes).map_err(|error| {
                    WarehouseError::File(path.display().to_string(), "written", error)
                })
            }
            Place::Bucket { store, prefix } => {
                let stored = store.put(&key(prefix, path), PutPayload::from(bytes)).await;
                stored.map(drop).map_err(|error| match error {
                    object_store::Error::NotFound { .. } => {
                        WarehouseError::NoBucket(self.name.clone())
                    }
                    error => failed(self.named(path), "written", &error),
                })
            }
        }
    }

    fn named(&self, path: &str) -> String {
        format!("{}/{path}", self.name)
    }
}

/// The key of an object below a prefix.
fn key(prefix: &str, path: &str) -> Key {
    // Both are parts of keys: `from` would encode `=`.
    Key::parse(format!("{prefix}/{path}").trim_start_matches('/')).unwrap_or_default()
}

fn failed(name: String, what: &'static str, error: &object_store::Error) -> WarehouseError {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    match error {
        PermissionDenied { .. } | Unauthenticated { .. } => WarehouseError::Denied(name),
        _ => WarehouseError::Object(name, what, cause(error)),
    }
}

/// A variable of the environment, if it is text; no setting is anything else.
fn text_of((name, value): (OsString, OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

/// Writes a file beside its place and renames it. An interrupted write leaves a file that the next one replaces, and
/// that no reader of `*.parquet` sees.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    if !directory.is_dir() {
        fs::create_dir_all(directory)?;
        let above = directory.parent().unwrap_or(Path::new(""));
        File::open(Path::new(".").join(above))?.sync_all()?;
    }
    let unfinished = path.with_added_extension("unfinished");
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_directories_and_buckets() {
        for (text, part) in [
            ("", "empty"),
            ("gs://bucket/a", "unknown scheme"),
            ("file:///a", "unknown scheme"),
            ("s3://", "no bucket"),
            ("s3:///a", "no bucket"),
            ("s3://my bucket/a", "name is invalid"),
            ("s3://bucket/a/../b", "not one of S3"),
        ] {
            let error = Destination::new(text).expect_err("a fault").to_string();
            assert!(error.contains(part), "{error}");
            assert!(error.contains("allowed are a directory"), "{error}");
        }
        for text in ["exports", "/var/a b", "a/b/"] {
            assert!(Destination::new(text).is_ok(), "{text}");
        }
        assert_eq!(key("", "day=2026-11-24/a").as_ref(), "day=2026-11-24/a");
        assert_eq!(
            key("a/b", "day=2026-11-24/a").as_ref(),
            "a/b/day=2026-11-24/a"
        );
    }

    #[tokio::test]
    async fn a_directory_is_created_and_its_files_are_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("a/b");
        let destination = Destination::new(place.to_str().expect("a path")).expect("a place");
        assert_eq!(destination.progress().await.expect("nothing"), None);
        let mut progress = Progress::start("database".to_owned());
        for _ in 0..2 {
            progress.advance(progress.writing + 5);
            destination.note(&progress).await.expect("a place");
            let read = destination.progress().await.expect("a note");
            assert_eq!(read.as_ref(), Some(&progress));
        }
        let names = fs::read_dir(&place).expect("a directory").count();
        assert_eq!(names, 1);
        fs::write(place.join(Progress::NAME), "{}").expect("a file");
        let error = destination.progress().await.expect_err("a fault");
        assert!(error.to_string().contains(Progress::NAME), "{error}");
    }
}
