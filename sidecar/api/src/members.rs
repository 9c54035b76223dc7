//! Declares the members of an object once.

use std::marker::PhantomData;

use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fields::{Fields, Read};
use super::kinds::{Kind, Shape, Shown};
use super::schema::or_null;
use super::words;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Creation.
    New,
    /// A change of some members.
    Patch,
}

/// The meaning of `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Null {
    /// The member is removed.
    Removes,
    /// The default in a request that creates; else a fault.
    IsDefault,
    /// A fault.
    IsRefused,
}

/// A member as data.
#[derive(Clone, Copy)]
pub struct Member {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its documentation, as the declaration has it.
    about: &'static str,
    /// The meaning of `null`.
    pub null: Null,
    /// Its form in CSV and on the command line.
    pub shape: Shape,
    /// Its allowed values, separated by commas, where a command lists them.
    choices: &'static str,
    /// The name of its option on the command line, where that is not its own.
    option: Option<&'static str>,
    schema: fn(&mut SchemaGenerator) -> Value,
}

impl Member {
    /// Assembles a row of [`members!`](crate::members::members).
    pub const fn new<R: Rule>(
        name: &'static str,
        option: Option<&'static str>,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            about,
            null: R::NULL,
            shape: R::Kind::SHAPE,
            choices: R::Kind::CHOICES,
            option,
            schema: R::Kind::schema,
        }
    }

    /// Its documentation.
    pub fn about(&self) -> String {
        self.about.trim().to_owned()
    }

    /// The name of its option on the command line.
    pub fn option(&self) -> String {
        self.option.map_or_else(|| self.kebab(), str::to_owned)
    }

    /// Its allowed values, where a command lists them.
    pub fn choices(&self) -> impl Iterator<Item = &'static str> + use<> {
        words::split(self.choices).filter(|choice| !choice.is_empty())
    }

    /// Its name in the style of the command line, such as `valid-since`.
    pub fn kebab(&self) -> String {
        words_of(self.name, '-')
    }

    /// Its name as text, such as `valid since`.
    pub fn label(&self) -> String {
        words_of(self.name, ' ')
    }

    /// Returns whether a request can remove it.
    pub fn is_removable(&self) -> bool {
        self.null == Null::Removes
    }

    /// Its schema in a request.
    pub fn schema(&self, generator: &mut SchemaGenerator, usage: Usage) -> Value {
        let mut schema = (self.schema)(generator);
        let is_nullable = match self.null {
            Null::Removes => true,
            Null::IsDefault => usage == Usage::New,
            Null::IsRefused => false,
        };
        if is_nullable {
            schema = or_null(schema);
        }
        schema["description"] = json!(self.about());
        schema
    }
}

/// Splits a name such as `validSince` into words.
fn words_of(name: &str, separator: char) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            words.push(separator);
        }
        words.push(character.to_ascii_lowercase());
    }
    words
}

/// The rule by which a member is present in requests, values and answers.
pub trait Rule {
    /// The kind of its value.
    type Kind: Kind;
    /// The value as a request specifies it.
    type Given: Default;
    /// The meaning of `null`.
    const NULL: Null;

    /// Converts the outcome of reading.
    fn given(read: Read<<Self::Kind as Kind>::Value>) -> Self::Given;
}

/// The rule of a member that answers contain as well.
pub trait ShownRule: Rule {
    /// The type of the member in the core.
    type Held;
    /// The member in an answer.
    type Shown: Serialize + JsonSchema;

    /// Converts the member for an answer.
    fn show(held: &Self::Held) -> Self::Shown;
}

/// A member that can be absent: `null` removes it.
pub struct Optional<K>(PhantomData<K>);

impl<K: Kind> Rule for Optional<K> {
    type Kind = K;
    type Given = Option<Option<K::Value>>;
    const NULL: Null = Null::Removes;

    fn given(read: Read<K::Value>) -> Self::Given {
        match read {
            Read::Absent => None,
            Read::Null => Some(None),
            Read::Value(value) => Some(Some(value)),
        }
    }
}

impl<K: Shown> ShownRule for Optional<K> {
    type Held = Option<K::Value>;
    type Shown = Option<K::Shown>;

    fn show(held: &Self::Held) -> Self::Shown {
        held.as_ref().map(K::show)
    }
}

/// A member that is always present, if only as a default.
pub struct Always<K>(PhantomData<K>);

impl<K: Kind> Rule for Always<K> {
    type Kind = K;
    type Given = Option<K::Value>;
    const NULL: Null = Null::IsDefault;

    fn given(read: Read<K::Value>) -> Self::Given {
        read.value()
    }
}

impl<K: Shown> ShownRule for Always<K> {
    type Held = K::Value;
    type Shown = K::Shown;

    fn show(held: &Self::Held) -> Self::Shown {
        K::show(held)
    }
}

/// A member that has no default.
pub struct Required<K>(PhantomData<K>);

impl<K: Kind> Rule for Required<K> {
    type Kind = K;
    type Given = Option<K::Value>;
    const NULL: Null = Null::IsRefused;

    fn given(read: Read<K::Value>) -> Self::Given {
        read.value()
    }
}

/// A list or an object that is always present; `null` empties it.
pub struct Emptied<K>(PhantomData<K>);

impl<K: Kind<Value: Default>> Rule for Emptied<K> {
    type Kind = K;
    type Given = Option<K::Value>;
    const NULL: Null = Null::Removes;

    fn given(read: Read<K::Value>) -> Self::Given {
        match read {
            Read::Absent => None,
            Read::Null => Some(K::Value::default()),
            Read::Value(value) => Some(value),
        }
    }
}

impl<K: Shown<Value: Default>> ShownRule for Emptied<K> {
    type Held = K::Value;
    type Shown = K::Shown;

    fn show(held: &Self::Held) -> Self::Shown {
        K::show(held)
    }
}

/// Reads a member by its rule.
pub fn read<R: Rule>(fields: &mut Fields, name: &str, usage: Usage) -> R::Given {
    let read = fields.read::<R::Kind>(name);
    if matches!(read, Read::Null)
        && (R::NULL == Null::IsRefused || R::NULL == Null::IsDefault && usage == Usage::Patch)
    {
        fields.refuse(name, R::Kind::NOT_NULL);
    }
    R::given(read)
}

/// Members that were declared together.
pub trait Members: Sized {
    /// Each of them.
    const MEMBERS: &'static [Member];

    /// Reads them.
    fn read(fields: &mut Fields, usage: Usage) -> Self;
}

/// Declares members: a table with one row per member, `field: Rule<Kind> = "name in JSON"`, with
/// its documentation, and the name of its command-line option if that differs.
///
/// Generates the struct that a request specifies and its [`Members`]. `shown as Body of Thing` also
/// generates the struct for answers, and `given as Change` the conversion of a request to a change of the
/// thing, whose fields have the same names.
macro_rules! members {
    (
        $(#[$about_all:meta])*
        $vis:vis struct $Given:ident {
            $( $(#[doc = $about:literal])+ $field:ident: $Rule:ty = $name:literal $(as $option:literal)?, )*
        }
        $(#[$about_shown:meta])*
        shown as $Body:ident, named $title:literal, of $Thing:ty; given as $Change:ty
    ) => {
        $crate::members::members! {
            $(#[$about_all])*
            $vis struct $Given {
                $( $(#[doc = $about])+ $field: $Rule = $name $(as $option)?, )*
            }
        }

        impl From<$Given> for $Change {
            fn from(given: $Given) -> Self {
                Self {
                    $( $field: given.$field, )*
                    ..Self::default()
                }
            }
        }

        $(#[$about_shown])*
        #[derive(serde::Serialize, schemars::JsonSchema)]
        #[schemars(rename = $title)]
        $vis struct $Body {
            $(
                $(#[doc = $about])+
                #[serde(rename = $name)]
                pub $field: <$Rule as $crate::members::ShownRule>::Shown,
            )*
        }

        impl $Body {
            /// Builds the members of an answer.
            $vis fn of(thing: &$Thing) -> Self {
                Self {
                    $( $field: <$Rule as $crate::members::ShownRule>::show(&thing.$field), )*
                }
            }
        }
    };
    (
        $(#[$about_all:meta])*
        $vis:vis struct $Given:ident {
            $( $(#[doc = $about:literal])+ $field:ident: $Rule:ty = $name:literal $(as $option:literal)?, )*
        }
    ) => {
        $(#[$about_all])*
        $vis struct $Given {
            $( $(#[doc = $about])+ pub $field: <$Rule as $crate::members::Rule>::Given, )*
        }

        impl $crate::members::Members for $Given {
            const MEMBERS: &'static [$crate::members::Member] = &[
                $(
                    $crate::members::Member::new::<$Rule>(
                        $name,
                        $crate::members::members!(@option $($option)?),
                        concat!($($about),+),
                    ),
                )*
            ];

            fn read(
                fields: &mut $crate::fields::Fields,
                usage: $crate::members::Usage,
            ) -> Self {
                Self {
                    $( $field: $crate::members::read::<$Rule>(fields, $name, usage), )*
                }
            }
        }
    };
    (@option) => { None };
    (@option $option:literal) => { Some($option) };
}
pub(crate) use members;

/// The schema of an object: its members, and the names of those that it requires.
pub fn object(
    generator: &mut SchemaGenerator,
    usage: Usage,
    tables: &[&[Member]],
    required: &[&str],
) -> Value {
    let members = tables.iter().copied().flatten();
    let schema = |member: &Member| (member.name.to_owned(), member.schema(generator, usage));
    let properties: Map<String, Value> = members.map(schema).collect();
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Declares a type that represents the schema of a request: its required members, and all members.
#[macro_export]
macro_rules! request {
    (
        $(#[doc = $text:literal])*
        $vis:vis $name:ident: $usage:ident, required $required:expr, of $($members:ty),+
    ) => {
        $(#[doc = $text])*
        $vis enum $name {}

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                use $crate::members::{Members, Usage};

                let tables = [$(<$members as Members>::MEMBERS),+];
                let schema = $crate::members::object(generator, Usage::$usage, &tables, &$required);
                let about = concat!($($text),*).trim();
                let mut schema = schemars::Schema::try_from(schema).unwrap_or_default();
                schema.insert("description".to_owned(), about.into());
                schema
            }
        }
    };
}
pub use request;
