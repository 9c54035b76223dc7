//! Cuts a JSON array into its elements.

use super::{BrokenBody, RawRow};

/// Finds where the elements of an array begin and end.
#[derive(Default)]
pub(super) struct JsonCutter {
    place: Place,
    /// The element so far.
    element: Vec<u8>,
    is_too_long: bool,
    /// The number of open brackets within the element.
    depth: u32,
    is_in_string: bool,
    is_escaped: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Before the array.
    #[default]
    Start,
    /// After the `[`.
    First,
    /// After a comma.
    Next,
    /// Within an element.
    Element,
    /// After the array.
    End,
}

impl JsonCutter {
    /// Takes a part of the array.
    pub(super) fn push(
        &mut self,
        part: &[u8],
        most_bytes: usize,
        rows: &mut Vec<RawRow>,
    ) -> Result<(), BrokenBody> {
        for &byte in part {
            match self.place {
                Place::Element => self.push_element(byte, most_bytes, rows)?,
                _ if byte.is_ascii_whitespace() => {}
                Place::Start if byte == b'[' => self.place = Place::First,
                Place::Start => return Err(BrokenBody::from("must be a JSON array")),
                Place::First if byte == b']' => self.place = Place::End,
                Place::First | Place::Next if byte == b',' || byte == b']' => {
                    return Err(BrokenBody::from(
                        "has a comma with nothing behind or before it",
                    ));
                }
                Place::First | Place::Next => {
                    self.place = Place::Element;
                    self.push_element(byte, most_bytes, rows)?;
                }
                Place::End => return Err(BrokenBody::from("goes on behind the end of the array")),
            }
        }
        Ok(())
    }

    fn push_element(
        &mut self,
        byte: u8,
        most_bytes: usize,
        rows: &mut Vec<RawRow>,
    ) -> Result<(), BrokenBody> {
        if self.is_in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.is_in_string = true,
                b'[' | b'{' => self.depth += 1,
                b',' | b']' if self.depth == 0 => {
                    let text = std::mem::take(&mut self.element);
                    rows.push(if std::mem::take(&mut self.is_too_long) {
                        RawRow::TooLong
                    } else {
                        RawRow::Json(text)
                    });
                    self.place = if byte == b',' {
                        Place::Next
                    } else {
                        Place::End
                    };
                    return Ok(());
                }
                b'}' if self.depth == 0 => return Err(BrokenBody::from("has a } without a {")),
                b']' | b'}' => self.depth -= 1,
                _ => {}
            }
        }
        if self.element.len() >= most_bytes {
            self.is_too_long = true;
            self.element = Vec::new();
        }
        if !self.is_too_long {
            self.element.push(byte);
        }
        Ok(())
    }

    /// Takes the end of the body.
    pub(super) fn finish(&self) -> Result<(), BrokenBody> {
        match self.place {
            Place::Start | Place::End => Ok(()),
            _ => Err(BrokenBody::from("ends within the array")),
        }
    }
}
