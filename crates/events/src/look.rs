//! The state of a stream, and the kinds of a frame, as people read them.

use std::fmt;
use std::str::FromStr;

use tollfree_layout::frame::events;

/// What this end has said on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendHalf {
    /// Nothing sent yet.
    #[default]
    Head,
    /// Headers are sent.
    Open,
    /// The last event is sent, or will never be.
    Closed,
}

/// What the peer has said on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecvHalf {
    /// Headers are still to come.
    #[default]
    Head,
    /// Messages may come.
    Body,
    /// Nothing more will come.
    Ended,
}

/// The state of a stream. In words `open/body`, with `+7` behind a half that is 7 bytes before the end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(into = "String", try_from = "String"))]
pub struct StreamLook {
    /// This end's half.
    pub send: SendHalf,
    /// The peer's half.
    pub recv: RecvHalf,
    /// A message is begun and this much of it not sent.
    pub unsent: Option<u32>,
    /// A message is begun and this much of it not received.
    pub unreceived: Option<u32>,
    /// The call is under way.
    pub live: bool,
}

/// Where every stream begins.
impl Default for StreamLook {
    fn default() -> StreamLook {
        StreamLook { send: SendHalf::Head, recv: RecvHalf::Head, unsent: None, unreceived: None, live: true }
    }
}

const SEND: [(SendHalf, &str); 3] =
    [(SendHalf::Head, "head"), (SendHalf::Open, "open"), (SendHalf::Closed, "closed")];
const RECV: [(RecvHalf, &str); 3] =
    [(RecvHalf::Head, "head"), (RecvHalf::Body, "body"), (RecvHalf::Ended, "ended")];
const OVER: &str = ", over";

/// What is no [`StreamLook`], or no [`FrameKinds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuch(&'static str);

impl fmt::Display for NoSuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this version knows no such {}", self.0)
    }
}

impl fmt::Display for StreamLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = |left: Option<u32>| left.map(|left| format!("+{left}")).unwrap_or_default();
        let send = SEND.iter().find(|(half, _)| *half == self.send).map_or("", |(_, name)| name);
        let recv = RECV.iter().find(|(half, _)| *half == self.recv).map_or("", |(_, name)| name);
        let over = if self.live { "" } else { OVER };
        write!(f, "{send}{}/{recv}{}{over}", rest(self.unsent), rest(self.unreceived))
    }
}

/// A half's name and the rest of its message.
fn half<H: Copy>(names: &[(H, &str)], text: &str) -> Option<(H, Option<u32>)> {
    let (name, rest) = match text.split_once('+') {
        Some((name, rest)) => (name, Some(rest.parse().ok()?)),
        None => (text, None),
    };
    let (half, _) = names.iter().find(|(_, known)| *known == name)?;
    Some((*half, rest))
}

impl FromStr for StreamLook {
    type Err = NoSuch;

    fn from_str(text: &str) -> Result<StreamLook, NoSuch> {
        let (halves, live) = text.strip_suffix(OVER).map_or((text, true), |halves| (halves, false));
        let look = || {
            let (send, recv) = halves.split_once('/')?;
            let ((send, unsent), (recv, unreceived)) = (half(&SEND, send)?, half(&RECV, recv)?);
            Some(StreamLook { send, recv, unsent, unreceived, live })
        };
        look().ok_or(NoSuch("state of a stream"))
    }
}

/// What a frame says: bits of [`tollfree_layout::frame::events`]. In words `HEADERS+MESSAGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "lines", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lines", serde(into = "String", try_from = "String"))]
pub struct FrameKinds(pub u8);

const KINDS: [(u8, &str); 8] = [
    (events::HEADERS, "HEADERS"),
    (events::MESSAGE, "MESSAGE"),
    (events::HALF_CLOSE, "HALF_CLOSE"),
    (events::TRAILERS, "TRAILERS"),
    (events::CANCEL, "CANCEL"),
    (events::CREDIT, "CREDIT"),
    (events::DRAIN, "DRAIN"),
    (events::CONTROL, "CONTROL"),
];

impl FrameKinds {
    /// Whether it says this.
    pub fn has(self, event: u8) -> bool {
        self.0 & event != 0
    }
}

impl fmt::Display for FrameKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = KINDS.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name);
        f.write_str(parts.next().unwrap_or("nothing"))?;
        parts.try_for_each(|name| write!(f, "+{name}"))
    }
}

impl FromStr for FrameKinds {
    type Err = NoSuch;

    fn from_str(text: &str) -> Result<FrameKinds, NoSuch> {
        if text == "nothing" {
            return Ok(FrameKinds(0));
        }
        let mut kinds = 0;
        for part in text.split('+') {
            let (bit, _) = KINDS.iter().find(|(_, name)| *name == part).ok_or(NoSuch("kind of a frame"))?;
            kinds |= bit;
        }
        Ok(FrameKinds(kinds))
    }
}

#[cfg(feature = "lines")]
mod as_text {
    use super::{FrameKinds, NoSuch, StreamLook};

    impl From<StreamLook> for String {
        fn from(look: StreamLook) -> String {
            look.to_string()
        }
    }

    impl TryFrom<String> for StreamLook {
        type Error = NoSuch;

        fn try_from(text: String) -> Result<StreamLook, NoSuch> {
            text.parse()
        }
    }

    impl From<FrameKinds> for String {
        fn from(kinds: FrameKinds) -> String {
            kinds.to_string()
        }
    }

    impl TryFrom<String> for FrameKinds {
        type Error = NoSuch;

        fn try_from(text: String) -> Result<FrameKinds, NoSuch> {
            text.parse()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_kinds_are_read_as_they_are_written() {
        for (send, send_name) in SEND {
            for (recv, recv_name) in RECV {
                for live in [true, false] {
                    let look = StreamLook { send, recv, unsent: Some(7), unreceived: None, live };
                    let over = if live { "" } else { ", over" };
                    assert_eq!(look.to_string(), format!("{send_name}+7/{recv_name}{over}"));
                    assert_eq!(look.to_string().parse(), Ok(look));
                }
            }
        }
        for kinds in 0..=u8::MAX {
            assert_eq!(FrameKinds(kinds).to_string().parse(), Ok(FrameKinds(kinds)));
        }
        assert_eq!(FrameKinds(3).to_string(), "HEADERS+MESSAGE");
    }

    #[test]
    fn what_is_neither_is_refused() {
        for wrong in
            ["", "open", "open/", "/body", "open/body over", "open+/body", "open+x/body", "body/open"]
        {
            assert!(wrong.parse::<StreamLook>().is_err(), "{wrong:?}");
        }
        for wrong in ["", "headers", "HEADERS+", "HEADERS|MESSAGE"] {
            assert!(wrong.parse::<FrameKinds>().is_err(), "{wrong:?}");
        }
    }
}
