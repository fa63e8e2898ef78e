//! The service that every driver's server has: what it does for each method, without any driver.

use std::time::Duration;

use bytes::Bytes;

/// Sends each message back, and ends with OK when the client has said everything.
pub(crate) const ECHO: &str = "/test.Drivers/Echo";
/// Answers, when the client has said everything, with how many messages and bytes came.
pub(crate) const COUNT: &str = "/test.Drivers/Count";
/// Is sent a number of messages and their length, and sends as many.
pub(crate) const SOURCE: &str = "/test.Drivers/Source";
/// Never answers.
pub(crate) const SILENT: &str = "/test.Drivers/Silent";
/// Answers with a status alone, before it has heard anything.
pub(crate) const REFUSE: &str = "/test.Drivers/Refuse";
/// Answers with a message, and then with a status other than OK.
pub(crate) const FAIL: &str = "/test.Drivers/Fail";
/// Cancels the call when a message comes.
pub(crate) const CANCEL: &str = "/test.Drivers/Cancel";
/// Drains the session when a message comes, and answers when the client has said everything.
pub(crate) const DRAIN: &str = "/test.Drivers/Drain";
/// Closes the session when a message comes.
pub(crate) const CLOSE: &str = "/test.Drivers/Close";
/// As [`COUNT`], but does nothing at all for a while when the first message comes.
pub(crate) const SLOW: &str = "/test.Drivers/Slow";

pub(crate) const REFUSED: u16 = 5;
pub(crate) const FAILED: u16 = 13;
pub(crate) const CANCELLED: u16 = 10;

/// What comes to a call.
#[derive(Clone, Debug)]
pub(crate) enum Came {
    Call { metadata: Bytes },
    Message(Bytes),
    HalfClose,
}

/// What is to be done for it, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Headers(Bytes),
    Send(Bytes),
    End(u16),
    Cancel(u16),
    Drain,
    Close,
    Pause(Duration),
}

/// One call of the service.
#[derive(Debug)]
pub(crate) struct Serving {
    path: String,
    count: u64,
    len: u64,
}

impl Serving {
    pub(crate) fn new(path: &[u8]) -> Serving {
        Serving { path: String::from_utf8_lossy(path).into_owned(), count: 0, len: 0 }
    }

    pub(crate) fn path(&self) -> String {
        self.path.clone()
    }

    pub(crate) fn on(&mut self, came: Came) -> Vec<Deed> {
        if let Came::Message(message) = &came {
            (self.count, self.len) = (self.count + 1, self.len + message.len() as u64);
        }
        match (self.path.as_str(), came) {
            (ECHO, Came::Call { metadata }) => vec![Deed::Headers(metadata)],
            (ECHO, Came::Message(message)) => vec![Deed::Send(message)],
            (ECHO | SOURCE, Came::HalfClose) => vec![Deed::End(0)],
            (COUNT | SLOW | DRAIN, Came::HalfClose) => self.counted(),
            (SOURCE, Came::Message(request)) => sourced(&request),
            (REFUSE, Came::Call { .. }) => vec![Deed::End(REFUSED)],
            (FAIL, Came::HalfClose) => {
                let part = Bytes::from_static(b"as far as it went");
                vec![Deed::Headers(Bytes::new()), Deed::Send(part), Deed::End(FAILED)]
            }
            (CANCEL, Came::Message(_)) => vec![Deed::Cancel(CANCELLED)],
            (DRAIN, Came::Message(_)) => vec![Deed::Drain],
            (CLOSE, Came::Message(_)) => vec![Deed::Close],
            (SLOW, Came::Message(_)) if self.count == 1 => vec![Deed::Pause(Duration::from_millis(100))],
            _ => vec![],
        }
    }

    fn counted(&self) -> Vec<Deed> {
        vec![Deed::Headers(Bytes::new()), Deed::Send(count_of(self.count, self.len)), Deed::End(0)]
    }
}

/// What [`COUNT`] answers.
pub(crate) fn count_of(count: u64, len: u64) -> Bytes {
    format!("{count} messages of {len} bytes").into()
}

/// What [`SOURCE`] is asked.
pub(crate) fn source_of(count: u32, len: u32) -> Bytes {
    [count.to_le_bytes(), len.to_le_bytes()].concat().into()
}

fn sourced(request: &[u8]) -> Vec<Deed> {
    let number = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four bytes"));
    let (count, len) = (number(0), number(4));
    let send = |nth: u32| Deed::Send(pattern(nth, len as usize));
    std::iter::once(Deed::Headers(Bytes::new())).chain((0..count).map(send)).collect()
}

/// Bytes that differ from message to message, and within one.
pub(crate) fn pattern(nth: u32, len: usize) -> Bytes {
    (0..len).map(|at| (at as u32).wrapping_mul(31).wrapping_add(nth) as u8).collect::<Vec<u8>>().into()
}
