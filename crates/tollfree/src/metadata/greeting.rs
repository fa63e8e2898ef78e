//! What the other end says of itself as HTTP/2 begins: the longest header list that it takes.
//!
//! The HTTP library keeps that to itself, so the first SETTINGS frame is read as it passes. One that says it later is held to what
//! it has said first.

/// The preface that every client sends.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What stands before a frame.
const HEAD_LEN: usize = 9;
const SETTINGS: u8 = 4;
const SETTING_LEN: usize = 6;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Reads along as HTTP/2 begins, until it knows the longest header list that the other end takes.
#[derive(Debug)]
pub struct Greeting {
    step: Step,
    /// The bytes of the step at hand.
    bytes: [u8; HEAD_LEN],
    len: usize,
    max: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Preface { at: usize },
    Head,
    Settings { left: usize },
    Over,
}

impl Greeting {
    /// A client's, which begins with the preface.
    pub fn of_client() -> Greeting {
        Greeting { step: Step::Preface { at: 0 }, bytes: [0; HEAD_LEN], len: 0, max: None }
    }

    /// A server's, which begins with SETTINGS.
    pub fn of_server() -> Greeting {
        Greeting { step: Step::Head, ..Greeting::of_client() }
    }

    /// Whether nothing more is to be learnt.
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    /// Reads what has come next. The longest header list in bytes, once all settings are there and one of them says it.
    pub fn read(&mut self, mut bytes: &[u8]) -> Option<u32> {
        while !bytes.is_empty() && !self.is_over() {
            match &mut self.step {
                Step::Preface { at } => {
                    let expected = &PREFACE[*at..];
                    let (came, rest) = bytes.split_at(expected.len().min(bytes.len()));
                    let is_complete = came.len() == expected.len();
                    *at += came.len();
                    if !expected.starts_with(came) {
                        // TLS, or HTTP/1.
                        self.step = Step::Over;
                    } else if is_complete {
                        self.step = Step::Head;
                    }
                    bytes = rest;
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
                            self.max = Some(u32::from_be_bytes(value));
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
        self.max.filter(|_| self.is_over())
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
        let mut bytes = PREFACE.to_vec();
        bytes.extend(&((settings.len() * SETTING_LEN) as u32).to_be_bytes()[1..]);
        bytes.extend([kind, 0, 0, 0, 0, 0]);
        for (name, value) in settings {
            bytes.extend(name.to_be_bytes());
            bytes.extend(value.to_be_bytes());
        }
        bytes
    }

    fn read(mut greeting: Greeting, bytes: &[u8], step: usize) -> Option<u32> {
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
                assert_eq!(
                    read(Greeting::of_client(), &bytes, step),
                    expected,
                    "{settings:?} in pieces of {step}"
                );
                let of_server = read(Greeting::of_server(), &bytes[PREFACE.len()..], step);
                assert_eq!(of_server, expected, "{settings:?} in pieces of {step}");
            }
        }
    }

    #[test]
    fn what_is_no_greeting_is_survived() {
        // What would be a frame of SETTINGS behind the preface, if that were one.
        let mut no_preface = greeting(SETTINGS, &[(6, 16_384)]);
        no_preface[0] = 0x16;
        for bytes in [&[0xff; 200][..], &[0; 200], b"GET / HTTP/1.1\r\n\r\n", &no_preface] {
            for step in [1, 7, 200] {
                assert_eq!(read(Greeting::of_client(), bytes, step), None);
                assert_eq!(read(Greeting::of_server(), bytes, step), None);
            }
        }
    }
}
