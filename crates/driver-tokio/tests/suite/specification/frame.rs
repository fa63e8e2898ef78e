//! A frame, from its bytes, as section 8 says.

use serde_json::{Value, json};

use super::side::Role;

const EVENTS: [&str; 8] =
    ["HEADERS", "MESSAGE", "HALF_CLOSE", "TRAILERS", "CANCEL", "CREDIT", "DRAIN", "CONTROL"];
const FLAGS: [&str; 8] =
    ["FIRST", "LAST", "COMPRESSED", "IN_AREA", "NAMES_METHOD", "HAS_DEADLINE", "REFUSED", "SEGMENTED"];

pub(crate) struct Frame {
    pub(crate) events: Vec<&'static str>,
    flags: Vec<&'static str>,
    pub(crate) code: u16,
    pub(crate) headers: Vec<u8>,
    pub(crate) trailers: Vec<u8>,
    headers_len: usize,
    trailers_len: usize,
    pub(crate) stream: u64,
    pub(crate) chunk_len: u64,
    pub(crate) message_len: u64,
    pub(crate) deadline_ns: u64,
    /// The chunk, unless it lies in an area.
    pub(crate) chunk: Vec<u8>,
    /// Area, reserved bits and offset.
    pub(crate) range: Option<(u32, u32, u64)>,
}

pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn names(bits: u8, names: [&'static str; 8]) -> Vec<&'static str> {
    (0..8).filter(|bit| bits & 1 << bit != 0).map(|bit| names[bit]).collect()
}

impl Frame {
    pub(crate) fn has(&self, event: &str) -> bool {
        self.events.contains(&event)
    }

    pub(crate) fn flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    pub(crate) fn told(&self) -> Value {
        json!({
            "events": self.events,
            "flags": self.flags,
            "code": self.code,
            "headers_len": self.headers_len,
            "trailers_len": self.trailers_len,
            "stream": self.stream,
            "chunk_len": self.chunk_len,
            "message_len": self.message_len,
        })
    }

    /// The frame of a record that `sender` wrote.
    pub(crate) fn parse(record: &[u8], sender: Role, pool: bool) -> Result<Frame, String> {
        let Some((head, mut rest)) = record.split_at_checked(24) else {
            return Err(format!("frame: {} bytes are no head", record.len()));
        };
        let mut frame = Frame {
            events: names(head[0], EVENTS),
            // With MESSAGE the bit of REFUSED means another thing, and that of NAMES_METHOD but in an opening.
            flags: names(head[1], FLAGS)
                .into_iter()
                .map(|flag| match flag {
                    "REFUSED" if head[0] & 2 != 0 => "OBJECT",
                    "NAMES_METHOD" if sender == Role::Server || head[0] & 1 == 0 => "BATCH",
                    _ => flag,
                })
                .collect(),
            code: number(&head[2..4]) as u16,
            headers: Vec::new(),
            trailers: Vec::new(),
            headers_len: number(&head[4..6]) as usize,
            trailers_len: number(&head[6..8]) as usize,
            stream: number(&head[8..16]),
            chunk_len: number(&head[16..20]),
            message_len: number(&head[20..24]),
            deadline_ns: 0,
            chunk: Vec::new(),
            range: None,
        };
        frame.check(sender, pool).map_err(|what| format!("frame: {what} in {}", frame.told()))?;
        let mut take = |len: usize| {
            let (part, more) =
                rest.split_at_checked(len).ok_or("frame: the parts are longer than the record")?;
            rest = more;
            Ok::<_, String>(part.to_vec())
        };
        if frame.flag("HAS_DEADLINE") {
            frame.deadline_ns = number(&take(8)?);
        }
        frame.headers = take(frame.headers_len)?;
        frame.trailers = take(frame.trailers_len)?;
        if frame.flag("IN_AREA") {
            let range = take(16)?;
            let (area, reserved) = (number(&range[..4]) as u32, number(&range[4..8]) as u32);
            frame.range = Some((area, reserved, number(&range[8..])));
        } else if frame.has("MESSAGE") || frame.has("CONTROL") && frame.code == 8 {
            frame.chunk = take(frame.chunk_len as usize)?;
        }
        match rest {
            [] => Ok(frame),
            _ => Err("frame: the parts are shorter than the record".to_owned()),
        }
    }

    /// The table of fields: each that an event doesn't use is zero.
    fn check(&self, sender: Role, pool: bool) -> Result<(), &'static str> {
        let client = sender == Role::Client;
        let alone = ["CANCEL", "CREDIT", "DRAIN", "CONTROL"].iter().any(|event| self.has(event));
        let opens = client && self.has("HEADERS");
        let control = if self.has("CONTROL") { self.code } else { 0 };
        let may = |allowed: bool, used: bool, what| if used && !allowed { Err(what) } else { Ok(()) };
        may(false, self.events.is_empty(), "no event")?;
        may(self.events.len() == 1, alone, "an event that stands alone, with others")?;
        may(client, self.has("HALF_CLOSE"), "a client's event")?;
        may(!client, self.has("TRAILERS") || self.has("DRAIN"), "a server's event")?;
        for flag in ["FIRST", "LAST", "IN_AREA"] {
            may(self.has("MESSAGE"), self.flag(flag), flag)?;
        }
        for flag in ["COMPRESSED", "SEGMENTED"] {
            may(self.flag("FIRST") && !self.flag("BATCH"), self.flag(flag), flag)?;
        }
        may(self.flag("FIRST"), self.flag("OBJECT"), "OBJECT")?;
        may(self.flag("FIRST") && self.flag("LAST"), self.flag("BATCH"), "a batch that is cut")?;
        may(self.message_len > 0 && self.chunk_len > 0, self.flag("BATCH"), "a batch of nothing")?;
        may(!self.flag("COMPRESSED"), self.flag("OBJECT"), "an object that is compressed")?;
        may(pool, self.flag("SEGMENTED"), "SEGMENTED without a pool")?;
        may(opens, self.flag("NAMES_METHOD") || self.flag("HAS_DEADLINE"), "a flag of an opening")?;
        may(self.has("CANCEL"), self.flag("REFUSED"), "REFUSED")?;
        let coded = opens || self.has("TRAILERS") || self.has("CANCEL") || control != 0;
        may(coded, self.code != 0, "code")?;
        let is_known =
            matches!(control, 1..=5) || pool && matches!(control, 6..=8) || !client && control == 9;
        may(is_known, self.has("CONTROL"), "an unknown control code")?;
        may(self.has("HEADERS") || control == 5, self.headers_len > 0, "headers_len")?;
        may(self.has("TRAILERS"), self.trailers_len > 0, "trailers_len")?;
        let counted = self.has("CREDIT") || matches!(control, 6 | 7);
        may(self.chunk_len > 0, counted, "a count of nothing")?;
        may(self.has("MESSAGE") || counted || matches!(control, 1 | 8 | 9), self.chunk_len > 0, "chunk_len")?;
        may(self.flag("FIRST"), self.message_len > 0, "message_len")?;
        may(self.stream == 0, control == 5, "a CLOSE about a stream")
    }
}

/// The pairs of a block, as section 11 says.
pub(crate) fn check_block(mut block: &[u8], len_max: usize) -> Result<(), String> {
    if block.len() > len_max {
        return Err(format!("metadata: {} bytes, of at most {len_max}", block.len()));
    }
    let cut = || "metadata: a block ends within a pair".to_owned();
    while let Some((idx, rest)) = block.split_first() {
        block = rest;
        if *idx == 0 {
            let (len, rest) = block.split_first().ok_or_else(cut)?;
            if *len == 0 {
                return Err("metadata: a name of no length".to_owned());
            }
            block = rest.get(usize::from(*len)..).ok_or_else(cut)?;
        } else if *idx > 32 {
            return Err(format!("metadata: no name {idx}"));
        }
        let len = number(block.get(..2).ok_or_else(cut)?) as usize;
        block = block.get(2 + len..).ok_or_else(cut)?;
    }
    Ok(())
}
