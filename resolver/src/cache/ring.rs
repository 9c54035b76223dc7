//! Entries in one piece of memory, the oldest first.
//!
//! Entries are appended at the head and given up at the tail, so nothing is ever in pieces and
//! the bound in bytes is exact. An entry lies in one piece: when the rest of the memory is too
//! short for one, it is padding and the entry begins at the front.

use vocabulary::{CampaignId, Code, MAX_CODE_LENGTH};

use crate::key::Key;

/// Entries begin at multiples of it, so that their numbers are small.
pub(super) const UNIT: usize = 8;

/// The length of the header before an entry's body.
const HEADER: usize = 40;

/// The most characters of a code that the header holds. The others are behind the body.
const SHORT: usize = 16;

/// Marks a campaign's entry in the field of a code's length; the id is in the field of the code.
const OF_CAMPAIGN: u8 = 0xff;

/// Attributes of an entry besides its key and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Kind of the answer, as a number of the caller's.
    pub(super) kind: u8,
    /// In which epoch it was read.
    pub(super) epoch: u32,
    /// Time of its reading, in seconds of the worker's clock.
    pub(super) born: u32,
    /// Until when the answer holds, in seconds since 1970; 0 for ever.
    pub(super) until: u64,
}

/// Fate of the oldest entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Oldest {
    /// A dead entry or padding was passed over.
    Nothing,
    /// An entry was found; it is still there.
    Entry(u32),
}

#[derive(Debug)]
pub(super) struct Ring {
    memory: Box<[u8]>,
    /// Offsets of the next entry and of the oldest.
    head: usize,
    tail: usize,
    /// Bytes from the tail to the head.
    used: usize,
    /// Bytes of entries that can be found.
    live: usize,
}

/// States of bytes of the ring.
const DEAD: u8 = 0;
const ALIVE: u8 = 1;
const PADDING: u8 = 2;

impl Ring {
    /// Makes one of at most so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        // Zeroed memory comes from the system when it is first written to.
        Self {
            memory: vec![0; bytes / UNIT * UNIT].into_boxed_slice(),
            head: 0,
            tail: 0,
            used: 0,
            live: 0,
        }
    }

    /// Returns the bytes that an entry with such a key and body takes.
    pub(super) fn size_of(key: &Key, body_length: usize) -> usize {
        let rest = match key {
            Key::Link(code) => code.as_bytes().len().saturating_sub(SHORT),
            Key::Campaign(_) => 0,
        };
        (HEADER + body_length + rest).next_multiple_of(UNIT)
    }

    /// Returns the memory's address and its size in bytes.
    pub(super) fn extent(&self) -> (usize, usize) {
        (self.memory.as_ptr().addr(), self.memory.len())
    }

    /// Returns the memory address of an entry.
    #[inline]
    pub(super) fn address(&self, number: u32) -> usize {
        self.memory.as_ptr().addr() + number as usize * UNIT
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Bytes of entries that can be found.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Reports whether an entry of such a size can be appended; makes padding if that helps.
    pub(super) fn has_room(&mut self, size: usize) -> bool {
        let rest = self.memory.len() - self.head;
        if size > rest {
            if self.memory.len() - self.used < rest {
                return false;
            }
            self.pad(rest);
        }
        self.memory.len() - self.used >= size
    }

    /// Appends an entry, whose body comes in two parts, and returns its number. The space must be
    /// free.
    pub(super) fn append(&mut self, key: &Key, facts: Facts, body: [&[u8]; 2]) -> u32 {
        let at = self.head;
        let [first, second] = body;
        let length = first.len() + second.len();
        let size = Self::size_of(key, length);
        if let Some(entry) = self.memory.get_mut(at..at + size) {
            let (header, body) = entry.split_at_mut(HEADER);
            header.fill(0);
            match key {
                Key::Link(code) => {
                    let bytes = code.as_bytes();
                    let (short, rest) = bytes.split_at(bytes.len().min(SHORT));
                    header[..short.len()].copy_from_slice(short);
                    header[16] = bytes.len() as u8;
                    body[length..length + rest.len()].copy_from_slice(rest);
                }
                Key::Campaign(id) => {
                    header[..8].copy_from_slice(&id.get().to_le_bytes());
                    header[16] = OF_CAMPAIGN;
                }
            }
            header[17] = facts.kind;
            header[19] = ALIVE;
            header[20..22].copy_from_slice(&(length as u16).to_le_bytes());
            header[22..24].copy_from_slice(&((size / UNIT) as u16).to_le_bytes());
            header[24..28].copy_from_slice(&facts.epoch.to_le_bytes());
            header[28..32].copy_from_slice(&facts.born.to_le_bytes());
            header[32..40].copy_from_slice(&facts.until.to_le_bytes());
            body[..first.len()].copy_from_slice(first);
            body[first.len()..length].copy_from_slice(second);
        }
        self.live += size;
        self.used += size;
        self.head = (at + size) % self.memory.len();
        (at / UNIT) as u32
    }

    /// Reports whether an entry is that of a code.
    #[inline]
    pub(super) fn is_of(&self, number: u32, code: &Code) -> bool {
        self.header(number).is_some_and(|header| {
            let length = code.as_bytes().len();
            // Both are followed by zeros: most codes are compared at once.
            header[..SHORT] == code.padded()[..SHORT]
                && usize::from(header[16]) == length
                && (length <= SHORT
                    || self.rest(number, length - SHORT) == &code.as_bytes()[SHORT..])
        })
    }

    /// Returns the characters of a code that are behind the body.
    fn rest(&self, number: u32, length: usize) -> &[u8] {
        let at = number as usize * UNIT + HEADER + self.body(number).len();
        self.memory.get(at..at + length).unwrap_or_default()
    }

    /// Reports whether an entry is that of a campaign.
    pub(super) fn is_of_campaign(&self, number: u32, id: CampaignId) -> bool {
        self.header(number).is_some_and(|header| {
            header[16] == OF_CAMPAIGN && header[..8] == id.get().to_le_bytes()
        })
    }

    /// Returns an entry's key.
    pub(super) fn key(&self, number: u32) -> Option<Key> {
        let header = self.header(number)?;
        if header[16] == OF_CAMPAIGN {
            let id = u64::from_le_bytes(*header.first_chunk()?);
            return CampaignId::new(id).map(Key::Campaign);
        }
        let length = usize::from(header[16]).min(MAX_CODE_LENGTH);
        let short = length.min(SHORT);
        let mut code = [0; MAX_CODE_LENGTH];
        code[..short].copy_from_slice(&header[..short]);
        let rest = self.rest(number, length - short);
        code[short..short + rest.len()].copy_from_slice(rest);
        Code::parse(&code[..length]).ok().map(Key::Link)
    }

    #[inline]
    pub(super) fn facts(&self, number: u32) -> Option<Facts> {
        let header = self.header(number)?;
        Some(Facts {
            kind: header[17],
            epoch: u32::from_le_bytes(*header[24..].first_chunk()?),
            born: u32::from_le_bytes(*header[28..].first_chunk()?),
            until: u64::from_le_bytes(*header[32..].first_chunk()?),
        })
    }

    /// Returns an entry's body.
    #[inline]
    pub(super) fn body(&self, number: u32) -> &[u8] {
        let at = number as usize * UNIT;
        let length = self.header(number).and_then(|header| {
            let length = u16::from_le_bytes(*header[20..].first_chunk()?);
            Some(usize::from(length))
        });
        length
            .and_then(|length| self.memory.get(at + HEADER..at + HEADER + length))
            .unwrap_or_default()
    }

    /// Notes that an entry was read.
    #[inline]
    pub(super) fn mark(&mut self, number: u32) {
        if let Some(mark) = self.memory.get_mut(number as usize * UNIT + 18) {
            *mark = 1;
        }
    }

    /// Reports whether an entry was read since it was appended.
    pub(super) fn is_marked(&self, number: u32) -> bool {
        self.header(number).is_some_and(|header| header[18] != 0)
    }

    /// Says that an entry can't be found any more: its bytes are free once the tail has passed.
    pub(super) fn bury(&mut self, number: u32) {
        let at = number as usize * UNIT;
        let size = self.size_at(at);
        if let Some(state) = self.memory.get_mut(at + 19)
            && *state == ALIVE
        {
            *state = DEAD;
            self.live -= size;
        }
    }

    /// Looks at the tail and passes over what is not an entry; `None` when there is nothing.
    pub(super) fn oldest(&mut self) -> Option<Oldest> {
        if self.used == 0 {
            return None;
        }
        if self.memory.get(self.tail + 19) == Some(&ALIVE)
            && self.memory.len() - self.tail >= HEADER
        {
            return Some(Oldest::Entry((self.tail / UNIT) as u32));
        }
        self.pass();
        Some(Oldest::Nothing)
    }

    /// Passes over what is at the tail; an entry there must have been buried.
    pub(super) fn pass(&mut self) {
        let size = self.size_at(self.tail).min(self.used);
        self.used -= size;
        self.tail = (self.tail + size) % self.memory.len();
    }

    pub(super) fn clear(&mut self) {
        self.head = 0;
        self.tail = 0;
        self.used = 0;
        self.live = 0;
    }

    /// Fills the memory from the head to its end.
    fn pad(&mut self, rest: usize) {
        if let Some(padding) = self.memory.get_mut(self.head..self.head + HEADER) {
            padding[19] = PADDING;
            padding[22..24].copy_from_slice(&((rest / UNIT) as u16).to_le_bytes());
        }
        self.used += rest;
        self.head = 0;
    }

    /// Returns the size of the bytes at a place. A rest that is too short for a header is padding.
    fn size_at(&self, at: usize) -> usize {
        let rest = self.memory.len() - at;
        if rest < HEADER {
            return rest;
        }
        let units = self.memory[at + 22..].first_chunk().copied();
        let size = usize::from(u16::from_le_bytes(units.unwrap_or_default())) * UNIT;
        // Never zero, so that every walk advances.
        size.clamp(UNIT, rest)
    }

    #[inline]
    fn header(&self, number: u32) -> Option<&[u8; HEADER]> {
        self.memory.get(number as usize * UNIT..)?.first_chunk()
    }
}
