//! Locates addresses with databases in files that operators replace.

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::maxmind::MaxMind;
pub use super::watched::FileFault;
use shortlink_core::visit::place::{Place, Places};

use super::watched::{Read, Watched};
use super::xdb::Xdb;

/// The configured databases. Without any, all places are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeoFiles {
    /// Places in MaxMind's format.
    pub geo_database: Option<PathBuf>,
    /// Autonomous systems or providers in MaxMind's format.
    pub asn_database: Option<PathBuf>,
    /// Places in ip2region's format: a file for IPv4, one for IPv6, or both.
    pub ip2region: Vec<PathBuf>,
    /// The language of names, where a database in MaxMind's format has it: `en`, `zh-CN`.
    pub language: String,
}

/// A database can't be used.
#[derive(Debug, thiserror::Error)]
#[error("the database {path:?} that {setting} names can't be used")]
pub struct GeoError {
    /// The setting that names it.
    pub setting: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Cause of the error.
    #[source]
    pub source: FileFault,
}

/// Knows where addresses are.
pub struct Geo {
    places: Option<Watched<MaxMind>>,
    networks: Option<Watched<MaxMind>>,
    regions: Vec<Watched<Xdb>>,
    language: String,
}

impl Geo {
    /// Reads the databases into memory, which may take a while and as much memory as the files are
    /// long.
    ///
    /// # Errors
    /// Fails if one can't be used: a configured file is required.
    pub fn open(files: GeoFiles) -> Result<Self, GeoError> {
        let max_mind = |setting, path: Option<PathBuf>| {
            let opened = path.map(|path| opened(setting, &path, MaxMind::open));
            opened.transpose()
        };
        let regions = files.ip2region.iter();
        let regions = regions.map(|path| opened("visits.ip2region", path, Xdb::open));
        Ok(Self {
            places: max_mind("visits.geo_database", files.geo_database)?,
            networks: max_mind("visits.asn_database", files.asn_database)?,
            regions: regions.collect::<Result<_, _>>()?,
            language: files.language,
        })
    }

    /// Reports whether any database is configured.
    pub fn is_configured(&self) -> bool {
        self.places.is_some() || self.networks.is_some() || !self.regions.is_empty()
    }

    /// Reloads replaced files. A fault is logged once, and the former data stays in use. Returns
    /// the number of files that were read.
    pub fn look(&self) -> usize {
        let max_mind = [&self.places, &self.networks].into_iter().flatten();
        let max_mind = max_mind.map(|file| (file.path(), file.look()));
        let regions = self.regions.iter().map(|file| (file.path(), file.look()));
        let looks = max_mind.chain(regions);
        looks.filter(|(path, look)| is_read(path, look)).count()
    }
}

impl Places for Geo {
    /// Takes the more precise place, and ip2region's if both are equally precise, since an operator
    /// adds that database for its better data. The provider comes from the same database, or else
    /// from the database of networks.
    fn place(&self, address: IpAddr) -> Place {
        let mut place = Place::default();
        for region in &self.regions {
            let found = region.held().place(address);
            if found.depth() > place.depth() {
                place = found;
            }
        }
        if let Some(places) = &self.places {
            let found = places.held().place(address, &self.language);
            if found.depth() > place.depth() {
                place = found;
            } else {
                place.asn = place.asn.or(found.asn);
                place.isp = place.isp.or(found.isp);
            }
        }
        if let Some(networks) = &self.networks {
            let (isp, asn) = networks.held().network(address);
            place.isp = place.isp.or(isp);
            place.asn = place.asn.or(asn);
        }
        place
    }
}

fn opened<T>(setting: &'static str, path: &Path, read: Read<T>) -> Result<Watched<T>, GeoError> {
    Watched::open(path, read).map_err(|source| GeoError {
        setting,
        path: path.to_owned(),
        source,
    })
}

fn is_read(path: &Path, look: &Result<bool, FileFault>) -> bool {
    match look {
        Ok(false) => false,
        Ok(true) => {
            tracing::info!(?path, "a new database of places is in use");
            true
        }
        Err(error) => {
            tracing::error!(
                ?path,
                error = error as &dyn Error,
                "a database of places has been replaced by one that can't be used; the old one \
                 stays in use"
            );
            false
        }
    }
}

#[cfg(test)]
mod tests;
