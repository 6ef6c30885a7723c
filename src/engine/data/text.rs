//! Text formats that several rooms share: legal bytes of a tube's name, hexadecimal digits, UUIDs.
//!
//! Owns their only definition. Must not know a protocol.

/// The offsets in a UUID's 16 bytes that a hyphen precedes.
pub const UUID_HYPHENS: [usize; 4] = [4, 6, 8, 10];

/// Returns `true` if beanstalkd allows `byte` in a tube's name. A hyphen must not be the first byte.
pub fn is_tube_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
}

/// Appends two lower-case hexadecimal digits for each byte.
pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
}

/// Appends a UUID in its canonical spelling: lower case, in groups of 8-4-4-4-12 digits.
pub fn push_uuid(out: &mut Vec<u8>, uuid: &[u8; 16]) {
    for (place, byte) in uuid.iter().enumerate() {
        if UUID_HYPHENS.contains(&place) {
            out.push(b'-');
        }
        push_hex(out, &[*byte]);
    }
}
