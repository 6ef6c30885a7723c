//! Encoding and decoding of the fields of records. Must not depend on record types or trust the input.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::engine::{Span, State, Time};

/// Maximum bytes of a 64-bit number with a variable length.
pub const LONG: usize = 10;

/// Locations are ordered as the log is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LogLocation {
    pub segment: u64,
    pub at: u64,
}

pub struct Fields<'a>(pub &'a [u8]);

pub trait Field<'a>: Sized {
    fn write(&self, out: &mut Vec<u8>);
    fn read(fields: &mut Fields<'a>) -> Option<Self>;
}

/// A dead letter has its original tube.
pub struct JobState<'a>(pub State, pub Option<&'a [u8]>);

pub struct Rest<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn read<F: Field<'a>>(&mut self) -> Option<F> {
        F::read(self)
    }

    pub fn variable(&mut self) -> Option<u64> {
        let mut number = 0;
        for (index, &byte) in self.0.iter().enumerate().take(LONG) {
            let bits = u64::from(byte & 0x7f);
            number |= bits << (7 * index);
            if byte < 0x80 {
                self.0 = self.0.get(index + 1..).unwrap_or_default();
                // The tenth byte contributes one bit.
                return (index < LONG - 1 || bits < 2).then_some(number);
            }
        }
        None
    }

    pub fn short(&mut self) -> Option<u32> {
        self.variable()?.try_into().ok()
    }
}

/// Encodes seven bits per byte, least significant bits first. All bytes but the last have the top bit set.
pub fn variable(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Field<'_> for $number {
            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn read(fields: &mut Fields) -> Option<$number> {
                Some(<$number>::from_le_bytes(fields.take(size_of::<$number>())?.try_into().ok()?))
            }
        }
    )+};
}

numbers!(u8 u16 u32 u64);

macro_rules! stored_as {
    ($($kind:ty: |$value:ident| $to:expr, $from:expr;)+) => {$(
        impl Field<'_> for $kind {
            fn write(&self, out: &mut Vec<u8>) {
                let $value = self;
                $to.write(out);
            }

            fn read(fields: &mut Fields) -> Option<$kind> {
                fields.read().map($from)
            }
        }
    )+};
}

stored_as! {
    Time: |time| time.nanos(), Time::from_nanos;
    Span: |span| span.nanos(), Span::from_nanos;
    LogLocation: |location| (location.segment, location.at), |(segment, at)| LogLocation { segment, at };
}

macro_rules! tuples {
    ($(($($name:ident)+))+) => {$(
        #[allow(non_snake_case)]
        impl<'a, $($name: Field<'a>),+> Field<'a> for ($($name,)+) {
            fn write(&self, out: &mut Vec<u8>) {
                let ($($name,)+) = self;
                $($name.write(out);)+
            }

            fn read(fields: &mut Fields<'a>) -> Option<Self> {
                Some(($($name::read(fields)?,)+))
            }
        }
    )+};
}

tuples!((A B) (A B C) (A B C D) (A B C D E) (A B C D E F));

/// Must be the last field of a payload.
impl<'a, F: Field<'a>> Field<'a> for Option<F> {
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|field| field.write(out));
    }

    fn read(fields: &mut Fields<'a>) -> Option<Option<F>> {
        Some(fields.read())
    }
}

/// A byte string follows its 16-bit length.
impl<'a> Field<'a> for &'a [u8] {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u16).write(out);
        out.extend_from_slice(self);
    }

    fn read(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
        let length: u16 = fields.read()?;
        fields.take(length.into())
    }
}

impl<'a> Field<'a> for Rest<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }

    fn read(fields: &mut Fields<'a>) -> Option<Rest<'a>> {
        Some(Rest(std::mem::take(&mut fields.0)))
    }
}

/// Dead letters have the letter [`DEAD`] instead.
const LETTERS: [(u8, State); 7] = [
    (b'r', State::Ready),
    (b'd', State::Delayed),
    (b'b', State::Buried),
    (b'l', State::Reserved),
    (b'f', State::Finished),
    (b'h', State::Held),
    (b's', State::Scheduled),
];
const DEAD: u8 = b'x';

impl<'a> Field<'a> for JobState<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        match self.1 {
            Some(origin) => (DEAD, origin).write(out),
            None => out.extend(LETTERS.iter().find(|(_, state)| *state == self.0).map(|(letter, _)| letter)),
        }
    }

    fn read(fields: &mut Fields<'a>) -> Option<JobState<'a>> {
        match fields.read()? {
            DEAD => Some(JobState(State::Buried, Some(fields.read()?))),
            letter => LETTERS.iter().find(|(other, _)| *other == letter).map(|(_, state)| JobState(*state, None)),
        }
    }
}
