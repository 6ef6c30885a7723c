//! A shared log in etcd, accessed through etcd's HTTP gateway. Reads are linearizable.
//!
//! All keys start with `beanpole/NAME/`:
//!
//! - `log/` and 16 hexadecimal digits: an entry.
//! - `epoch`: the note of the last claim. The key's version is the number of claims.
//! - `beat`: the heartbeat of the writer.
//! - `wanted`: the name of the server that an operator wants to become active.
//! - `nodes/` and a server name: the status of the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, net::ToSocketAddrs, sync::Arc, time::Duration};

use super::gateway::{ClusterId, Gateway, Location};
use super::shared_log::{Entries, Epoch, Fail, Merged, Seq, SharedLog, SharedSpace, Tail};
use super::shipping::WINDOW;
use crate::client::{Response, Security};
use crate::shared::base64::encode;
use crate::shared::json::{Document, Part};
use crate::shared::lock_order::{LeafMutex, Mutex, MutexGuard, GATEWAY};

const TIMEOUT: Duration = Duration::from_millis(700);
/// The maximum number of etcd servers that receive a lease renewal in parallel. Three are rarely all slow at once.
const MAX_RENEWALS: usize = 3;
const MAINTENANCE: Duration = Duration::from_secs(60);
/// The maximum number of positions per delete request. A larger request would delay lease renewals in etcd.
const BATCH: usize = 1000;

pub struct Etcd {
    /// For concurrent appends and reads. All these connections prefer the same etcd server, because requests through
    /// different servers often arrive out of order. [`Etcd::space`] finds the leader, which responds fastest.
    gateways: Vec<Mutex<Gateway, GATEWAY>>,
    /// For other short requests, such as status reports and deletes, which must not delay appends.
    spare: Mutex<Gateway, GATEWAY>,
    maintenance: Mutex<Gateway, GATEWAY>,
    /// For lease renewals, which no append may delay. Each connection prefers another etcd server, in case one is slow.
    renewals: Vec<Mutex<Gateway, GATEWAY>>,
    prefix: String,
    quota: u64,
    /// The number of positions that the next read covers. 0 means no bound, because the last read reached the end.
    span: LeafMutex<u64>,
    is_new: AtomicBool,
    /// The note of this server's last claim.
    note: LeafMutex<Vec<u8>>,
}

impl Etcd {
    /// Resolves host names, but does not connect. An error is a message about a TLS file.
    pub fn new(location: &Location) -> Result<Etcd, String> {
        let security = Security::load(location.files.as_ref())?;
        let cluster = Arc::<ClusterId>::default();
        let gateway = |timeout, turn| Mutex::new(Gateway::new(location, &security, timeout, &cluster, turn));
        // A name that cannot be resolved yet may have several addresses.
        let count = |endpoint: &String| endpoint.to_socket_addrs().map_or(MAX_RENEWALS, Iterator::count);
        let servers: usize = location.endpoints.iter().map(count).sum();
        Ok(Etcd {
            gateways: (0..WINDOW).map(|_| gateway(TIMEOUT, 0)).collect(),
            spare: gateway(TIMEOUT, 0),
            maintenance: gateway(MAINTENANCE, 0),
            renewals: (0..servers.min(MAX_RENEWALS)).map(|turn| gateway(TIMEOUT, turn)).collect(),
            prefix: format!("beanpole/{}/", location.name),
            quota: location.quota,
            span: LeafMutex::new(1),
            is_new: AtomicBool::new(true),
            note: LeafMutex::default(),
        })
    }

    fn key(&self, name: &str) -> String {
        encode(format!("{}{name}", self.prefix).as_bytes())
    }

    fn entry_key(&self, seq: Seq) -> String {
        self.key(&format!("log/{seq:016x}"))
    }

    // A key's version counts its writes. In a comparison, an omitted version is 0, and an omitted result is `EQUAL`.

    fn is_epoch(&self, epoch: Epoch) -> String {
        format!(r#"{{"key":"{}","version":"{epoch}"}}"#, self.key("epoch"))
    }

    /// After etcd was wiped, another server's claim can have the same epoch. Appends omit this comparison to be small.
    fn is_own(&self) -> String {
        format!(r#"{{"key":"{}","target":"VALUE","value":"{}"}}"#, self.key("epoch"), encode(&self.note.lock()))
    }

    fn is_free(&self, seq: Seq) -> String {
        format!(r#"{{"key":"{}"}}"#, self.entry_key(seq))
    }

    fn exists(&self, seq: Seq) -> String {
        format!(r#"{{"key":"{}","result":"GREATER"}}"#, self.entry_key(seq))
    }

    fn put(&self, key: &str, value: &[u8]) -> String {
        format!(r#"{{"request_put":{{"key":"{key}","value":"{}"}}}}"#, encode(value))
    }

    fn any(&self) -> MutexGuard<'_, Gateway> {
        self.gateways.iter().find_map(Mutex::try_lock).unwrap_or_else(|| self.gateways[0].lock())
    }

    fn get(&self, name: &str) -> String {
        format!(r#"{{"request_range":{{"key":"{}"}}}}"#, self.key(name))
    }

    /// Detects an etcd server that belongs to another cluster, before this beanpole server becomes active.
    fn check_servers(&self) {
        let mut spare = self.spare.lock();
        let body = format!(r#"{{"key":"{}"}}"#, self.key("epoch"));
        for _ in 0..spare.location.endpoints.len() {
            // An unreachable server is checked when it first responds.
            let _ = spare.request("/v3/kv/range", &body);
            spare.leave();
        }
    }

    /// Reads at most `limit` entries with positions in `from..end`, and the state of the last writer.
    fn read_range(&self, from: Seq, end: Seq, limit: usize) -> io::Result<(Entries, Tail)> {
        let (key, last) = (self.entry_key(from), self.entry_key(end));
        let range = format!(r#"{{"request_range":{{"key":"{key}","range_end":"{last}","limit":"{limit}"}}}}"#);
        let response = execute(self.any(), &[range, self.get("epoch"), self.get("beat"), self.get("wanted")])?;
        let document = Document::read(&response);
        let entries = pairs(&document, 0).elements().map(|pair| Ok((seq_of(&pair)?, pair.get("value").bytes())));
        let entries = entries.collect::<io::Result<Entries>>()?;
        // Callers calculate with the number and the positions of the entries.
        let is_expected = entries.len() <= limit && entries.iter().all(|(seq, _)| (from..end).contains(seq));
        let is_valid = is_expected && entries.is_sorted_by(|(seq, _), (next, _)| seq < next);
        let value = |index| pairs(&document, index).at(0).get("value").bytes();
        let version = |index, name| pairs(&document, index).at(0).get(name).number().unwrap_or(0);
        let clock = std::str::from_utf8(&value(2)).ok().and_then(|text| text.parse().ok());
        let (epoch, beat) = (version(1, "version"), version(2, "mod_revision"));
        let tail = Tail { epoch, note: value(1), beat, clock, requested: value(3) };
        is_valid.then_some((entries, tail)).ok_or_else(invalid)
    }

    /// Deletes the keys from `key` to `end`, excluding `end`. If `end` is empty, deletes only `key`.
    fn delete(&self, key: &str, end: &str) -> String {
        format!(r#"{{"request_delete_range":{{"key":"{key}","range_end":"{end}"}}}}"#)
    }

    /// Defragments the server if etcd is full, or if much of the server's space is unused.
    fn defragment(&self, gateway: &mut Gateway, is_full: bool) -> io::Result<()> {
        let response = gateway.request("/v3/maintenance/status", "{}").and_then(done)?;
        let document = Document::read(&response.body);
        let number = |name| document.get(name).number().unwrap_or(0);
        let (size, used) = (number("dbSize"), number("dbSizeInUse"));
        if is_full || (size > self.quota / 2 && used < size - size / 4) {
            gateway.request("/v3/maintenance/defragment", "{}").and_then(done)?;
        }
        Ok(())
    }
}

/// Returns the response to the operations `then`, or `None` if a comparison is false.
fn transact(mut gateway: MutexGuard<Gateway>, compare: &[String], then: &[String]) -> Result<Option<Vec<u8>>, Fail> {
    let body = format!(r#"{{"compare":[{}],"success":[{}]}}"#, compare.join(","), then.join(","));
    let response = gateway.request("/v3/kv/txn", &body).map_err(Fail::Unknown)?;
    ensure!(response.status == 200, refusal(&response.body));
    // etcd's gateway omits JSON members whose value is `false`.
    let succeeded = Document::read(&response.body).get("succeeded").is_true();
    Ok(succeeded.then_some(response.body))
}

fn execute(gateway: MutexGuard<Gateway>, then: &[String]) -> io::Result<Vec<u8>> {
    Ok(transact(gateway, &[], then).map_err(error_of)?.unwrap_or_default())
}

fn pairs<'d>(response: &'d Document, operation: usize) -> Part<'d> {
    response.get("responses").at(operation).get("response_range").get("kvs")
}

fn seq_of(pair: &Part) -> io::Result<Seq> {
    let key = pair.get("key").bytes();
    let digits = key.rsplit(|byte| *byte == b'/').next().and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| Seq::from_str_radix(digits, 16).ok()).ok_or_else(invalid)
}

fn invalid() -> io::Error {
    io::Error::other("invalid response from etcd")
}

/// After any error except `Full`, etcd might have executed the request.
fn refusal(body: &[u8]) -> Fail {
    let text = String::from_utf8_lossy(body);
    if text.contains("database space exceeded") {
        return Fail::Full;
    }
    Fail::Unknown(match text.contains("permission denied") {
        true => io::Error::new(io::ErrorKind::PermissionDenied, "etcd refused the request: permission denied"),
        false => io::Error::other(format!("etcd refused the request: {}", text.trim_end())),
    })
}

fn error_of(fail: Fail) -> io::Error {
    match fail {
        Fail::Unknown(error) => error,
        // Some etcd releases (such as 3.5.1) reject even reads when the quota is exceeded.
        Fail::Full => io::Error::new(io::ErrorKind::StorageFull, fail.to_string()),
        fail => io::Error::other(fail.to_string()),
    }
}

fn done(response: Response) -> io::Result<Response> {
    let refused = (response.status != 200).then(|| error_of(refusal(&response.body)));
    refused.map_or(Ok(response), Err)
}

impl SharedLog for Etcd {
    fn claim(&self, known: Epoch, after: Seq, note: &[u8], entry: &[u8]) -> Result<Epoch, Fail> {
        // All later positions must be free: the entry after `after` may have been merged with later ones.
        let (next, end) = (self.entry_key(after + 1), self.entry_key(Seq::MAX));
        let mut compare = vec![self.is_epoch(known), format!(r#"{{"key":"{next}","range_end":"{end}"}}"#)];
        compare.extend((after > 0).then(|| self.exists(after)));
        note.clone_into(&mut self.note.lock());
        let wanted = self.delete(&self.key("wanted"), "");
        let then = [self.put(&self.key("epoch"), note), self.put(&next, entry), wanted];
        transact(self.any(), &compare, &then)?.map(|_| known + 1).ok_or(Fail::Conflict)
    }

    fn append(&self, epoch: Epoch, after: Seq, entry: &[u8]) -> Result<(), Fail> {
        let compare = [self.is_epoch(epoch), self.exists(after), self.is_free(after + 1)];
        let then = [self.put(&self.entry_key(after + 1), entry)];
        transact(self.any(), &compare, &then)?.map(drop).ok_or(Fail::Conflict)
    }

    fn read(&self, from: Seq, limit: usize) -> io::Result<(Entries, Tail)> {
        if self.is_new.swap(false, Ordering::Relaxed) {
            self.check_servers();
        }
        // etcd visits all keys in a range, even with a limit, so reading a long log without upper bounds would take
        // quadratic time. A bounded range can contain fewer entries than positions, because merging leaves gaps.
        let (mut entries, mut span) = (Entries::new(), *self.span.lock());
        loop {
            let (next, left) = (entries.last().map_or(from, |(seq, _)| seq + 1), limit - entries.len());
            let end = if span == 0 { Seq::MAX } else { next.saturating_add(span.max(left as u64)) };
            let (found, tail) = self.read_range(next, end, left)?;
            let is_end = end == Seq::MAX && found.len() < left;
            span = match (found.last(), found.len() as u64) {
                (Some((last, _)), count) if !is_end => (last + 1 - next).div_ceil(count).saturating_mul(limit as u64),
                _ => 0,
            };
            entries.extend(found);
            if is_end || entries.len() == limit {
                *self.span.lock() = span;
                return Ok((entries, tail));
            }
        }
    }

    fn renewal_connections(&self) -> usize {
        self.renewals.len()
    }

    fn renew(&self, connection: usize, epoch: Epoch, clock: u64) -> Result<Vec<u8>, Fail> {
        let compare = [self.is_epoch(epoch), self.is_own()];
        let then = [self.put(&self.key("beat"), clock.to_string().as_bytes()), self.get("wanted")];
        let response = transact(self.renewals[connection].lock(), &compare, &then)?.ok_or(Fail::Fenced)?;
        Ok(pairs(&Document::read(&response), 1).at(0).get("value").bytes())
    }

    fn request_switch(&self, node: &[u8]) -> io::Result<()> {
        execute(self.any(), &[self.put(&self.key("wanted"), node)]).map(drop)
    }

    fn publish(&self, node: &str, state: &str) -> io::Result<String> {
        let name = format!("nodes/{node}");
        let then = [self.get(&name), self.put(&self.key(&name), state.as_bytes())];
        let response = execute(self.spare.lock(), &then)?;
        let before = pairs(&Document::read(&response), 0).at(0).get("value").bytes();
        Ok(String::from_utf8_lossy(&before).into_owned())
    }

    fn nodes(&self) -> io::Result<Vec<(String, String)>> {
        // `0` follows `/` in ASCII, so the range contains all keys that start with `nodes/`.
        let body = format!(r#"{{"key":"{}","range_end":"{}"}}"#, self.key("nodes/"), self.key("nodes0"));
        let response = self.spare.lock().request("/v3/kv/range", &body).and_then(done)?;
        let document = Document::read(&response.body);
        let text = |pair: Part, name| String::from_utf8_lossy(&pair.get(name).bytes()).into_owned();
        let folder = format!("{}nodes/", self.prefix);
        let node = |pair| Some((text(pair, "key").strip_prefix(&folder)?.to_owned(), text(pair, "value")));
        document.get("kvs").elements().map(|pair| node(pair).ok_or_else(invalid)).collect()
    }

    fn retire(&self, node: &str) -> io::Result<()> {
        execute(self.spare.lock(), &[self.delete(&self.key(&format!("nodes/{node}")), "")]).map(drop)
    }

    fn purge(&self, below: Seq) -> io::Result<()> {
        let (key, end) = (self.entry_key(0), self.entry_key(below));
        let body = format!(r#"{{"key":"{key}","range_end":"{end}","limit":"1","keys_only":true}}"#);
        let response = self.spare.lock().request("/v3/kv/range", &body).and_then(done)?;
        let first = Document::read(&response.body).get("kvs").elements().next().map(|pair| seq_of(&pair));
        for from in (first.unwrap_or(Ok(below))?..below).step_by(BATCH) {
            let (from, end) = (self.entry_key(from), self.entry_key(below.min(from + BATCH as Seq)));
            let done = transact(self.spare.lock(), &[self.is_own()], &[self.delete(&from, &end)]);
            done.map_err(error_of)?.ok_or_else(|| error_of(Fail::Fenced))?;
        }
        Ok(())
    }

    fn merge(&self, epoch: Epoch, merged: &Merged) -> Result<(), Fail> {
        let (first, last) = (self.entry_key(merged.first), self.entry_key(merged.last));
        let compare = [self.is_epoch(epoch), self.is_own(), self.exists(merged.last)];
        let then = [self.put(&last, &merged.entry), self.delete(&first, &last)];
        transact(self.spare.lock(), &compare, &then)?.map(drop).ok_or(Fail::Conflict)
    }

    fn space(&self) -> io::Result<SharedSpace> {
        let mut spare = self.spare.lock();
        let response = spare.request("/v3/maintenance/status", "{}").and_then(done)?;
        let document = Document::read(&response.body);
        let number = |name| document.get(name).number();
        match number("leader") {
            None | Some(0) => {}
            leader if leader == document.get("header").get("member_id").number() => {
                let turn = spare.turn;
                drop(spare);
                self.gateways.iter().for_each(|gateway| gateway.lock().move_to(turn));
            }
            // The next call queries the next server, which may be the leader.
            Some(_) => spare.leave(),
        }
        let used = number("dbSizeInUse").or(number("dbSize")).ok_or_else(invalid)?;
        Ok(SharedSpace { used, quota: self.quota })
    }

    /// Discards old revisions, defragments one etcd server at a time, and clears the out-of-space alarms. etcd does not
    /// respond while defragmenting, so servers that would free little space are skipped unless etcd is full.
    fn compact(&self) -> io::Result<()> {
        let mut gateway = self.maintenance.lock();
        let response = gateway.request("/v3/maintenance/alarm", r#"{"action":"GET","alarm":"NOSPACE"}"#)?;
        let alarms = Document::read(&response.body);
        let alarms = alarms.get("alarms");
        let response = gateway.request("/v3/maintenance/status", "{}").and_then(done)?;
        if let Some(revision) = Document::read(&response.body).get("header").get("revision").number() {
            let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
            let response = gateway.request("/v3/kv/compaction", &body)?;
            // A full etcd accepts no new revision, so an earlier call may have compacted the current revision.
            if !String::from_utf8_lossy(&response.body).contains("has been compacted") {
                done(response)?;
            }
        }
        let is_full = alarms.elements().len() > 0;
        let mut defragmented = Ok(());
        for _ in 0..gateway.location.endpoints.len() {
            match self.defragment(&mut gateway, is_full) {
                Ok(()) => gateway.leave(),
                // The gateway now uses the next server. A later call defragments the failed server.
                Err(error) => defragmented = Err(error),
            }
        }
        for member in alarms.elements().filter_map(|alarm| alarm.get("memberID").number()) {
            let body = format!(r#"{{"action":"DEACTIVATE","alarm":"NOSPACE","memberID":"{member}"}}"#);
            gateway.request("/v3/maintenance/alarm", &body).and_then(done)?;
        }
        if is_full && defragmented.is_ok() {
            log::warn!("journal: etcd had reached its quota; compacted and defragmented it, and cleared its alarm");
        }
        defragmented
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;

    use super::super::gateway::QUOTA;
    use super::*;
    use crate::client::ClientTlsFiles;

    /// Returns the client of a server that sends the same response to all requests.
    fn answered_with(status: u16, text: impl Into<String>) -> Etcd {
        let text = text.into();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (mut reader, mut length) = (BufReader::new(&stream), 0);
                for line in reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
                    length =
                        line.strip_prefix("Content-Length: ").map_or(length, |text| text.parse().expect("a number"));
                }
                let _ = reader.read_exact(&mut vec![0; length]);
                let head =
                    format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", text.len());
                let _ = (&stream).write_all((head + &text).as_bytes());
            }
        });
        Etcd::new(&Location::parse(&format!("etcd://{address}/q")).expect("a location")).expect("a journal")
    }

    fn kvs(keys: &[&str]) -> String {
        let pairs = keys.iter().map(|key| format!(r#"{{"key":"{}","value":"YQ=="}}"#, encode(key.as_bytes())));
        format!(r#"{{"kvs":[{}]}}"#, pairs.collect::<Vec<_>>().join(","))
    }

    fn is_invalid<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.to_string() == "invalid response from etcd")
    }

    #[test]
    fn an_unexpected_server_name_is_an_error() {
        for key in ["a", "beanpole/q/nodes", "beanpole/x/nodes/a", "ééééééééé"] {
            assert!(is_invalid(answered_with(200, kvs(&["beanpole/q/nodes/a", key])).nodes()), "{key}");
        }
        let nodes = answered_with(200, kvs(&["beanpole/q/nodes/a"])).nodes().expect("a server");
        assert_eq!(nodes, [("a".to_owned(), "a".to_owned())]);
        // A missing key, and a key that is not UTF-8.
        for text in [r#"{"kvs":[{"value":"YQ=="}]}"#, r#"{"kvs":[{"key":"/////////////////////w=="}]}"#] {
            assert!(is_invalid(answered_with(200, text).nodes()), "{text}");
        }
    }

    #[test]
    fn an_unexpected_entry_is_an_error() {
        let answered = |seqs: &[u64]| {
            let keys: Vec<String> = seqs.iter().map(|seq| format!("beanpole/q/log/{seq:016x}")).collect();
            let kvs = kvs(&keys.iter().map(String::as_str).collect::<Vec<_>>());
            answered_with(200, format!(r#"{{"succeeded":true,"responses":[{{"response_range":{kvs}}}]}}"#))
        };
        for seqs in [&[0][..], &[3], &[6], &[u64::MAX], &[5, 5], &[5, 4], &[4, 5, 6]] {
            assert!(is_invalid(answered(seqs).read(4, 2)), "{seqs:?}");
        }
        assert!(is_invalid(answered(&[1]).read(Seq::MAX, 1)));
        let (entries, _) = answered(&[4, 5]).read(4, 2).expect("entries");
        assert_eq!(entries, [(4, b"a".to_vec()), (5, b"a".to_vec())]);
    }

    #[test]
    fn a_missing_right_is_reported() {
        for (status, text) in [
            (500, r#"{"error":"auth: permission denied","message":"auth: permission denied","code":2}"#),
            (403, r#"{"error":"etcdserver: permission denied","message":"etcdserver: permission denied","code":7}"#),
        ] {
            let log = answered_with(status, text);
            let results = [log.space().map(drop), log.compact(), log.read(1, 1).map(drop)];
            for error in results.map(|result| result.expect_err("no right")) {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{status}");
                assert_eq!(error.to_string(), "etcd refused the request: permission denied");
            }
        }
        let log = answered_with(503, r#"{"error":"etcdserver: no leader","code":14}"#);
        assert_eq!(log.space().expect_err("no leader").kind(), io::ErrorKind::Other);
        let log = answered_with(429, r#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#);
        assert_eq!(log.read(1, 1).expect_err("no space").kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_location_has_hosts_and_a_name() {
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
    fn no_error_contains_the_password() {
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
        let problem = Location::parse("etcd://user:secret@a/x?y=1").expect_err("y is unknown");
        assert_eq!(problem, "invalid journal: etcd://...@a/x?y=1; unknown parameter y=1");
    }
}
