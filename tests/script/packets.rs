//! The names and types of the Gearman packets in conversations.
//!
//! This list is independent of the server's list, so that the tests detect a wrong number in the server.

pub const HEADER: usize = 12;

/// The names in the order of their types. The first type is 1.
const NAMES: [&str; 42] = [
    "CAN_DO",
    "CANT_DO",
    "RESET_ABILITIES",
    "PRE_SLEEP",
    "UNUSED",
    "NOOP",
    "SUBMIT_JOB",
    "JOB_CREATED",
    "GRAB_JOB",
    "NO_JOB",
    "JOB_ASSIGN",
    "WORK_STATUS",
    "WORK_COMPLETE",
    "WORK_FAIL",
    "GET_STATUS",
    "ECHO_REQ",
    "ECHO_RES",
    "SUBMIT_JOB_BG",
    "ERROR",
    "STATUS_RES",
    "SUBMIT_JOB_HIGH",
    "SET_CLIENT_ID",
    "CAN_DO_TIMEOUT",
    "ALL_YOURS",
    "WORK_EXCEPTION",
    "OPTION_REQ",
    "OPTION_RES",
    "WORK_DATA",
    "WORK_WARNING",
    "GRAB_JOB_UNIQ",
    "JOB_ASSIGN_UNIQ",
    "SUBMIT_JOB_HIGH_BG",
    "SUBMIT_JOB_LOW",
    "SUBMIT_JOB_LOW_BG",
    "SUBMIT_JOB_SCHED",
    "SUBMIT_JOB_EPOCH",
    "SUBMIT_REDUCE_JOB",
    "SUBMIT_REDUCE_JOB_BG",
    "GRAB_JOB_ALL",
    "JOB_ASSIGN_ALL",
    "GET_STATUS_UNIQUE",
    "STATUS_RES_UNIQUE",
];

pub fn kind(name: &str) -> Option<u32> {
    NAMES.iter().position(|known| *known == name).map(|place| place as u32 + 1)
}

pub fn name(kind: u32) -> String {
    let place = (kind as usize).wrapping_sub(1);
    NAMES.get(place).map_or_else(|| format!("packet {kind}"), |name| (*name).to_owned())
}

pub fn request(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    [b"\0REQ", kind.to_be_bytes().as_slice(), &length.to_be_bytes(), body].concat()
}

/// Returns the type and the body of the packet at the beginning of `bytes`, or `None` if the packet is incomplete.
/// Returns an error if the bytes are not a response packet.
pub fn response(bytes: &[u8]) -> Result<Option<(u32, &[u8])>, ()> {
    let magic = &bytes[..bytes.len().min(4)];
    if !b"\0RES".starts_with(magic) {
        return Err(());
    }
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    Ok(rest.get(..number(8) as usize).map(|body| (number(4), body)))
}
