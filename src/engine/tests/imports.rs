//! Tests how jobs are buried for imports.

use super::super::*;

const NOW: Time = Time::from_nanos(1 << 60);

#[test]
fn only_imported_jobs_are_buried_without_a_reservation() {
    let mut engine = Engine::new(Limits::NONE);
    let (client, other) = (engine.connect(), engine.connect());
    for (delay, expected) in [(0, false), (1, false), (u32::MAX - 1, false), (u32::MAX, true)] {
        let (delay, ttr) = (Span::from_secs(delay.into()), Span::from_secs(60));
        let new = NewJob { pri: 5, delay, ttr, body: Body::from(&b"x"[..]) };
        let id = engine.submit(client, b"t", new, JobOptions::default(), NOW).expect("memory").id;
        let mut bury = |delay| engine.bury_as(client, id, 1, (delay, None), NOW);
        assert_eq!([bury(None), bury(Some(7)), bury(Some(7))], [Ok(false), Ok(expected), Ok(false)], "{delay:?}");
        assert!(expected || engine.reserve_job(other, id, NOW).is_some());
        assert_eq!(engine.bury_as(client, id, 1, (Some(7), None), NOW), Ok(false), "{delay:?}");
    }
}
