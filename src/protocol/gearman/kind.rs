//! The table of Gearman packets. Packets up to number 36 follow the protocol document, and later packets follow
//! gearmand's `libgearman/command.hpp`.

use crate::access::Need;

pub struct Packet {
    pub kind: Kind,
    pub need: Need,
    pub name: &'static str,
    /// Arguments are separated by NUL bytes. If data follow, a NUL byte also ends the last argument.
    pub arguments: &'static [&'static str],
    pub data: bool,
    pub is_request: bool,
    pub summary: &'static str,
}

type Usage = (Need, bool, bool);

const SENT: Usage = (Need::OPEN, false, false);

const fn request(need: Need) -> Usage {
    (need, true, false)
}

const fn data(need: Need) -> Usage {
    (need, true, true)
}

const fn row(
    kind: Kind,
    name: &'static str,
    (need, is_request, data): Usage,
    arguments: &'static [&'static str],
    summary: &'static str,
) -> Packet {
    Packet { kind, need, name, arguments, data, is_request, summary }
}

const SUBMIT: &[&str] = &["function", "unique"];
const REDUCE: &[&str] = &["function", "unique", "reducer", "aggregator"];
const SCHED: &[&str] = &["function", "unique", "minute", "hour", "day-of-month", "month", "day-of-week"];
const HANDLE: &[&str] = &["handle"];

table! {
    /// The discriminant is the packet type on the wire.
    enum Kind = 1;
    static PACKETS: [Packet] = row;
    CanDo("CAN_DO", request(Need::TAKE_NAMED), &["function"], "register a function that the worker can execute"),
    CantDo("CANT_DO", request(Need::OPEN), &["function"], "unregister a function"),
    ResetAbilities("RESET_ABILITIES", request(Need::OPEN), &[], "unregister all functions"),
    PreSleep("PRE_SLEEP", request(Need::TAKE_ANY), &[], "wake the worker when there is a job for it"),
    Unused("UNUSED", SENT, &[], "nothing"),
    Noop("NOOP", SENT, &[], "there may be a job for the worker"),
    SubmitJob("SUBMIT_JOB", data(Need::PUT_NAMED), SUBMIT, "submit a job and wait for its result"),
    JobCreated("JOB_CREATED", SENT, &[], "the handle of the submitted job"),
    GrabJob("GRAB_JOB", request(Need::TAKE_ANY), &[], "request a job"),
    NoJob("NO_JOB", SENT, &[], "no job is available"),
    JobAssign("JOB_ASSIGN", SENT, &[], "handle, function and data of a job"),
    WorkStatus("WORK_STATUS", request(Need::TAKE_JOB), &["handle", "numerator", "denominator"], "report the progress of a job"),
    WorkComplete("WORK_COMPLETE", data(Need::TAKE_JOB), HANDLE, "report that a job has succeeded, with its result"),
    WorkFail("WORK_FAIL", request(Need::TAKE_JOB), HANDLE, "report that a job has failed"),
    GetStatus("GET_STATUS", request(Need::FOLLOW_JOB), HANDLE, "request the status of a job"),
    EchoReq("ECHO_REQ", data(Need::OPEN), &[], "ask the server to echo the data"),
    EchoRes("ECHO_RES", SENT, &[], "the data of ECHO_REQ"),
    SubmitJobBg("SUBMIT_JOB_BG", data(Need::PUT_NAMED), SUBMIT, "submit a background job, whose result no client waits for"),
    Error("ERROR", SENT, &[], "code and text of an error"),
    StatusRes("STATUS_RES", SENT, &[], "handle, known, running, numerator and denominator"),
    SubmitJobHigh("SUBMIT_JOB_HIGH", data(Need::PUT_NAMED), SUBMIT, "like SUBMIT_JOB, but with high priority"),
    SetClientId("SET_CLIENT_ID", request(Need::OPEN), &["id"], "set the name that the text command workers shows for the connection"),
    CanDoTimeout("CAN_DO_TIMEOUT", request(Need::TAKE_NAMED), &["function", "timeout"], "like CAN_DO, but with a timeout for each job"),
    AllYours("ALL_YOURS", SENT, &[], "nothing; no server has ever taken it"),
    WorkException("WORK_EXCEPTION", data(Need::TAKE_JOB), HANDLE, "report that a job has failed, with the reason"),
    OptionReq("OPTION_REQ", request(Need::OPEN), &["option"], "set an option of the connection; the only option is exceptions"),
    OptionRes("OPTION_RES", SENT, &[], "the option that was set"),
    WorkData("WORK_DATA", data(Need::TAKE_JOB), HANDLE, "send a part of the result"),
    WorkWarning("WORK_WARNING", data(Need::TAKE_JOB), HANDLE, "send a warning about the job"),
    GrabJobUniq("GRAB_JOB_UNIQ", request(Need::TAKE_ANY), &[], "request a job; the reply includes the job's unique ID"),
    JobAssignUniq("JOB_ASSIGN_UNIQ", SENT, &[], "handle, function, unique ID and data of a job"),
    SubmitJobHighBg("SUBMIT_JOB_HIGH_BG", data(Need::PUT_NAMED), SUBMIT, "like SUBMIT_JOB_BG, but with high priority"),
    SubmitJobLow("SUBMIT_JOB_LOW", data(Need::PUT_NAMED), SUBMIT, "like SUBMIT_JOB, but with low priority"),
    SubmitJobLowBg("SUBMIT_JOB_LOW_BG", data(Need::PUT_NAMED), SUBMIT, "like SUBMIT_JOB_BG, but with low priority"),
    SubmitJobSched("SUBMIT_JOB_SCHED", data(Need::PUT_NAMED), SCHED, "like SUBMIT_JOB_BG, but the job becomes ready in the next matching minute"),
    SubmitJobEpoch("SUBMIT_JOB_EPOCH", data(Need::PUT_NAMED), &["function", "unique", "time"], "like SUBMIT_JOB_BG, but the job becomes ready at a Unix time, in seconds"),
    SubmitReduceJob("SUBMIT_REDUCE_JOB", data(Need::PUT_NAMED), REDUCE, "like SUBMIT_JOB, but with a reducer"),
    SubmitReduceJobBackground("SUBMIT_REDUCE_JOB_BACKGROUND", data(Need::PUT_NAMED), REDUCE, "like SUBMIT_JOB_BG, but with a reducer"),
    GrabJobAll("GRAB_JOB_ALL", request(Need::TAKE_ANY), &[], "request a job; the reply includes the job's unique ID and its reducer, if any"),
    JobAssignAll("JOB_ASSIGN_ALL", SENT, &[], "handle, function, unique ID, reducer and data of a job"),
    GetStatusUnique("GET_STATUS_UNIQUE", request(Need::FOLLOW_JOB), &["unique"], "request the status of the job with this unique ID"),
    StatusResUnique("STATUS_RES_UNIQUE", SENT, &[], "unique ID, known, running, numerator, denominator and number of waiting clients"),
}

pub fn packet(number: u32) -> Option<&'static Packet> {
    PACKETS.get((number as usize).wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_found_by_their_numbers() {
        for row in &PACKETS {
            assert_eq!(packet(row.kind as u32).map(|row| row.name), Some(row.name));
            assert!(!row.summary.is_empty());
            assert!(row.is_request || (row.arguments.is_empty() && !row.data), "{}", row.name);
        }
        assert!(packet(0).is_none() && packet(43).is_none() && packet(u32::MAX).is_none());
        assert_eq!(packet(42).map(|row| row.kind), Some(Kind::StatusResUnique));
    }
}
