//! Schedules: jobs with the tag `cron:` or `every:`, which put copies of themselves at recurring times. Must not put
//! jobs (see `rules/schedules.rs`).

use super::{
    date_of, day_of, hashed, DedupKey, GroupTag, Heap, JobId, JobOptions, Jobs, Name, Span, Table, Time, JOB_COST,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunCount {
    pub runs: u32,
    /// The number of due times at which the previous copy or its key still existed.
    pub skipped: u32,
}

/// The rarely used tags of each copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyTags {
    pub ttl: Span,
    pub tries: u8,
    pub backoff: u32,
    pub keep: u32,
    pub concurrency: Option<(Name, u32)>,
    pub groups: Vec<GroupTag>,
}

impl CopyTags {
    pub const NONE: &CopyTags =
        &CopyTags { ttl: Span::MAX, tries: 0, backoff: 0, keep: 0, concurrency: None, groups: Vec::new() };

    pub fn names(&self) -> usize {
        let key = self.concurrency.as_ref().map_or(0, |(key, _)| key.length());
        key + self.groups.iter().map(|group| group.name.length()).sum::<usize>()
    }
}

#[derive(Debug)]
pub struct Schedule {
    pub(in crate::engine) slot: u32,
    hash: u32,
    pub count: RunCount,
    /// The number of consecutive due times without a new copy.
    pub(in crate::engine) missed: u32,
    /// The name of the schedule, which is unique in the tube. The name is also the dedup key of each copy.
    pub(in crate::engine) name: Name,
    /// The text of the recurrence, which usually takes less memory than the parsed [`Recurrence`].
    pub(in crate::engine) when: Name,
    tags: Option<Box<CopyTags>>,
}

/// Bytes charged for a schedule and its index entries, excluding its job and strings.
pub const SCHEDULE_COST: u64 = size_of::<Schedule>() as u64 + 32;
const _: () = assert!(SCHEDULE_COST + JOB_COST <= 200);

impl Schedule {
    pub fn tags(&self) -> Option<&CopyTags> {
        self.tags.as_deref()
    }

    pub fn texts(&self) -> usize {
        self.name.length() + self.when.length() + self.tags().map_or(0, CopyTags::names)
    }

    pub fn recurrence(&self) -> Option<Recurrence> {
        Recurrence::parse(self.when.key())
    }

    pub fn copy_options(&self) -> JobOptions {
        let tags = self.tags().unwrap_or(CopyTags::NONE).clone();
        let CopyTags { ttl, tries: max_attempts, backoff, keep, concurrency, groups } = tags;
        let dedup_key = DedupKey::Name(self.name.clone());
        JobOptions { dedup_key, ttl, max_attempts, keep, backoff, concurrency, groups, ..JobOptions::default() }
    }
}

hashed!(Schedule, |schedule| schedule.hash, {
    let tags = schedule.tags().map_or(0, |tags| size_of::<CopyTags>() + tags.groups.len() * size_of::<GroupTag>());
    SCHEDULE_COST + (schedule.texts() + tags) as u64
});

#[derive(Debug, Default)]
pub struct Schedules {
    /// The table's `memory` does not include the jobs of the schedules.
    pub table: Table<Schedule>,
    /// The slots of the schedules' jobs, in the order of the next run or retry.
    pub order: Heap<(Time, JobId)>,
    pub(in crate::engine) total: (u64, u64),
    pub(in crate::engine) late: usize,
    /// No schedule runs before this time, because the log is making space for a copy.
    pub(in crate::engine) rests_until: Time,
}

impl Schedules {
    pub fn get(&self, number: u32) -> &Schedule {
        self.table.get(number)
    }

    pub fn note_run(&mut self, number: u32, is_put: bool) {
        let schedule = self.table.get_mut(number);
        self.late = self.late - usize::from(schedule.missed > 0) + usize::from(!is_put);
        schedule.missed = if is_put { 0 } else { schedule.missed.saturating_add(1) };
        *(if is_put { &mut schedule.count.runs } else { &mut schedule.count.skipped }) += 1;
        *(if is_put { &mut self.total.0 } else { &mut self.total.1 }) += 1;
    }

    pub fn remove(&mut self, number: u32) {
        self.late -= usize::from(self.get(number).missed > 0);
        self.table.remove(number);
    }

    /// Finds a schedule for which `is_meant` returns `true`. `is_meant` receives the slot of the schedule's job.
    pub fn find(&self, name: &Name, hash: u32, is_meant: impl Fn(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |schedule| schedule.name == *name && is_meant(schedule.slot))
    }

    pub fn insert(&mut self, slot: u32, name: Name, hash: u32, when: Name, tags: CopyTags) -> u32 {
        let tags = (tags != *CopyTags::NONE).then(|| Box::new(tags));
        let count = RunCount::default();
        self.table.insert(Schedule { slot, hash, count, missed: 0, name, when, tags })
    }

    pub fn enter(&mut self, at: Time, slot: u32, jobs: &mut Jobs) {
        self.order.push((at, jobs.get(slot).id), slot, jobs);
    }

    pub fn leave(&mut self, slot: u32, jobs: &mut Jobs) {
        self.order.remove(jobs.get(slot).position(), jobs);
    }

    pub fn retime(&mut self, at: Time, slot: u32, jobs: &mut Jobs) {
        self.leave(slot, jobs);
        self.enter(at, slot, jobs);
    }

    /// Returns the time of the next run or retry, and the slot of the schedule's job.
    pub fn first(&self) -> Option<(Time, u32)> {
        self.order.first().map(|((at, _), slot)| (at.max(self.rests_until), slot))
    }
}

const MINUTE: u64 = 60_000_000_000;
const DAY: u64 = 24 * 60 * MINUTE;
/// The number of days to search. In any 40 years, February 29 falls on each day of the week at least once.
const HORIZON: u64 = 41 * 366;

/// The smallest and the largest value of each field in cron's format, and the names of the first values.
const FIELDS: [(u8, u8, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    // Sunday is 0 or 7.
    (0, 7, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

pub const MAX_RECURRENCE: usize = 200;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Minutes {
    /// Minute, hour, day of the month, month, and day of the week (from Sunday), each as a bit set.
    sets: [u64; 5],
    /// `true` if one matching day field is sufficient, because neither day field starts with `*`.
    any_day: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recurrence {
    Minutes(Minutes),
    /// The interval in seconds, at least 1.
    Every(u32),
}

impl Minutes {
    /// `None` means any value. Sunday is day 0 of the week.
    pub fn at(values: [Option<u8>; 5]) -> Minutes {
        let mut sets = FIELDS.map(|(min, max, _)| (min..=max).fold(0, |set, value| set | 1u64 << value));
        for (set, value) in sets.iter_mut().zip(values) {
            *set = value.map_or(*set, |value| 1 << value);
        }
        Minutes { sets, any_day: false }
    }

    fn parse(text: &[u8]) -> Option<Minutes> {
        let mut fields = text.split(|&byte| byte == b' ');
        let (mut sets, mut starred) = ([0; 5], [false; 5]);
        for (position, range) in FIELDS.iter().enumerate() {
            let field = fields.next()?;
            sets[position] = read_field(field, range)?;
            starred[position] = field.first() == Some(&b'*');
        }
        sets[4] = (sets[4] | sets[4] >> 7) & 0x7f;
        fields.next().is_none().then_some(Minutes { sets, any_day: !starred[2] && !starred[4] })
    }

    fn has(&self, field: usize, value: u64) -> bool {
        self.sets[field] >> value & 1 == 1
    }

    fn is_possible(&self) -> bool {
        const LENGTHS: [u64; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let has_date = |month: u64| (1..=LENGTHS[month as usize - 1]).any(|day| self.has(2, day));
        self.any_day || (1..=12).any(|month| self.has(3, month) && has_date(month))
    }

    /// `date` and `end` are numbers of days since 1970-01-01, a Thursday.
    fn day_from(&self, mut date: u64, end: u64) -> Option<u64> {
        while date < end {
            let (year, month, day) = date_of(date as i64);
            if !self.has(3, month as u64) {
                date = u64::try_from(day_of(year, month + 1, 1)).ok()?.max(date + 1);
                continue;
            }
            let (of_month, of_week) = (self.has(2, day as u64), self.has(4, (date + 4) % 7));
            if if self.any_day { of_month || of_week } else { of_month && of_week } {
                return Some(date);
            }
            date += 1;
        }
        None
    }

    /// Returns the first matching minute that begins at or after `now`.
    pub fn next(&self, now: Time) -> Option<Time> {
        let first = now.nanos().div_ceil(MINUTE).saturating_mul(MINUTE);
        let mut date = first / DAY;
        let end = date + HORIZON;
        loop {
            date = self.day_from(date, end)?;
            let midnight = date.saturating_mul(DAY);
            let mut minutes = first.saturating_sub(midnight) / MINUTE..24 * 60;
            if let Some(minute) = minutes.find(|minute| self.has(1, minute / 60) && self.has(0, minute % 60)) {
                return Some(Time::from_nanos(midnight) + Span::from_nanos(minute * MINUTE));
            }
            date += 1;
        }
    }
}

impl Recurrence {
    /// Returns `None` if `text` is malformed or too long, or if no date matches.
    pub fn parse(text: &[u8]) -> Option<Recurrence> {
        if text.len() > MAX_RECURRENCE {
            return None;
        }
        if let Some(seconds) = number(text) {
            return u32::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Recurrence::Every);
        }
        let minutes = Minutes::parse(match text {
            b"@hourly" => b"0 * * * *",
            b"@daily" | b"@midnight" => b"0 0 * * *",
            b"@weekly" => b"0 0 * * 0",
            b"@monthly" => b"0 0 1 * *",
            b"@yearly" | b"@annually" => b"0 0 1 1 *",
            fields => fields,
        })?;
        minutes.is_possible().then_some(Recurrence::Minutes(minutes))
    }

    /// `last` is the previous due time.
    pub fn after(&self, last: Time, now: Time) -> Time {
        match self {
            Recurrence::Minutes(minutes) => minutes.next(now + Span::from_nanos(1)).unwrap_or(Time::NEVER),
            Recurrence::Every(seconds) => {
                let span = Span::from_secs((*seconds).into()).nanos();
                let missed = now.since(last).nanos() / span;
                last + Span::from_nanos(span.saturating_mul(missed + 1))
            }
        }
    }

    /// Returns the time of the first run of a schedule created at `now`, at least `delay` later.
    pub fn first(&self, now: Time, delay: Span) -> Time {
        match self {
            Recurrence::Every(_) if delay > Span::ZERO => now + delay,
            Recurrence::Every(seconds) => now + Span::from_secs((*seconds).into()),
            Recurrence::Minutes(minutes) => minutes.next(now + delay).unwrap_or(Time::NEVER),
        }
    }

    /// Limits `due`, which may be too late if the clock was set back.
    pub fn bounded(&self, due: Time, now: Time, delay: Span) -> Time {
        let begin = now + delay;
        match self {
            Recurrence::Minutes(_) => due.min(self.after(begin, self.after(begin, begin))),
            Recurrence::Every(seconds) => due.min(now + delay.max(Span::from_secs((*seconds).into()))),
        }
    }
}

/// A field is a list of values and ranges with optional steps.
fn read_field(field: &[u8], range: &(u8, u8, &[&str])) -> Option<u64> {
    let (min, max, _) = *range;
    let mut set = 0;
    for part in field.split(|&byte| byte == b',') {
        let (values, step) = match part.iter().position(|&byte| byte == b'/') {
            Some(at) => (part.get(..at)?, Some(number(part.get(at + 1..)?).filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (first, last) = match values.iter().position(|&byte| byte == b'-') {
            _ if values == b"*" => (min, max),
            Some(at) => (value(values.get(..at)?, range)?, value(values.get(at + 1..)?, range)?),
            None => {
                let first = value(values, range)?;
                // As in cron, a single value with a step is a range up to the largest value.
                (first, if step.is_some() { max } else { first })
            }
        };
        if first > last {
            return None;
        }
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        set = (first..=last).step_by(step).fold(set, |set, value| set | 1 << value);
    }
    Some(set)
}

fn value(text: &[u8], (min, max, names): &(u8, u8, &[&str])) -> Option<u8> {
    let named = names.iter().position(|name| text.eq_ignore_ascii_case(name.as_bytes()));
    let value = named.map(|position| *min + position as u8).or_else(|| u8::try_from(number(text)?).ok());
    value.filter(|value| (*min..=*max).contains(value))
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = (1..=10).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tuesday, 14 November 2023, 22:13:20.
    const NOW: u64 = 1_700_000_000;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn after(text: &str, now: u64) -> u64 {
        let recurrence = Recurrence::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
        recurrence.after(at(now), at(now)).nanos() / 1_000_000_000
    }

    #[test]
    fn the_next_minute_is_found() {
        for (text, next) in [
            ("* * * * *", 1_700_000_040),
            ("*/5 * * * *", 1_700_000_100),
            ("14 * * * *", 1_700_000_040),
            ("13 * * * *", 1_700_003_580),
            ("0,30 22-23 * * *", 1_700_001_000),
            ("50/5 * * * *", 1_700_002_200),
            ("0 22 * * *", 1_700_085_600),
            ("30 6 1 * *", 1_701_412_200),
            ("0 0 * * mon", 1_700_438_400),
            ("0 0 * * 1", 1_700_438_400),
            ("0 0 * * Sun", 1_700_352_000),
            ("0 0 * * 7", 1_700_352_000),
            ("0 0 * * 5-7", 1_700_179_200),
            ("59 23 31 dec *", 1_704_067_140),
            ("0 12 29 2 *", 1_709_208_000),
            ("0 0 31 */2 *", 1_704_067_200 + 30 * 86_400),
            ("@hourly", 1_700_002_800),
            ("@daily", 1_700_006_400),
            ("@weekly", 1_700_352_000),
            ("@monthly", 1_701_388_800),
            ("@yearly", 1_704_067_200),
        ] {
            assert_eq!(after(text, NOW), next, "{text}");
        }
        assert_eq!(after("* * * * *", 1_700_000_040), 1_700_000_100, "this minute is over");
    }

    #[test]
    fn one_of_two_fields_for_days_is_enough_unless_one_begins_with_a_star() {
        // The 15th is a Wednesday, and the 17th is a Friday.
        assert_eq!(after("0 0 17 * wed", NOW), 1_700_006_400);
        assert_eq!(after("0 0 15 * fri", NOW), 1_700_006_400);
        assert_eq!(after("0 0 */2 * fri", NOW), 1_700_179_200, "the 17th");
        assert_eq!(after("0 0 13 * fri", NOW), 1_700_179_200, "Friday the 17th");
    }

    #[test]
    fn seconds_keep_their_phase() {
        let every = Recurrence::parse(b"300").expect("a number");
        assert_eq!(every.first(at(7), Span::ZERO), at(307));
        assert_eq!(every.first(at(7), Span::from_secs(2)), at(9));
        assert_eq!(every.after(at(307), at(307)), at(607));
        assert_eq!(every.after(at(307), at(1000)), at(1207), "missed times are left out");
        assert_eq!(every.bounded(at(90_000), at(50), Span::ZERO), at(350));
        assert_eq!(every.bounded(at(90_000), at(50), Span::from_secs(900)), at(950));
        assert_eq!(every.bounded(at(60), at(50), Span::ZERO), at(60));
        let daily = Recurrence::parse(b"@daily").expect("a nickname");
        assert_eq!(daily.first(at(5), Span::from_secs(86_400)), at(2 * 86_400));
        assert_eq!(daily.bounded(at(900 * 86_400), at(5), Span::ZERO), at(2 * 86_400));
        assert_eq!(daily.bounded(at(86_400), at(5), Span::ZERO), at(86_400));
    }

    #[test]
    fn rare_dates_are_found_and_impossible_ones_are_refused() {
        for weekday in 0..7 {
            // After February 2096, the next leap year is 2104.
            let minutes = Minutes::at([None, None, Some(29), Some(2), Some(weekday)]);
            let found = minutes.next(at(3_981_398_400)).expect("a date").nanos() / DAY;
            assert_eq!((date_of(found as i64).1, date_of(found as i64).2), (2, 29));
        }
        for wrong in [
            "",
            "0",
            "4294967296",
            "00000000000",
            "* * * *",
            "* * * * * *",
            "*  * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 * ",
            "* * * 0 *",
            "* * * * 8",
            "-1 * * * *",
            "+1 * * * *",
            "*/0 * * * *",
            "5-3 * * * *",
            "1,,2 * * * *",
            "x * * * *",
            "* * * * mo",
            "1- * * * *",
            "*-3 * * * *",
            "@never",
            "@",
            "* * 30 2 *",
            "0 0 31 4,6,9,11 *",
            "1/2/3 * * * *",
        ] {
            assert_eq!(Recurrence::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(Recurrence::parse(&[b'1'; MAX_RECURRENCE + 1]), None);
    }

    #[test]
    fn every_time_matches_and_none_between_does() {
        // Compare with a check of each minute of a year.
        for text in ["*/17 3-5 * * *", "0 0 29 feb *", "7 7 13 * fri", "0 */6 1-7 * mon"] {
            let Some(Recurrence::Minutes(minutes)) = Recurrence::parse(text.as_bytes()) else { panic!("{text}") };
            let mut next = minutes.next(at(NOW)).expect("a time");
            for minute in NOW / 60 + 1..NOW / 60 + 366 * 1440 {
                let (date, of_day) = (minute / 1440, minute % 1440);
                let matches = minutes.day_from(date, date + 1).is_some()
                    && minutes.has(1, of_day / 60)
                    && minutes.has(0, of_day % 60);
                assert_eq!(matches, at(minute * 60) == next, "{text}: {minute}");
                if matches {
                    next = minutes.next(next + Span::from_nanos(1)).expect("a time");
                }
            }
        }
    }
}
