//! What a target must look like to be served.

/// The most bytes that a target has.
pub const MAX_TARGET_LENGTH: usize = 8192;

/// Whether a target may be put into a `Location` header as it is.
///
/// This is what the edge checks again on every redirect, because it does not trust Redis: an
/// `http` or `https` URL with something behind the scheme, at most [`MAX_TARGET_LENGTH`] bytes,
/// each a visible ASCII character. A serialised URL has no others; a space or a line break would
/// end the header and let whoever can write to Redis add headers of their own, and a value
/// without a scheme would be completed by nginx with its own host. What a *new* target must
/// fulfil is more and is checked once, by the sidecar.
#[inline]
pub fn is_servable(target: &[u8]) -> bool {
    let rest = match target {
        [b'h', b't', b't', b'p', b's', b':', b'/', b'/', rest @ ..]
        | [b'h', b't', b't', b'p', b':', b'/', b'/', rest @ ..] => rest,
        _ => return false,
    };
    target.len() <= MAX_TARGET_LENGTH
        // An empty authority: browsers would take what follows for the host.
        && !matches!(rest.first(), None | Some(b'/' | b'\\' | b'?' | b'#'))
        && rest.iter().all(|byte| matches!(byte, 0x21..=0x7e))
}
