//! Extensions to beanstalkd's protocol: their words, the tags of a `put`, and the text form of tube settings. Commands
//! and tags of a disabled extension are unknown, as in beanstalkd. Tags follow the numbers of a `put`, in any order. If
//! the first word after the numbers is not a known tag, the body is interpreted as commands, as in beanstalkd.

use crate::engine::{DedupKey, GroupTag, Name, Rate, Recurrence, Span, Tags, Tie, TubeSettings, MAX_REASON, MAX_TIES};
use crate::protocol::text::{is_tube_name, number32, past, push_tube_name, tube_name, unquote, upto, MAX_QUOTED_NAME};

const fn row(extension: Extension, word: &'static str) -> (Extension, &'static str) {
    (extension, word)
}

table! {
    /// beanpole-beanstalk(7) describes each of the extensions.
    enum Extension = 0;
    static EXTENSIONS: [(Extension, &'static str)] = row;
    Idp("idp"),
    Tub("tub"),
    Try("try"),
    Ttl("ttl"),
    Batch("batch"),
    Wait("wait"),
    Flush("flush"),
    PeekReserved("peek-reserved"),
    Drain("drain"),
    ListJobs("list-jobs"),
    Move("move"),
    Limit("limit-tube"),
    Weight("weight"),
    Con("con"),
    Times("times"),
    Quote("quote"),
    Export("export"),
    SetTube("set-tube"),
    Fail("fail"),
    Abort("reserve-with-abort"),
    StatsTubes("stats-tubes"),
    Grp("grp"),
    Aft("aft"),
    Cron("cron"),
    Every("every"),
    Connections("connections"),
    Revoke("revoke"),
    Progress("progress"),
    History("history"),
}

/// A set of extensions of the beanstalk protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions(u32);

impl Extensions {
    /// All extensions of this version.
    pub const ALL: Extensions = Extensions((1 << EXTENSIONS.len()) - 1);
    /// No extensions, as in beanstalkd.
    pub const NONE: Extensions = Extensions(0);

    /// Parses words such as `idp,ttl`, which beanpole-beanstalk(7) lists. Fails with the first unknown word.
    pub fn from_list(list: &str) -> Result<Extensions, &str> {
        let mut words = list.split(',').filter(|word| !word.is_empty());
        words.try_fold(Extensions::NONE, |chosen, word| {
            Ok(chosen.with(EXTENSIONS.iter().find(|(_, other)| *other == word).ok_or(word)?.0))
        })
    }

    #[must_use]
    pub(crate) const fn with(self, extension: Extension) -> Extensions {
        Extensions(self.0 | 1 << extension as u32)
    }

    pub(crate) const fn has(self, extension: Extension) -> bool {
        self.0 & 1 << extension as u32 != 0
    }

    pub(crate) fn words(self) -> String {
        EXTENSIONS.iter().filter_map(|(one, word)| self.has(*one).then_some(*word)).collect::<Vec<_>>().join(" ")
    }
}

#[derive(Debug)]
pub enum Tagging {
    Plain,
    Tagged(Box<Tags>),
    /// A tag is invalid. The decoder must skip the body.
    Malformed,
    /// The first word is not a tag. Like beanstalkd, the decoder interprets the body as commands.
    Garbage,
}

/// The maximum size of a schedule's body in bytes. Each run copies the body while all other clients wait.
pub const MAX_SCHEDULE: u32 = 1 << 20;

pub const TAGS: [(&[u8], Extension); 10] = [
    (b"con:", Extension::Con),
    (b"idp:", Extension::Idp),
    (b"tub:", Extension::Tub),
    (b"try:", Extension::Try),
    (b"ttl:", Extension::Ttl),
    (b"err:", Extension::Export),
    (b"grp:", Extension::Grp),
    (b"aft:", Extension::Aft),
    (b"cron:", Extension::Cron),
    (b"every:", Extension::Every),
];

pub fn read_tags(rest: &[u8], extensions: Extensions) -> Tagging {
    match rest.first() {
        None => Tagging::Plain,
        Some(b' ') => read_words(rest, extensions),
        Some(_) => Tagging::Garbage,
    }
}

#[inline(never)] // keeps puts without tags fast
fn read_words(rest: &[u8], extensions: Extensions) -> Tagging {
    let (mut tags, mut seen, mut left) = (Tags::default(), Extensions::NONE, rest);
    while let Some((word, rest)) = next_tag(left) {
        let mut known = TAGS.iter().filter(|(_, extension)| extensions.has(*extension));
        match known.find_map(|(tag, extension)| Some((*extension, word.strip_prefix(*tag)?))) {
            Some((extension, value))
                if (!seen.has(extension) || matches!(extension, Extension::Grp | Extension::Aft))
                    && read_tag(extension, value, extensions, &mut tags).is_some() =>
            {
                seen = seen.with(extension);
            }
            None if seen == Extensions::NONE => return Tagging::Garbage,
            _ => return Tagging::Malformed,
        }
        left = rest;
    }
    if seen == Extensions::NONE {
        return Tagging::Garbage;
    }
    if tags.recurs.is_some() && !may_recur(&tags) {
        return Tagging::Malformed;
    }
    Tagging::Tagged(Box::new(tags))
}

/// Splits off the first tag. A quoted value can contain spaces.
pub fn next_tag(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = past(text, text.iter().position(|&byte| byte != b' ')?);
    let value = text.iter().position(|&byte| byte == b':').map_or(text.len(), |colon| colon + 1);
    let quoted = unquote(past(text, value)).map_or(0, |(_, rest)| text.len() - rest.len());
    let length = past(text, quoted).iter().position(|&byte| byte == b' ').map_or(text.len(), |at| quoted + at);
    Some(text.split_at(length))
}

fn read_tag(extension: Extension, value: &[u8], extensions: Extensions, tags: &mut Tags) -> Option<()> {
    let exports = extensions.has(Extension::Export);
    match extension {
        Extension::Idp => {
            let (key, keep) = match unquote(value).filter(|_| exports) {
                Some((key, b"")) => (quoted_name(&key)?, None),
                Some((key, rest)) => (quoted_name(&key)?, Some(whole(rest.strip_prefix(b":")?)?)),
                None => {
                    let (key, keep) = split(value, b':')?;
                    (name(key)?, keep)
                }
            };
            (tags.options.dedup_key, tags.options.keep) = (DedupKey::Name(key), keep.unwrap_or(0));
        }
        Extension::Tub if value.starts_with(b"\"") && !extensions.has(Extension::Quote) => return None,
        Extension::Tub => tags.tube = Some(tube_name(value)?),
        Extension::Try => {
            let mut parts = value.split(|&byte| byte == b':').map(whole);
            tags.options.max_attempts = u8::try_from(parts.next()??).ok()?;
            tags.options.backoff = parts.next().map_or(Some(0), |backoff| backoff)?;
            let fails = |fails: Option<u32>| u8::try_from(fails.filter(|_| exports)?).ok();
            tags.options.fails = parts.next().map_or(Some(0), fails)?;
            // A `try` tag must contain a limit or a number of failed tries.
            if parts.next().is_some() || tags.options.max_attempts == 0 && tags.options.fails == 0 {
                return None;
            }
        }
        Extension::Export => {
            let (reason, rest) = unquote(value)?;
            let fits = rest.is_empty() && (1..=MAX_REASON).contains(&reason.len());
            tags.options.reason = fits.then(|| Some(reason.into()))?;
        }
        Extension::Ttl => tags.options.ttl = Span::from_secs(whole(value).filter(|secs| *secs > 0)?.into()),
        Extension::Grp => add_group(tags, value, Tie::Member)?,
        Extension::Aft => {
            let (group, count) = split(value, b':')?;
            let tie = match count {
                None => Tie::After { even_if_new: false },
                Some(0) => Tie::After { even_if_new: true },
                Some(count) => Tie::AfterCount(count),
            };
            add_group(tags, group, tie)?;
        }
        Extension::Cron | Extension::Every if tags.recurs.is_some() => return None,
        Extension::Cron => tags.recurs = Some(read_cron(value)?),
        Extension::Every => {
            let is_number = matches!(Recurrence::parse(value), Some(Recurrence::Every(_)));
            tags.recurs = Some(is_number.then(|| Name::from(value))?);
        }
        Extension::Con => {
            let (key, limit) = split(value, b':')?;
            tags.options.concurrency = Some((name(key)?, limit.or(Some(1)).filter(|limit| *limit > 0)?));
        }
        _ => return None,
    }
    Some(())
}

/// Returns `true` if the tags are valid for a schedule: a key, and no dependencies, failed tries or failure reason.
fn may_recur(tags: &Tags) -> bool {
    let is_independent = tags.options.groups.iter().all(|tag| tag.tie == Tie::Member);
    tags.options.dedup_key != DedupKey::None
        && is_independent
        && tags.options.fails == 0
        && tags.options.reason.is_none()
}

/// Parses a name such as `@daily`, or five fields, separated by spaces if the text is quoted and by commas otherwise.
fn read_cron(value: &[u8]) -> Option<Name> {
    let text = match unquote(value) {
        Some((text, b"")) => text,
        Some(_) => return None,
        None => value.iter().map(|&byte| if byte == b',' { b' ' } else { byte }).collect(),
    };
    matches!(Recurrence::parse(&text), Some(Recurrence::Minutes(_))).then(|| Name::from(&*text))
}

/// Fails for an invalid name, too many groups, or a repeated group: a member that waits for its group would never run.
fn add_group(tags: &mut Tags, group: &[u8], tie: Tie) -> Option<()> {
    let name = name(group)?;
    let is_new = tags.options.groups.iter().all(|tag| tag.name != name);
    (is_new && tags.options.groups.len() < MAX_TIES).then(|| tags.options.groups.push(GroupTag { name, tie }))
}

pub fn split(value: &[u8], separator: u8) -> Option<(&[u8], Option<u32>)> {
    match value.iter().position(|&byte| byte == separator) {
        Some(at) => Some((upto(value, at), Some(whole(past(value, at + 1))?))),
        None => Some((value, None)),
    }
}

pub fn whole(value: &[u8]) -> Option<u32> {
    let (number, rest) = number32(value)?;
    rest.is_empty().then_some(number)
}

/// Accepts any bytes, because Gearman clients can use any bytes in a key, but limits the length.
fn quoted_name(key: &[u8]) -> Option<Name> {
    (1..=MAX_QUOTED_NAME).contains(&key.len()).then(|| key.into())
}

fn name(value: &[u8]) -> Option<Name> {
    is_tube_name(value).then(|| value.into())
}

/// Settings in the order of the text form; see `set-tube` in beanpole-beanstalk(7).
pub const SETTINGS: [&str; 6] = ["try", "ttl", "dead", "max", "rate", "limit"];

pub fn read_settings(text: &[u8]) -> Option<TubeSettings> {
    let (mut settings, mut seen, mut left) = (TubeSettings::default(), Vec::new(), text);
    while let Some((word, rest)) = next_tag(left) {
        let colon = word.iter().position(|&byte| byte == b':')?;
        let name = upto(word, colon);
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        read_setting(name, past(word, colon + 1), &mut settings)?;
        left = rest;
    }
    left.is_empty().then_some(settings)
}

fn read_setting(name: &[u8], value: &[u8], settings: &mut TubeSettings) -> Option<()> {
    match name {
        b"try" => {
            let (tries, backoff) = split(value, b':')?;
            settings.tries = u8::try_from(positive(tries)?).ok()?;
            settings.backoff = backoff.unwrap_or(0);
        }
        b"ttl" => settings.ttl = positive(value)?,
        b"dead" => settings.dead = Some(tube_name(value)?),
        b"max" => settings.max = positive(value)?,
        b"rate" => {
            let (count, seconds) = split(value, b'/')?;
            settings.rate = Some(Rate { count: positive(count)?, seconds: seconds.filter(|seconds| *seconds > 0)? });
        }
        b"limit" => settings.max_jobs = limits(value)?,
        _ => return None,
    }
    Some(())
}

/// One limit is for all priorities; three are for high, normal and low priority. 0 means unlimited. Fails if all are 0.
fn limits(value: &[u8]) -> Option<[u32; 3]> {
    let limits: Option<Vec<u32>> = value.split(|&byte| byte == b':').map(whole).collect();
    let limits = match limits?[..] {
        [limit] => [limit; 3],
        [high, normal, low] => [high, normal, low],
        _ => return None,
    };
    (limits != [0; 3]).then(|| limits.map(|limit| if limit == 0 { u32::MAX } else { limit }))
}

fn positive(value: &[u8]) -> Option<u32> {
    whole(value).filter(|number| *number > 0)
}

pub fn tube_settings(settings: &TubeSettings) -> Vec<u8> {
    let numbers = |numbers: &[u32], separator| {
        let texts = || numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(separator);
        numbers.iter().any(|number| *number > 0).then(texts)
    };
    let dead = settings.dead.as_ref().map(|dead| {
        let mut name = Vec::new();
        push_tube_name(&mut name, dead);
        String::from_utf8_lossy(&name).into_owned()
    });
    let tries = [settings.tries.into(), settings.backoff];
    let used = if settings.tries == 0 { 0 } else { 1 + usize::from(settings.backoff > 0) };
    let rate = settings.rate.map_or([0; 2], |rate| [rate.count, rate.seconds]);
    let limits = settings.max_jobs.map(|limit| if limit == u32::MAX { 0 } else { limit });
    let differ = limits.iter().any(|limit| *limit != limits[0]);
    let values = [
        numbers(upto(&tries, used), ":"),
        numbers(&[settings.ttl], ""),
        dead,
        numbers(&[settings.max], ""),
        numbers(&rate, "/"),
        numbers(upto(&limits, if differ { 3 } else { 1 }), ":"),
    ];
    let words = SETTINGS.iter().zip(values).filter_map(|(word, value)| Some(format!("{word}:{}", value?)));
    words.collect::<Vec<_>>().join(" ").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_words_are_parsed() {
        for (extension, word) in EXTENSIONS {
            let parsed = Extensions::from_list(word).unwrap();
            assert!(parsed.has(extension) && parsed.words() == word);
        }
        assert_eq!(Extensions::from_list(&Extensions::ALL.words().replace(' ', ",")), Ok(Extensions::ALL));
        assert_eq!(Extensions::from_list("idp,no,ttl"), Err("no"));
        assert_eq!(Extensions::from_list(""), Ok(Extensions::NONE));
    }

    #[test]
    fn tags_are_in_any_order_and_unique() {
        let Tagging::Tagged(tags) = read_tags(b" ttl:9  idp:k:60 tub:t try:3:10", Extensions::ALL) else { panic!() };
        assert_eq!(tags.tube.as_deref(), Some(b"t".as_slice()));
        assert_eq!((tags.options.dedup_key, tags.options.keep), (DedupKey::Name(b"k".as_slice().into()), 60));
        assert_eq!((tags.options.max_attempts, tags.options.backoff, tags.options.ttl), (3, 10, Span::from_secs(9)));
        let Tagging::Tagged(tags) = read_tags(br#" ttl:9 idp:"a \"b\x00":60 try:3:10:2"#, Extensions::ALL) else {
            panic!()
        };
        assert_eq!((tags.options.dedup_key, tags.options.keep), (DedupKey::Name(b"a \"b\0".as_slice().into()), 60));
        assert_eq!((tags.options.max_attempts, tags.options.backoff, tags.options.fails), (3, 10, 2));
        for wrong in [
            r#" idp:"""#,
            r#" idp:"a"#,
            r#" idp:"a"b"#,
            r#" idp:"a":"#,
            " try:3:10:256",
            " try:3:10:2:1",
            " try:3::2",
            r#" con:"a b""#,
        ] {
            assert!(matches!(read_tags(wrong.as_bytes(), Extensions::ALL), Tagging::Malformed), "{wrong}");
        }
        let older = Extensions::NONE.with(Extension::Idp).with(Extension::Try);
        for wrong in [r#" idp:"a""#, " try:3:10:2"] {
            assert!(matches!(read_tags(wrong.as_bytes(), older), Tagging::Malformed), "{wrong}");
        }
        for wrong in
            [" idp:", " idp:k idp:k", " idp:-k", " idp:k:", " idp:k:x", " try:0", " try:256", " try:1:-1", " ttl:0"]
        {
            assert!(matches!(read_tags(wrong.as_bytes(), Extensions::ALL), Tagging::Malformed), "{wrong}");
        }
        for garbage in ["x", " ", " foo:b", " foo:b idp:k", "idp:k", " idp", " IDP:k"] {
            assert!(matches!(read_tags(garbage.as_bytes(), Extensions::ALL), Tagging::Garbage), "{garbage}");
        }
        assert!(matches!(read_tags(b" idp:k foo:b", Extensions::ALL), Tagging::Malformed));
        for wrong in
            [" grp:", " grp:-x", " grp:a:1", " grp:a grp:a", " grp:a aft:a", " aft:a:", " aft:a:x", " aft:a aft:a:2"]
        {
            assert!(matches!(read_tags(wrong.as_bytes(), Extensions::ALL), Tagging::Malformed), "{wrong}");
        }
        let many = |count: usize| (0..count).map(|index| format!(" grp:g{index}")).collect::<String>();
        let Tagging::Tagged(tags) = read_tags(many(MAX_TIES).as_bytes(), Extensions::ALL) else { panic!() };
        assert_eq!(tags.options.groups.len(), MAX_TIES);
        assert!(matches!(read_tags(many(MAX_TIES + 1).as_bytes(), Extensions::ALL), Tagging::Malformed));
        let Tagging::Tagged(tags) = read_tags(b" aft:a grp:b aft:c:0 aft:d:7", Extensions::ALL) else { panic!() };
        let ties: Vec<Tie> = tags.options.groups.iter().map(|tag| tag.tie).collect();
        let after = |even_if_new| Tie::After { even_if_new };
        assert_eq!(ties, [after(false), Tie::Member, after(true), Tie::AfterCount(7)]);
        assert!(matches!(read_tags(b" idp:k", Extensions::NONE), Tagging::Garbage));
        assert!(matches!(read_tags(b"", Extensions::ALL), Tagging::Plain));
    }

    #[test]
    fn schedule_has_a_key_and_no_dependencies() {
        for right in [
            " idp:k cron:*/5,*,*,*,*",
            " cron:@daily idp:k",
            r#" cron:"0,30 9-17 * * mon-fri" idp:k try:3 ttl:60 con:c:2 grp:g tub:t"#,
            " idp:k:60 every:300",
        ] {
            let Tagging::Tagged(tags) = read_tags(right.as_bytes(), Extensions::ALL) else { panic!("{right}") };
            assert!(tags.recurs.is_some(), "{right}");
        }
        for wrong in [
            " cron:@daily",
            " every:300",
            " idp:k cron:300",
            " idp:k every:@daily",
            " idp:k every:0",
            " idp:k cron:@daily every:300",
            " idp:k cron:@daily cron:@daily",
            " idp:k every:300 aft:g",
            " idp:k every:300 try:3:0:1",
            " idp:k cron:0,30,9,*,*,*",
            r#" idp:k cron:"* * 30 2 *""#,
            r#" idp:k cron:"* * * * *"x"#,
            " idp:k cron:",
        ] {
            assert!(matches!(read_tags(wrong.as_bytes(), Extensions::ALL), Tagging::Malformed), "{wrong}");
        }
    }

    #[test]
    fn settings_are_parsed_and_written() {
        for text in [
            "",
            "try:5",
            "try:5:10",
            "ttl:60",
            "dead:mail-dead",
            r#"dead:"a b\xff""#,
            "max:3",
            "rate:100/60",
            "limit:7",
            "limit:1:0:3",
            "try:255:4294967295 ttl:4294967295 dead:d max:1 rate:1/1 limit:1",
        ] {
            let settings = read_settings(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(String::from_utf8_lossy(&tube_settings(&settings)), text);
        }
        assert_eq!(read_settings(b"  max:3   try:2 "), None, "a space at the end");
        assert_eq!(read_settings(b" limit:0:0:3  max:1"), read_settings(b"max:1 limit:0:0:3"));
    }

    #[test]
    fn malformed_settings_are_refused() {
        for text in [
            "try",
            "try:",
            "try:0",
            "try:256",
            "try:1:",
            "try:1:2:3",
            "ttl:0",
            "ttl:-1",
            "ttl:x",
            "dead:",
            "dead:-x",
            "dead:a b",
            r#"dead:"""#,
            r#"dead:"a\x00b""#,
            r#"dead:"a"b"#,
            "max:0",
            "rate:1",
            "rate:0/1",
            "rate:1/0",
            "rate:1/1/1",
            "limit:0",
            "limit:1:2",
            "limit:0:0:0",
            "max:1 max:1",
            "foo:1",
            "max:4294967296",
            "max:1\tttl:1",
        ] {
            assert_eq!(read_settings(text.as_bytes()), None, "{text}");
        }
    }
}
