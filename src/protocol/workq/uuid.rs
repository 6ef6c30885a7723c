//! Job IDs in Workq: UUIDs chosen by clients, and UUIDs derived from the engine's job IDs.

use crate::engine::{Engine, Job, JobId, UUID_HYPHENS};
use crate::protocol::text::{hex_pair, past};

pub type Uuid = [u8; 16];

/// `beanpol` in ASCII, but with the UUID version 4 in the last byte, because some clients accept only this version.
const PREFIX: [u8; 7] = *b"beanpoL";

/// The low two bits are XORed with the top two bits of the job ID.
const LETTER: u8 = b'e';

/// The two high bits of the ninth byte, which indicate the layout of RFC 4122.
const VARIANT: u64 = 0b10 << 62;

/// Accepts all forms of the original server: with or without hyphens, plain, in braces, or after `urn:uuid:`, in any
/// case. Rejects truncated UUIDs and trailing text, which crashed the original server.
pub fn parse(text: &[u8]) -> Option<Uuid> {
    let bare = match text {
        [b'{', inside @ .., b'}'] => inside,
        _ => match text.split_at_checked(9) {
            Some((urn, rest)) if urn.eq_ignore_ascii_case(b"urn:uuid:") => rest,
            _ => text,
        },
    };
    let mut uuid = [0; 16];
    let mut rest = bare;
    for (index, byte) in uuid.iter_mut().enumerate() {
        if bare.len() == 36 && UUID_HYPHENS.contains(&index) {
            rest = rest.strip_prefix(b"-")?;
        }
        *byte = hex_pair(rest)?;
        rest = past(rest, 2);
    }
    rest.is_empty().then_some(uuid)
}

/// The original server accepts only version 4, and therefore rejects the example in its own documentation.
pub fn is_rfc(uuid: &Uuid) -> bool {
    (1..=8).contains(&(uuid[6] >> 4)) && uuid[8] >> 6 == 0b10
}

/// For jobs without a UUID from a client. The UUID survives a restart.
pub fn derive(id: JobId) -> Uuid {
    let mut uuid = [0; 16];
    uuid[..7].copy_from_slice(&PREFIX);
    uuid[7] = LETTER ^ (id.0 >> 62) as u8;
    uuid[8..].copy_from_slice(&(id.0 & !(0b11 << 62) | VARIANT).to_be_bytes());
    uuid
}

pub fn underive(uuid: &Uuid) -> Option<JobId> {
    let [prefix @ .., _, _, _, _, _, _, _, _, _] = uuid;
    let [_, _, _, _, _, _, _, letter, low @ ..] = uuid;
    let top = u64::from(letter ^ LETTER);
    let low = u64::from_be_bytes(*low);
    let derived = *prefix == PREFIX && top <= 0b11 && low >> 62 == 0b10;
    derived.then_some(JobId(low & !VARIANT | top << 62))
}

/// The client has chosen the UUID, or the server has derived it from the job ID.
pub fn find(engine: &Engine, id: &Uuid) -> Option<JobId> {
    engine
        .find_id(id)
        .or_else(|| underive(id).filter(|job| engine.any_job(*job).is_some_and(|job| own(engine, &job).is_none())))
}

pub fn name_of(engine: &Engine, job: &Job) -> Uuid {
    own(engine, job).unwrap_or_else(|| derive(job.id()))
}

fn own(engine: &Engine, job: &Job) -> Option<Uuid> {
    engine.extras(job).and_then(|extras| extras.id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::push_uuid;

    fn spelled(uuid: &Uuid) -> String {
        let mut out = Vec::new();
        push_uuid(&mut out, uuid);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn all_spellings_are_parsed() {
        let canonical = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";
        for text in [
            canonical,
            "6BA7B810-9DAD-11D1-80B4-00C04FD430C4",
            "6ba7b8109dad11d180b400c04fd430c4",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "{6ba7b8109dad11d180b400c04fd430c4}",
            "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c4",
            "URN:UUID:6ba7b8109dad11d180b400c04fd430c4",
        ] {
            assert_eq!(parse(text.as_bytes()).map(|uuid| spelled(&uuid)).as_deref(), Some(canonical), "{text}");
        }
    }

    #[test]
    fn invalid_uuids_are_refused() {
        for text in [
            "",
            "-",
            "abc",
            "{}",
            "urn:uuid:",
            "urn:uuid:6ba7b810-9dad-41d1-80b4",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4x",
            "6ba7b810-9dad-11d1-80b400c04fd430c4",
            "6ba7b8109-dad-11d1-80b4-00c04fd430c4",
            "6ba7b810-9dad-11d1-80b4-00c04fd430cg",
            "{6ba7b810-9dad-11d1-80b4-00c04fd430c4",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "urn:uuid:{6ba7b810-9dad-11d1-80b4-00c04fd430c4}",
            "6ba7b8109dad11d180b400c04fd430c\u{e4}",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn known_versions_are_accepted() {
        let with = |text: &str| is_rfc(&parse(text.as_bytes()).expect("a UUID"));
        for version in 1..=8 {
            assert!(with(&format!("6ba7b810-9dad-{version}1d1-80b4-00c04fd430c4")));
        }
        assert!(!with("00000000-0000-0000-0000-000000000000"));
        assert!(!with("ffffffff-ffff-ffff-ffff-ffffffffffff"));
        for variant in ["00", "7f", "c0", "ff"] {
            assert!(!with(&format!("6ba7b810-9dad-41d1-{variant}b4-00c04fd430c4")));
        }
    }

    #[test]
    fn derived_ids_are_parsed() {
        assert_eq!(spelled(&derive(JobId(1))), "6265616e-706f-4c65-8000-000000000001");
        for id in [1, 2, 255, 1 << 32, (1 << 62) - 1, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
            let uuid = derive(JobId(id));
            assert_eq!(underive(&uuid), Some(JobId(id)));
            assert!(is_rfc(&uuid) && uuid[6] >> 4 == 4);
        }
        for other in ["6265616e-706f-4c61-8000-000000000001", "6265616e-706f-4c65-c000-000000000001"] {
            assert_eq!(underive(&parse(other.as_bytes()).expect("a UUID")), None, "{other}");
        }
    }
}
