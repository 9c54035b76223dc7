//! SipHash-2-4 with a 64-bit result (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
//! 2012): a keyed function whose output can't be predicted without the key, for inputs of a few
//! bytes at a few nanoseconds.

/// The function's value for `input` under a 128-bit key.
pub fn siphash24(key: &[u8; 16], input: &[u8]) -> u64 {
    let k0 = word(&key[..8]);
    let k1 = word(&key[8..]);
    let mut state = State {
        v0: k0 ^ 0x736f_6d65_7073_6575,
        v1: k1 ^ 0x646f_7261_6e64_6f6d,
        v2: k0 ^ 0x6c79_6765_6e65_7261,
        v3: k1 ^ 0x7465_6462_7974_6573,
    };

    let mut chunks = input.chunks_exact(8);
    for chunk in &mut chunks {
        state.compress(word(chunk));
    }
    // The last word holds what is left of the input and, in its top byte, the input's length.
    let mut last = [0u8; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    last[7] = input.len() as u8;
    state.compress(u64::from_le_bytes(last));

    state.v2 ^= 0xff;
    for _ in 0..4 {
        state.round();
    }
    state.v0 ^ state.v1 ^ state.v2 ^ state.v3
}

/// The first eight bytes of `bytes`, least significant first.
fn word(bytes: &[u8]) -> u64 {
    let mut eight = [0u8; 8];
    eight.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(eight)
}

struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    fn compress(&mut self, message: u64) {
        self.v3 ^= message;
        self.round();
        self.round();
        self.v0 ^= message;
    }

    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's own test vectors (appendix A and the reference vectors): the key is the bytes
    /// 0 to 15, the input the bytes 0, 1, 2 … of growing length.
    #[test]
    fn agrees_with_the_published_vectors() {
        let key: [u8; 16] = core::array::from_fn(|i| i as u8);
        let input: [u8; 15] = core::array::from_fn(|i| i as u8);
        assert_eq!(siphash24(&key, &input[..0]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash24(&key, &input[..1]), 0x74f8_39c5_93dc_67fd);
        assert_eq!(siphash24(&key, &input[..7]), 0xab02_00f5_8b01_d137);
        assert_eq!(siphash24(&key, &input[..8]), 0x93f5_f579_9a93_2462);
        assert_eq!(siphash24(&key, &input), 0xa129_ca61_49be_45e5);
    }
}
