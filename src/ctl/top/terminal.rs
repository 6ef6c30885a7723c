//! The terminal of `top`: its keyboard, and its settings, which are restored on exit, on panic, and before suspension.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::termios::{tcgetattr, tcsetattr, LocalFlags, SetArg, SpecialCharacterIndices, Termios};
use parking_lot::Mutex;

/// Alternate screen, hidden cursor, and no line wrapping.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l";
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

pub struct Terminal(());

impl Terminal {
    pub fn enter() -> io::Result<Terminal> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let old = std::panic::take_hook();
            // Restore the terminal first, so that the panic message is visible.
            std::panic::set_hook(Box::new(move |about| {
                restore();
                old(about);
            }));
        });
        let stdin = io::stdin();
        let found = tcgetattr(stdin.as_fd())?;
        let mut own = found.clone();
        own.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG | LocalFlags::IEXTEN);
        own.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
        own.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        *BEFORE.lock() = Some(found);
        let terminal = Terminal(());
        tcsetattr(stdin.as_fd(), SetArg::TCSAFLUSH, &own)?;
        show(ENTER)?;
        Ok(terminal)
    }

    pub fn typed(&self, millis: u16) -> io::Result<Vec<u8>> {
        let stdin = io::stdin();
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(millis)) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 256];
        let length = stdin.lock().read(&mut bytes)?;
        if length == 0 {
            // The terminal was closed.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes[..length].to_vec())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

pub fn show(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

fn restore() {
    // The lock is already held only if this function has panicked and the panic hook has called the function again.
    let Some(mut before) = BEFORE.try_lock() else { return };
    if let Some(before) = before.take() {
        // The terminal may no longer exist.
        let _ = show(LEAVE);
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSAFLUSH, &before);
    }
}

#[allow(unsafe_code)]
pub fn size() -> (usize, usize) {
    let mut size = nix::libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize, and `size` is a valid winsize.
    let result = unsafe { nix::libc::ioctl(io::stdout().as_raw_fd(), nix::libc::TIOCGWINSZ, &mut size) };
    match (result, size.ws_col, size.ws_row) {
        (0, columns @ 1.., lines @ 1..) => (columns.into(), lines.into()),
        _ => (80, 24),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[rustfmt::skip]
pub enum Key { Char(char), Enter, Escape, Back, Interrupt, Suspend, Redraw, Up, Down, PageUp, PageDown, Home, End }

/// Bytes after `ESC [` or `ESC O`.
#[rustfmt::skip]
const SEQUENCES: [(&[u8], Key); 10] = [
    (b"A", Key::Up), (b"B", Key::Down), (b"5~", Key::PageUp), (b"6~", Key::PageDown), (b"H", Key::Home),
    (b"F", Key::End), (b"1~", Key::Home), (b"4~", Key::End), (b"7~", Key::Home), (b"8~", Key::End),
];

/// Ignores unknown sequences. An ESC byte that is not followed by `[` or `O` is the Escape key.
pub fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        match first {
            0x1b => match rest.split_first() {
                Some((b'[' | b'O', rest)) => {
                    let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |at| at + 1);
                    keys.extend(SEQUENCES.iter().find(|(sequence, _)| *sequence == &rest[..end]).map(|(_, key)| *key));
                    bytes = &rest[end..];
                }
                _ => keys.push(Key::Escape),
            },
            b'\r' | b'\n' => keys.push(Key::Enter),
            0x7f | 0x08 => keys.push(Key::Back),
            0x03 => keys.push(Key::Interrupt),
            0x1a => keys.push(Key::Suspend),
            0x0c => keys.push(Key::Redraw),
            b' '..=b'~' => keys.push(Key::Char(char::from(first))),
            _ => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Command, Stdio};
    use std::sync::Arc;

    use nix::pty::openpty;

    use super::*;

    /// Runs in a child process of the next test.
    #[test]
    #[ignore = "panics on purpose; run by the next test"]
    fn panics() {
        if std::env::var_os("BEANPOLE_PANICS").is_some() {
            let _terminal = std::mem::ManuallyDrop::new(Terminal::enter().expect("a terminal"));
            panic!("as it should");
        }
    }

    /// The panic hook alone must restore the terminal, because an aborting program does not drop values.
    #[test]
    fn a_panic_restores_the_terminal() {
        let pair = openpty(None, None).expect("a terminal");
        let end = || Stdio::from(pair.slave.try_clone().expect("a file"));
        let before = tcgetattr(pair.slave.as_fd()).expect("settings");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--ignored", "--exact", "ctl::top::terminal::tests::panics"]).env("BEANPOLE_PANICS", "1");
        let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("this program");
        let seen = Arc::new(Mutex::new(String::new()));
        let text = seen.clone();
        let mut master = File::from(pair.master);
        // The output must be read continuously, and the terminal must stay open until the settings have been checked.
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(length @ 1..) = master.read(&mut bytes) {
                text.lock().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        child.wait().expect("a child");
        let after = tcgetattr(pair.slave.as_fd()).expect("settings");
        assert_eq!(after.local_flags, before.local_flags);
        while !seen.lock().contains("as it should") {
            std::thread::yield_now();
        }
        let seen = seen.lock().clone();
        assert!(seen.find("\x1b[?1049h") < seen.find("\x1b[?1049l"), "{seen}");
        assert!(
            seen.find("\x1b[?1049l") < seen.find("as it should"),
            "the message must be on the normal screen: {seen}"
        );
    }

    #[test]
    fn sequences_are_keys() {
        assert_eq!(keys(b"q\x1b[A\x1bOB\x1b[5~\x1b"), [Key::Char('q'), Key::Up, Key::Down, Key::PageUp, Key::Escape]);
        assert_eq!(keys(b"\x1b[1;5C\x1b[99~x\r\x7f\xc3\xa9"), [Key::Char('x'), Key::Enter, Key::Back]);
        assert_eq!(keys(b"\x1b["), []);
    }
}
