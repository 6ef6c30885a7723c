//! Connections that send and receive single messages of the three protocols.
//!
//! Owns the framing. Methods return an error if the server has exited. Must not interpret messages.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::change::Wire;
use crate::daemon::{Daemon, PATIENCE};

/// Types of Gearman packets.
pub const CAN_DO: u32 = 1;
pub const SUBMIT_JOB: u32 = 7;
pub const JOB_CREATED: u32 = 8;
pub const GRAB_JOB: u32 = 9;
pub const JOB_ASSIGN: u32 = 11;
pub const WORK_COMPLETE: u32 = 13;
pub const WORK_FAIL: u32 = 14;
pub const ECHO_REQ: u32 = 16;
pub const SUBMIT_JOB_BG: u32 = 18;
pub const SUBMIT_JOB_HIGH: u32 = 21;
pub const SUBMIT_JOB_HIGH_BG: u32 = 32;
pub const SUBMIT_JOB_LOW: u32 = 33;
pub const SUBMIT_JOB_LOW_BG: u32 = 34;
pub const SUBMIT_JOB_EPOCH: u32 = 36;
pub const SUBMIT_REDUCE_JOB: u32 = 37;
pub const SUBMIT_REDUCE_JOB_BG: u32 = 38;

pub struct Talk(BufReader<TcpStream>);

pub fn address(daemon: &Daemon, wire: Wire) -> SocketAddr {
    if wire == Wire::Http {
        let found =
            daemon.names().iter().find_map(|name| name.strip_prefix("http://")?.trim_end_matches('/').parse().ok());
        return found.expect("an address for HTTP");
    }
    let suffix = match wire {
        Wire::Beanstalk | Wire::Http => "",
        Wire::Gearman => " (Gearman)",
        Wire::Workq => " (Workq)",
    };
    let found = daemon.names().iter().find_map(|name| name.strip_suffix(suffix)?.parse().ok());
    found.expect("an address for this protocol")
}

pub fn packet(kind: u32, arguments: &[&[u8]]) -> Vec<u8> {
    let body = arguments.join(&0);
    [b"\0REQ", &kind.to_be_bytes()[..], &(body.len() as u32).to_be_bytes(), &body].concat()
}

impl Talk {
    pub fn connect(daemon: &Daemon, wire: Wire) -> Result<Talk> {
        let stream = TcpStream::connect(address(daemon, wire))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Talk(BufReader::new(stream)))
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Returns `true` if any bytes arrive within `time`.
    pub fn hears_within(&mut self, time: Duration) -> Result<bool> {
        self.0.get_ref().set_read_timeout(Some(time))?;
        let heard = self.0.fill_buf().map(|bytes| !bytes.is_empty());
        self.0.get_ref().set_read_timeout(Some(PATIENCE))?;
        match heard {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(false),
            heard => heard,
        }
    }

    /// Reads a line. Returns the line without its CR LF.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(Error::from(ErrorKind::UnexpectedEof))
    }

    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads `count` bytes and a line break. Returns only the bytes.
    pub fn data(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = self.bytes(count + 2)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Returns the type and the arguments of a packet. Skips failures of foreground jobs, which can arrive at any time.
    pub fn reply_packet(&mut self) -> Result<(u32, Vec<Vec<u8>>)> {
        loop {
            let packet = self.packet()?;
            if packet.0 != WORK_FAIL {
                return Ok(packet);
            }
        }
    }

    /// Returns the reply to a Gearman text command. Skips packets.
    pub fn text_reply(&mut self) -> Result<String> {
        while self.0.fill_buf()?.first() == Some(&0) {
            self.packet()?;
        }
        self.line()
    }

    /// Returns the type and the arguments of a packet.
    pub fn packet(&mut self) -> Result<(u32, Vec<Vec<u8>>)> {
        let head = self.bytes(12)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let body = self.bytes(word(8) as usize)?;
        Ok((word(4), body.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()))
    }

    /// Returns the status and the body of an HTTP response.
    pub fn response(&mut self) -> Result<(u32, String)> {
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut length = 0;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            length = line.strip_prefix("Content-Length: ").and_then(|count| count.parse().ok()).unwrap_or(length);
        }
        Ok((status, String::from_utf8_lossy(&self.bytes(length)?).trim_end().to_owned()))
    }

    /// Returns the first line of a beanstalk reply, and the body if the reply has one.
    pub fn reply(&mut self) -> Result<(String, Vec<u8>)> {
        let line = self.line()?;
        let with_body = ["OK ", "FOUND ", "RESERVED "].iter().any(|word| line.starts_with(word));
        let length = line.rsplit(' ').next().filter(|_| with_body).and_then(|length| length.parse().ok());
        let body = length.map_or(Ok(Vec::new()), |length| self.data(length))?;
        Ok((line, body))
    }
}
