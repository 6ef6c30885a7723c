//! Descriptions of replies for the log of a verbose server, without job bodies, which can be confidential.

use super::text::upto;
use super::Output;
use crate::engine::JobId;

const MAX_LENGTH: usize = 200;

const MAGIC: &[u8] = b"\0RES";

const WITH_JOB: [&str; 3] = ["INSERTED ", "RESERVED ", "FOUND "];

/// Returns the first line, or the type of a Gearman packet, of the reply at offset `before`.
pub fn of_reply(out: &Output, before: usize) -> String {
    let bytes: Vec<u8> = out.chunks().flatten().skip(before).take(MAX_LENGTH).copied().collect();
    if let Some(rest) = bytes.strip_prefix(MAGIC) {
        let kind = rest.first_chunk().map_or(0, |kind| u32::from_be_bytes(*kind));
        return format!("packet {kind}");
    }
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    upto(&bytes, end).iter().map(|byte| if matches!(byte, b' '..=b'~') { *byte as char } else { '.' }).collect()
}

pub fn job_of(reply: &str) -> Option<JobId> {
    WITH_JOB.iter().find_map(|word| reply.strip_prefix(word)?.split(' ').next()?.parse().ok()).map(JobId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_a_reply_is_logged() {
        let mut out = Output::new();
        out.text().extend_from_slice(b"INSERTED 1\r\nRESERVED 2 5\r\nhello\r\n");
        assert_eq!(
            (of_reply(&out, 0), of_reply(&out, 12), of_reply(&out, 33)),
            ("INSERTED 1".into(), "RESERVED 2 5".into(), String::new())
        );
        let mut packet = Output::new();
        packet.text().extend_from_slice(b"\0RES\0\0\0\x08\0\0\0\x05H:h:1");
        assert_eq!(of_reply(&packet, 0), "packet 8");
    }

    #[test]
    fn job_ids_are_parsed_from_replies() {
        assert_eq!(job_of("RESERVED 12 5"), Some(JobId(12)));
        assert_eq!(job_of("INSERTED 7"), Some(JobId(7)));
        assert_eq!(job_of("KICKED 7"), None);
    }
}
