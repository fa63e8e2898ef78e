//! What the application of one side of a conversation is told, as sections 8 to 12 say.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::bytes_of;
use super::document::Document;
use super::frame::{Frame, number};
use super::side::Role;

/// A call, as far as it was heard of.
#[derive(Default)]
struct Call {
    path: String,
    deadline_ns: u64,
    headers: Option<Vec<String>>,
    messages: Vec<Value>,
    /// The kind and the bytes of a message of which not all has come.
    begun: Option<(String, Vec<u8>)>,
    trailers: Vec<String>,
    end: Option<String>,
    /// Ended by this side: what comes then is nobody's.
    left: bool,
}

struct Listener<'d> {
    document: &'d Document,
    role: Role,
    paths: Vec<String>,
    calls: BTreeMap<u64, Call>,
    drain: Option<u64>,
    closed: Option<String>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the vectors have texts")
}

/// The frames of a conversation as one side meets them: its own, and those of the other side, which it has heard by then.
pub(crate) fn met(conversation: &Value, role: Role) -> Vec<(bool, Vec<u8>)> {
    let own = if role == Role::Server { "server" } else { "client" };
    let entries = conversation["frames"].as_array().expect("frames");
    let mut theirs = entries.iter().filter(|entry| entry["from"] != own);
    let (mut met, mut heard) = (Vec::new(), 0);
    for entry in entries.iter().filter(|entry| entry["from"] == own) {
        while heard < entry["heard"].as_u64().expect("a number") {
            met.push((false, bytes_of(&theirs.next().expect("it was said")["hex"])));
            heard += 1;
        }
        met.push((true, bytes_of(&entry["hex"])));
    }
    met.extend(theirs.map(|entry| (false, bytes_of(&entry["hex"]))));
    met
}

/// What it comes to.
pub(crate) fn told(document: &Document, conversation: &Value, role: Role) -> Value {
    let pool = conversation["pool"] == true;
    let mut listener =
        Listener { document, role, paths: Vec::new(), calls: BTreeMap::new(), drain: None, closed: None };
    let peer = if role == Role::Server { Role::Client } else { Role::Server };
    for (is_own, record) in met(conversation, role) {
        let sender = if is_own { role } else { peer };
        let frame = Frame::parse(&record, sender, pool).expect("a frame of a conversation");
        if is_own { listener.says(&frame) } else { listener.hears(&frame) }
    }
    listener.told()
}

impl Listener<'_> {
    fn says(&mut self, frame: &Frame) {
        if frame.has("DRAIN") {
            self.drain = Some(frame.stream);
        }
        if self.role == Role::Client && frame.has("HEADERS") {
            self.calls.insert(frame.stream, Call::default());
        }
        if (frame.has("TRAILERS") || frame.has("CANCEL"))
            && let Some(call) = self.calls.get_mut(&frame.stream)
        {
            call.left = true;
        }
    }

    fn hears(&mut self, frame: &Frame) {
        if frame.has("CONTROL") {
            if frame.code == 5 {
                self.closed = Some(text(&frame.headers));
            }
            return;
        }
        if frame.has("DRAIN") {
            for (_, call) in self.calls.range_mut(frame.stream + 1..) {
                call.end.get_or_insert("refused".to_owned());
            }
        }
        if self.role == Role::Server && frame.has("HEADERS") {
            return self.opened(frame);
        }
        self.goes_on(frame);
    }

    fn opened(&mut self, frame: &Frame) {
        let mut block = &frame.headers[..];
        if frame.flag("NAMES_METHOD") {
            let len = number(&block[..2]) as usize;
            self.paths.push(text(&block[2..2 + len]));
            block = &block[2 + len..];
        }
        if self.drain.is_some_and(|last| frame.stream > last) {
            return;
        }
        let path = self.paths[usize::from(frame.code)].clone();
        let headers = Some(self.pairs(block));
        let call = Call { path, deadline_ns: frame.deadline_ns, headers, ..Call::default() };
        self.calls.insert(frame.stream, call);
        self.goes_on(frame);
    }

    fn goes_on(&mut self, frame: &Frame) {
        let (headers, trailers) = (self.pairs_of(frame, "HEADERS"), self.pairs_of(frame, "TRAILERS"));
        let is_client = self.role == Role::Client;
        let Some(call) = self.calls.get_mut(&frame.stream) else { return };
        if call.left || call.end.as_ref().is_some_and(|end| end != "half-close") {
            return;
        }
        if is_client && headers.is_some() {
            call.headers = headers;
        }
        if frame.has("MESSAGE") {
            call.message(frame);
        }
        if frame.has("HALF_CLOSE") {
            call.end = Some("half-close".to_owned());
        }
        if let Some(trailers) = trailers {
            call.trailers = trailers;
            call.end = Some(format!("status {}", frame.code));
        }
        if frame.has("CANCEL") {
            let refused = frame.flag("REFUSED");
            call.end = Some(if refused { "refused".to_owned() } else { format!("cancelled {}", frame.code) });
        }
    }

    fn pairs_of(&self, frame: &Frame, event: &str) -> Option<Vec<String>> {
        let block = if event == "HEADERS" { &frame.headers } else { &frame.trailers };
        let opens = self.role == Role::Server && event == "HEADERS";
        (frame.has(event) && !opens).then(|| self.pairs(block))
    }

    /// The pairs of a block as `name: value`, as section 11 says. Whether it is one was looked at before.
    fn pairs(&self, mut block: &[u8]) -> Vec<String> {
        fn take<'b>(block: &mut &'b [u8], len: usize) -> &'b [u8] {
            let (part, rest) = block.split_at(len);
            *block = rest;
            part
        }
        let mut pairs = Vec::new();
        while !block.is_empty() {
            let name = match take(&mut block, 1)[0] {
                0 => {
                    let len = number(take(&mut block, 1)) as usize;
                    text(take(&mut block, len))
                }
                idx => self.document.static_name(idx).to_owned(),
            };
            let len = number(take(&mut block, 2)) as usize;
            pairs.push(format!("{name}: {}", text(take(&mut block, len))));
        }
        pairs
    }

    fn told(&self) -> Value {
        let call = |(id, call): (&u64, &Call)| {
            let end = call.end.as_deref().unwrap_or("none");
            let mut told =
                json!({ "stream": id, "headers": call.headers, "messages": call.messages, "end": end });
            match self.role {
                Role::Server => {
                    told["path"] = call.path.as_str().into();
                    told["deadline_ns"] = format!("{:016x}", call.deadline_ns).into();
                }
                Role::Client => told["trailers"] = json!(call.trailers),
            }
            told
        };
        json!({ "calls": self.calls.iter().map(call).collect::<Vec<_>>(), "closed": self.closed })
    }
}

impl Call {
    fn message(&mut self, frame: &Frame) {
        if frame.flag("BATCH") {
            let mut batch = &frame.chunk[..];
            while let Some((prefix, rest)) = batch.split_first_chunk::<5>() {
                let len = prefix[1..].iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
                let kind = ["encoded", "compressed", "object"][usize::from(prefix[0])];
                self.messages.push(json!({ "kind": kind, "bytes": hex(&rest[..len]) }));
                batch = &rest[len..];
            }
            return;
        }
        if frame.flag("FIRST") {
            let kind = match (frame.flag("SEGMENTED"), frame.flag("OBJECT"), frame.flag("COMPRESSED")) {
                (true, true, _) => "object segmented",
                (true, ..) => "segmented",
                (_, true, _) => "object",
                (.., true) => "compressed",
                _ => "encoded",
            };
            self.begun = Some((kind.to_owned(), Vec::new()));
        }
        let (kind, mut bytes) = self.begun.take().expect("a message has begun");
        // What lies in an area is all zeros here.
        let chunk = if frame.flag("IN_AREA") { &vec![0; frame.chunk_len as usize] } else { &frame.chunk };
        bytes.extend_from_slice(chunk);
        if frame.flag("LAST") {
            self.messages.push(json!({ "kind": kind, "bytes": hex(&bytes) }));
        } else {
            self.begun = Some((kind, bytes));
        }
    }
}
