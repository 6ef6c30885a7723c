//! The table of attacks: for each attack, its code, its description, the expected result, whether it also runs against
//! beanstalkd, and the function that runs it.
//!
//! Codes begin with M for memory, T for time, or O for order and admission. The number after the letter has no meaning.

use crate::trial::Trial;
use crate::{access, bodies, bursts, exports, floods, no_memory, order, related, scans, slow_disk, unread};

pub struct Row {
    pub code: &'static str,
    pub attack: &'static str,
    pub holds: &'static str,
    /// `true` if beanstalkd supports the commands and executes them within seconds.
    pub peer: bool,
    pub run: fn(&mut Trial),
}

const fn row(code: &'static str, attack: &'static str, holds: &'static str, peer: bool, run: fn(&mut Trial)) -> Row {
    Row { code, attack, holds, peer, run }
}

const BOUNDED: &str = "memory is bounded and then released; others put, reserve and delete";
const FULL: &str = "OUT_OF_MEMORY; the program survives; workers reserve and delete; then puts are accepted again";
const SERVED: &str = "the reply is correct; others are served meanwhile";
const KICKED: &str = "KICKED with the count; all are ready, in order; others are served meanwhile";

#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    row("M1", "800 clients pipeline peek-ready and read nothing", BOUNDED, true, unread::replies),
    row("M2", "60 clients watch 99,990 tubes each", BOUNDED, false, unread::watch_lists),
    row("M3a", "puts of 60,000 bytes under ulimit -v 409600", FULL, true, no_memory::large_jobs),
    row("M3b", "puts of 100 bytes under ulimit -v 409600", FULL, false, no_memory::small_jobs),
    row("M3c", "60,000 bytes, --max-memory 4G, ulimit -v 409600", FULL, false, no_memory::large_jobs_with_a_limit),
    row("M3d", "100 bytes, --max-memory 4G, ulimit -v 409600", FULL, false, no_memory::small_jobs_with_a_limit),
    row("M4a", "puts announce more bytes than memory and send none", BOUNDED, true, bodies::announced),
    row("M4b", "Gearman packets announce more bytes than memory", BOUNDED, false, bodies::announced_to_gearman),
    row("M5", "300 clients read nothing and disconnect; no limits", "memory is released", true, unread::replies_without_a_limit),
    row("M6", "40 Workq results of 1 MiB that no client collects", "memory holds one copy of each and is then released", false, bodies::results),
    row("M8", "1,000 clients in reserve pipeline 256 KiB each", BOUNDED, true, unread::read_ahead),
    row("M9", "4,000 clients send half of a body of 60 KB", BOUNDED, true, bodies::half_sent),
    row("M10", "Gearman results for 3,000 clients that read nothing", "no put is refused; clients that do not read are dropped", false, unread::news),
    row("M11", "Gearman data of 20 MB that no client reads", BOUNDED, false, unread::large_packets),
    row("M12", "jobs of 1.1, 4.2 and 9 KB, most deleted, then 60 KB", "memory is bounded; after all jobs are deleted, puts are accepted again", false, bodies::holes),
    row("M13a", "4,000 clients send long tags without a body", BOUNDED, false, bodies::tags_without_a_body),
    row("M13b", "4,000 Gearman clients send long handles without data", BOUNDED, false, bodies::handles_without_data),
    row("M13c", "4,000 HTTP clients send long queries without a body", BOUNDED, false, bodies::queries_without_a_body),
    row("T1", "kick of 1 M delayed jobs", KICKED, true, bursts::kick),
    row("T2", "kick of 400 k delayed jobs with -b -F", KICKED, true, bursts::kick_with_a_binlog),
    row("T3", "hang-up with 1 M reserved jobs", "all are ready again, by priority and ID; others are served", true, bursts::hang_up_with_jobs),
    row("T4", "hang-up with 3 x 90,000 watched tubes", "the tubes are removed; others are served", false, bursts::hang_up_with_tubes),
    row("T5", "200 x reserve-with-timeout 0 over 90,000 tubes", SERVED, false, scans::reserve_over_many_tubes),
    row("T6", "Workq lease over 99,000 new names", SERVED, false, scans::lease_over_new_names),
    row("T7", "Workq inspect of 1 of 1 M scheduled jobs", SERVED, false, scans::inspect_one_of_many),
    row("T8", "500 k reservations expire during a flood of touch", "all are ready; others are served", false, bursts::expiry_beside_touches),
    row("T9", "list-tubes of 300 k tubes of 198 bytes", "each tube once; others are served", false, scans::list_long_names),
    row("T10", "Gearman jobs of 60 MB with the unique name -", SERVED, false, floods::large_bodies_hashed),
    row("T11a", "one client pipelines reserve-job and release", SERVED, true, floods::one_flooder),
    row("T11b", "eight clients pipeline reserve-job and release", SERVED, true, floods::eight_flooders),
    row("T12a", "syncs take 500 ms, -f 50; a bystander peeks", "peeks are answered; every put is kept", false, slow_disk::syncs),
    row("T12b", "the same with segments of 64 KiB", "peeks are answered; every put is kept", false, slow_disk::segments),
    row("T13", "put for a worker that watches 30,000 tubes", "the worker gets each job", true, scans::hand_over_to_a_watcher_of_many),
    row("T14", "one body of 400 MB with -b; a bystander peeks", "INSERTED; at most two copies in memory; others are served", true, slow_disk::huge_body),
    row("T15", "hang-up with 1 M jobs on their last try", "all are dead letters; others are served", false, related::dead_letters),
    row("T16", "delete of the group member that 1 M jobs wait for", "all are released, in order; others are served", false, related::dependents),
    row("T17", "100 k schedules with an interval of one second", "each puts one copy; others are served", false, related::schedules),
    row("T18", "list-keys of 50 k keys of 506 bytes", "each key once; others are served", false, scans::list_long_keys),
    row("T19", "20 x a search in 1,000 connections with long names", SERVED, false, scans::search_connections),
    row("T20", "move-tube of 1 M jobs", "MOVED with the count; in order; others are served meanwhile", false, bursts::move_all),
    row("T21", "kick of 100 dead letters whose key is in 3,800 tubes", "KICKED with the count; others are served meanwhile", false, related::kick_letters_with_a_common_key),
    row("O1", "hang-up with an urgent and a less urgent job", "the waiting client gets the more urgent job", true, order::after_a_hang_up),
    row("O2", "put and release with one delay in one packet", "peek-delayed returns the job of the first command", true, order::two_delays_in_one_packet),
    row("O3a", "one address opens too many connections", "it gets its share; another address is served", false, access::one_address),
    row("O3b", "other clients use all connections", "the operator's Unix socket is served", false, access::operator),
    row("O3c", "silent connections, --idle-timeout 1", "they are closed; waiting and active connections are not", false, access::idle),
    row("O3d", "silent strangers use all connections", "an authenticated client is served within 3 s", false, access::strangers),
    row("O3e", "HTTP clients that read nothing use all connections", "/healthz is served within 3 s", false, access::health),
    row("O5a", "30 clients under ulimit -n 20", "each client gets a reply; later clients are served", true, access::few_files),
    row("O5b", "30 clients under ulimit -n 16", "each client gets a reply; later clients are served", false, access::fewest_files),
    row("O6", "an export from a server whose lists never end", "the export ends with an error", false, exports::endless_lists),
];
