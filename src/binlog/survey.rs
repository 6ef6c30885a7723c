//! Discovery of the segments of a log. Each header contains the end of the previous segment, so missing, duplicate and
//! foreign segments are detected.
//! Enforces promise P19 of beanpole-promises(7).

use std::collections::{BTreeMap, HashMap};
use std::io;

use super::segment::{segment_name, segment_number, Beginning, Header, HEADER};
use super::storage::{in_file, is_bad_disk, OpenError, Storage};

/// This file exists until the first header of a new log is durable. Later, a log without headers is damaged.
pub const BEGUN: &str = "segment.begun";

/// Bytes per read in the search for nonzero bytes.
const STRETCH: usize = 256 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct SegmentLink {
    pub number: u64,
    /// `None` if the file is not a regular file, or is missing although a later segment refers to it.
    pub length: Option<u64>,
    pub header: Option<Header>,
    pub whole: bool,
    /// The end of the segment's records, if a later header states it.
    pub limit: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Survey {
    pub log_id: Option<u64>,
    pub chain: Vec<SegmentLink>,
    /// Segments without records of the log: prepared segments, and segments that a disk failure has left behind.
    pub unused: Vec<u64>,
    pub foreign: Vec<u64>,
    /// `true` after an interrupted first start, which leaves [`BEGUN`].
    pub begun: bool,
}

impl Survey {
    pub fn of(storage: &dyn Storage) -> Result<Survey, OpenError> {
        let names = storage.list().map_err(OpenError::Folder)?;
        let found = names.iter().filter_map(|name| segment_number(name)).map(|it| Ok((it, read_header(storage, it)?)));
        let mut links: BTreeMap<_, _> = found.collect::<Result<_, OpenError>>()?;
        let begun = names.iter().any(|name| name == BEGUN);
        let mut survey = Survey { log_id: common_log(storage, &links), begun, ..Survey::default() };
        let log_id = survey.log_id;
        let is_ours = |link: &SegmentLink| {
            let is_in_log = |header: Header| Some(header.log_id) == log_id && header.segment == link.number;
            link.length.is_some() && link.header.is_none_or(is_in_log)
        };
        survey.foreign = links.values().filter(|link| !is_ours(link)).map(|link| link.number).collect();
        links.retain(|_, link| is_ours(link));
        let newest = links.values().filter(|link| link.header.is_some()).map(|link| link.number).max();
        for number in links.keys().copied().filter(|number| Some(*number) > newest).collect::<Vec<_>>() {
            let name = segment_name(number);
            match for_each_used(storage, &name, HEADER as u64, &mut |_, _| Ok(false)) {
                Ok(true) => survey.unused.extend(links.remove(&number).map(|link| link.number)),
                Err(error) if !is_bad_disk(&error) => return Err(OpenError::File(name, error)),
                _ => {}
            }
        }
        survey.order(links);
        Ok(survey)
    }

    /// Returns `true` if a log existed, but none of its headers is left.
    pub fn is_lost(&self) -> bool {
        let is_unfinished = self.unused.iter().all(|&number| self.begun && number == 1);
        self.log_id.is_none() && !(self.chain.is_empty() && self.foreign.is_empty() && is_unfinished)
    }

    fn order(&mut self, mut links: BTreeMap<u64, SegmentLink>) {
        let mut next = links.keys().next_back().map(|&number| (number, None));
        while let Some((number, limit)) = next {
            let lower = links.range(..number).next_back().map(|(&lower, _)| (lower, None));
            let Some(link) = links.remove(&number) else {
                // If no older segment exists, do not report the missing segment, because it might not be needed.
                let missing = SegmentLink { number, length: None, header: None, whole: true, limit };
                self.chain.extend(lower.map(|_| missing));
                next = lower;
                continue;
            };
            next = match link.header.map(|header| header.before) {
                Some(before) if before.segment == 0 => None,
                Some(before) if before.segment < number => {
                    self.unused.extend(links.split_off(&(before.segment + 1)).into_keys());
                    Some((before.segment, Some(before.at)))
                }
                _ => lower,
            };
            self.chain.push(SegmentLink { limit, ..link });
        }
        self.foreign.extend(links.into_keys());
        self.chain.reverse();
    }
}

fn read_header(storage: &dyn Storage, number: u64) -> Result<SegmentLink, OpenError> {
    let name = segment_name(number);
    let length = match storage.length(&name) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() => None,
        length => Some(in_file(&name, length)?),
    };
    let mut bytes = [0; HEADER];
    let beginning = match storage.read_at(&name, 0, &mut bytes) {
        Ok(count) => Beginning::read(&bytes[..count]),
        Err(error) if is_bad_disk(&error) || length.is_none() => Beginning::Nothing,
        Err(error) => return Err(OpenError::File(name, error)),
    };
    if let Beginning::Version(version) = beginning {
        return Err(OpenError::Version(name, version));
    }
    let whole = matches!(beginning, Beginning::Header { whole: true, .. });
    Ok(SegmentLink { number, length, header: beginning.header(), whole, limit: None })
}

/// Returns the ID of the log to which most segments belong. In a tie, the log of the newest segment wins. Foreign files
/// that cannot be moved must not win when the log has fewer segments, so a log of immutable segments always loses.
fn common_log(storage: &dyn Storage, links: &BTreeMap<u64, SegmentLink>) -> Option<u64> {
    let mut counts = HashMap::<u64, (bool, usize, u64)>::new();
    let headers = links.values().filter_map(|link| link.header.filter(|header| header.segment == link.number));
    for Header { log_id, segment, .. } in headers {
        let count = counts.entry(log_id).or_default();
        let opened = storage.open(&segment_name(segment));
        let is_immutable = opened.is_err_and(|error| error.raw_os_error() == Some(nix::libc::EPERM));
        *count = (count.0 || !is_immutable, count.1 + 1, segment);
    }
    counts.into_iter().max_by_key(|&(_, count)| count).map(|(log_id, _)| log_id)
}

/// Visits the offset and the length of each block with a nonzero byte. Stops and returns `false` if `visit` does.
pub fn for_each_used(
    storage: &dyn Storage,
    name: &str,
    from: u64,
    visit: &mut dyn FnMut(u64, usize) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut bytes = vec![0; STRETCH];
    let mut at = from;
    loop {
        let count = storage.read_at(name, at, &mut bytes)?;
        if count == 0 {
            return Ok(true);
        }
        // A loop that can exit at every byte is not vectorized, so check whole parts.
        let is_used = bytes[..count].chunks(256).any(|part| part.iter().fold(0, |all, byte| all | byte) != 0);
        if is_used && !visit(at, count)? {
            return Ok(false);
        }
        at += count as u64;
    }
}
