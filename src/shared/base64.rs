//! Base64 with padding and the standard alphabet of RFC 4648.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    for three in bytes.chunks(3) {
        let whole = three.iter().fold(0_u32, |whole, byte| whole << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for index in 0..4 {
            let digit = DIGITS[(whole >> (18 - 6 * index)) as usize & 63];
            out.push(if index <= three.len() { digit } else { b'=' });
        }
    }
}

pub fn encode(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    push(&mut out, bytes);
    out.into_iter().map(char::from).collect()
}

pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|letter| **letter == b'=').count();
    if text.len() % 4 != 0 || padding > 2 {
        return None;
    }
    let bare = &text[..text.len() - padding];
    let mut bytes = Vec::with_capacity(bare.len() / 4 * 3 + 2);
    for four in bare.chunks(4) {
        let mut whole = 0_u32;
        for digit in four {
            whole = whole << 6 | memchr::memchr(*digit, DIGITS)? as u32;
        }
        whole <<= 6 * (4 - four.len());
        bytes.extend_from_slice(&whole.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_length_read_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for end in 0..bytes.len() {
            assert_eq!(decode(encode(&bytes[..end]).as_bytes()).as_deref(), Some(&bytes[..end]));
        }
        assert_eq!(encode(b"beanpole"), "YmVhbnBvbGU=");
    }

    #[test]
    fn known_texts_are_encoded_and_decoded() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (&[0xff, 0xfe, 0xfd, 0xfc], "//79/A=="),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes));
        }
        for wrong in
            ["a", "a===", "YQ=", "YQ==YQ==", "Y Q=", "Y*==", "Z", "Zg=", "Zg", "Z===", "Zg\n=", "====", "Zm9v!"]
        {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
