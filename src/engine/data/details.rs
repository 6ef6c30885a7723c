//! The details of a job: its delay, its time to run, and its event counts.
//!
//! Owns the compact form of the details. Nearly every job has times in whole milliseconds and counts below 256, which
//! fit into thirteen bytes. Other values are boxed, so no value is rounded or truncated. The compact form saves 24
//! bytes per job. Must not depend on job states.

use super::Span;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    Reserves,
    Timeouts,
    Releases,
    Buries,
    Kicks,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct History {
    pub reserves: u32,
    pub timeouts: u32,
    pub releases: u32,
    pub buries: u32,
    pub kicks: u32,
}

#[derive(Debug)]
pub struct Details(Form);

#[derive(Debug)]
enum Form {
    Packed { delay: u32, ttr: u32, counts: [u8; 5] },
    Whole(Box<Whole>),
}

#[derive(Clone, Copy, Debug)]
struct Whole {
    delay: Span,
    ttr: Span,
    history: History,
}

const ENDLESS: u32 = u32::MAX;

/// Encodes whole seconds as `2 × seconds`, and whole milliseconds as `2 × milliseconds + 1`.
fn pack(span: Span) -> Option<u32> {
    if span == Span::MAX {
        return Some(ENDLESS);
    }
    let nanos = span.nanos();
    let code = if nanos % 1_000_000_000 == 0 {
        nanos / 1_000_000_000 * 2
    } else if nanos % 1_000_000 == 0 {
        nanos / 1_000_000 * 2 + 1
    } else {
        return None;
    };
    u32::try_from(code).ok().filter(|code| *code != ENDLESS)
}

fn unpack(code: u32) -> Span {
    if code == ENDLESS {
        return Span::MAX;
    }
    let number = u64::from(code >> 1);
    if code & 1 == 0 {
        Span::from_secs(number)
    } else {
        Span::from_millis(number)
    }
}

impl Details {
    pub fn new(delay: Span, ttr: Span) -> Details {
        match (pack(delay), pack(ttr)) {
            (Some(delay), Some(ttr)) => Details(Form::Packed { delay, ttr, counts: [0; 5] }),
            _ => Details::of(Whole { delay, ttr, history: History::default() }),
        }
    }

    fn of(whole: Whole) -> Details {
        Details(packed(&whole).unwrap_or_else(|| Form::Whole(Box::new(whole))))
    }

    pub fn delay(&self) -> Span {
        match &self.0 {
            Form::Packed { delay, .. } => unpack(*delay),
            Form::Whole(whole) => whole.delay,
        }
    }

    pub fn ttr(&self) -> Span {
        match &self.0 {
            Form::Packed { ttr, .. } => unpack(*ttr),
            Form::Whole(whole) => whole.ttr,
        }
    }

    pub fn history(&self) -> History {
        match &self.0 {
            Form::Packed { counts, .. } => {
                let [reserves, timeouts, releases, buries, kicks] = counts.map(u32::from);
                History { reserves, timeouts, releases, buries, kicks }
            }
            Form::Whole(whole) => whole.history,
        }
    }

    pub fn reserves(&self) -> u32 {
        match &self.0 {
            Form::Packed { counts, .. } => counts[Count::Reserves as usize].into(),
            Form::Whole(whole) => whole.history.reserves,
        }
    }

    pub fn set_delay(&mut self, delay: Span) {
        self.change(|whole| whole.delay = delay);
    }

    pub fn set_history(&mut self, history: History) {
        self.change(|whole| whole.history = history);
    }

    pub fn set_count(&mut self, what: Count, count: u32) {
        self.change(|whole| *whole.history.count_mut(what) = count);
    }

    pub fn count(&mut self, what: Count) {
        if let Form::Packed { counts, .. } = &mut self.0 {
            let count = &mut counts[what as usize];
            if *count < u8::MAX {
                *count += 1;
                return;
            }
        }
        self.change(|whole| {
            let count = whole.history.count_mut(what);
            *count = count.saturating_add(1);
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Whole)) {
        let mut whole = Whole { delay: self.delay(), ttr: self.ttr(), history: self.history() };
        change(&mut whole);
        *self = Details::of(whole);
    }
}

fn packed(whole: &Whole) -> Option<Form> {
    let History { reserves, timeouts, releases, buries, kicks } = whole.history;
    let (mut counts, mut fits) = ([0; 5], true);
    for (packed, count) in counts.iter_mut().zip([reserves, timeouts, releases, buries, kicks]) {
        *packed = count as u8;
        fits &= u32::from(*packed) == count;
    }
    fits.then_some(Form::Packed { delay: pack(whole.delay)?, ttr: pack(whole.ttr)?, counts })
}

impl History {
    pub fn count_mut(&mut self, what: Count) -> &mut u32 {
        match what {
            Count::Reserves => &mut self.reserves,
            Count::Timeouts => &mut self.timeouts,
            Count::Releases => &mut self.releases,
            Count::Buries => &mut self.buries,
            Count::Kicks => &mut self.kicks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_any_kind_survive() {
        let nanos = [0, 1, 999_999, 1_000_000, 1_500_000_000, u64::MAX - 1];
        let spans = nanos.map(Span::from_nanos).into_iter();
        let seconds = [1, 60, u64::from(u32::MAX >> 1), u64::from(u32::MAX), u64::MAX].map(Span::from_secs);
        let millis = [1, 1500, u64::from(u32::MAX), u64::MAX].map(Span::from_millis);
        for span in spans.chain(seconds).chain(millis) {
            let mut details = Details::new(span, Span::ZERO);
            assert_eq!((details.delay(), details.ttr()), (span, Span::ZERO));
            details = Details::new(Span::from_millis(3), span);
            assert_eq!((details.delay(), details.ttr()), (Span::from_millis(3), span));
            details.set_delay(Span::ZERO);
            assert_eq!((details.delay(), details.ttr()), (Span::ZERO, span));
        }
        let usual = Details::new(Span::from_millis(1500), Span::from_secs(120));
        assert!(matches!(usual.0, Form::Packed { .. }));
    }

    #[test]
    fn every_count_goes_on_beyond_a_byte() {
        let mut details = Details::new(Span::ZERO, Span::from_secs(1));
        let counted = [Count::Reserves, Count::Timeouts, Count::Releases, Count::Buries, Count::Kicks];
        let mut expected = History::default();
        for (turn, what) in counted.into_iter().enumerate() {
            for _ in 0..100 * (turn + 1) {
                details.count(what);
                *expected.count_mut(what) += 1;
                assert_eq!(details.history(), expected);
            }
        }
        details.set_history(History::default());
        assert!(matches!(details.0, Form::Packed { .. }), "small again");
    }

    #[test]
    fn details_take_two_words() {
        assert_eq!(size_of::<Details>(), 16);
    }
}
