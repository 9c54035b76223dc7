//! Refuses to run when the bindings are wrong about nginx' structures.
//!
//! `build.rs` writes the table of fields and both compilers' views of it. They are compared each
//! time a configuration is read, which costs microseconds: a module whose bindings are wrong is
//! refused by `nginx -t`, however it was built, instead of writing into other fields.

use std::mem::{MaybeUninit, offset_of};

use ngx::ffi::*;

/// Place of a field: offset and size in bytes, or first bit and number of bits.
type Place = [usize; 2];

include!(concat!(env!("OUT_DIR"), "/layout.rs"));

unsafe extern "C" {
    /// Writes where the C compiler puts each field of the table: two numbers a field.
    fn shortlink_c_layout(places: *mut usize);
}

/// Compares both views.
///
/// # Errors
/// The fields that differ, with both views of each.
pub(crate) fn verify() -> Result<(), String> {
    let mut c_layout = [[0; 2]; FIELDS.len()];
    // SAFETY: the function was generated from the same table and writes two numbers a field.
    unsafe { shortlink_c_layout(c_layout.as_mut_ptr().cast()) };
    let mut differences = String::new();
    for ((field, rust), c) in FIELDS.iter().zip(rust_layout()).zip(c_layout) {
        if rust != c {
            differences.push_str(&format!(" {field} (bindings {rust:?}, compiler {c:?})"));
        }
    }
    if differences.is_empty() {
        Ok(())
    } else {
        Err(differences)
    }
}

const fn whole<T>() -> Place {
    [0, size_of::<T>()]
}

/// The size of the field that a function projects.
const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! field {
    ($structure:ty, $field:ident) => {
        [
            offset_of!($structure, $field),
            size_of_field(|structure: &$structure| &structure.$field),
        ]
    };
}

/// Sets the bit-field in a structure of zeros and looks which bits are set.
macro_rules! bits {
    ($structure:ty, $set:ident) => {{
        let mut value = MaybeUninit::<$structure>::zeroed();
        // SAFETY: all zeros is a valid value of every structure in the table: they consist of
        // numbers, nullable pointers and optional functions. The bytes are looked at while
        // `value` lives, and every byte was initialized.
        unsafe {
            (*value.as_mut_ptr()).$set(!0);
            let bytes =
                std::slice::from_raw_parts(value.as_ptr().cast::<u8>(), size_of::<$structure>());
            set_bits(bytes)
        }
    }};
}
use {bits, field};

/// The first set bit and the number of set bits.
fn set_bits(bytes: &[u8]) -> Place {
    let is_set = |bit: &usize| bytes[bit / 8] >> (bit % 8) & 1 == 1;
    let mut set = (0..bytes.len() * 8).filter(is_set);
    match set.next() {
        Some(first) => [first, 1 + set.count()],
        None => [usize::MAX, 0],
    }
}
