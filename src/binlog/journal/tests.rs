//! Tests of the journal's space calculation, with limits that random tests rarely reach.

use super::*;
use crate::binlog::decode::RecordHead;
use crate::engine::{
    Body, ClientId, CompletionPolicy, DedupKey, JobId, JobOptions, Limits, LogRoom, NewJob, Outcome, ReservePolicy,
    Span, Time,
};

const SIZE: u64 = 1000;

/// The number of unusable bytes at the end of a segment.
const END: u64 = (CHANGE + MARK) as u64;

/// Creates a journal with a first segment of `size` bytes, and with reserved IDs.
fn journal(size: u64) -> Journal {
    let mut journal = Journal::new(size, 9);
    let number = journal.claim_number();
    journal.begin(number, size, LogLocation::default());
    journal.found_ids(IDS_AHEAD);
    journal.last_id = 0;
    journal
}

fn prepare(journal: &mut Journal, size: u64) {
    let number = journal.claim_number();
    journal.prepared(number, size);
}

fn use_bytes(journal: &mut Journal, bytes: u64) {
    journal.segments.back_mut().expect("a segment").bytes = bytes;
}

fn up_to(position: u64) -> Synced {
    Synced { position, ..Synced::default() }
}

fn engine() -> (Engine, ClientId) {
    let mut engine = Engine::new(Limits::NONE);
    engine.keep_changes();
    let client = engine.connect();
    (engine, client)
}

fn put(engine: &mut Engine, client: ClientId, body: usize) -> JobId {
    let body = Body::from(vec![b'x'; body]);
    let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body };
    engine.put(client, new, Time::default()).expect("memory for a job")
}

fn appended(journal: &mut Journal) -> Vec<u8> {
    let batch = journal.take(Vec::new(), journal.synced);
    let last = batch.cuts.last().map_or(0, |cut| cut.at + HEADER);
    let mut bytes = batch.bytes.part(last, batch.bytes.own.len());
    bytes.seal(RecordKey::new(9, journal.stats().current), HEADER as u64);
    bytes.chunks().collect::<Vec<_>>().concat()
}

#[test]
fn usable_space_excludes_headers_and_last_records() {
    let mut journal = journal(SIZE);
    use_bytes(&mut journal, SIZE - END + 1);
    assert_eq!((journal.ahead(), journal.space(0)), (0, 0));
    use_bytes(&mut journal, 300);
    let rest = SIZE - 300 - END;
    assert_eq!((journal.ahead(), journal.space(0)), (rest, rest));
    prepare(&mut journal, SIZE);
    assert_eq!(journal.unusual, 0);
    let fresh = SIZE - HEADER as u64 - END;
    assert_eq!((journal.ahead(), journal.space(0)), (rest + fresh, fresh));
    // A record does not span segments, so a record in the new segment leaves the rest of the old segment unused.
    assert_eq!(journal.space(100), fresh - 100);
    assert_eq!(journal.space(rest + fresh), 0);
    use_bytes(&mut journal, 100);
    assert_eq!(journal.space(fresh), SIZE - 100 - END);
    prepare(&mut journal, 3 * SIZE);
    assert_eq!(journal.unusual, 1);
    assert_eq!(journal.ahead(), SIZE - 100 - END + fresh + 3 * SIZE - HEADER as u64 - END);
    assert_eq!(journal.space(0), 3 * SIZE - HEADER as u64 - END);
}

#[test]
fn the_reserve_lets_every_job_be_deleted() {
    let mut journal = journal(SIZE);
    assert_eq!(journal.reserve(), 8 * MARK as u64);
    journal.jobs = 5;
    assert_eq!(journal.reserve(), (5 * DELETE + 8 * MARK) as u64);
}

#[test]
fn a_record_is_short_of_space_or_of_ids_by_one() {
    let mut journal = journal(SIZE);
    let free = journal.space(journal.reserve()) - (PUT + DELETE) as u64;
    assert!(!journal.is_short(free) && journal.is_short(free + 1));
    journal.ids_synced = journal.last_id + IDS_KEPT;
    assert!(!journal.is_short(0));
    journal.last_id += 1;
    assert!(journal.is_short(0));
    // While the disk is full or failing, no command waits for space.
    for health in [Health::Full, Health::Failing] {
        journal.health = health;
        assert!(!journal.is_short(free + 1), "{health:?}");
    }
}

#[test]
fn a_segment_is_wanted_while_half_a_segment_is_not_ready() {
    let mut journal = journal(SIZE);
    let enough = |journal: &Journal, part: u64| SIZE - END - part - journal.reserve();
    let bytes = enough(&journal, SIZE / 2);
    use_bytes(&mut journal, bytes);
    assert!(!journal.wanted());
    use_bytes(&mut journal, bytes + 1);
    assert!(journal.wanted());
    journal.health = Health::Failing;
    assert!(!journal.wanted());
    // A whole segment must be available before a full disk counts as recovered.
    journal.health = Health::Full;
    prepare(&mut journal, SIZE);
    let ahead = SIZE + journal.reserve();
    let bytes = SIZE - END - (ahead - (SIZE - HEADER as u64 - END));
    journal.live = SIZE;
    use_bytes(&mut journal, bytes);
    assert!(!journal.wanted());
    use_bytes(&mut journal, bytes + 1);
    assert!(journal.wanted());
}

#[test]
fn a_segment_is_wanted_within_the_bound_of_the_log_or_for_deletes() {
    let mut journal = journal(SIZE);
    let bytes = SIZE - END - journal.reserve();
    use_bytes(&mut journal, bytes);
    journal.old = 2 * SIZE;
    journal.live = SIZE;
    assert!(journal.wanted(), "the log may grow to its maximum size");
    journal.old += 1;
    assert!(!journal.wanted());
    use_bytes(&mut journal, bytes + 1);
    assert!(journal.wanted(), "a segment is needed to delete every job");
}

#[test]
fn a_segment_is_wanted_if_a_command_waits_for_space() {
    let mut journal = journal(SIZE);
    journal.ids_synced = 0;
    let free = journal.space(journal.reserve()) - (PUT + DELETE) as u64;
    journal.requested = free;
    assert!(journal.is_short(0) && !journal.wanted(), "a segment contains no IDs");
    journal.ids_synced = journal.ids;
    assert!(!journal.wanted(), "there is enough space");
    (journal.requested, journal.live) = (free + 1, 0);
    assert!(journal.wanted());
    journal.requested = 0;
    assert!(!journal.wanted(), "no command waits");
}

#[test]
fn the_next_segment_fits_the_requested_bytes() {
    let mut journal = journal(SIZE);
    let beside = (HEADER + MARK + 2 * (CHANGE + PUT + DELETE)) as u64;
    for (requested, size) in [(0, SIZE), (SIZE - beside, SIZE), (SIZE - beside + 1, SIZE + 1), (SIZE, SIZE + beside)] {
        journal.requested = requested;
        assert_eq!(journal.wanted_size(), size, "{requested}");
    }
    // Once a sufficiently large segment is prepared, the next segment has the usual size.
    prepare(&mut journal, SIZE + beside - 1);
    assert_eq!(journal.wanted_size(), SIZE + beside);
    prepare(&mut journal, SIZE + beside);
    assert_eq!(journal.wanted_size(), SIZE);
    // Without a waiting command, the size is the usual segment size.
    assert_eq!(Journal::new(0, 9).wanted_size(), Journal::new(0, 9).segment_size);
}

#[test]
fn a_full_disk_keeps_space_for_compaction_and_a_failing_disk_accepts_no_jobs() {
    let mut journal = journal(SIZE);
    let (ahead, kept) = (journal.ahead(), journal.reserve());
    let rooms = |journal: &Journal| {
        let LogRoom { puts, changes, burst, .. } = journal.engine_room();
        (puts, changes, burst)
    };
    assert_eq!(rooms(&journal), (ahead - kept, u64::MAX, ahead - kept));
    journal.health = Health::Full;
    let left = ahead - kept - SIZE / 4;
    assert_eq!(rooms(&journal), (left, left, left));
    journal.health = Health::Failing;
    assert_eq!(rooms(&journal), (0, BACKLOG - HEADER as u64, ahead - kept));
    journal.health = Health::Ok;
    use_bytes(&mut journal, SIZE);
    assert_eq!(rooms(&journal), (0, u64::MAX, CHANGE as u64));
}

#[test]
fn counters_are_not_recorded_when_space_is_short() {
    let mut journal = journal(SIZE);
    journal.health = Health::Full;
    let bytes = SIZE - END - SIZE / 4 - journal.reserve() - 2 * CHANGE as u64;
    use_bytes(&mut journal, bytes);
    assert!(!journal.must_save());
    use_bytes(&mut journal, bytes + 1);
    assert!(journal.must_save());
    journal.health = Health::Ok;
    assert!(!journal.must_save());
}

#[test]
fn the_excess_is_the_size_of_old_segments_above_1_5_times_the_need() {
    let mut journal = journal(SIZE);
    (journal.live, journal.retiring) = (400, 77);
    for (ready, old, debt) in [(0, 600, 0), (0, 601, 1), (1250, 550, 0), (1250, 551, 1), (2000, 500, 0), (2000, 501, 1)]
    {
        (journal.ready, journal.old) = (ready, old);
        assert_eq!(journal.debt(), debt, "{ready} bytes are ready, {old} old");
    }
    // While a segment must be emptied, `debt` returns at least 1.
    journal.evacuating = 1;
    assert_eq!(journal.debt(), 1);
    journal.old = 700;
    assert_eq!(journal.debt(), 200);
    journal.old = 0;
    assert_eq!(journal.debt(), 1);
}

#[test]
fn a_log_can_shrink_while_segments_retire_or_it_is_in_debt() {
    let mut journal = journal(SIZE);
    assert!(!journal.can_shrink());
    journal.retiring = 1;
    assert!(journal.can_shrink());
    (journal.retiring, journal.old) = (0, 1);
    assert!(journal.can_shrink());
    // Compaction is behind only if the log also exceeds its maximum size.
    journal.old = SIZE;
    assert!(!journal.is_behind());
    journal.old = SIZE + 1;
    assert!(journal.is_behind());
    journal.health = Health::Full;
    assert!(!journal.is_behind());
}

#[test]
fn maintenance_is_needed_for_retired_wanted_or_excess_segments() {
    let mut journal = journal(SIZE);
    prepare(&mut journal, SIZE);
    assert!(!journal.needs_maintenance());
    journal.old = 1;
    assert!(journal.needs_maintenance(), "nothing is live");
    journal.old = 0;
    journal.abandon_prepared();
    assert!(journal.needs_maintenance());
    let retired = journal.next_retired(up_to(0), &Ok(())).expect("the prepared segment");
    journal.finish_removal(retired, &Ok(()));
    assert!(!journal.needs_maintenance());
    use_bytes(&mut journal, SIZE);
    assert!(journal.wanted() && journal.needs_maintenance());
}

#[test]
fn segments_whose_files_are_missing_are_emptied() {
    let mut journal = journal(SIZE);
    prepare(&mut journal, SIZE);
    journal.make_room(SIZE);
    journal.evacuate_missing(|_| true);
    assert_eq!(journal.evacuating, 0);
    journal.evacuate_missing(|number| number == 2);
    let is_evacuating = |number| journal.segment(number).is_some_and(|segment| segment.evacuating);
    assert_eq!((is_evacuating(1), is_evacuating(2), journal.evacuating), (true, false, 1));
}

/// The items of a lost segment exist only in memory until they are written again.
#[test]
fn segments_whose_files_are_missing_are_emptied_before_older_segments() {
    const LARGE_SIZE: u64 = COMPACT_BYTES;
    let mut journal = journal(LARGE_SIZE);
    let (mut engine, client) = engine();
    for _ in 0..3 {
        put(&mut engine, client, LARGE_SIZE as usize / 4 * 3);
        journal.append(&mut engine);
        prepare(&mut journal, LARGE_SIZE);
        journal.make_room(LARGE_SIZE / 2);
    }
    journal.make_room(LARGE_SIZE / 2);
    let filled = |journal: &Journal| [1, 2, 3].map(|number| journal.segment(number).is_some_and(|it| it.live > 0));
    assert_eq!(filled(&journal), [true; 3]);
    journal.evacuate_missing(|number| number != 2);
    assert!(journal.compact(&engine));
    assert_eq!(filled(&journal), [true, false, true]);
    prepare(&mut journal, 2 * LARGE_SIZE);
    assert!(!journal.compact(&engine));
    assert_eq!(filled(&journal), [false, false, true]);
}

/// Otherwise, the segment remains until the log exceeds its target size: each removal takes a record and a sync.
#[test]
fn an_oldest_segment_without_live_items_is_removed_at_once_only_on_a_full_disk() {
    let mut journal = journal(SIZE);
    let (mut engine, client) = engine();
    prepare(&mut journal, SIZE);
    journal.make_room(SIZE);
    put(&mut engine, client, 700);
    journal.append(&mut engine);
    let needs = |journal: &mut Journal, health| {
        journal.health = health;
        journal.compact(&engine);
        (journal.debt(), journal.segments[0].number)
    };
    assert_eq!(needs(&mut journal, Health::Ok), (0, 1));
    assert_eq!(needs(&mut journal, Health::Full), (0, 2), "the last segment must remain");
}

#[test]
fn live_items_are_counted_in_their_segment() {
    let mut journal = journal(SIZE);
    let (mut engine, client) = engine();
    let live = |journal: &Journal| journal.segments.iter().map(|segment| segment.live).collect::<Vec<_>>();
    let ids = [10, 20, 30].map(|body| put(&mut engine, client, body));
    journal.append(&mut engine);
    let size = |body: usize| full_size(b"default".len() + body);
    assert_eq!(live(&journal), [size(10) + size(20) + size(30)]);
    assert!(engine.delete(client, ids[0], Time::default()));
    journal.append(&mut engine);
    assert_eq!(live(&journal), [size(20) + size(30)]);
    prepare(&mut journal, SIZE);
    journal.make_room(SIZE);
    let slot = journal.segments[0].lists[Live::Job as usize].first().expect("a job");
    journal.move_out(Live::Job, slot, size(20));
    journal.write(Live::Job, slot, size(20), &engine);
    assert_eq!((live(&journal), journal.live), (vec![size(30), size(20)], size(20) + size(30)));
}

#[test]
fn a_segment_that_takes_over_has_a_quarter_more_space() {
    let journal = journal(SIZE);
    let buffer = journal.buffer.len() as u64;
    assert_eq!(journal.take_over_size(SIZE * 3 / 4 - buffer), SIZE);
    assert_eq!(journal.take_over_size(SIZE * 3 / 4 - buffer + 1), SIZE + 1);
    assert_eq!(journal.take_over_size(5 * SIZE), 5 * SIZE + buffer + SIZE / 4);
}

#[test]
fn found_segment_numbers_are_not_reused() {
    let mut journal = Journal::new(SIZE, 9);
    journal.found_number(7);
    assert_eq!(journal.claim_number(), 8);
    journal.found_number(3);
    assert_eq!(journal.claim_number(), 9);
    journal.found_segment(9, 100);
    assert_eq!(journal.claim_number(), 10);
    journal.found_segment(20, 100);
    assert_eq!(journal.claim_number(), 21);
}

#[test]
fn a_log_without_a_file_continues_in_memory() {
    let mut journal = Journal::new(SIZE, 9);
    journal.found_segment(4, 300);
    let (mut engine, client) = engine();
    put(&mut engine, client, 10);
    journal.go_on_nowhere(&mut engine);
    let stats = journal.stats();
    assert_eq!((stats.health, stats.oldest, stats.current, journal.old), (Health::Failing, 4, 5, 300));
    assert_eq!((stats.written, engine.take_change().is_none()), (2, true), "the job and the reserved IDs");
    let length = journal.buffer.len() as u64;
    assert_eq!(journal.disk(), 300 + length);
    // No segment begins in this batch, so the batch contains no header.
    let batch = journal.take(Vec::new(), Synced::default());
    assert_eq!((batch.segment, batch.cuts.len(), batch.end), (5, 0, length));
}

#[test]
fn untaken_records_stay_in_their_segment_without_a_file() {
    let mut journal = journal(SIZE);
    journal.first_segment = 1;
    journal.go_on_nowhere(&mut engine().0);
    assert_eq!((journal.stats().current, journal.take(Vec::new(), Synced::default()).segment), (2, 1));
}

#[test]
fn a_put_or_an_outcome_goes_into_the_next_segment_if_it_lacks_a_byte() {
    for lacks in [0, 1] {
        let mut journal = journal(SIZE);
        prepare(&mut journal, SIZE);
        let (mut engine, client) = engine();
        put(&mut engine, client, 100);
        // A put record consists of the tube name, the body, and at most `PUT` bytes for the other fields.
        let logged = (b"default".len() + 100) as u64;
        use_bytes(&mut journal, SIZE - MARK as u64 - PUT as u64 - logged + lacks);
        journal.append(&mut engine);
        assert_eq!(journal.stats().current, 1 + lacks, "a put");
        let id = kept(&mut engine, 10);
        let mut journal = self::journal(SIZE);
        prepare(&mut journal, SIZE);
        journal.append(&mut engine);
        engine.complete(id, Outcome::Done(Body::from(vec![b'r'; 50])), Time::default()).expect("a job");
        use_bytes(&mut journal, SIZE - MARK as u64 - (OUTCOME + 50) as u64 + lacks);
        let live = journal.live;
        journal.append(&mut engine);
        assert_eq!((journal.stats().current, journal.live), (1 + lacks, live + 50), "an outcome");
    }
}

#[test]
fn a_move_goes_into_the_next_segment_if_it_lacks_a_byte() {
    for lacks in [0, 1] {
        let mut journal = journal(SIZE);
        prepare(&mut journal, SIZE);
        let (mut engine, client) = engine();
        let id = put(&mut engine, client, 10);
        journal.append(&mut engine);
        assert!(engine.move_job(client, id, b"other", (1, Span::ZERO), Time::default()).is_ok());
        use_bytes(&mut journal, SIZE - MARK as u64 - (CHANGE + b"other".len()) as u64 + lacks);
        journal.append(&mut engine);
        assert_eq!(journal.stats().current, 1 + lacks);
    }
}

/// Puts a job that is kept after it has finished.
fn kept(engine: &mut Engine, body: usize) -> JobId {
    let leaser = engine.connect_as(ReservePolicy::Lease);
    let completion = CompletionPolicy::Keep;
    let options = JobOptions { completion, dedup_key: DedupKey::Id([1; 16]), ..JobOptions::default() };
    let body = Body::from(vec![b'x'; body]);
    let new = NewJob { pri: 1, delay: Span::ZERO, ttr: Span::from_secs(1), body };
    engine.submit(leaser, b"t", new, options, Time::default()).expect("memory for a job").id
}

#[test]
fn a_large_result_is_shared_and_read_back_whole() {
    let mut journal = journal(1 << 20);
    let (mut engine, _) = engine();
    let id = kept(&mut engine, 30_000);
    journal.append(&mut engine);
    appended(&mut journal);
    let result: Vec<u8> = (0..100_000u32).map(|byte| byte as u8).collect();
    engine.complete(id, Outcome::Done(Body::from(result.clone())), Time::default()).expect("a job");
    let at = journal.segments[0].bytes;
    journal.append(&mut engine);
    assert!(journal.buffer.own.len() < 100, "the result is not copied");
    let mut batch = journal.take(Vec::new(), Synced::default());
    let key = RecordKey::new(9, 1);
    batch.bytes.seal(key, at);
    let bytes = batch.bytes.chunks().collect::<Vec<_>>().concat();
    let head = RecordHead::read(key, at, &bytes, bytes.len() as u64).expect("a record");
    let record = head.record(&bytes[head.prefix..head.total()]);
    assert_eq!(head.total(), bytes.len());
    assert_eq!(record, Some(Record::Outcome { id: id.0, done: Some(true), fails: 0, result: &result }));
}

#[test]
fn ids_are_reserved_again_when_half_of_them_are_left() {
    for (last, says) in [(IDS_AHEAD / 2, false), (IDS_AHEAD / 2 + 1, true)] {
        let mut journal = journal(SIZE);
        let (mut engine, _) = engine();
        engine.finish_restore(last, Time::default());
        journal.append(&mut engine);
        assert_eq!(journal.ids, if says { last + IDS_AHEAD } else { IDS_AHEAD });
        assert_eq!(journal.demanded, if says { journal.position } else { 0 });
        assert_eq!(journal.stats().written, u64::from(says));
    }
}

#[test]
fn the_smallest_segment_holds_its_own_records() {
    assert_eq!(Journal::new(0, 9).segment_size, (HEADER + SYNCED + 2 * MARK) as u64 + 1);
    assert_eq!(Journal::new(SIZE, 9).segment_size, SIZE);
}

#[test]
fn abandoned_segments_occupy_space_until_they_are_removed() {
    let mut journal = journal(SIZE);
    let ahead = journal.ahead();
    prepare(&mut journal, SIZE);
    prepare(&mut journal, 3 * SIZE);
    let disk = journal.disk();
    journal.abandon_prepared();
    assert_eq!((journal.ahead(), journal.disk(), journal.unusual), (ahead, disk, 0));
    while let Some(retired) = journal.next_retired(up_to(0), &Ok(())) {
        journal.finish_removal(retired, &Ok(()));
    }
    assert_eq!(journal.disk(), SIZE);
}

#[test]
fn a_log_records_at_intervals_how_far_it_is_synced() {
    let mut journal = journal(1 << 20);
    let synced = |position| Synced { location: LogLocation { segment: 1, at: 500 }, position };
    let start = journal.mark_due - SYNCED_EVERY;
    for (position, says) in [(SYNCED_EVERY - 1, false), (SYNCED_EVERY, true), (SYNCED_EVERY + 1, false)] {
        journal.push(&Record::Delete(1));
        let before = journal.stats().written;
        journal.take(Vec::new(), synced(start + position));
        assert_eq!(journal.stats().written, before + u64::from(says), "{position}");
    }
    let far = synced(start + 9 * SYNCED_EVERY);
    journal.take(Vec::new(), far);
    assert_eq!(journal.mark_due, start + 2 * SYNCED_EVERY, "a batch without other records gets no mark");
    // Space for the last record of a segment must remain.
    for (lacks, says) in [(1, false), (0, true)] {
        journal.push(&Record::Delete(1));
        use_bytes(&mut journal, (1 << 20) - (SYNCED + MARK) as u64 + lacks);
        journal.take(Vec::new(), far);
        assert_eq!(journal.mark_due == far.position + SYNCED_EVERY, says);
    }
}

#[test]
fn records_of_removed_segments_leave_space_for_the_last_record() {
    for (lacks, current) in [(0, 2), (1, 3)] {
        let mut journal = journal(SIZE);
        journal.evacuate_oldest();
        prepare(&mut journal, SIZE);
        journal.make_room(SIZE);
        prepare(&mut journal, SIZE);
        use_bytes(&mut journal, SIZE - 2 * MARK as u64 + lacks);
        assert!(!journal.compact(&engine().0));
        let stats = journal.stats();
        assert_eq!((stats.oldest, stats.current), (1, current), "segment 1 is not removed yet");
        let end = up_to(journal.position);
        let retired = journal.next_retired(end, &Ok(())).expect("the first segment");
        assert_eq!((retired.number, retired.after, journal.demanded), (1, journal.position, journal.position));
        assert_eq!(journal.next_retired(up_to(retired.after - 1), &Ok(())), None);
        assert_eq!(journal.synced, end, "the next header states what allowed the removal");
        journal.finish_removal(retired, &Ok(()));
        assert_eq!(journal.stats().oldest, 2);
    }
}

#[test]
fn on_a_full_disk_a_segment_is_emptied_only_if_all_of_it_has_space() {
    for (lacks, migrated) in [(0, 1), (1, 0)] {
        let mut journal = journal(SIZE);
        let (mut engine, client) = engine();
        put(&mut engine, client, 100);
        journal.append(&mut engine);
        journal.evacuate_oldest();
        prepare(&mut journal, SIZE);
        journal.make_room(SIZE);
        journal.health = Health::Full;
        let bytes = SIZE - END - journal.reserve() - journal.live + lacks;
        use_bytes(&mut journal, bytes);
        assert!(!journal.compact(&engine));
        assert_eq!((journal.stats().migrated, journal.requested), (migrated, 0));
    }
}

#[test]
fn a_log_continues_after_the_used_bytes_of_its_last_segment() {
    let mut journal = Journal::new(SIZE, 9);
    journal.found_segment(4, 300);
    journal.go_on_in_last(SIZE);
    let end = Synced { location: LogLocation { segment: 4, at: 300 }, position: 0 };
    assert_eq!((journal.synced, journal.first_segment, journal.disk()), (end, 4, SIZE));
}
