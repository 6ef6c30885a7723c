//! The page for browsers: one file that contacts only this server.
//!
//! Owns its policy: a browser runs only the built-in script and style, identified by their hashes, and nothing in the
//! name of a tube or the body of a job. `tests/http.rs` checks the hashes against the file.

pub const PAGE: &[u8] = include_bytes!("page.html");

/// The SHA-256 of the page's style, in base64.
pub const STYLE_HASH: &str = "kqaXs2sGRlXMfC3jrBeNxUqtfQFDfH9kL7X7cv7kevg=";

/// The SHA-256 of the page's script, in base64.
pub const SCRIPT_HASH: &str = "Jlch22jBqU+2ibVYfVnTi5ziYnlCg9XA+KuGkF1J9vw=";

/// The permissions of the page: its style, its script, and requests to this server.
pub const PAGE_POLICY: &str =
    "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; \
    style-src 'sha256-kqaXs2sGRlXMfC3jrBeNxUqtfQFDfH9kL7X7cv7kevg='; \
    script-src 'sha256-Jlch22jBqU+2ibVYfVnTi5ziYnlCg9XA+KuGkF1J9vw='";
