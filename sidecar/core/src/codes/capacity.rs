//! The share of the codes of a length that links may have.

/// The number of links for so many codes, of which at most one of `one_in` finds a link.
pub fn capacity(codes: u128, one_in: u64) -> u64 {
    u64::try_from((codes / u128::from(one_in)).max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_so_many_codes_leads_somewhere_and_at_least_one_code_is_given() {
        assert_eq!(capacity(62u128.pow(7), 1000), 3_521_614_606);
        assert_eq!(capacity(62, 1000), 1);
        assert_eq!(capacity(62u128.pow(12), 1), u64::MAX);
    }
}
