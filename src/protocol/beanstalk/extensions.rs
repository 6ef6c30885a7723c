//! The server's extensions to beanstalkd, by the words that clients probe for.
//!
//! Owns the words and the set of enabled extensions. Without a word, its commands and tags have the same meaning as in
//! beanstalkd. Must not know their effects.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the table says what each is
pub enum Extension {
    Idp,
    Tub,
    Try,
    Ttl,
    Batch,
    Wait,
    Flush,
    PeekReserved,
    Drain,
    ListJobs,
    Move,
    Limit,
    Weight,
    Con,
    Times,
    Quote,
    Export,
    SetTube,
    Fail,
    Abort,
    StatsTubes,
    Grp,
    Aft,
    Cron,
    Every,
    Connections,
    Revoke,
    Progress,
    History,
}

/// Each extension with its word and a description in one line.
pub const EXTENSIONS: [(Extension, &str, &str); 29] = [
    (Extension::Idp, "idp", "a tag of put: a key that no two jobs of a tube share"),
    (Extension::Tub, "tub", "a tag of put: the tube by its name"),
    (Extension::Try, "try", "a tag of put: a job that is lost or released too often is buried"),
    (Extension::Ttl, "ttl", "a tag of put: a job that has waited too long is deleted"),
    (Extension::Batch, "batch", "reserve-batch, delete-batch and touch-all"),
    (Extension::Wait, "wait", "waiting for the end of a job"),
    (Extension::Flush, "flush", "flush-tube and flush-buried"),
    (Extension::PeekReserved, "peek-reserved", "the command of that name"),
    (Extension::Drain, "drain", "drain and undrain"),
    (Extension::ListJobs, "list-jobs", "the command of that name"),
    (Extension::Move, "move", "move-job and move-tube"),
    (Extension::Limit, "limit-tube", "the command of that name"),
    (Extension::Weight, "weight", "weights of watched tubes, and reserve-mode"),
    (Extension::Con, "con", "a tag of put: a key that bounds how many jobs are reserved at a time"),
    (Extension::Times, "times", "in stats-tube, how long jobs wait and run, and how old the oldest are"),
    (Extension::Quote, "quote", "names of tubes in quotes, which beanstalkd does not allow"),
    (Extension::Export, "export", "what an export needs beside list-jobs, and what brings it back"),
    (Extension::SetTube, "set-tube", "settings of tubes, which hold for the jobs of all clients"),
    (Extension::Fail, "fail", "the command of that name: a failed try, with its reason"),
    (
        Extension::Abort,
        "reserve-with-abort",
        "the command of that name: a reserve that ends when the client sends anything",
    ),
    (Extension::StatsTubes, "stats-tubes", "the command of that name: the statistics of all tubes"),
    (Extension::Grp, "grp", "a tag of put: a group that the job is a member of; and stats-group"),
    (Extension::Aft, "aft", "a tag of put: the job is held until members of a group have ended"),
    (Extension::Cron, "cron", "a tag of put: the job recurs at times in cron's form"),
    (Extension::Every, "every", "a tag of put: the job recurs after this many seconds each time"),
    (Extension::Connections, "connections", "list-connections, name, and in stats-job, who else holds a job"),
    (Extension::Revoke, "revoke", "the command of that name: a reserved job is taken from its holder"),
    (Extension::Progress, "progress", "progress of a job in touch and stats-job"),
    (Extension::History, "history", "list-history: the jobs that ended or were buried last"),
];

/// A set of extensions, such as those that a server offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions(u32);

impl Extensions {
    pub const ALL: Extensions = Extensions((1 << EXTENSIONS.len()) - 1);

    /// No extensions: only beanstalkd's own commands.
    pub const NONE: Extensions = Extensions(0);

    /// Parses a comma-separated list of words; the error is an unknown word.
    pub fn from_list(list: &str) -> Result<Extensions, &str> {
        let mut chosen = Extensions::NONE;
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let known = EXTENSIONS.iter().find(|(_, other, _)| *other == word).ok_or(word)?;
            chosen = chosen.with(known.0);
        }
        Ok(chosen)
    }

    #[must_use]
    pub const fn with(self, extension: Extension) -> Extensions {
        Extensions(self.0 | 1 << extension as u32)
    }

    pub const fn has(self, extension: Extension) -> bool {
        self.0 & 1 << extension as u32 != 0
    }

    /// Returns the words of the enabled extensions, separated by spaces.
    pub fn words(self) -> String {
        let on = EXTENSIONS.iter().filter(|(extension, ..)| self.has(*extension));
        on.map(|(_, word, _)| *word).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extension_has_its_row_and_its_word() {
        for (place, (extension, word, summary)) in EXTENSIONS.iter().enumerate() {
            assert_eq!(*extension as usize, place, "{word}");
            assert!(!summary.is_empty());
            let alone = Extensions::from_list(word).unwrap();
            assert!(alone.has(*extension) && alone.words() == *word);
        }
        assert_eq!(Extensions::from_list(&Extensions::ALL.words().replace(' ', ",")), Ok(Extensions::ALL));
        assert_eq!(Extensions::from_list("idp,no,ttl"), Err("no"));
        assert_eq!(Extensions::from_list(""), Ok(Extensions::NONE));
    }
}
