//! What a client says of itself as HTTP/2 begins: the longest header list that it takes.
//!
//! The HTTP library keeps that to itself, so the first SETTINGS frame is read as it passes. A client that says it later is held to what
//! it has said first.

/// The preface that every client sends, and what stands before a frame.
const PREFACE_LEN: usize = 24;
const HEAD_LEN: usize = 9;
const SETTINGS: u8 = 4;
const SETTING_LEN: usize = 6;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Reads along until it knows.
#[derive(Debug)]
pub(crate) struct Greeting {
    step: Step,
    /// The bytes of the step at hand.
    bytes: [u8; HEAD_LEN],
    len: usize,
    said: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Preface { left: usize },
    Head,
    Settings { left: usize },
    Over,
}

impl Greeting {
    pub(crate) fn new() -> Greeting {
        Greeting { step: Step::Preface { left: PREFACE_LEN }, bytes: [0; HEAD_LEN], len: 0, said: None }
    }

    /// Whether nothing more is to be learnt.
    pub(crate) fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// Reads what has come next. The longest header list in bytes, once the client has said one and all of its settings are there.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Option<u32> {
        while !bytes.is_empty() && !self.is_over() {
            match &mut self.step {
                Step::Preface { left } => {
                    let len = (*left).min(bytes.len());
                    (*left, bytes) = (*left - len, &bytes[len..]);
                    if *left == 0 {
                        self.step = Step::Head;
                    }
                }
                Step::Head => {
                    if self.gather(&mut bytes, HEAD_LEN) {
                        let [a, b, c, kind, ..] = self.bytes;
                        let left = u32::from_be_bytes([0, a, b, c]) as usize;
                        let is_settings = kind == SETTINGS && left > 0 && left.is_multiple_of(SETTING_LEN);
                        self.step = if is_settings { Step::Settings { left } } else { Step::Over };
                    }
                }
                Step::Settings { left } => {
                    let is_last = *left <= SETTING_LEN;
                    if self.gather(&mut bytes, SETTING_LEN) {
                        let [a, b, value @ .., _, _, _] = self.bytes;
                        if u16::from_be_bytes([a, b]) == MAX_HEADER_LIST_SIZE {
                            self.said = Some(u32::from_be_bytes(value));
                        }
                        self.step = match (is_last, self.step) {
                            (false, Step::Settings { left }) => Step::Settings { left: left - SETTING_LEN },
                            _ => Step::Over,
                        };
                    }
                }
                Step::Over => {}
            }
        }
        self.said.filter(|_| self.is_over())
    }

    /// Takes up to `count` bytes together; whether all of them are there now.
    fn gather(&mut self, bytes: &mut &[u8], count: usize) -> bool {
        let len = (count - self.len).min(bytes.len());
        self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
        *bytes = &bytes[len..];
        let is_whole = self.len == count;
        if is_whole {
            self.len = 0;
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(kind: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(&((settings.len() * SETTING_LEN) as u32).to_be_bytes()[1..]);
        bytes.extend([kind, 0, 0, 0, 0, 0]);
        for (name, value) in settings {
            bytes.extend(name.to_be_bytes());
            bytes.extend(value.to_be_bytes());
        }
        bytes
    }

    fn read(bytes: &[u8], step: usize) -> Option<u32> {
        let mut greeting = Greeting::new();
        bytes.chunks(step).fold(None, |said, piece| said.or(greeting.read(piece)))
    }

    #[test]
    fn the_first_settings_are_read_however_they_are_cut() {
        type Case<'a> = (u8, &'a [(u16, u32)], Option<u32>);
        let cases: [Case<'_>; 5] = [
            (SETTINGS, &[(1, 7), (6, 16_384), (4, 9)], Some(16_384)),
            (SETTINGS, &[(6, 1), (6, 2)], Some(2)),
            (SETTINGS, &[(1, 7)], None),
            (SETTINGS, &[], None),
            (0, &[(6, 16_384)], None),
        ];
        for (kind, settings, expected) in cases {
            // What comes afterwards is not looked at.
            let bytes = [greeting(kind, settings), greeting(SETTINGS, &[(6, 5)])].concat();
            for step in 1..bytes.len() {
                assert_eq!(read(&bytes, step), expected, "{settings:?} in pieces of {step}");
            }
        }
    }

    #[test]
    fn what_is_no_greeting_is_survived() {
        for bytes in [&[0xff; 200][..], &[0; 200], b"GET / HTTP/1.1\r\n\r\n"] {
            for step in [1, 7, 200] {
                assert_eq!(read(bytes, step), None);
            }
        }
    }
}
