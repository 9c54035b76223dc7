//! Files that are held in memory and read again when they have been replaced.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Reads a file. The error says why it can't be used.
pub(super) type Read<T> = fn(&Path) -> Result<T, FileFault>;

/// Reason for which a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileFault {
    /// It can't be read.
    #[error("it can't be read")]
    Read(#[from] io::Error),
    /// It is no database in MaxMind's format.
    #[error("it is not a database in MaxMind's format")]
    MaxMind(#[source] maxminddb::MaxMindDbError),
    /// It is no database in ip2region's format.
    #[error("it is not a database in ip2region's format: {0}")]
    Xdb(&'static str),
}

/// A file that is held in memory.
pub(super) struct Watched<T> {
    path: PathBuf,
    read: Read<T>,
    held: RwLock<Arc<T>>,
    /// The file that was tried last, whether or not it could be used.
    tried: Mutex<Option<Stamp>>,
}

/// Identity of a file, which its replacement does not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
            length: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

impl<T> Watched<T> {
    /// Reads a file for the first time.
    pub(super) fn open(path: &Path, read: Read<T>) -> Result<Self, FileFault> {
        // Before it is read: if it is replaced meanwhile, the next look sees that.
        let stamp = Stamp::of(path)?;
        let held = read(path)?;
        Ok(Self {
            path: path.to_owned(),
            read,
            held: RwLock::new(Arc::new(held)),
            tried: Mutex::new(Some(stamp)),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the content as of the last successful read.
    pub(super) fn held(&self) -> Arc<T> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks whether the file has been replaced, and reads it if so: `true`. If the new one can't
    /// be used, what is held stays; that is an error once for each such file.
    pub(super) fn look(&self) -> Result<bool, FileFault> {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = match Stamp::of(&self.path) {
            Ok(stamp) => Some(stamp),
            Err(error) => {
                return match tried.take() {
                    Some(_) => Err(error.into()),
                    None => Ok(false),
                };
            }
        };
        if *tried == stamp {
            return Ok(false);
        }
        *tried = stamp;
        let new = Arc::new((self.read)(&self.path)?);
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(true)
    }
}
