//! Uploads: links that one batch has created.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The id of an upload. All links of a batch carry it, also of one that is sent in several requests.
///
/// It has 63 bits, so that every database stores it as a number, and is written as 16 hexadecimal digits. It is not
/// secret, and names no row of a table: an upload exists as long as it has links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UploadId(u64);

impl UploadId {
    /// The largest number.
    const LARGEST: u64 = u64::MAX >> 1;

    /// The id with a number, whose highest bit is ignored.
    pub fn new(number: u64) -> Self {
        Self(number & Self::LARGEST)
    }

    /// The id of a request with an idempotency key. All its repetitions have the same.
    pub fn of_request(key_id: &str, idempotency_key: &str) -> Self {
        let mut hash = Sha256::new();
        // No id of an API key has a space.
        for part in ["upload ", key_id, " ", idempotency_key] {
            hash.update(part.as_bytes());
        }
        let mut number = [0; 8];
        number.copy_from_slice(&hash.finalize()[..8]);
        Self::new(u64::from_be_bytes(number))
    }

    /// The number, below 2^63.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not the id of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not the id of an upload: 16 hexadecimal digits in lower case, the first of them below 8"
)]
pub struct UploadIdError;

impl FromStr for UploadId {
    type Err = UploadIdError;

    fn from_str(text: &str) -> Result<Self, UploadIdError> {
        let number = u64::from_str_radix(text, 16).map_err(|_invalid| UploadIdError)?;
        let id = Self::new(number);
        // Only one text stands for an id.
        (id.to_string() == text).then_some(id).ok_or(UploadIdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_text() {
        for number in [0, 1, 0x7fff_ffff_ffff_ffff] {
            let id = UploadId::new(number);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!(UploadId::new(u64::MAX).to_string(), "7fffffffffffffff");
        for text in [
            "",
            "1",
            "000000000000000A",
            "8000000000000000",
            "+000000000000001",
            "00000000000000001",
        ] {
            assert_eq!(text.parse::<UploadId>(), Err(UploadIdError), "{text}");
        }
    }

    #[test]
    fn repetitions_of_a_request_have_one_id_and_other_requests_another() {
        let id = UploadId::of_request("key", "a");
        assert_eq!(id, UploadId::of_request("key", "a"));
        assert_ne!(id, UploadId::of_request("key", "b"));
        assert_ne!(id, UploadId::of_request("other", "a"));
    }
}
