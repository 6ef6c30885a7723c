//! An in-memory replacement for etcd's JSON gateway, which lets tests run the whole program without etcd.
//!
//! Owns keys with versions and revisions, and a quota that tests can declare exceeded. Simulates only one etcd server;
//! `tests/cluster/run` uses several real ones.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use beanpole::internals::base64::{decode, encode};
use beanpole::internals::cluster::{EntryKind, Head};
use hifijson::token::Lex;
use hifijson::value::{parse_bounded, Value as Parsed};
use hifijson::SliceLexer;

type Value<'a> = Parsed<&'a str, std::borrow::Cow<'a, str>>;

#[derive(Clone, Debug, Default)]
struct Entry {
    value: Vec<u8>,
    version: u64,
    created: u64,
    modified: u64,
}

#[derive(Debug, Default)]
pub struct Engine {
    keys: BTreeMap<Vec<u8>, Entry>,
    revision: u64,
    /// The ID of the cluster.
    pub id: u64,
    member: u16,
    /// `true` while the quota is exceeded. In this state, etcd refuses transactions that write keys.
    pub is_full: bool,
    /// `true` to close every connection without a response.
    pub is_away: bool,
    /// `true` to refuse even read-only transactions while the quota is exceeded, like etcd 3.5.1.
    pub full_for_reads: bool,
    /// The member ID of etcd's leader, or 0 if there is no leader.
    pub leader: u16,
    /// The paths of all requests except transactions and ranges.
    pub requested_paths: Vec<String>,
    /// Milliseconds added to the timestamps of heartbeats when a server reads them.
    pub ahead: u64,
    /// The body size in bytes of the last append request.
    pub appended_bytes: usize,
    /// The number of an entry. Requests to append this entry wait until the field changes. 0 delays no request.
    /// `arrived` contains the entry number of each append request.
    pub held: u64,
    pub arrived: Vec<u64>,
    /// The number of keys visited by all range requests, and the largest number of keys that one request deleted.
    pub visited: usize,
    pub deleted: usize,
    /// The user and the password that clients must send, if any.
    pub login: Option<(String, String)>,
    /// `true` after a change of etcd's users, until a client logs in again.
    pub is_token_old: bool,
    /// `true` to refuse range requests outside of transactions.
    pub refuses_ranges: bool,
}

/// The authentication token that the server issues.
const TOKEN: &str = "let-me.in";

/// A server that listens until the test process exits.
pub struct Served {
    pub address: SocketAddr,
    engine: Arc<Mutex<Engine>>,
}

impl Served {
    pub fn start() -> Served {
        Served::start_with(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    pub fn start_with(listener: TcpListener) -> Served {
        let address = listener.local_addr().expect("an address");
        let engine = Arc::<Mutex<Engine>>::default();
        {
            let mut engine = engine.lock().expect("a new lock");
            (engine.id, engine.member) = (address.port().into(), address.port());
        }
        let shared = engine.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let engine = shared.clone();
                std::thread::spawn(move || serve(stream, &engine));
            }
        });
        Served { address, engine }
    }

    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn url(&self) -> String {
        format!("etcd://{}/q", self.address)
    }
}

fn serve(stream: TcpStream, engine: &Mutex<Engine>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut length, mut token) = (0, String::new());
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim_end().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().ok()?,
                Some(("Authorization", value)) => token = value.to_owned(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let path = first.split(' ').nth(1)?.to_owned();
        let mut lexer = SliceLexer::new(&body);
        let request: Value = lexer.exactly_one(Lex::ws_peek, |next, lexer| parse_bounded(16, next, lexer)).ok()?;
        let lock = || engine.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seq) = appended(&request) {
            lock().arrived.push(seq);
            lock().appended_bytes = length;
            while lock().held == seq {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        let mut engine = lock();
        if engine.is_away {
            return None;
        }
        let answer = engine.answer(&path, &token, &request);
        drop(engine);
        let (status, text) = answer.map_or_else(|(status, text)| (status, text), |text| (200, text));
        let length = text.len();
        let whole =
            format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{text}");
        (&stream).write_all(whole.as_bytes()).ok()?;
    }
}

/// Returns the number of the entry that a request appends, or `None` for other requests.
fn appended(request: &Value) -> Option<u64> {
    let put = member(elements(request, "success").first()?, "request_put")?;
    let key = bytes(put, "key");
    let digits = key.strip_prefix(b"beanpole/q/log/".as_slice())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn member<'v, 'a>(value: &'v Value<'a>, name: &str) -> Option<&'v Value<'a>> {
    let Parsed::Object(members) = value else { return None };
    members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    match member(value, name) {
        Some(Parsed::String(text)) => text,
        _ => "",
    }
}

fn bytes(value: &Value, name: &str) -> Vec<u8> {
    decode(text(value, name).as_bytes()).expect("base64")
}

fn elements<'v, 'a>(value: &'v Value<'a>, name: &str) -> &'v [Value<'a>] {
    match member(value, name) {
        Some(Parsed::Array(elements)) => elements,
        _ => &[],
    }
}

type Answer = Result<String, (u16, String)>;

impl Engine {
    /// Claims the journal for a nonexistent server, whose name and address are in `note`.
    pub fn claim(&mut self, note: &str) {
        self.revision += 1;
        let epoch = self.keys.entry(b"beanpole/q/epoch".to_vec()).or_default();
        let head = Head { kind: EntryKind::Claim, epoch: epoch.version, writer: 7, number: epoch.version };
        // Keeps the third word of the old value, which identifies the journal.
        let known = String::from_utf8_lossy(&epoch.value).into_owned();
        let journal = known.split(' ').nth(2).unwrap_or("7");
        epoch.value = format!("{note} {journal}").into_bytes();
        (epoch.version, epoch.modified) = (epoch.version + 1, self.revision);
        let last = self.keys.keys().filter_map(|key| key.strip_prefix(b"beanpole/q/log/".as_slice())).next_back();
        let digits = last.map_or("0".into(), |digits| String::from_utf8_lossy(digits).into_owned());
        let seq = u64::from_str_radix(&digits, 16).expect("a number") + 1;
        let (value, modified) = (head.seal(b""), self.revision);
        let entry = Entry { value, version: 1, created: modified, modified };
        self.keys.insert(format!("beanpole/q/log/{seq:016x}").into_bytes(), entry);
    }

    /// Requests that the server `name` become active, like `beanpole cluster promote`.
    pub fn promote(&mut self, name: &str) {
        self.revision += 1;
        let (value, modified) = (name.into(), self.revision);
        self.keys.insert(b"beanpole/q/wanted".to_vec(), Entry { value, version: 1, created: modified, modified });
    }

    pub fn wipe(&mut self) {
        self.keys.clear();
    }

    pub fn entries(&self) -> usize {
        self.keys.keys().filter(|key| key.starts_with(b"beanpole/q/log/")).count()
    }

    pub fn beats(&self) -> u64 {
        let beats = self.keys.iter().filter(|(key, _)| key.ends_with(b"/beat"));
        beats.map(|(_, entry)| entry.version).sum()
    }

    fn answer(&mut self, path: &str, token: &str, request: &Value) -> Answer {
        if let (Some((user, password)), true) = (&self.login, path != "/v3/auth/authenticate") {
            if token != TOKEN {
                return Err((401, format!(r#"{{"error":"no token of {user} {password}"}}"#)));
            }
            if self.is_token_old {
                return Err((400, r#"{"error":"etcdserver: revision of auth store is old","code":3}"#.to_owned()));
            }
        }
        let revision = self.revision;
        match path {
            "/v3/kv/txn" => self.transact(request),
            "/v3/kv/range" if self.refuses_ranges => Err((503, r#"{"error":"etcdserver: no leader"}"#.to_owned())),
            "/v3/kv/range" => Ok(self.range(request)),
            path => {
                self.requested_paths.push(path.to_owned());
                match path {
                    "/v3/auth/authenticate" => self.log_in(text(request, "name"), text(request, "password")),
                    "/v3/maintenance/status" => {
                        let (size, used): (u64, u64) =
                            if self.is_full { (1 << 31, 1 << 31) } else { (100_000, 50_000) };
                        let (member, leader) = (self.member, self.leader);
                        let header = format!(r#"{{"revision":"{revision}","member_id":"{member}"}}"#);
                        Ok(format!(
                            r#"{{"header":{header},"leader":"{leader}","dbSize":"{size}","dbSizeInUse":"{used}"}}"#
                        ))
                    }
                    "/v3/maintenance/alarm" if text(request, "action") == "GET" => {
                        let alarm = if self.is_full { r#"{"memberID":"7","alarm":"NOSPACE"}"# } else { "" };
                        Ok(format!(r#"{{"alarms":[{alarm}]}}"#))
                    }
                    "/v3/maintenance/alarm" => {
                        // etcd clears an alarm only for the named member, and raises it again if no space was freed.
                        self.is_full &= text(request, "memberID") != "7"
                            || !self.requested_paths.iter().any(|path| path == "/v3/maintenance/defragment");
                        Ok("{}".to_owned())
                    }
                    "/v3/kv/compaction"
                        if self.requested_paths.iter().filter(|path| *path == "/v3/kv/compaction").count() > 1 =>
                    {
                        Err((400, r#"{"error":"etcdserver: mvcc: required revision has been compacted"}"#.to_owned()))
                    }
                    "/v3/kv/compaction" | "/v3/maintenance/defragment" => Ok("{}".to_owned()),
                    other => Err((404, format!(r#"{{"error":"{other}"}}"#))),
                }
            }
        }
    }

    fn log_in(&mut self, user: &str, password: &str) -> Answer {
        let is_known =
            self.login.as_ref().is_some_and(|known| (known.0.as_str(), known.1.as_str()) == (user, password));
        self.is_token_old &= !is_known;
        match is_known {
            true => Ok(format!(r#"{{"token":"{TOKEN}"}}"#)),
            false => Err((400, r#"{"error":"authentication failed"}"#.to_owned())),
        }
    }

    fn transact(&mut self, request: &Value) -> Answer {
        let holds = elements(request, "compare").iter().all(|compare| {
            // If the range is empty, etcd compares the version 0.
            if member(compare, "range_end").is_some() {
                return self.named(compare).is_empty();
            }
            let entry = self.keys.get(&bytes(compare, "key")).cloned().unwrap_or_default();
            if text(compare, "target") == "VALUE" {
                return entry.value == bytes(compare, "value");
            }
            let version = text(compare, "version").parse().unwrap_or(0);
            match text(compare, "result") {
                "" => entry.version == version,
                "GREATER" => entry.version > version,
                other => panic!("{other:?}"),
            }
        });
        if !holds {
            return Ok("{}".to_owned());
        }
        let operations = elements(request, "success");
        let puts = operations.iter().any(|operation| member(operation, "request_put").is_some());
        if self.is_full && (puts || self.full_for_reads) {
            return Err((429, r#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#.to_owned()));
        }
        self.revision += 1;
        let responses: Vec<String> = operations.iter().map(|operation| self.carry_out(operation)).collect();
        let (id, responses) = (self.id, responses.join(","));
        Ok(format!(r#"{{"header":{{"cluster_id":"{id}"}},"succeeded":true,"responses":[{responses}]}}"#))
    }

    fn carry_out(&mut self, operation: &Value) -> String {
        if let Some(range) = member(operation, "request_range") {
            return format!(r#"{{"response_range":{}}}"#, self.range(range));
        }
        if let Some(range) = member(operation, "request_delete_range") {
            return format!(r#"{{"response_delete_range":{}}}"#, self.delete(range));
        }
        let put = member(operation, "request_put").expect("an operation");
        let entry = self.keys.entry(bytes(put, "key")).or_default();
        (entry.value, entry.modified) = (bytes(put, "value"), self.revision);
        entry.version += 1;
        if entry.created == 0 {
            entry.created = self.revision;
        }
        r#"{"response_put":{}}"#.to_owned()
    }

    fn named(&self, request: &Value) -> Vec<Vec<u8>> {
        let (from, to) = (bytes(request, "key"), bytes(request, "range_end"));
        match to.is_empty() {
            true => self.keys.contains_key(&from).then_some(from).into_iter().collect(),
            false => self.keys.range(from..to).map(|(key, _)| key.clone()).collect(),
        }
    }

    fn range(&mut self, request: &Value) -> String {
        let limit = text(request, "limit").parse().unwrap_or(usize::MAX);
        // Like etcd 3.4, visits all keys in the range regardless of the limit.
        let named = self.named(request);
        self.visited += named.len();
        let shown = named.into_iter().take(limit).map(|key| {
            let Entry { mut value, version, modified, .. } = self.keys[&key].clone();
            if key.ends_with(b"/beat") && self.ahead > 0 {
                let written: u64 = String::from_utf8_lossy(&value).parse().expect("a time");
                value = (written + self.ahead).to_string().into_bytes();
            }
            let (key, value) = (encode(&key), encode(&value));
            format!(r#"{{"key":"{key}","version":"{version}","mod_revision":"{modified}","value":"{value}"}}"#)
        });
        let shown: Vec<String> = shown.collect();
        format!(r#"{{"header":{{"cluster_id":"{}"}},"kvs":[{}]}}"#, self.id, shown.join(","))
    }

    fn delete(&mut self, request: &Value) -> String {
        let named = self.named(request);
        named.iter().for_each(|key| drop(self.keys.remove(key)));
        self.deleted = self.deleted.max(named.len());
        format!(r#"{{"deleted":"{}"}}"#, named.len())
    }
}
