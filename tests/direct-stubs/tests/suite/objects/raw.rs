//! One end of a call by the transport alone: it may say anything, also objects that are none. Tests of gateways have it too.

use std::future::poll_fn;

use bytes::Bytes;
use tollfree_driver_tokio::{
    Attachment, End, Ending, Incoming, OBJECT_PREFIX, Opening, Outgoing, OutgoingMessage, Stream,
};
use tonic::Code;

/// Messages in gRPC's framing, each with this as its first byte.
pub(crate) fn framed(flag: u8, messages: &[Vec<u8>]) -> Bytes {
    let framed = |message: &Vec<u8>| [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat();
    messages.iter().flat_map(framed).collect::<Vec<u8>>().into()
}

/// A batch of these objects.
pub(crate) fn batch(objects: &[Vec<u8>]) -> OutgoingMessage {
    OutgoingMessage::objects(framed(OBJECT_PREFIX, objects)).expect("they are whole")
}

/// A call of which nothing is said yet.
pub(crate) async fn open(attachment: &Attachment, path: &str, deadline_ns: u64) -> Stream {
    let mut outgoing = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    let mut opener = attachment.open();
    poll_fn(|cx| opener.poll_open(cx, Opening { path, deadline_ns }, &mut outgoing)).await.unwrap()
}

pub(crate) async fn send(stream: &Stream, message: Option<OutgoingMessage>, ending: Option<Ending>) {
    let mut outgoing = Outgoing { message, ending, ..Outgoing::default() };
    // A peer that has ended the call need not have read it.
    drop(poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await);
}

/// What has come of one side of a call.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) record_count: usize,
    /// Each with the first byte of its prefix.
    pub(crate) messages: Vec<(u8, Vec<u8>)>,
    pub(crate) end: Option<End>,
}

impl Heard {
    /// Up to the end; `first` has been read. None of the messages takes more than a record.
    pub(crate) async fn all(first: Option<Incoming>, stream: &Stream) -> Heard {
        let mut heard = Heard::default();
        if let Some(first) = first {
            heard.hear(first);
        }
        while heard.end.is_none() {
            heard.hear(poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap());
        }
        heard
    }

    pub(crate) fn hear(&mut self, incoming: Incoming) {
        let part = incoming.into_part();
        self.end = part.end;
        let Some(chunk) = part.chunk else { return };
        self.record_count += 1;
        let mut rest = &chunk.bytes[..];
        while let Some(([flag, len @ ..], behind)) = rest.split_first_chunk::<5>() {
            let (message, behind) = behind.split_at(u32::from_be_bytes(*len) as usize);
            self.messages.push((*flag, message.to_vec()));
            rest = behind;
        }
    }

    pub(crate) fn has_objects_only(&self) -> bool {
        !self.messages.is_empty() && self.messages.iter().all(|(flag, _)| *flag == OBJECT_PREFIX)
    }

    /// The status that ended it, and its words.
    pub(crate) fn code(&self) -> (Code, String) {
        match &self.end {
            Some(End::Trailers { code, block }) => {
                (Code::from_i32((*code).into()), String::from_utf8_lossy(block).replace("%20", " "))
            }
            end => panic!("{end:?}"),
        }
    }
}
