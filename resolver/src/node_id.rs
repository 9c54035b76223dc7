//! The name of a server within a worker.

/// Names a server's place. A place is used again only after its connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The place with this number.
    pub fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// The place's number, from 0 and small.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
