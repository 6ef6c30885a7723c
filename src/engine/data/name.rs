//! Names that clients give to jobs, and shared text formats: tube names, hexadecimal digits, and UUIDs. Must not depend
//! on the purpose of a name or on a protocol.

use std::borrow::Cow;

const SHORT: usize = 22;
/// The offsets of the hyphens in the text of a UUID.
const DASHES: [usize; 4] = [8, 13, 18, 23];

/// Short names, lower-case UUIDs and 32 lower-case hexadecimal digits need no allocation. Equal names have equal forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name(Form);

/// `Hex` stores the value of 32 lower-case digits. The text contains the hyphens of a UUID if `grouped`.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    Short { length: u8, bytes: [u8; SHORT] },
    Hex { grouped: bool, bytes: [u8; 16] },
    Long(Box<[u8]>),
}

impl From<&[u8]> for Name {
    fn from(text: &[u8]) -> Name {
        if text.len() <= SHORT {
            let mut bytes = [0; SHORT];
            bytes[..text.len()].copy_from_slice(text);
            return Name(Form::Short { length: text.len() as u8, bytes });
        }
        Name(packed(text).unwrap_or_else(|| Form::Long(text.into())))
    }
}

fn packed(text: &[u8]) -> Option<Form> {
    let grouped = match text.len() {
        36 if DASHES.iter().all(|&position| text[position] == b'-') => true,
        32 => false,
        _ => return None,
    };
    let mut digits = text.iter().enumerate().filter(|(position, _)| !grouped || !DASHES.contains(position));
    let mut digit = || match digits.next()?.1 {
        digit @ b'0'..=b'9' => Some(digit - b'0'),
        digit @ b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = digit()? << 4 | digit()?;
    }
    Some(Form::Hex { grouped, bytes })
}

impl Name {
    pub fn length(&self) -> usize {
        match &self.0 {
            Form::Short { length, .. } => (*length).into(),
            Form::Hex { grouped: true, .. } => 36,
            Form::Hex { .. } => 32,
            Form::Long(text) => text.len(),
        }
    }

    pub fn text(&self) -> Cow<'_, [u8]> {
        let Form::Hex { grouped, bytes } = &self.0 else { return self.key().into() };
        let mut text = Vec::with_capacity(36);
        match grouped {
            true => push_uuid(&mut text, bytes),
            false => push_hex(&mut text, &bytes[..]),
        }
        text.into()
    }

    /// Returns bytes that are equal for equal names, and usually different for different names.
    pub fn key(&self) -> &[u8] {
        match &self.0 {
            Form::Short { length, bytes } => &bytes[..usize::from(*length)],
            Form::Hex { bytes, .. } => bytes,
            Form::Long(text) => text,
        }
    }
}

/// The indexes of the UUID bytes that follow a hyphen in the text.
pub const UUID_HYPHENS: [usize; 4] = [4, 6, 8, 10];

/// Accepts the same bytes as beanstalkd. The caller must reject names whose first byte is a hyphen.
pub fn is_tube_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
}

pub fn hex_digits(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| if digit < 10 { b'0' + digit } else { b'a' + digit - 10 })
}

pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes.iter().flat_map(|byte| hex_digits(*byte)));
}

/// Appends lower-case digits in groups of 8-4-4-4-12.
pub fn push_uuid(out: &mut Vec<u8>, uuid: &[u8; 16]) {
    for (position, byte) in uuid.iter().enumerate() {
        if UUID_HYPHENS.contains(&position) {
            out.push(b'-');
        }
        push_hex(out, &[*byte]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_remains_unchanged() {
        let texts = [
            "",
            "a",
            "22 bytes are kept here",
            "23 bytes are not, which",
            "0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123456789abcdeF",
            "0123456789abcdef0123456789abcdeg",
            "01234567-89ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdeF",
            "01234567-89ab-cdef-0123456789abcdef-",
            "0123456-789ab-cdef-0123-456789abcdef",
            "----------------------------------------------------------------",
        ];
        for text in texts {
            let name = Name::from(text.as_bytes());
            assert_eq!((name.text().as_ref(), name.length()), (text.as_bytes(), text.len()));
            let same = texts.iter().filter(|other| Name::from(other.as_bytes()) == name);
            assert_eq!(same.count(), 1, "{text}");
        }
    }

    #[test]
    fn a_name_is_small() {
        assert_eq!(size_of::<Name>(), 24);
    }
}
