//! The packets' numbers.
//!
//! Owns the numbers on the wire. The table of `packets.rs` contains names and arguments.

/// A packet, identified by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[allow(missing_docs)] // each is the packet of its name; `PACKETS` says what it does
pub enum Kind {
    CanDo = 1,
    CantDo,
    ResetAbilities,
    PreSleep,
    Unused,
    Noop,
    SubmitJob,
    JobCreated,
    GrabJob,
    NoJob,
    JobAssign,
    WorkStatus,
    WorkComplete,
    WorkFail,
    GetStatus,
    EchoReq,
    EchoRes,
    SubmitJobBg,
    Error,
    StatusRes,
    SubmitJobHigh,
    SetClientId,
    CanDoTimeout,
    AllYours,
    WorkException,
    OptionReq,
    OptionRes,
    WorkData,
    WorkWarning,
    GrabJobUniq,
    JobAssignUniq,
    SubmitJobHighBg,
    SubmitJobLow,
    SubmitJobLowBg,
    SubmitJobSched,
    SubmitJobEpoch,
    SubmitReduceJob,
    SubmitReduceJobBackground,
    GrabJobAll,
    JobAssignAll,
    GetStatusUnique,
    StatusResUnique,
}
