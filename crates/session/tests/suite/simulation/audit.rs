//! What must hold at any moment, and what all seeds together must have seen.

use tollfree_layout::StreamId;
use tollfree_layout::frame::{FrameHead, control, events, flags};
use tollfree_layout::limits::CHUNK_CHARGE;
use tollfree_session::Role;

use super::world::{Step, World};

impl World {
    /// Credit is neither lost nor made: both ends and the wires between them always add up.
    pub(crate) fn audit(&self) -> Step {
        self.check_events()?;
        for side in [&self.client, &self.server] {
            if side.out.descriptor_count() > 2 {
                return Err("more descriptors than a reader takes that has read no offer".to_owned());
            }
        }
        if self.hung_up {
            return Ok(());
        }
        let live: Vec<u64> = self
            .calls
            .iter()
            .filter(|call| self.client.session.credit(call.id).is_some())
            .filter(|call| self.server.session.credit(call.id).is_some())
            .map(|call| call.id.0)
            .collect();
        for id in std::iter::once(0).chain(live) {
            for (from, to, role) in
                [(&self.client, &self.server, Role::Server), (&self.server, &self.client, Role::Client)]
            {
                let half_closed = role == Role::Server && id != 0 && self.calls[id as usize - 1].client.done;
                if half_closed {
                    continue;
                }
                let id = StreamId(id);
                let sender = from.session.credit(id).ok_or("no sender")?;
                let receiver = to.session.credit(id).ok_or("no receiver")?;
                let sent: u64 = from.out.in_flight().map(|head| cost(&head, id)).sum();
                let granted: u64 = to.out.in_flight().map(|head| grant(&head, id)).sum();
                let held = receiver.recv + receiver.unread + receiver.owed;
                if held != receiver.window || sender.send + sent + granted + receiver.unsent != receiver.recv
                {
                    return Err(format!(
                        "credit of {id} towards {role:?}: {sender:?} {receiver:?}, {sent} sent and {granted} granted"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn cost(head: &FrameHead, id: StreamId) -> u64 {
    let ours = id == StreamId::SESSION || head.stream.get() == id.0;
    let charged = ours && head.events & events::MESSAGE != 0;
    if charged { u64::from(head.chunk_len.get()) + CHUNK_CHARGE } else { 0 }
}

fn grant(head: &FrameHead, id: StreamId) -> u64 {
    let ours = head.events == events::CREDIT && head.stream.get() == id.0;
    if ours { head.chunk_len.get().into() } else { 0 }
}

/// What the seeds together must have seen.
pub(crate) fn must_see() -> Vec<String> {
    let mut names: Vec<String> = [
        "Done",
        "NeedRoom",
        "NeedCredit",
        "NeedStream",
        "Ended",
        "Closed",
        "Draining",
        "MetadataLen",
        "aborted",
        "Request",
        "Answer",
        "Part",
        "answered at once",
        "settled",
        "forgotten with its end",
        "a batch to Client",
        "a batch to Server",
        "a batch of objects to Client",
        "a batch of objects to Server",
        "a batch in an area",
        "dropped while the peer stood still and the sender waited for room",
    ]
    .map(str::to_owned)
    .into();
    names.extend((0..8).map(|bit| format!("event {bit}")));
    let all = flags::KNOWN_FLAGS | flags::SEGMENTED;
    names.extend((0..8).filter(|bit| all & 1 << bit != 0).map(|bit| format!("flag {bit}")));
    let codes = [
        control::AREA_OFFER,
        control::AREA_ACCEPT,
        control::AREA_REFUSE,
        control::AREA_DROP,
        control::CLOSE,
        control::SEGMENTED_TAKEN,
    ];
    names.extend(codes.map(|code| format!("control {code}")));
    names.extend(["HalfClosed", "Cancelled", "SessionClosed"].map(|end| format!("Server end {end}")));
    names
        .extend(["Trailers", "Cancelled", "Refused", "SessionClosed"].map(|end| format!("Client end {end}")));
    names
}
