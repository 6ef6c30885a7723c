//! Rights, and what a command needs.
//!
//! Owns what the four rights are for, and how a command says which of them it needs on which tubes. Each row in the
//! tables of commands carries a [`Need`]; one whose tube cannot be told is refused.

use super::pattern::Pattern;

/// What somebody may do with the jobs of a tube.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    Put,
    /// Reserve jobs, and say what becomes of those.
    Take,
    Look,
    /// Kick, pause, and delete what others have put.
    Admin,
}

impl Right {
    pub const ALL: [Right; 4] = [Right::Put, Right::Take, Right::Look, Right::Admin];

    /// What the access file calls it.
    pub fn name(self) -> &'static str {
        match self {
            Right::Put => "put",
            Right::Take => "take",
            Right::Look => "look",
            Right::Admin => "admin",
        }
    }
}

/// On which tubes a command needs a right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// None: everybody who is let in may.
    Open,
    /// Any one; then the command shows or does no more than its rights allow.
    AnyTube,
    AllTubes,
    /// The one that the client uses.
    Used,
    /// Those that the command names.
    Named,
    /// That of the job which the command names; any one if there is no such job.
    Job,
    /// The same, but a client that holds the job may with the right to take jobs, too.
    OwnJob,
    /// All that the client watches.
    Watched,
}

/// What a command needs; by default what nobody has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// One of these is enough.
    pub rights: &'static [Right],
    pub scope: Scope,
}

impl Need {
    /// Nothing but to be let in.
    pub const OPEN: Need = Need { rights: &[], scope: Scope::Open };

    /// To put into the tube in use.
    pub const PUT_USED: Need = Need::any_of(&[Right::Put], Scope::Used);
    /// To put into the tubes that are named.
    pub const PUT_NAMED: Need = Need::any_of(&[Right::Put], Scope::Named);
    /// To use a tube: what else a client does with that needs its own right.
    pub const USE_NAMED: Need = Need::any_of(&[Right::Put, Right::Look, Right::Admin], Scope::Named);
    /// To take jobs at all, when each tube was checked before.
    pub const TAKE_ANY: Need = Need::any_of(&[Right::Take], Scope::AnyTube);
    /// To take jobs of the tubes that are named.
    pub const TAKE_NAMED: Need = Need::any_of(&[Right::Take], Scope::Named);
    /// To take jobs of all tubes that the client watches.
    pub const TAKE_WATCHED: Need = Need::any_of(&[Right::Take], Scope::Watched);
    /// To take a job, or to say what becomes of it.
    pub const TAKE_JOB: Need = Need::any_of(&[Right::Take], Scope::Job);
    /// To see something of the tubes for which one has the right.
    pub const LOOK_ANY: Need = Need::any_of(&[Right::Look], Scope::AnyTube);
    /// To see what cannot be told apart by tubes.
    pub const LOOK_ALL: Need = Need::any_of(&[Right::Look], Scope::AllTubes);
    /// To see jobs of the tube in use.
    pub const LOOK_USED: Need = Need::any_of(&[Right::Look], Scope::Used);
    /// To see the tubes that are named.
    pub const LOOK_NAMED: Need = Need::any_of(&[Right::Look], Scope::Named);
    /// The client that has reserved the job needs no more than the right to take jobs.
    pub const LOOK_OWN_JOB: Need = Need::any_of(&[Right::Look], Scope::OwnJob);
    pub const LOOK_JOB: Need = Need::any_of(&[Right::Look], Scope::Job);
    /// To ask what became of a job, as those do who put it.
    pub const FOLLOW_JOB: Need = Need::any_of(&[Right::Put, Right::Look], Scope::Job);
    pub const ADMIN_ALL: Need = Need::any_of(&[Right::Admin], Scope::AllTubes);
    /// To change the tube in use.
    pub const ADMIN_USED: Need = Need::any_of(&[Right::Admin], Scope::Used);
    /// To change the tubes that are named.
    pub const ADMIN_NAMED: Need = Need::any_of(&[Right::Admin], Scope::Named);
    /// To change a job, whoever put it.
    pub const ADMIN_JOB: Need = Need::any_of(&[Right::Admin], Scope::Job);
    /// The same, but not for the client that holds it.
    pub const DELETE_JOB: Need = Need::any_of(&[Right::Admin], Scope::OwnJob);

    /// One of these rights there.
    pub const fn any_of(rights: &'static [Right], scope: Scope) -> Need {
        Need { rights, scope }
    }
}

impl Default for Need {
    fn default() -> Need {
        Need { rights: &[], scope: Scope::AllTubes }
    }
}

/// What somebody may do, and on which tubes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights([Vec<Pattern>; 4]);

impl Rights {
    pub fn grant(&mut self, right: Right, pattern: Pattern) {
        self.0[right as usize].push(pattern);
    }

    /// Whether they are enough for this tube.
    pub fn allow(&self, rights: &[Right], tube: &[u8]) -> bool {
        rights.iter().any(|right| self.0[*right as usize].iter().any(|pattern| pattern.matches(tube)))
    }

    /// Whether they are enough for some tube.
    pub fn allow_somewhere(&self, rights: &[Right]) -> bool {
        rights.iter().any(|right| !self.0[*right as usize].is_empty())
    }

    /// Whether they are enough for every tube, without looking at it.
    pub fn allow_everywhere(&self, rights: &[Right]) -> bool {
        rights.iter().any(|right| self.0[*right as usize].iter().any(Pattern::is_all))
    }

    /// Whether they allow all that the others do. A pattern that only several others cover together counts as not
    /// covered.
    pub fn cover(&self, other: &Rights) -> bool {
        let covered = |right: Right, narrow: &Pattern| self.0[right as usize].iter().any(|wide| wide.covers(narrow));
        Right::ALL.into_iter().all(|right| other.0[right as usize].iter().all(|narrow| covered(right, narrow)))
    }
}
