//! The web page for operators. A browser uses only the built-in style and script, identified by their hashes, and never
//! runs code in a tube name or a job body. The page must not refer to other servers.

/// The page without the indentation, the comments and most optional spaces of the source file.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks each index")]
pub const PAGE: &[u8] = &{
    let (mut page, mut whole) = ([0; strip(SOURCE, &mut [0; SOURCE.len()])], [0; SOURCE.len()]);
    strip(SOURCE, &mut whole);
    let mut at = 0;
    while at < page.len() {
        page[at] = whole[at];
        at += 1;
    }
    page
};

const SOURCE: &[u8] = include_bytes!("page.html");

/// Copies `source`, except for indentation, comment lines, and any space or line feed that is unnecessary in HTML, CSS
/// and JavaScript. Returns the number of copied bytes.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which checks each index")]
const fn strip(source: &[u8], page: &mut [u8]) -> usize {
    let (mut from, mut to) = (0, 0);
    while from < source.len() {
        while from < source.len() && source[from] == b'\t' {
            from += 1;
        }
        let is_comment = from + 1 < source.len() && source[from] == b'/' && source[from + 1] == b'/';
        loop {
            let byte = source[from];
            from += 1;
            let before = if to > 0 { page[to - 1] } else { 0 };
            let next = if from < source.len() { source[from] } else { 0 };
            let is_optional = match byte {
                b'\n' => matches!(before, b';' | b'{' | b','),
                b' ' if before == b'>' => page[to - 2] == b'=',
                b' ' => matches!(before, b'=' | b'?' | b'{' | b'+') || matches!(next, b'=' | b'?' | b'{' | b'}' | b'+'),
                _ => false,
            };
            if !is_comment && !is_optional {
                page[to] = byte;
                to += 1;
            }
            if byte == b'\n' || from == source.len() {
                break;
            }
        }
    }
    to
}

pub const STYLE_HASH: &str = "RoRgB+DvTp27GZNKLm396yJW7Ufo4Ewu8ZS2AhwRxLs=";

pub const SCRIPT_HASH: &str = "Y6HXTmcCiMtsYYfLVxFKqV6O4QgDXiIoh4aJtrdrOuE=";

pub fn policy() -> String {
    format!(
        "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; style-src 'sha256-{STYLE_HASH}'; script-src 'sha256-{SCRIPT_HASH}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Digest;
    use crate::shared::base64;

    #[test]
    fn hashes_are_those_of_the_page() {
        let page = std::str::from_utf8(PAGE).expect("text");
        assert!(page.len() <= 48 * 1024, "{} bytes", page.len());
        for (tag, known) in [("style", STYLE_HASH), ("script", SCRIPT_HASH)] {
            let parts: Vec<&str> = page.split(&format!("<{tag}>")).collect();
            assert_eq!(parts.len(), 2, "the page has one {tag}");
            let text = parts[1].split(&format!("</{tag}>")).next().expect("an end");
            assert_eq!(base64::encode(&Digest::of(text.as_bytes()).0), known, "the hash of the {tag}");
            assert!(policy().contains(&format!("{tag}-src 'sha256-{known}'")), "{}", policy());
        }
    }
}
