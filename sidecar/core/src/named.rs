//! Enumerations whose values have names.

/// No value of an enumeration has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} {name:?}; allowed are {allowed}")]
pub struct UnknownName {
    /// The kind of the values.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// The names that exist.
    pub allowed: &'static str,
}

/// Defines an enumeration as a table of its values and their names, which texts, JSON and the
/// store have. Before the table stands what a message calls a value.
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])*
        pub enum $Enum:ident: $what:literal {
            $(#[$doc:meta])*
            $First:ident = $first:literal,
            $($(#[$docs:meta])* $Value:ident = $name:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Enum {
            $(#[$doc])*
            $First,
            $($(#[$docs])* $Value,)*
        }

        impl $Enum {
            /// Every value, in the order in which they are shown.
            pub const ALL: [Self; [$first, $($name),*].len()] = [Self::$First, $(Self::$Value),*];

            /// The names, for messages that list what is allowed.
            pub const NAMES: &'static str = concat!($first, $(", ", $name),*);

            /// The value's name.
            pub fn name(self) -> &'static str {
                match self {
                    Self::$First => $first,
                    $(Self::$Value => $name,)*
                }
            }

            /// The value with a name.
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $Enum {
            type Err = $crate::named::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                Self::by_name(name).ok_or_else(|| $crate::named::UnknownName {
                    what: $what,
                    name: name.to_owned(),
                    allowed: Self::NAMES,
                })
            }
        }

        impl serde::Serialize for $Enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}
