//! Slots of a Redis Cluster.
//!
//! Source: the Redis Cluster specification.

use crate::number::push_decimal;

/// The number of slots.
pub const SLOTS: u16 = 16384;

/// CRC-16/XMODEM, by the next byte.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Continues a checksum by more bytes.
pub fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, byte| {
        (crc << 8) ^ CRC[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// The slot of keys with a number for a hash tag: of such a key only the tag is hashed.
pub fn slot_of_tag(tag: u16) -> u16 {
    let mut digits = alloc::vec::Vec::new();
    push_decimal(&mut digits, u64::from(tag));
    crc16(0, &digits) % SLOTS
}

/// The slot of a key: of one with a hash tag only that is hashed.
pub fn slot_of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    crc16(0, tag.unwrap_or(key)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_of_the_specification() {
        assert_eq!(slot_of_key(b"123456789"), 0x31C3);
        let tagged = slot_of_key(b"{user1000}.following");
        assert_eq!(tagged, slot_of_key(b"{user1000}.followers"));
        assert_eq!(tagged, slot_of_key(b"user1000"));
        assert_eq!(slot_of_key(b"foo{{bar}}zap"), slot_of_key(b"{bar"));
        assert_eq!(slot_of_key(b"foo{bar}{zap}"), slot_of_key(b"bar"));
        assert_eq!(slot_of_key(b"sl:gen{17}"), slot_of_tag(17));
        // An empty tag is none.
        let whole = crc16(0, b"foo{}{bar}") % SLOTS;
        assert_eq!(slot_of_key(b"foo{}{bar}"), whole);
    }
}
