//! The body of a job, which is opaque bytes.
//!
//! Owns the choice between copying a body and sharing it. Must not interpret the bytes.

use std::sync::Arc;

/// Larger bodies are shared with replies. At this size, sharing takes about as long as copying.
pub const COPY_MAX: usize = 4096;

/// A small body is owned, which takes 16 bytes less than sharing. A large body is shared with the buffers of slow
/// clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Small(Box<[u8]>),
    Large(Arc<Box<[u8]>>),
}

impl Body {
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

#[derive(Clone, Copy, Debug)]
pub enum BodyRef<'a> {
    Small(&'a [u8]),
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
