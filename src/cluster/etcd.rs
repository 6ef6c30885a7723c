//! The shared log in etcd, through the HTTP gateway of each of its servers.
//!
//! Owns the keys and the transactions: an entry is a separate key, created only while the epoch's key has the value
//! that the writer believes and the key does not exist. Reads need etcd's quorum. Must not know what entries mean.
//!
//! Below `beanpole/NAME/`: `log/` and 16 hexadecimal digits for each entry; `epoch`, the number of the last claim and
//! its note; `beat`, which the writer changes while it lives; `wanted`, the request for a switch; `nodes/` and a name,
//! the report of each server.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::cluster_id::ClusterId;
use super::gateway::{Answer, Gateway};
use super::shared_log::{Entries, Epoch, Fail, Merged, Room, Seq, SharedLog, Tail};
use super::shipping::WINDOW;
use crate::client::{ClientTlsFiles, Security};
use crate::shared::base64::encode;
use crate::shared::json::{Document, Part};
use crate::shared::lock_order::{LeafMutex, Mutex, MutexGuard, GATEWAY};

/// The time limit of a request. A standby waits for longer than the lease of a server that is cut off.
const TIMEOUT: Duration = Duration::from_millis(700);

/// The number of servers over which the lease is renewed at a time: several are seldom slow together.
const WAYS: usize = 3;

/// The time limit of maintenance, for which nothing waits.
const LONG: Duration = Duration::from_secs(60);

/// The number of entries deleted by one request. A request for many delays all others in etcd, and with them the lease.
const SLICE: u64 = 1000;

/// etcd's default quota in bytes.
pub const QUOTA: u64 = 2 << 30;

pub struct Etcd {
    /// Connections for appends, several of which may be in progress, and for reads. All start with the same server, so
    /// that appends mostly arrive in order.
    gateways: Vec<Mutex<Gateway, GATEWAY>>,
    /// For requests that nothing waits for, so that they never delay appends.
    spare: Mutex<Gateway, GATEWAY>,
    /// For maintenance, which takes long.
    slow: Mutex<Gateway, GATEWAY>,
    /// For the lease: neither a hanging append nor a server that does not answer must delay it.
    pulses: Vec<Mutex<Gateway, GATEWAY>>,
    prefix: String,
    quota: u64,
    /// In how many positions of the log the next read searches for entries; 0 if the last one reached the end.
    span: LeafMutex<u64>,
    /// No read has compared the clusters of the servers yet.
    is_new: AtomicBool,
}

/// The location of the log: `etcd://HOST[:PORT],...[/NAME]`, optionally with `USER:PASSWORD@` before the hosts, and
/// with parameters after `?`, separated by `&`: `quota=BYTES`, and for TLS, with `etcds://`, `ca=FILE`, `cert=FILE` and
/// `key=FILE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Host and port of each server.
    pub endpoints: Vec<String>,
    /// The name of the queue, so that several can share an etcd.
    pub name: String,
    pub login: Option<(String, String)>,
    /// The value of etcd's `--quota-backend-bytes`.
    pub quota: u64,
    /// The files for TLS, if it is used.
    pub files: Option<ClientTlsFiles>,
}

impl Location {
    /// Parses a URL. The error is one line.
    pub fn parse(text: &str) -> Result<Location, String> {
        let shown = without_login(text);
        let wrong = || format!("invalid journal: {shown}; it must be etcd://HOST[:PORT],.../NAME");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let mut files = match scheme {
            "etcd" => None,
            "etcds" if cfg!(feature = "tls") => Some(ClientTlsFiles::default()),
            "etcds" => return Err("this program was built without TLS; make TLS=1 builds one that has it".to_owned()),
            _ => return Err(wrong()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match hosts.rsplit_once('@') {
            Some((login, hosts)) => (Some(login.split_once(':').ok_or_else(wrong)?), hosts),
            None => (None, hosts),
        };
        let mut quota = QUOTA;
        for word in query.split('&').filter(|word| !word.is_empty()) {
            match (word.split_once('='), &mut files) {
                (Some(("quota", number)), _) => quota = number.parse().map_err(|_| wrong())?,
                (Some(("ca", path)), Some(files)) => files.authority = Some(path.into()),
                (Some(("cert", path)), Some(files)) => files.certificate = Some(path.into()),
                (Some(("key", path)), Some(files)) => files.key = Some(path.into()),
                // There is a question mark in the password, which ends later.
                _ if query.contains('@') => return Err(wrong()),
                _ => return Err(format!("invalid journal: {shown}; {word} is not known there")),
            }
        }
        if files.as_ref().is_some_and(|files| files.key.is_some() && files.certificate.is_none()) {
            return Err(format!("invalid journal: {shown}; key needs cert"));
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if hosts.split(',').any(str::is_empty) || !is_plain(name) {
            return Err(wrong());
        }
        let with_port = |host: &str| {
            let has_port =
                host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
            if has_port {
                host.to_owned()
            } else {
                format!("{host}:2379")
            }
        };
        Ok(Location {
            endpoints: hosts.split(',').map(with_port).collect(),
            name: if name.is_empty() { "default".to_owned() } else { name.to_owned() },
            login: login.map(|(user, password)| (user.to_owned(), password.to_owned())),
            quota,
            files,
        })
    }
}

/// Returns the URL, however malformed, without anything that could be a password.
fn without_login(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((login, rest)) => {
            let scheme = login.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
            format!("{scheme}...@{rest}")
        }
        None => text.to_owned(),
    }
}

impl Etcd {
    /// Creates the log at this location, without sending a request. Fails, with a message of one line, if a file
    /// that TLS needs does not exist.
    pub fn new(location: &Location) -> Result<Etcd, String> {
        let security = Security::load(location.files.as_ref())?;
        let cluster = Arc::<ClusterId>::default();
        let begin_at = |first: usize, timeout| {
            let mut endpoints = location.endpoints.clone();
            endpoints.rotate_left(first);
            let (security, login) = (security.clone(), location.login.clone());
            Mutex::new(Gateway::new(endpoints, security, login, timeout, cluster.clone()))
        };
        let gateway = |timeout| begin_at(0, timeout);
        Ok(Etcd {
            gateways: (0..WINDOW).map(|_| gateway(TIMEOUT)).collect(),
            spare: gateway(TIMEOUT),
            slow: gateway(LONG),
            pulses: (0..location.endpoints.len().min(WAYS)).map(|first| begin_at(first, TIMEOUT)).collect(),
            prefix: format!("beanpole/{}/", location.name),
            quota: location.quota,
            span: LeafMutex::new(1),
            is_new: AtomicBool::new(true),
        })
    }

    fn key(&self, name: &str) -> String {
        encode(format!("{}{name}", self.prefix).as_bytes())
    }

    fn entry_key(&self, seq: Seq) -> String {
        self.key(&format!("log/{seq:016x}"))
    }

    // A comparison is about the version of a key: the number of puts since it did not exist. It holds if that equals
    // the given value, or else 0: etcd's defaults make requests short.

    /// Compares the version of the epoch's key with `epoch`; epoch 0 means that the key was never put.
    fn is_epoch(&self, epoch: Epoch) -> String {
        format!(r#"{{"key":"{}","version":"{epoch}"}}"#, self.key("epoch"))
    }

    fn is_free(&self, seq: Seq) -> String {
        format!(r#"{{"key":"{}"}}"#, self.entry_key(seq))
    }

    fn is_there(&self, seq: Seq) -> String {
        // Before the first entry, there is nothing, and purged entries existed.
        format!(r#"{{"key":"{}","result":"GREATER"}}"#, self.entry_key(seq))
    }

    fn put(&self, key: &str, value: &[u8]) -> String {
        format!(r#"{{"request_put":{{"key":"{key}","value":"{}"}}}}"#, encode(value))
    }

    /// Returns an unused connection to etcd, or the first one.
    fn any(&self) -> MutexGuard<'_, Gateway> {
        self.gateways.iter().find_map(Mutex::try_lock).unwrap_or_else(|| self.gateways[0].lock())
    }

    /// Executes the operations if all comparisons hold.
    fn transact(
        &self,
        mut by: MutexGuard<Gateway>,
        compare: &[String],
        then: &[String],
    ) -> Result<Option<Vec<u8>>, Fail> {
        let body = format!(r#"{{"compare":[{}],"success":[{}]}}"#, compare.join(","), then.join(","));
        let answer = by.ask("/v3/kv/txn", &body).map_err(Fail::Unknown)?;
        if answer.status != 200 {
            return Err(refusal(&answer.body));
        }
        // A missing value is false.
        let succeeded = Document::read(&answer.body).get("succeeded").is_true();
        Ok(succeeded.then_some(answer.body))
    }

    /// Executes the operations unconditionally. Returns the response.
    fn carry_out(&self, by: MutexGuard<Gateway>, then: &[String]) -> io::Result<Vec<u8>> {
        let answer = self.transact(by, &[], then).map_err(|fail| match fail {
            // Some releases of etcd, such as 3.5.1, refuse transactions that only read as well.
            Fail::Full => io::Error::new(io::ErrorKind::StorageFull, fail.to_string()),
            fail => io::Error::other(fail.to_string()),
        })?;
        Ok(answer.unwrap_or_default())
    }

    /// Returns the operation that reads one key.
    fn get(&self, name: &str) -> String {
        format!(r#"{{"request_range":{{"key":"{}"}}}}"#, self.key(name))
    }

    /// Sends a request to every server, so that a server of another cluster is found before this server becomes active.
    fn visit_all(&self) {
        let mut spare = self.spare.lock();
        let body = format!(r#"{{"key":"{}"}}"#, self.key("epoch"));
        for _ in 0..spare.servers() {
            // A server that does not answer is compared when it does.
            let _ = spare.ask("/v3/kv/range", &body);
            spare.leave();
        }
    }

    /// Reads up to `most` entries from `from` on and before `end`.
    fn read_range(&self, from: Seq, end: Seq, most: usize) -> io::Result<(Entries, Tail)> {
        let range = format!(
            r#"{{"request_range":{{"key":"{}","range_end":"{}","limit":"{most}"}}}}"#,
            self.entry_key(from),
            self.entry_key(end)
        );
        let then = [range, self.get("epoch"), self.get("beat"), self.get("wanted")];
        let answer = self.carry_out(self.any(), &then)?;
        let document = Document::read(&answer);
        let entries = pairs(&document, 0).elements().map(|pair| Ok((seq_of(&pair)?, pair.get("value").bytes())));
        let entries = entries.collect::<io::Result<_>>()?;
        let value = |place| pairs(&document, place).at(0).get("value").bytes();
        let version = |place, name| pairs(&document, place).at(0).get(name).number().unwrap_or(0);
        let clock = std::str::from_utf8(&value(2)).ok().and_then(|text| text.parse().ok());
        let (epoch, beat) = (version(1, "version"), version(2, "mod_revision"));
        let tail = Tail { epoch, note: value(1), beat, clock, wanted: value(3) };
        Ok((entries, tail))
    }

    /// Returns the position of the first entry in etcd, up to `end`.
    fn first(&self, end: Seq) -> io::Result<Seq> {
        let (key, end_key) = (self.entry_key(0), self.entry_key(end));
        let body = format!(r#"{{"key":"{key}","range_end":"{end_key}","limit":"1","keys_only":true}}"#);
        let answer = self.spare.lock().ask("/v3/kv/range", &body)?;
        let document = Document::read(&answer.body);
        let first = document.get("kvs").elements().next();
        first.map_or(Ok(end), |pair| seq_of(&pair))
    }

    fn delete(&self, range: &str) -> io::Result<()> {
        self.spare.lock().ask("/v3/kv/deleterange", range).and_then(done)
    }
}

/// Returns the keys and values found by one of the operations of a transaction.
fn pairs<'d>(answer: &'d Document, operation: usize) -> Part<'d> {
    answer.get("responses").at(operation).get("response_range").get("kvs")
}

/// Returns the position of the entry with this key.
fn seq_of(pair: &Part) -> io::Result<Seq> {
    let key = pair.get("key").bytes();
    let digits = key.rsplit(|byte| *byte == b'/').next().and_then(|digits| std::str::from_utf8(digits).ok());
    let seq = digits.and_then(|digits| Seq::from_str_radix(digits, 16).ok());
    seq.ok_or_else(|| io::Error::other("etcd's answer cannot be read"))
}

/// Returns the meaning of an error response: only lack of space is certain.
fn refusal(body: &[u8]) -> Fail {
    let text = String::from_utf8_lossy(body);
    if text.contains("database space exceeded") {
        return Fail::Full;
    }
    Fail::Unknown(io::Error::other(format!("etcd refuses: {}", text.trim_end())))
}

/// Checks that the request succeeded.
fn done(answer: Answer) -> io::Result<()> {
    match answer.status {
        200 => Ok(()),
        _ => Err(io::Error::other(refusal(&answer.body).to_string())),
    }
}

impl SharedLog for Etcd {
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail> {
        let mut compare = vec![self.is_epoch(known), self.is_free(after + 1)];
        if after > 0 {
            compare.push(self.is_there(after));
        }
        let wanted = format!(r#"{{"request_delete_range":{{"key":"{}"}}}}"#, self.key("wanted"));
        let then = [self.put(&self.key("epoch"), note), self.put(&self.entry_key(after + 1), entry), wanted];
        self.transact(self.any(), &compare, &then)?.map(|_| known + 1).ok_or(Fail::Conflict)
    }

    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail> {
        let compare = [self.is_epoch(epoch), self.is_there(after), self.is_free(after + 1)];
        let then = [self.put(&self.entry_key(after + 1), entry)];
        self.transact(self.any(), &compare, &then)?.map(drop).ok_or(Fail::Conflict)
    }

    fn read(&self, from: Seq, most: usize) -> io::Result<(Entries, Tail)> {
        if self.is_new.swap(false, Ordering::Relaxed) {
            self.visit_all();
        }
        // Whatever the limit is, etcd visits all keys of a range: reading a long log in ranges without an end would
        // take quadratic time. Merged entries have left positions without a key between the remaining ones.
        let (mut entries, mut span) = (Entries::new(), *self.span.lock());
        loop {
            let (next, left) = (entries.last().map_or(from, |(seq, _)| seq + 1), most - entries.len());
            let end = if span == 0 { Seq::MAX } else { next.saturating_add(span.max(left as u64)) };
            let (found, tail) = self.read_range(next, end, left)?;
            let is_end = end == Seq::MAX && found.len() < left;
            span = match (found.last(), found.len() as u64) {
                (Some((last, _)), count) if !is_end => (last + 1 - next).div_ceil(count).saturating_mul(most as u64),
                _ => 0,
            };
            entries.extend(found);
            if is_end || entries.len() == most {
                *self.span.lock() = span;
                return Ok((entries, tail));
            }
        }
    }

    fn ways(&self) -> usize {
        self.pulses.len()
    }

    fn renew(&self, way: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail> {
        let compare = [self.is_epoch(epoch)];
        let then = [self.put(&self.key("beat"), clock.to_string().as_bytes()), self.get("wanted")];
        let answer = self.transact(self.pulses[way].lock(), &compare, &then)?.ok_or(Fail::Fenced)?;
        Ok(pairs(&Document::read(&answer), 1).at(0).get("value").bytes())
    }

    fn want(&self, node: &[u8]) -> io::Result<()> {
        self.carry_out(self.any(), &[self.put(&self.key("wanted"), node)]).map(drop)
    }

    fn tell(&self, node: &str, state: &str) -> io::Result<String> {
        let name = format!("nodes/{node}");
        let then = [self.get(&name), self.put(&self.key(&name), state.as_bytes())];
        let answer = self.carry_out(self.spare.lock(), &then)?;
        let before = pairs(&Document::read(&answer), 0).at(0).get("value").bytes();
        Ok(String::from_utf8_lossy(&before).into_owned())
    }

    fn nodes(&self) -> io::Result<Vec<(String, String)>> {
        // The byte after a slash ends the keys that begin with the directory's name.
        let body = format!(r#"{{"key":"{}","range_end":"{}"}}"#, self.key("nodes/"), self.key("nodes0"));
        let answer = self.spare.lock().ask("/v3/kv/range", &body)?;
        let document = Document::read(&answer.body);
        let text = |pair: Part, name| String::from_utf8_lossy(&pair.get(name).bytes()).into_owned();
        let folder = format!("{}nodes/", self.prefix).len();
        let pairs = document.get("kvs").elements();
        Ok(pairs.map(|pair| (text(pair, "key").split_off(folder), text(pair, "value"))).collect())
    }

    fn retire(&self, node: &str) -> io::Result<()> {
        self.delete(&format!(r#"{{"key":"{}"}}"#, self.key(&format!("nodes/{node}"))))
    }

    fn purge(&self, below: Seq) -> io::Result<()> {
        let mut from = self.first(below)?;
        while from < below {
            let end = below.min(from + SLICE);
            self.delete(&format!(r#"{{"key":"{}","range_end":"{}"}}"#, self.entry_key(from), self.entry_key(end)))?;
            from = end;
        }
        Ok(())
    }

    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail> {
        let (first, last) = (self.entry_key(merged.first), self.entry_key(merged.last));
        let delete = format!(r#"{{"request_delete_range":{{"key":"{first}","range_end":"{last}"}}}}"#);
        let compare = [self.is_epoch(epoch), self.is_there(merged.last)];
        let then = [self.put(&last, &merged.entry), delete];
        self.transact(self.spare.lock(), &compare, &then)?.map(drop).ok_or(Fail::Conflict)
    }

    fn room(&self) -> io::Result<Room> {
        let answer = self.spare.lock().ask("/v3/maintenance/status", "{}")?;
        let document = Document::read(&answer.body);
        let number = |name| document.get(name).number();
        let used = number("dbSizeInUse").or(number("dbSize"));
        let used = used.ok_or_else(|| io::Error::other("etcd's answer cannot be read"))?;
        Ok(Room { used, quota: self.quota })
    }

    /// Compaction drops old revisions. Defragmentation returns their space, server by server, and is skipped where
    /// there is little to return, because the server answers nothing meanwhile. Then alarms can be cleared.
    fn tidy_up(&self) -> io::Result<()> {
        let mut slow = self.slow.lock();
        let answer = slow.ask("/v3/maintenance/alarm", r#"{"action":"GET","alarm":"NOSPACE"}"#)?;
        let alarms = Document::read(&answer.body);
        let alarms = alarms.get("alarms");
        let answer = slow.ask("/v3/maintenance/status", "{}")?;
        if let Some(revision) = Document::read(&answer.body).get("header").get("revision").number() {
            let answer = slow.ask("/v3/kv/compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#))?;
            // A full etcd has no new revisions, so this one may be compacted already.
            if !String::from_utf8_lossy(&answer.body).contains("has been compacted") {
                done(answer)?;
            }
        }
        let is_full = alarms.elements().len() > 0;
        let mut defragmented = Ok(());
        for _ in 0..slow.servers() {
            match self.defragment(&mut slow, is_full) {
                Ok(()) => slow.leave(),
                // The server is unreachable and was skipped already; it is tidied another time.
                Err(error) => defragmented = Err(error),
            }
        }
        // Each server has its own alarm.
        for member in alarms.elements().filter_map(|alarm| alarm.get("memberID").number()) {
            let body = format!(r#"{{"action":"DEACTIVATE","alarm":"NOSPACE","memberID":"{member}"}}"#);
            slow.ask("/v3/maintenance/alarm", &body).and_then(done)?;
        }
        if is_full {
            log::warn!("journal: etcd had reached its quota; compacted and defragmented it, and cleared its alarm");
        }
        defragmented
    }
}

impl Etcd {
    /// Makes the next server return unused space, if there is much, or if etcd is full: without writes, it does not
    /// know what compaction has freed.
    fn defragment(&self, gateway: &mut Gateway, is_full: bool) -> io::Result<()> {
        let answer = gateway.ask("/v3/maintenance/status", "{}")?;
        let document = Document::read(&answer.body);
        let number = |name| document.get(name).number().unwrap_or(0);
        let (size, used) = (number("dbSize"), number("dbSizeInUse"));
        if is_full || (size > self.quota / 2 && used < size - size / 4) {
            gateway.ask("/v3/maintenance/defragment", "{}").and_then(done)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_hosts_and_a_name() {
        let location = Location::parse("etcd://a,b:23790,10.0.0.3/mail").expect("a location");
        assert_eq!(location.endpoints, ["a:2379", "b:23790", "10.0.0.3:2379"]);
        assert_eq!((location.name.as_str(), location.login, location.quota), ("mail", None, QUOTA));
        let location = Location::parse("etcd://user:secret@a/q?quota=1000").expect("a location");
        assert_eq!(location.login, Some(("user".to_owned(), "secret".to_owned())));
        assert_eq!(location.quota, 1000);
        assert_eq!(Location::parse("etcd://a").expect("a location").name, "default");
        let files = |text: &str| Location::parse(text).map(|location| location.files.expect("TLS"));
        if cfg!(feature = "tls") {
            assert_eq!(files("etcds://a/q"), Ok(ClientTlsFiles::default()));
            let (certificate, key) = (Some("c.pem".into()), Some("k.pem".into()));
            let wanted = ClientTlsFiles { authority: Some("/etc/ca.pem".into()), certificate, key };
            assert_eq!(files("etcds://a/q?ca=/etc/ca.pem&cert=c.pem&key=k.pem&quota=9"), Ok(wanted));
            assert!(Location::parse("etcds://a/q?key=k.pem").is_err());
        } else {
            assert!(Location::parse("etcds://a/q").is_err_and(|problem| problem.contains("without TLS")));
        }
        for wrong in [
            "etcd://a/x?ca=f",
            "http://a/x",
            "etcd:///x",
            "etcd://a,,b/x",
            "etcd://a/x/y",
            "etcd://u@a/x",
            "etcd://a/x?y=1",
        ] {
            assert!(Location::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_error_tells_the_password() {
        for wrong in [
            "http://user:secret@a/x",
            "user:secret@a/x",
            "etcd://user:secret@a/x/y",
            "etcd://user:secret@a,,b/x",
            "etcd://user:secret@a/x?quota=much",
            "etcd://user:secret@a/x?y=1",
            "etcds://user:secret@a/x?key=k",
            "etcd://user:sec/secret@a/x",
            "etcd://user:sec?secret@a/x",
            "etcd://user:sec?ret&secret@a/x",
            "etcd://user:sec@secret@a/x y",
        ] {
            let problem = Location::parse(wrong).expect_err(wrong);
            assert!(!problem.contains("sec") && !problem.contains("user"), "{problem}");
        }
        let problem = Location::parse("etcd://user:secret@a/x?y=1").expect_err("y is not known");
        assert_eq!(problem, "invalid journal: etcd://...@a/x?y=1; y=1 is not known there");
    }
}
