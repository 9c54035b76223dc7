//! Compares SQL with Redis in both directions: every link needs a correct record, and every record
//! needs a link.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use shortlink_core::boxed;
use shortlink_core::ports::{Place, Stood};
use shortlink_core::records::Drift;
use tokio::sync::mpsc;
use vocabulary::Code;

use super::drift::{CampaignDrift, InspectError, Inspector};
use super::outbox;
use super::sweep::is_nothing;

/// Links per page.
const PAGE: u32 = 2048;

/// Pages that are compared at once.
const LANES: usize = 3;

/// Pages of Redis keys that wait for their comparison.
const MAX_PAGES: usize = 4;

/// Compares SQL with Redis.
pub struct Audit {
    /// Confirms and repairs drift.
    pub inspector: Inspector,
    /// The most examples of drift in the report.
    pub examples: usize,
    /// Repairs the drift that is found.
    pub repair: bool,
}

shortlink_core::named! {
    /// A kind of drift between Redis and SQL.
    pub enum Kind: "kind of drift" {
        /// A link has no record.
        Missing = "missing",
        /// The record is a negative one.
        Negative = "negative",
        /// The record has an older revision.
        Older = "older",
        /// The record has a revision that is newer than SQL's.
        Newer = "newer",
        /// The record has the right revision but differs, or is malformed.
        Different = "different",
        /// The value under the link's Redis key is not a string.
        WrongType = "wrongType",
        /// A record has no link.
        Orphan = "orphan",
    }
}

impl Kind {
    /// Returns the kind of a drift; `None` for records with the same answer.
    fn of(drift: Drift) -> Option<Self> {
        Some(match drift {
            Drift::Missing => Self::Missing,
            Drift::Negative => Self::Negative,
            Drift::Older => Self::Older,
            Drift::Newer(_) => Self::Newer,
            Drift::Different => Self::Different,
            Drift::OtherType => Self::WrongType,
            Drift::Long | Drift::Needless => return None,
        })
    }
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Links that were compared.
    pub links: u64,
    /// Redis keys that were examined.
    pub keys: u64,
    /// Number of findings of each of [`Kind::ALL`].
    pub found: [u64; Kind::ALL.len()],
    /// Links and campaigns whose changes were in progress.
    pub changing: u64,
    /// Number of changes that Redis should have by now, and has not.
    pub overdue: u32,
    /// Number of findings that were repaired.
    pub repaired: u64,
    /// The first findings: the code, the bytes behind the prefix, or the word `campaign` and an id.
    pub examples: Vec<(Kind, String)>,
}

impl Report {
    /// Returns the number of findings.
    pub fn drift(&self) -> u64 {
        self.found.iter().sum()
    }

    fn add(&mut self, kind: Option<Kind>, name: &[u8], most: usize) {
        let Some(kind) = kind else { return };
        self.found[kind as usize] += 1;
        if self.examples.len() < most {
            let name = name.escape_ascii().to_string();
            self.examples.push((kind, name));
        }
    }
}

impl Audit {
    /// Compares everything; reports the numbers of compared links and keys to `progress` now and
    /// then.
    ///
    /// # Errors
    /// Fails if SQL or Redis fails.
    #[boxed(?Send)]
    pub async fn run(&self, progress: &(dyn Fn(&Report) + Sync)) -> Result<Report, InspectError> {
        let mut report = Report::default();
        self.compare_campaigns(&mut report).await?;
        self.compare_links(&mut report, progress).await?;
        self.look_for_orphans(&mut report, progress).await?;
        let Inspector { store, clock, .. } = &self.inspector;
        report.overdue = outbox::overdue(store, &**clock).await?.rows;
        Ok(report)
    }

    async fn compare_campaigns(&self, report: &mut Report) -> Result<(), InspectError> {
        let mut compared = self.inspector.compare_campaigns().await?;
        report.changing += compared.changing;
        compared.drifts.retain(|CampaignDrift { campaign, drift }| {
            let kind = Kind::of(*drift);
            let name = format!("campaign {}", campaign.id);
            report.add(kind, name.as_bytes(), self.examples);
            kind.is_some()
        });
        if self.repair {
            report.repaired += self.inspector.repair_campaigns(compared.drifts).await?;
        }
        Ok(())
    }

    async fn compare_links(
        &self,
        report: &mut Report,
        progress: &(dyn Fn(&Report) + Sync),
    ) -> Result<(), InspectError> {
        let Inspector {
            store,
            index,
            clock,
        } = &self.inspector;
        let pages = stream::try_unfold(Some(Place::START), async |after| {
            let Some(after) = after else {
                return Ok::<_, InspectError>(None);
            };
            let page = store.records_after(after, PAGE, clock.now()).await?;
            Ok(Some((page.records, page.next)))
        });
        let compared = pages
            .map_ok(async |records| {
                let drifts = index.compare(&records).await?;
                let drifts = drifts.into_iter();
                let drifts = drifts.filter(|(_, drift)| Kind::of(*drift).is_some());
                let suspects: Vec<Code> =
                    drifts.map(|(place, _)| records.get(place).code).collect();
                Ok((records.len() as u64, suspects))
            })
            .try_buffered(LANES);
        let mut compared = std::pin::pin!(compared);
        while let Some(page) = compared.next().await {
            let (links, suspects) = page?;
            report.links += links;
            if !suspects.is_empty() {
                let confirmed = self.inspector.confirm(suspects).await?;
                report.changing += confirmed.changing;
                for (place, drift) in confirmed.drifts.iter().enumerate() {
                    let code = confirmed.records.get(place).code;
                    report.add(Kind::of(*drift), code.as_bytes(), self.examples);
                }
                if self.repair {
                    report.repaired += self.inspector.repair(&confirmed).await?;
                }
            }
            progress(report);
        }
        Ok(())
    }

    async fn look_for_orphans(
        &self,
        report: &mut Report,
        progress: &(dyn Fn(&Report) + Sync),
    ) -> Result<(), InspectError> {
        let (sender, mut pages) = mpsc::channel::<Vec<Vec<u8>>>(MAX_PAGES);
        let scan = self.inspector.index.scan(sender);
        let look = async {
            while let Some(page) = pages.recv().await {
                report.keys += page.len() as u64;
                let orphans = self.orphans_among(page).await?;
                for (name, _) in &orphans {
                    report.add(Some(Kind::Orphan), name, self.examples);
                }
                if self.repair && !orphans.is_empty() {
                    report.repaired += self.remove(orphans).await?;
                }
                progress(report);
            }
            Ok::<_, InspectError>(())
        };
        let scan = async { scan.await.map_err(InspectError::from) };
        tokio::try_join!(scan, look)?;
        Ok(())
    }

    /// Returns the names whose records have no link.
    async fn orphans_among(
        &self,
        names: Vec<Vec<u8>>,
    ) -> Result<Vec<(Vec<u8>, Stood)>, InspectError> {
        let names = self.without_link(names).await?;
        let stood = self.inspector.index.read(&names).await?;
        let stood = names.into_iter().zip(stood);
        // A negative record is correct without a link.
        Ok(stood.filter(|(_, stood)| !is_nothing(stood)).collect())
    }

    /// Removes orphans that still have no link; returns the number of removed ones.
    async fn remove(&self, orphans: Vec<(Vec<u8>, Stood)>) -> Result<u64, InspectError> {
        let names = orphans.iter().map(|(name, _)| name.clone()).collect();
        let names = self.without_link(names).await?;
        let (have_none, have_one): (Vec<_>, Vec<_>) = orphans
            .into_iter()
            .partition(|(name, _)| names.contains(name));
        let removed = self.inspector.index.remove(&have_none).await?;
        Ok(removed + have_one.len() as u64)
    }

    /// Returns the names that are not the code of a link.
    async fn without_link(&self, names: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, InspectError> {
        let (mut codes, mut with_code, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match Code::parse(&name) {
                Ok(code) => {
                    codes.push(code);
                    with_code.push(name);
                }
                Err(_) => without.push(name),
            }
        }
        let places = self.inspector.store.codes_without_link(&codes).await?;
        without.extend(places.into_iter().map(|place| with_code[place].clone()));
        Ok(without)
    }
}

#[cfg(test)]
mod tests;
