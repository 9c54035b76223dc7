//! Click ids: one for each visit, appended to the target, which reports conversions with it.
//!
//! An id has 128 bits that cannot be guessed. Its text is their base64url form without padding: 22 characters.

use crate::siphash::siphash24;

/// The number of characters of an id.
pub const CLICK_ID_LENGTH: usize = 22;

/// The characters of base64url, in the order of their values.
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The id of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClickId(pub [u8; 16]);

impl ClickId {
    /// The id as it stands in a target.
    pub fn to_text(self) -> [u8; CLICK_ID_LENGTH] {
        // Four bits of zero at the end.
        let number = u128::from_be_bytes(self.0);
        core::array::from_fn(|place| {
            let value = match place {
                21 => number << 4,
                place => number >> (122 - 6 * place),
            };
            CHARACTERS[(value & 63) as usize]
        })
    }

    /// Reads an id; `None` if the text is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != CLICK_ID_LENGTH {
            return None;
        }
        let mut number = 0u128;
        for (place, byte) in text.iter().enumerate() {
            let value = CHARACTERS.iter().position(|it| it == byte)? as u128;
            number = match place {
                21 if value & 15 != 0 => return None,
                21 => number << 2 | value >> 4,
                _ => number << 6 | value,
            };
        }
        Some(Self(number.to_be_bytes()))
    }
}

impl core::fmt::Display for ClickId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.to_text()
            .iter()
            .try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

/// Makes ids without I/O: a keyed function of a counter, whose values cannot be predicted without the keys.
#[derive(Clone)]
pub struct ClickIds {
    keys: [[u8; 16]; 2],
    next: u64,
}

impl ClickIds {
    /// Begins with two random keys, which no other maker has.
    pub fn new(keys: [[u8; 16]; 2]) -> Self {
        Self { keys, next: 0 }
    }

    /// Makes an id.
    pub fn make(&mut self) -> ClickId {
        let count = self.next.to_le_bytes();
        self.next = self.next.wrapping_add(1);
        let [high, low] = self.keys.each_ref().map(|key| siphash24(key, &count));
        ClickId((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}

/// The keys are secret.
impl core::fmt::Debug for ClickIds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ClickIds").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for (bytes, text) in [
            ([0; 16], "AAAAAAAAAAAAAAAAAAAAAA"),
            ([0xff; 16], "_____________________w"),
            (
                core::array::from_fn(|place| place as u8),
                "AAECAwQFBgcICQoLDA0ODw",
            ),
        ] {
            let id = ClickId(bytes);
            assert_eq!(id.to_text(), text.as_bytes());
            assert_eq!(ClickId::parse(text.as_bytes()), Some(id));
        }
        for text in [
            "",
            "AAECAwQFBgcICQoLDA0OD",
            "AAECAwQFBgcICQoLDA0ODwA",
            "AAECAwQFBgcICQoLDA0ODx",
            "AAECAwQFBgcICQoLDA0OD+",
        ] {
            assert_eq!(ClickId::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn ids_of_other_keys_and_counts_differ() {
        let (mut one, mut other) = (
            ClickIds::new([[1; 16], [2; 16]]),
            ClickIds::new([[1; 16], [3; 16]]),
        );
        let mut ids: Vec<ClickId> = (0..1000).flat_map(|_| [one.make(), other.make()]).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 2000);
    }
}
