//! The meaning of the columns of a foreign file.

use std::str::FromStr;

use anyhow::bail;
use shortlink_api::kinds::Shape;
use shortlink_api::link::LinkSettings;
use shortlink_api::members::Members;

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The code, or a short URL that ends with it.
    Code,
    /// The target.
    Url,
    /// The time of the link's creation.
    Created,
    /// The time of its revocation.
    Revoked,
    /// Its revision.
    Revision,
    /// The time of its last change.
    Updated,
    /// The time of its pause.
    Paused,
    /// Its campaign.
    Campaign,
    /// The values for the campaign's target, as they are in a record.
    Parameters,
    /// One of its settings, by its place in [`LinkSettings::MEMBERS`].
    Setting(usize),
}

/// The columns that are no settings.
const OTHERS: [Column; 9] = [
    Column::Code,
    Column::Url,
    Column::Created,
    Column::Revoked,
    Column::Revision,
    Column::Updated,
    Column::Paused,
    Column::Campaign,
    Column::Parameters,
];

/// The number of columns.
pub const COLUMNS: usize = Column::ALL.len();

impl Column {
    /// Every column.
    pub const ALL: [Self; OTHERS.len() + LinkSettings::MEMBERS.len()] = {
        let mut all = [Self::Code; OTHERS.len() + LinkSettings::MEMBERS.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = match place.checked_sub(OTHERS.len()) {
                None => OTHERS[place],
                Some(setting) => Self::Setting(setting),
            };
            place += 1;
        }
        all
    };

    /// The column of a setting.
    pub fn setting(name: &str) -> Option<Self> {
        let mut settings = LinkSettings::MEMBERS.iter();
        let place = settings.position(|member| member.name == name)?;
        Some(Self::Setting(place))
    }

    /// Its place in [`Column::ALL`].
    pub fn place(self) -> usize {
        match self {
            Self::Setting(place) => OTHERS.len() + place,
            other => OTHERS
                .iter()
                .position(|it| *it == other)
                .unwrap_or_default(),
        }
    }

    /// The form of its values.
    pub fn shape(self) -> Shape {
        match self {
            Self::Setting(place) => LinkSettings::MEMBERS[place].shape,
            _ => Shape::Text,
        }
    }

    /// The names, for messages that list the allowed ones.
    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Url => "url",
            Self::Created => "created",
            Self::Revoked => "revokedAt",
            Self::Revision => "revision",
            Self::Updated => "updatedAt",
            Self::Paused => "pausedAt",
            Self::Campaign => "campaignId",
            Self::Parameters => "parameters",
            Self::Setting(place) => match LinkSettings::MEMBERS[place].name {
                "validUntil" => "expires",
                name => name,
            },
        }
    }

    /// The names in other programs' files, as [`normal`] writes names, for columns that have
    /// several. If a file has several of them the first counts: next to `shortCode` a `shortUrl`
    /// adds nothing, and where there is a `longUrl` the `url` is something else.
    fn synonyms(self) -> &'static [&'static str] {
        match self.name() {
            "code" => &[
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
            "url" => &[
                "longurl",
                "originalurl",
                "destination",
                "destinationurl",
                "target",
                "targeturl",
                "url",
            ],
            "created" => &[
                "created",
                "createdat",
                "creationdate",
                "datecreated",
                "timestamp",
            ],
            "expires" => &[
                "expires",
                "expiresat",
                "validuntil",
                "expirationdate",
                "expirydate",
            ],
            _ => &[],
        }
    }

    /// The rank of a name, as [`normal`] writes it, for the column: 0 is best.
    fn rank(self, name: &str) -> Option<usize> {
        if normal_characters(self.name()).eq(name.chars()) {
            let own = self.synonyms().iter().position(|&it| it == name);
            return own.or(Some(0));
        }
        self.synonyms().iter().position(|&it| it == name)
    }
}

/// A name in the one spelling in which names are compared: `Long URL`, `long_url` and `longUrl` are
/// the same.
fn normal(name: &str) -> String {
    normal_characters(name).collect()
}

fn normal_characters(name: &str) -> impl Iterator<Item = char> {
    let characters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    characters.flat_map(char::to_lowercase)
}

/// The meaning of a column as the user assigns it: `code=keyword`, or `created=` for a column that
/// is to be left out.
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
        let mut columns = Column::ALL.into_iter();
        let column = columns.find(|column| column.rank(&wanted).is_some());
        Ok(Self {
            column: column.ok_or_else(|| format!("must begin with one of {}", Column::names()))?,
            name: name.trim().to_owned(),
        })
    }
}

/// Identifies columns by their names.
#[derive(Clone, Debug, Default)]
pub struct Names {
    assigned: Vec<Assignment>,
}

impl Names {
    /// Takes the user's assignments, the last one for each column.
    pub fn new(assigned: Vec<Assignment>) -> Self {
        Self { assigned }
    }

    /// The meaning of a name, and its rank: 0 is best.
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
            let rank = column.rank(&normal)?;
            Some((column, rank))
        })
    }

    /// Finds the columns in a file with a header: the place of each of [`Column::ALL`].
    ///
    /// # Errors
    /// Fails when the code or the target is missing, or two columns are equally good.
    pub fn places(&self, header: &[String]) -> anyhow::Result<[Option<usize>; COLUMNS]> {
        let mut best: [Option<(usize, usize)>; COLUMNS] = [None; COLUMNS];
        for (place, name) in header.iter().enumerate() {
            let Some((column, rank)) = self.meaning(name) else {
                continue;
            };
            let best = &mut best[column.place()];
            match best {
                Some((standing, _)) if *standing == rank => {
                    bail!("two columns are called {name:?}; name the right one with --map")
                }
                Some((standing, _)) if *standing < rank => {}
                _ => *best = Some((rank, place)),
            }
        }
        let has = header.join(", ");
        for Assignment { column, name } in &self.assigned {
            if best[column.place()].is_none() && !name.is_empty() {
                bail!("there is no column {name:?}; the file has: {has}");
            }
        }
        for column in [Column::Code, Column::Url] {
            if best[column.place()].is_none() {
                let column = column.name();
                bail!(
                    "no column is known to be the {column}; the file has: {has}. Name it with \
                     --map {column}=NAME"
                );
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
        self.spans[column.place()] = Some((start, self.text.len()));
    }

    /// A cell's text without surrounding white space; `None` if it is empty or a database's
    /// notation for null.
    pub fn get(&self, column: Column) -> Option<&[u8]> {
        let (start, end) = self.spans[column.place()]?;
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
            let until = Column::setting("validUntil").expect("a setting");
            let columns = [Column::Code, Column::Url, Column::Created, until];
            let found = columns.map(|column| places[column.place()]);
            assert_eq!(found, [Some(code), Some(url), created, expires], "{text}");
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
