//! Extensions to beanstalkd's protocol. The commands and tags of a disabled extension behave as in beanstalkd.

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions(u32);

impl Extensions {
    pub const ALL: Extensions = Extensions((1 << EXTENSIONS.len()) - 1);

    pub const NONE: Extensions = Extensions(0);

    /// Words are separated by commas. Fails with the first unknown word.
    pub fn from_list(list: &str) -> Result<Extensions, &str> {
        let mut chosen = Extensions::NONE;
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let known = EXTENSIONS.iter().find(|(_, other)| *other == word).ok_or(word)?;
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

    pub fn words(self) -> String {
        let on = EXTENSIONS.iter().filter(|(extension, _)| self.has(*extension));
        on.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    }
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
}
