//! Sessions that are sent what no correct peer sends.

use bytes::BytesMut;
use serde_json::json;
use tollfree_layout::{AreaIdx, ByteOff};
use tollfree_session::{
    AreaFault, Ending, Full, Inbound, Limits, Opening, Outbound, Outgoing, OutgoingMessage, Role, Session,
    Violation,
};

use crate::{Answer, Question};

/// Bytes of payload area 0, the only one that a case may use.
const AREA_LEN: u64 = 64 * 1024;

pub(crate) struct Out(pub(crate) usize);

impl Outbound for Out {
    fn record_len_max(&self) -> usize {
        self.0
    }
    fn stage(&mut self, _: &[&[u8]]) -> Result<(), Full> {
        Ok(())
    }
    fn area_chunk_max(&mut self, _: usize) -> usize {
        0
    }
    fn fill_in_area(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Option<(AreaIdx, ByteOff)> {
        None
    }
    fn take_back(&mut self) {}
}

pub(crate) struct Record<'a>(pub(crate) &'a [u8]);

impl Inbound for Record<'_> {
    fn record_len(&self) -> usize {
        self.0.len()
    }
    fn read(&self, at: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[at..at + dst.len()]);
    }
    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut) {
        dst.extend_from_slice(&self.0[at..at + len]);
    }
    fn append_area(
        &self,
        area: AreaIdx,
        at: ByteOff,
        len: usize,
        dst: &mut BytesMut,
    ) -> Result<(), AreaFault> {
        if area.0 != 0 || at.0.checked_add(len as u64).is_none_or(|end| end > AREA_LEN) {
            return Err(AreaFault);
        }
        dst.resize(dst.len() + len, 0);
        Ok(())
    }
    fn pass_over_area(&self) {}
}

pub(crate) fn limits(question: &Question) -> Result<Limits, String> {
    Ok(Limits {
        stream_window: question.number("stream_window")?,
        session_window: question.number("session_window")?,
        stream_count: question.number("stream_count")? as u32,
        metadata_len_max: question.number("metadata_len_max")? as usize,
    })
}

pub(crate) fn to_server(question: &Question) -> Answer {
    let limits = limits(question)?;
    heard(Session::new(Role::Server, limits, limits).with_segmented(question.flag("pool")), question)
}

pub(crate) fn to_client(question: &Question) -> Answer {
    let limits = limits(question)?;
    let mut client = Session::new(Role::Client, limits, limits).with_segmented(question.flag("pool"));
    // What every case's client has said: one call, with all of its request.
    let mut outgoing = Outgoing {
        headers: None,
        message: Some(OutgoingMessage::new(vec![0, 1, 2].into(), false)),
        ending: Some(Ending::HalfClose),
    };
    let mut out = Out(question.number("record_len_max")? as usize);
    let opened = client.open(&mut out, Opening { path: "/a.B/C", deadline_ns: 0 }, &mut outgoing);
    if !matches!(opened, Ok(Ok(_))) {
        return Err("the client's call was not opened".to_owned());
    }
    heard(client, question)
}

fn heard(mut session: Session<()>, question: &Question) -> Answer {
    for frame in question.list("before")? {
        session.receive(&Record(&frame)).map_err(|early| format!("{early}, in a frame before"))?;
    }
    match session.receive(&Record(&question.bytes("frame")?)) {
        Ok(_) => Ok(json!({ "violation": "none" })),
        Err(violation) => Ok(json!({ "violation": place(&violation) })),
    }
}

/// Section 17 of `spec/wire.md` calls them by where they are found.
fn place(violation: &Violation) -> &'static str {
    match violation {
        Violation::FrameLen { .. } | Violation::FrameKind { .. } => "frame",
        Violation::StreamId { .. } | Violation::StreamCount { .. } | Violation::Order { .. } => "stream",
        Violation::MethodIdx { .. } | Violation::MethodPath { .. } => "method",
        Violation::Metadata { .. } | Violation::MetadataLen { .. } => "metadata",
        Violation::Chunk { .. } => "message",
        Violation::Overdrawn { .. } => "credit",
        Violation::AreaRange { .. } | Violation::Control { .. } => "area",
        _ => "none",
    }
}
