//! A Workq client that executes its own jobs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::{Done, Stage};

/// Repeatedly adds a job, leases it, completes it, reads its result, and deletes it.
pub fn run(address: SocketAddr, stage: &Stage, done: &Done) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut number = 0u64;
    let mut say = |words: String, lines: usize| {
        stream.write_all(words.as_bytes()).expect("a server");
        let (mut text, mut byte) = (Vec::new(), [0]);
        while text.iter().filter(|&&byte| byte == b'\n').count() < lines {
            stream.read_exact(&mut byte).expect("a reply");
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    while stage.goes_on() {
        number += 1;
        let id = format!("00000000-1111-4111-8111-{number:012}");
        assert_eq!(say(format!("add {id} ping 60000 60000 2\r\nab\r\n"), 1), "+OK\r\n");
        let leased = say("lease ping 0\r\n".to_owned(), 3);
        assert!(leased.contains(&id), "{leased}");
        assert_eq!(say(format!("complete {id} 1\r\ny\r\n"), 1), "+OK\r\n");
        let result = say(format!("result {id} 0\r\n"), 3);
        assert!(result.starts_with("+OK 1\r\n") && result.ends_with(" 1 1\r\ny\r\n"), "{result}");
        assert_eq!(say(format!("delete {id}\r\n"), 1), "+OK\r\n");
        done.add(1);
    }
}
