//! The meaning of the columns of a foreign file.

use std::str::FromStr;

use anyhow::bail;
use shortlink_api::kinds::Shape;
use shortlink_api::link::LinkSettings;
use shortlink_api::members::{Member, Members};

/// The meaning of a column, by its place in [`Column::all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column(usize);

/// The columns that are no settings: their names, and those in other programs' files, as [`normal`]
/// writes names. If a file has several of them the first counts: where there is a `longUrl` the
/// `url` is something else.
const OTHERS: [(&str, &str); 23] = [
    ("code", "code shortcode slug keyword alias address"),
    (
        "url",
        "longurl originalurl destination destinationurl target targeturl url",
    ),
    (
        "created",
        "created createdat creationdate datecreated timestamp",
    ),
    ("revokedAt", ""),
    ("revision", ""),
    ("updatedAt", ""),
    ("pausedAt", ""),
    ("campaignId", ""),
    ("parameters", ""),
    ("strategy", ""),
    ("plan", ""),
    ("shortUrl", "shorturl shortlink bitlink link"),
    // From here on, see `Column::forbidding`. Each is read, whichever others the file has.
    ("banned", "banned isbanned"),
    ("bannedAt", ""),
    ("disabled", "disabled isdisabled"),
    ("disabledAt", ""),
    ("deleted", "deleted isdeleted"),
    ("deletedAt", ""),
    ("active", "active isactive"),
    ("enabled", "enabled isenabled"),
    ("password", ""),
    ("hasPassword", ""),
    ("passwordProtected", "passwordprotected ispasswordprotected"),
];

/// The name of the column for `validUntil`, and those in other programs' files.
const EXPIRES: (&str, &str) = (
    "expires",
    "expires expiresat validuntil expirationdate expirydate expirein expirationat",
);

/// The number of columns.
pub const COLUMNS: usize = OTHERS.len() + LinkSettings::MEMBERS.len();

impl Column {
    /// The code.
    pub const CODE: Self = Self(0);
    /// The target.
    pub const URL: Self = Self(1);
    /// The time of the link's creation.
    pub const CREATED: Self = Self(2);
    /// The time of its revocation.
    pub const REVOKED: Self = Self(3);
    /// Its revision.
    pub const REVISION: Self = Self(4);
    /// The time of its last change.
    pub const UPDATED: Self = Self(5);
    /// The time of its pause.
    pub const PAUSED: Self = Self(6);
    /// Its campaign.
    pub const CAMPAIGN: Self = Self(7);
    /// The values for the campaign's target, as they are in a record.
    pub const PARAMETERS: Self = Self(8);
    /// The way in which its code was chosen.
    pub const STRATEGY: Self = Self(9);
    /// The rules and the targets instead of answers, as they are in a record behind the target.
    pub const PLAN: Self = Self(10);
    /// The short URL, for files without a column for the code: next to `shortCode` a `shortUrl` adds
    /// nothing.
    pub const SHORT_URL: Self = Self(11);

    /// Every column: those above, then the settings of links.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..COLUMNS).map(Self)
    }

    /// The columns that show of which each can forbid a public link.
    pub fn forbidding() -> impl Iterator<Item = Self> {
        Self::all().take(OTHERS.len()).skip(Self::SHORT_URL.0 + 1)
    }

    /// Returns whether `false` in the column forbids a link, not `true`.
    pub fn is_permission(self) -> bool {
        matches!(self.name(), "active" | "enabled")
    }

    /// Returns whether the column is about a password.
    pub fn is_password(self) -> bool {
        self.name().to_ascii_lowercase().contains("password")
    }

    /// Returns whether at most one of two columns has a meaning.
    fn excludes(self, other: Self) -> bool {
        let both = [Self::CODE, Self::SHORT_URL];
        both.contains(&self) && both.contains(&other)
    }

    /// The columns of the settings, with their declarations.
    pub fn settings() -> impl Iterator<Item = (Self, &'static Member)> {
        Self::all().skip(OTHERS.len()).zip(LinkSettings::MEMBERS)
    }

    /// The column of a setting.
    pub fn setting(name: &str) -> Option<Self> {
        let found = Self::settings().find(|(_, member)| member.name == name);
        found.map(|(column, _)| column)
    }

    fn member(self) -> Option<&'static Member> {
        LinkSettings::MEMBERS.get(self.0.checked_sub(OTHERS.len())?)
    }

    /// Its place in [`Column::all`].
    pub fn place(self) -> usize {
        self.0
    }

    /// The form of its values.
    pub fn shape(self) -> Shape {
        let of_others = match self.0 > Self::SHORT_URL.0 {
            true => Shape::Truth,
            false => Shape::Text,
        };
        self.member().map_or(of_others, |member| member.shape)
    }

    /// The column's name.
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// Its name, and those in other programs' files.
    fn names(self) -> (&'static str, &'static str) {
        match self.member() {
            None => OTHERS[self.0],
            Some(member) if member.name == "validUntil" => EXPIRES,
            Some(member) => (member.name, ""),
        }
    }

    /// The rank of a name, as [`normal`] writes it, for the column: 0 is best.
    fn rank(self, name: &str) -> Option<usize> {
        let (own, others) = self.names();
        let rank = others.split_ascii_whitespace().position(|it| it == name);
        rank.or_else(|| normal_characters(own).eq(name.chars()).then_some(0))
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
        let column = Column::all().find(|column| column.rank(&wanted).is_some());
        let column = column.ok_or_else(|| {
            let names: Vec<&str> = Column::all().map(Column::name).collect();
            format!("must begin with one of {}", names.join(", "))
        })?;
        Ok(Self {
            column,
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
        Column::all().find_map(|column| {
            let is_replaced = |it: &Assignment| {
                it.column == column || !it.name.is_empty() && it.column.excludes(column)
            };
            if self.assigned.iter().any(is_replaced) {
                return None;
            }
            let rank = column.rank(&normal)?;
            Some((column, rank))
        })
    }

    /// Finds the columns in a file with a header: the place of each of [`Column::all`].
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
        if best[Column::CODE.place()].is_some() {
            best[Column::SHORT_URL.place()] = None;
        }
        let code = best[Column::CODE.place()].or(best[Column::SHORT_URL.place()]);
        for (column, found) in [
            (Column::CODE, code),
            (Column::URL, best[Column::URL.place()]),
        ] {
            if found.is_none() {
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

/// The columns of a file, or the members of its rows, by the names that they have there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The names with a meaning.
    pub read: Vec<(String, Column)>,
    /// The others.
    pub ignored: Vec<String>,
}

impl Found {
    /// The lines that list them.
    pub fn lines(&self, file: &str) -> impl Iterator<Item = String> {
        let read = self
            .read
            .iter()
            .map(|(name, column)| match name == column.name() {
                true => name.clone(),
                false => format!("{} ({})", name.escape_debug(), column.name()),
            });
        let ignored = self.ignored.iter().map(|name| match &**name {
            "" => "(no name)".to_owned(),
            name => name.escape_debug().to_string(),
        });
        let lists = [
            ("read", read.collect::<Vec<_>>()),
            ("ignored", ignored.collect()),
        ];
        lists
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(move |(what, names)| format!("{file}: columns {what}: {}", names.join(", ")))
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
        (!is_none || column == Column::CODE && !text.is_empty()).then_some(text)
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
            (&[], "code,url,, ,_", 0, 1, None, None),
        ] {
            let places = names(assigned).places(&header(text)).expect(text);
            let until = Column::setting("validUntil").expect("a setting");
            let columns = [Column::CODE, Column::URL, Column::CREATED, until];
            let found = columns.map(|column| places[column.place()]);
            assert_eq!(found, [Some(code), Some(url), created, expires], "{text}");
        }
    }

    #[test]
    fn a_short_url_counts_only_without_a_code() {
        for (assigned, text, code, short_url) in [
            (&[][..], "link,long_url,url", None, Some(0)),
            (&[], "shortUrl,shortCode,url", Some(1), None),
            (&["shortUrl=id"], "id,code,url", None, Some(0)),
            (&["code="], "code,link,url", None, Some(1)),
            (&["code=id"], "id,link,url", Some(0), None),
        ] {
            let places = names(assigned).places(&header(text)).expect(text);
            let found = [Column::CODE, Column::SHORT_URL].map(|column| places[column.place()]);
            assert_eq!(found, [code, short_url], "{text}");
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
            cells.set(Column::CREATED, text.as_bytes());
            assert_eq!(cells.get(Column::CREATED), found.map(str::as_bytes));
        }
        cells.clear();
        assert_eq!(cells.get(Column::CODE), None);
        cells.set(Column::CODE, b"Null");
        assert_eq!(cells.get(Column::CODE), Some(&b"Null"[..]));
    }
}
