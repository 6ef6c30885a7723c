//! An operator who uses HTTP to read the page, statistics and lists, and to change jobs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::{Done, Stage};

/// The number of requests on each connection.
const OF_A_CONNECTION: u64 = 300;

struct Operator {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    requests: u64,
}

impl Operator {
    fn new(address: SocketAddr) -> Operator {
        let stream = BufReader::new(TcpStream::connect(address).expect("a connection"));
        Operator { address, stream, requests: 0 }
    }

    /// Sends a request. Returns the body of the response, which must report success.
    fn ask(&mut self, method: &str, path: &str, body: &str) -> String {
        self.requests += 1;
        if self.requests % OF_A_CONNECTION == 0 {
            self.stream = Operator::new(self.address).stream;
        }
        let change = if method == "POST" { "X-Beanpole: 1\r\nContent-Type: application/json\r\n" } else { "" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{change}Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes()).expect("a server");
        let (mut line, mut length, mut chunked) = (self.line(), None, false);
        assert!(line.starts_with("HTTP/1.1 200 "), "{method} {path}: {line}");
        while !line.is_empty() {
            line = self.line().to_ascii_lowercase();
            length = line.strip_prefix("content-length: ").map(|text| text.parse().expect("a number")).or(length);
            chunked |= line == "transfer-encoding: chunked";
        }
        let mut text = Vec::new();
        if chunked {
            while self.chunk(&mut text) > 0 {}
        } else {
            text.resize(length.expect("a length"), 0);
            self.stream.read_exact(&mut text).expect("a body");
        }
        String::from_utf8(text).expect("text")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn chunk(&mut self, text: &mut Vec<u8>) -> usize {
        let size = usize::from_str_radix(&self.line(), 16).expect("a size");
        let begin = text.len();
        text.resize(begin + size, 0);
        self.stream.read_exact(&mut text[begin..]).expect("a chunk");
        assert_eq!(self.line(), "");
        size
    }
}

fn number(json: &str, key: &str) -> u64 {
    let from = json.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {json}")).1;
    let end = from.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(from.len());
    from[..end].parse().expect("a number")
}

/// Puts, inspects, buries, kicks, deletes and lists jobs in a tube that no other client uses. Sometimes also requests
/// the page and statistics.
pub fn run(address: SocketAddr, stage: &Stage, done: &Done) {
    let mut operator = Operator::new(address);
    let mut round = 0u64;
    while stage.goes_on() {
        round += 1;
        let ids: Vec<u64> = (0..5)
            .map(|_| number(&operator.ask("POST", "/api/tubes/operated/put", "{\"body\":\"by hand\"}"), "id"))
            .collect();
        assert!(operator.ask("GET", &format!("/api/jobs/{}", ids[0]), "").contains("by hand"));
        operator.ask("POST", &format!("/api/jobs/{}/bury", ids[1]), "{}");
        operator.ask("POST", &format!("/api/jobs/{}/kick", ids[1]), "{}");
        operator.ask("POST", &format!("/api/jobs/{}/delete", ids[2]), "{}");
        let list = operator.ask("GET", "/api/tubes/operated/jobs?state=ready", "");
        assert_eq!(list.matches("\"id\":").count(), 4, "{list}");
        let cleared = operator.ask("POST", "/api/tubes/operated/clear", "{\"state\":\"ready\"}");
        assert_eq!(number(&cleared, "deleted"), 4);
        done.add(5);
        if round % 20 == 0 {
            assert!(operator.ask("GET", "/metrics", "").contains("beanpole_"));
            assert!(operator.ask("GET", "/", "").contains("<html"));
            operator.ask("GET", "/api/server", "");
            operator.ask("GET", "/api/tubes", "");
            operator.ask("GET", "/healthz", "");
        }
    }
}
