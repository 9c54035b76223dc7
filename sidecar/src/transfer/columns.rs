//! Which column of a foreign file means what.

use std::str::FromStr;

/// What a column can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The code, or a short URL that ends with it.
    Code,
    /// The target.
    Url,
    /// When the link was made.
    Created,
    /// From when on it leads nowhere.
    Expires,
    /// How it redirects.
    RedirectStatus,
    /// When it was revoked.
    Revoked,
    /// Its revision.
    Revision,
    /// When it was changed last.
    Updated,
    /// From when on it redirects.
    ValidSince,
    /// Whether the visitor's query is appended.
    ForwardQuery,
    /// After about how many visits it ends.
    MaxVisits,
    /// Since when it is paused.
    Paused,
    /// What the caller calls it.
    ExternalId,
    /// What people want to remember of it.
    Note,
    /// What it is found by: parted by `|`, or as a JSON list.
    Tags,
    /// The campaign that it belongs to.
    Campaign,
    /// The values for the campaign's target, as they stand in a record.
    Parameters,
}

/// How many columns there are.
pub const COLUMNS: usize = Column::ALL.len();

impl Column {
    /// Every column.
    pub const ALL: [Self; 17] = [
        Self::Code,
        Self::Url,
        Self::Created,
        Self::Expires,
        Self::RedirectStatus,
        Self::Revoked,
        Self::Revision,
        Self::Updated,
        Self::ValidSince,
        Self::ForwardQuery,
        Self::MaxVisits,
        Self::Paused,
        Self::ExternalId,
        Self::Note,
        Self::Tags,
        Self::Campaign,
        Self::Parameters,
    ];

    /// The names, for messages that list what is allowed.
    pub const NAMES: &'static str = "code, url, created, expires, redirectStatus, revokedAt, revision, updatedAt, validSince, \
         forwardQuery, maxVisits, pausedAt, externalId, note, tags, campaignId, parameters";

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Url => "url",
            Self::Created => "created",
            Self::Expires => "expires",
            Self::RedirectStatus => "redirectStatus",
            Self::Revoked => "revokedAt",
            Self::Revision => "revision",
            Self::Updated => "updatedAt",
            Self::ValidSince => "validSince",
            Self::ForwardQuery => "forwardQuery",
            Self::MaxVisits => "maxVisits",
            Self::Paused => "pausedAt",
            Self::ExternalId => "externalId",
            Self::Note => "note",
            Self::Tags => "tags",
            Self::Campaign => "campaignId",
            Self::Parameters => "parameters",
        }
    }

    /// What files call it, as [`normal`] writes names. If a file has several of them the first
    /// counts: next to `shortCode` a `shortUrl` says nothing more, and where there is a `longUrl` the
    /// `url` is something else.
    fn synonyms(self) -> &'static [&'static str] {
        match self {
            Self::Code => &[
                "code",
                "shortcode",
                "slug",
                "keyword",
                "alias",
                "shorturl",
                "shortlink",
                "bitlink",
                "link",
            ],
            Self::Url => &[
                "longurl",
                "originalurl",
                "destination",
                "destinationurl",
                "target",
                "targeturl",
                "url",
            ],
            Self::Created => &[
                "created",
                "createdat",
                "creationdate",
                "datecreated",
                "timestamp",
            ],
            Self::Expires => &[
                "expires",
                "expiresat",
                "validuntil",
                "expirationdate",
                "expirydate",
            ],
            Self::RedirectStatus => &["redirectstatus"],
            Self::Revoked => &["revokedat"],
            Self::Revision => &["revision"],
            Self::Updated => &["updatedat"],
            Self::ValidSince => &["validsince"],
            Self::ForwardQuery => &["forwardquery"],
            Self::MaxVisits => &["maxvisits"],
            Self::Paused => &["pausedat"],
            Self::ExternalId => &["externalid"],
            Self::Note => &["note"],
            Self::Tags => &["tags"],
            Self::Campaign => &["campaignid"],
            Self::Parameters => &["parameters"],
        }
    }
}

/// A name in the one spelling in which names are compared: `Long URL`, `long_url` and `longUrl` are
/// the same.
fn normal(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// What somebody says that one column of their file means: `code=keyword`, or `created=` for a
/// column that is to be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    column: Column,
    name: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (column, name) = text
            .split_once('=')
            .ok_or("must be like code=keyword".to_owned())?;
        let wanted = normal(column);
        let column = Column::ALL.into_iter().find(|column| {
            normal(column.name()) == wanted || column.synonyms().contains(&&*wanted)
        });
        Ok(Self {
            column: column.ok_or_else(|| format!("must begin with one of {}", Column::NAMES))?,
            name: name.trim().to_owned(),
        })
    }
}

/// Finds out what columns mean.
#[derive(Clone, Debug, Default)]
pub struct Names {
    assigned: Vec<Assignment>,
}

/// Why the columns of a file can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// No column is known to be this one.
    #[error(
        "no column is known to be the {}; the file has: {has}. Name it with --map {}=NAME",
        .column.name(), .column.name()
    )]
    Missing {
        /// Which one.
        column: Column,
        /// The names that there are.
        has: String,
    },
    /// A column was named that is not there.
    #[error("there is no column {name:?}; the file has: {has}")]
    Absent {
        /// The name.
        name: String,
        /// The names that there are.
        has: String,
    },
    /// Two columns have one name.
    #[error("two columns are called {name:?}; name the right one with --map")]
    Twice {
        /// The name.
        name: String,
    },
}

impl Names {
    /// Takes what somebody says, the last word on each column.
    pub fn new(assigned: Vec<Assignment>) -> Self {
        Self { assigned }
    }

    /// What a name means, and how well it says so: with 0 best.
    pub fn meaning(&self, name: &str) -> Option<(Column, usize)> {
        let name = name.trim();
        let named = self
            .assigned
            .iter()
            .find(|it| it.name == name || normal(&it.name) == normal(name));
        if let Some(named) = named
            && !name.is_empty()
        {
            return Some((named.column, 0));
        }
        let normal = normal(name);
        Column::ALL.into_iter().find_map(|column| {
            if self.assigned.iter().any(|it| it.column == column) {
                return None;
            }
            let rank = column.synonyms().iter().position(|&it| it == normal)?;
            Some((column, rank))
        })
    }

    /// Where the columns are in a file with a header: for each of [`Column::ALL`], its place.
    ///
    /// # Errors
    /// When the code or the target is missing, or it can't be said which column is meant.
    pub fn places(&self, header: &[String]) -> Result<[Option<usize>; COLUMNS], ColumnsError> {
        let mut best: [Option<(usize, usize)>; COLUMNS] = [None; COLUMNS];
        for (place, name) in header.iter().enumerate() {
            let Some((column, rank)) = self.meaning(name) else {
                continue;
            };
            let best = &mut best[column as usize];
            match best {
                Some((standing, _)) if *standing == rank => {
                    return Err(ColumnsError::Twice { name: name.clone() });
                }
                Some((standing, _)) if *standing < rank => {}
                _ => *best = Some((rank, place)),
            }
        }
        let has = || header.join(", ");
        for Assignment { column, name } in &self.assigned {
            if best[*column as usize].is_none() && !name.is_empty() {
                return Err(ColumnsError::Absent {
                    name: name.clone(),
                    has: has(),
                });
            }
        }
        for column in [Column::Code, Column::Url] {
            if best[column as usize].is_none() {
                return Err(ColumnsError::Missing { column, has: has() });
            }
        }
        Ok(best.map(|best| best.map(|(_, place)| place)))
    }
}

/// The cells of a row that mean something, as the file has them.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    text: Vec<u8>,
    spans: [Option<(usize, usize)>; COLUMNS],
}

impl Cells {
    /// Forgets all cells.
    pub fn clear(&mut self) {
        self.text.clear();
        self.spans = [None; COLUMNS];
    }

    /// Fills a cell.
    pub fn set(&mut self, column: Column, text: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        self.spans[column as usize] = Some((start, self.text.len()));
    }

    /// A cell's text without white space around it; `None` for one that has none, or what databases
    /// write for none.
    pub fn get(&self, column: Column) -> Option<&[u8]> {
        let (start, end) = self.spans[column as usize]?;
        let text = self.text[start..end].trim_ascii();
        let is_none = text.is_empty() || text == b"\\N" || text.eq_ignore_ascii_case(b"null");
        // `null` is a code, if an odd one.
        (!is_none || column == Column::Code && !text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    fn names(assigned: &[&str]) -> Names {
        let assigned = assigned.iter().map(|it| it.parse().expect("an assignment"));
        Names::new(assigned.collect())
    }

    #[test]
    fn columns_are_found_by_their_common_names() {
        for (assigned, text, code, url, created, expires) in [
            (&[][..], "code,url", 0, 1, None, None),
            (
                &[],
                "keyword,url,title,timestamp,ip,clicks",
                0,
                1,
                Some(3),
                None,
            ),
            (
                &[],
                "Created_At,Long URL,Short-Code,VALID_UNTIL",
                2,
                1,
                Some(0),
                Some(3),
            ),
            (
                &[],
                "createdAt,shortUrl,longUrl,shortCode,title",
                3,
                2,
                Some(0),
                None,
            ),
            (&[], "link,long_url,url", 0, 1, None, None),
            (&[], "SLUG,destination,expires", 0, 1, None, Some(2)),
            (
                &["code=id", "url=dest"],
                "id,dest,code,url",
                0,
                1,
                None,
                None,
            ),
            (&["created="], "code,url,created", 0, 1, None, None),
            (&["longUrl=b"], " a ,b, code", 2, 1, None, None),
        ] {
            let places = names(assigned).places(&header(text)).expect(text);
            assert_eq!(
                places[..4],
                [Some(code), Some(url), created, expires],
                "{text}"
            );
        }
    }

    #[test]
    fn columns_that_are_missing_or_ambiguous_are_named() {
        for (assigned, text, said) in [
            (&[][..], "code,title", "no column is known to be the url"),
            (&[], "long_url", "no column is known to be the code"),
            (&[], "", "the file has: ."),
            (&[], "code,url,Code", "two columns are called \"Code\""),
            (&["code=x"], "code,url", "there is no column \"x\""),
            (&["url="], "code,url", "no column is known to be the url"),
        ] {
            let error = names(assigned).places(&header(text)).expect_err(text);
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
        assert!("code".parse::<Assignment>().is_err());
        assert!("nothing=code".parse::<Assignment>().is_err());
    }

    #[test]
    fn what_databases_write_for_nothing_is_nothing() {
        let mut cells = Cells::default();
        for (text, found) in [
            ("", None),
            ("  ", None),
            ("NULL", None),
            ("\\N", None),
            (" a ", Some("a")),
        ] {
            cells.clear();
            cells.set(Column::Created, text.as_bytes());
            assert_eq!(cells.get(Column::Created), found.map(str::as_bytes));
        }
        cells.clear();
        assert_eq!(cells.get(Column::Code), None);
        cells.set(Column::Code, b"Null");
        assert_eq!(cells.get(Column::Code), Some(&b"Null"[..]));
    }
}
