//! Decimal numbers in records and configuration: one way to write each.

use alloc::vec::Vec;

/// Reads a number written without sign, spaces or leading zeros; `None` for anything else and
/// for what does not fit.
pub fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || (text.len() > 1 && text[0] == b'0') {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Appends a number as [`parse_decimal`] reads it.
pub fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    // 20 digits hold the largest u64.
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}
