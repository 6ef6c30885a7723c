//! The parser for the arguments of a beanstalk command. Each method parses the next argument, and returns `None` if it is
//! missing or malformed. Spaces before an argument are skipped unless documented otherwise.

use super::extensions::{Extension, Extensions};
use crate::engine::{JobId, Span, State};
use crate::protocol::text::{is_tube_name, next_word, number, number32, past, unquote_name};

pub struct Args<'a> {
    pub rest: &'a [u8],
    pub extensions: Extensions,
}

impl<'a> Args<'a> {
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn has(&self, extension: Extension) -> bool {
        self.extensions.has(extension)
    }

    fn took<T>(&mut self, (value, rest): (T, &'a [u8])) -> T {
        self.rest = rest;
        value
    }

    pub fn number(&mut self) -> Option<u64> {
        number(self.rest).map(|found| self.took(found))
    }

    pub fn number32(&mut self) -> Option<u32> {
        number32(self.rest).map(|found| self.took(found))
    }

    pub fn id(&mut self) -> Option<JobId> {
        self.number().map(JobId)
    }

    pub fn secs(&mut self) -> Option<Span> {
        self.number32().map(|count| Span::from_secs(count.into()))
    }

    pub fn state(&mut self) -> Option<State> {
        next_word(self.rest).and_then(|found| State::named(self.took(found)))
    }

    /// The name is quoted or ends at the next space. Does not skip spaces.
    pub fn tube(&mut self) -> Option<Box<[u8]>> {
        if self.rest.starts_with(b"\"") {
            return self.quoted_tube();
        }
        let end = self.rest.iter().position(|&byte| byte == b' ').unwrap_or(self.rest.len());
        let name = self.took(self.rest.split_at(end));
        is_tube_name(name).then(|| name.into())
    }

    pub fn quoted_tube(&mut self) -> Option<Box<[u8]>> {
        let (name, rest) = unquote_name(self.rest).filter(|_| self.has(Extension::Quote))?;
        (rest.is_empty() || rest.starts_with(b" ")).then(|| self.took((name.into(), rest)))
    }

    pub fn next_tube(&mut self) -> Option<Box<[u8]>> {
        self.spaces()?;
        self.tube()
    }

    pub fn spaces(&mut self) -> Option<()> {
        self.rest = past(self.rest, self.rest.iter().position(|&byte| byte != b' ')?);
        Some(())
    }

    pub fn literal(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    pub fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Returns `absent` if the line has ended.
    pub fn or<T>(&mut self, absent: T, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.is_empty().then_some(absent).or_else(|| parse(self))
    }

    /// Like [`Args::or`], but requires a space before the argument, because the command word does not end with a space.
    pub fn first_or<T>(&mut self, absent: T, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        self.or(absent, |args| {
            args.literal(b" ")?;
            parse(args)
        })
    }
}
