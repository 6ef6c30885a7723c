//! The settings of a tube, which apply to the jobs of all clients.
//!
//! Owns the form of the settings in commands and in the log, and the window of a rate limit. Must not apply the
//! settings to jobs.

use std::sync::Arc;

use super::{Span, Time};

pub const UNLIMITED: [u32; 3] = [u32::MAX; 3];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    pub count: u32,
    /// The length of the window, at least 1.
    pub seconds: u32,
}

/// `N` is an owned or borrowed tube name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TubeSettings<N = Arc<[u8]>> {
    /// For each priority class, the number of jobs at which new jobs are refused. [`u32::MAX`] means unlimited.
    pub max_jobs: [u32; 3],
    /// Limits jobs without their own limit. 0 means unlimited.
    pub tries: u8,
    /// Seconds after the first failed try, doubled after each later one.
    pub backoff: u32,
    /// Seconds, for jobs without their own. 0 means unlimited.
    pub ttl: u32,
    /// Receives jobs that the server would otherwise bury in this tube.
    pub dead: Option<N>,
    /// Limits reserved jobs. 0 means unlimited.
    pub max: u32,
    pub rate: Option<Rate>,
}

impl<N> Default for TubeSettings<N> {
    fn default() -> TubeSettings<N> {
        TubeSettings { max_jobs: UNLIMITED, tries: 0, backoff: 0, ttl: 0, dead: None, max: 0, rate: None }
    }
}

impl<N> TubeSettings<N> {
    fn with_dead<M>(&self, dead: Option<M>) -> TubeSettings<M> {
        let TubeSettings { max_jobs, tries, backoff, ttl, max, rate, .. } = *self;
        TubeSettings { max_jobs, tries, backoff, ttl, dead, max, rate }
    }
}

impl TubeSettings<&[u8]> {
    pub fn kept(&self) -> TubeSettings {
        self.with_dead(self.dead.map(Arc::from))
    }
}

impl TubeSettings {
    pub fn borrowed(&self) -> TubeSettings<&[u8]> {
        self.with_dead(self.dead.as_deref())
    }

    pub fn cost(&self) -> u64 {
        RULES_COST + self.dead.as_ref().map_or(0, |name| LINK_COST + name.len() as u64)
    }

    pub fn dead_length(&self) -> usize {
        self.dead.as_ref().map_or(0, |name| name.len())
    }
}

#[derive(Debug, Default)]
pub struct TubeRules {
    pub(in crate::engine) settings: TubeSettings,
    taken: u32,
    window_end: Time,
}

/// Bytes charged for settings, excluding the dead-letter tube.
pub const RULES_COST: u64 = size_of::<TubeRules>() as u64 + 16;

/// Bytes charged for a dead-letter tube, excluding its name.
pub const LINK_COST: u64 = 80;

impl TubeRules {
    /// The current window continues if the rate does not change.
    pub fn set(&mut self, settings: TubeSettings) {
        if self.settings.rate != settings.rate {
            (self.taken, self.window_end) = (0, Time::default());
        }
        self.settings = settings;
    }

    pub fn take(&mut self, now: Time) {
        let Some(rate) = self.settings.rate else { return };
        if now >= self.window_end {
            // A busy tube starts the next window exactly at the end of the last window, so a late timer does not reduce
            // the rate.
            let length = Span::from_secs(rate.seconds.into());
            let next = self.window_end + length;
            (self.taken, self.window_end) = (0, if now < next { next } else { now + length });
        }
        self.taken += 1;
    }

    /// Returns [`Time::NEVER`] below the limit of the rate.
    pub fn opens(&self) -> Time {
        match self.settings.rate {
            Some(rate) if self.taken >= rate.count => self.window_end,
            _ => Time::NEVER,
        }
    }

    pub fn open(&mut self) {
        self.taken = 0;
    }

    pub fn is_spent(&self, reserved: u64) -> bool {
        self.settings.max > 0 && reserved >= self.settings.max.into() || self.opens() != Time::NEVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tests promise P28 of beanpole-promises(7).
    #[test]
    fn a_rate_allows_its_count_in_each_window() {
        let rate = Some(Rate { count: 3, seconds: 2 });
        let mut rules =
            TubeRules { settings: TubeSettings { rate, ..TubeSettings::default() }, ..TubeRules::default() };
        let at = |millis: u64| Time::from_nanos(1_000_000 * millis);
        let mut taken = Vec::new();
        for millis in (50_000..60_000).step_by(7) {
            if rules.opens() <= at(millis) {
                rules.open();
            }
            if !rules.is_spent(0) {
                rules.take(at(millis));
                taken.push(millis - 50_000);
            }
        }
        assert_eq!(taken[..7], [0, 7, 14, 2002, 2009, 2016, 4004]);
        assert_eq!(taken.len(), 15);
    }
}
