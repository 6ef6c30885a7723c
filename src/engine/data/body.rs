//! The body of a job: opaque bytes.
//!
//! Owns the choice between copying and sharing. Must not interpret the bytes.

use std::sync::Arc;

/// Bodies up to this many bytes are copied into a reply; larger ones are shared with it. Copying this many costs about
/// as much as the two atomic operations and the extra segment of a write that sharing requires.
pub const COPY_MAX: usize = 4096;

/// Immutable bytes. Small bodies are owned directly, which saves 16 bytes each. Large bodies are shared, so that a
/// reply that waits in a slow client's output needs no second copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Small(Box<[u8]>),
    /// A body of more than [`COPY_MAX`] bytes, shared with replies.
    Large(Arc<Box<[u8]>>),
}

impl Body {
    /// Copies these bytes. Returns `None` if there is no memory.
    pub fn copy(bytes: &[u8]) -> Option<Body> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).ok()?;
        copy.extend_from_slice(bytes);
        Some(Body::from(copy))
    }

    pub fn bytes(&self) -> &[u8] {
        self.borrow().bytes()
    }

    pub fn borrow(&self) -> BodyRef<'_> {
        match self {
            Body::Small(bytes) => BodyRef::Small(bytes),
            Body::Large(bytes) => BodyRef::Large(bytes),
        }
    }

    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_shared(&self) -> bool {
        matches!(self, Body::Large(bytes) if Arc::strong_count(bytes) > 1)
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::Small(Box::default())
    }
}

/// A body that belongs to someone else.
#[derive(Clone, Copy, Debug)]
pub enum BodyRef<'a> {
    /// At most [`COPY_MAX`] bytes, to be copied.
    Small(&'a [u8]),
    /// More than [`COPY_MAX`] bytes, to be shared.
    Large(&'a Arc<Box<[u8]>>),
}

impl<'a> BodyRef<'a> {
    pub fn bytes(self) -> &'a [u8] {
        match self {
            BodyRef::Small(bytes) => bytes,
            BodyRef::Large(bytes) => bytes,
        }
    }

    pub fn len(self) -> usize {
        self.bytes().len()
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<u8>> for Body {
    /// Copies nothing if the vector has no spare capacity.
    fn from(bytes: Vec<u8>) -> Body {
        let bytes = bytes.into_boxed_slice();
        if bytes.len() <= COPY_MAX {
            Body::Small(bytes)
        } else {
            Body::Large(Arc::new(bytes))
        }
    }
}

impl From<&[u8]> for Body {
    fn from(bytes: &[u8]) -> Body {
        Body::from(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_is_owned_large_is_shared() {
        assert!(matches!(Body::from(vec![1; COPY_MAX]), Body::Small(_)));
        let large = Body::from(vec![1; COPY_MAX + 1]);
        assert_eq!(large.clone().bytes().as_ptr(), large.bytes().as_ptr());
    }
}
