//! The page for browsers: one file, which asks nobody but this server.
//!
//! Owns its policy: a browser runs the one script and the one style that were built in, by their hashes, and nothing
//! that the name of a tube or the body of a job may hold. `tests/http.rs` holds the hashes against the file.

pub const PAGE: &[u8] = include_bytes!("page.html");

/// SHA-256 of its style, in base64.
pub const STYLE_HASH: &str = "kqaXs2sGRlXMfC3jrBeNxUqtfQFDfH9kL7X7cv7kevg=";

/// The same of its script.
pub const SCRIPT_HASH: &str = "Jlch22jBqU+2ibVYfVnTi5ziYnlCg9XA+KuGkF1J9vw=";

/// What the page may do: be styled, run, and ask this server.
pub const PAGE_POLICY: &str =
    "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; \
    style-src 'sha256-kqaXs2sGRlXMfC3jrBeNxUqtfQFDfH9kL7X7cv7kevg='; \
    script-src 'sha256-Jlch22jBqU+2ibVYfVnTi5ziYnlCg9XA+KuGkF1J9vw='";
