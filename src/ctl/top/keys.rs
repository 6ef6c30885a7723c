//! The decoder for keyboard input in a terminal.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Back,
    Interrupt,
    Suspend,
    Redraw,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Bytes after `ESC [` or `ESC O`.
const SEQUENCES: [(&[u8], Key); 10] = [
    (b"A", Key::Up),
    (b"B", Key::Down),
    (b"5~", Key::PageUp),
    (b"6~", Key::PageDown),
    (b"H", Key::Home),
    (b"F", Key::End),
    (b"1~", Key::Home),
    (b"4~", Key::End),
    (b"7~", Key::Home),
    (b"8~", Key::End),
];

/// Ignores unknown sequences. A final ESC byte is the Escape key.
pub fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        match first {
            0x1b => match rest.split_first() {
                Some((b'[' | b'O', rest)) => {
                    let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |at| at + 1);
                    let known = SEQUENCES.iter().find(|(sequence, _)| *sequence == &rest[..end]);
                    keys.extend(known.map(|(_, key)| *key));
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
    use super::*;

    #[test]
    fn sequences_are_keys() {
        assert_eq!(keys(b"q\x1b[A\x1bOB\x1b[5~\x1b"), [Key::Char('q'), Key::Up, Key::Down, Key::PageUp, Key::Escape]);
        assert_eq!(keys(b"\x1b[1;5C\x1b[99~x\r\x7f\xc3\xa9"), [Key::Char('x'), Key::Enter, Key::Back]);
        assert_eq!(keys(b"\x1b["), []);
    }
}
