//! What a session's events alone say of it: the states of its streams, its credit, what went over the wire. Held against the session
//! itself, and one end's against the other's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use tollfree_events::{FrameKinds, Lack, Place, RecvHalf, SendHalf, SessionEvent, Side, StreamLook};
use tollfree_layout::StreamId;
use tollfree_layout::frame::events;
use tollfree_layout::limits::CHUNK_CHARGE;
use tollfree_session::{Limits, Recorder, Recording, Session, Watched};

use super::world::{Step, World};

/// A frame as both ends tell of it.
type Frame = (u64, FrameKinds, u16, u32, Place);

/// A stream, or the session as a whole.
#[derive(Clone, Copy, Debug)]
struct Account {
    look: StreamLook,
    send: u64,
    recv: u64,
}

/// A recorder, and what it was told.
#[derive(Clone, Debug)]
pub(crate) struct Replay(Arc<Mutex<Told>>);

#[derive(Debug)]
struct Told {
    /// What each stream begins with.
    windows: (u64, u64),
    session: Account,
    streams: BTreeMap<u64, Account>,
    sent: VecDeque<Frame>,
    received: VecDeque<Frame>,
    called: u64,
    /// Who was told last to be blocked.
    blocked: Option<(u64, Lack)>,
    is_draining: bool,
    is_over: bool,
    wrong: Option<String>,
}

impl Recorder for Replay {
    fn record(&self, event: SessionEvent) {
        self.0.lock().unwrap().take(event);
    }
}

fn cost(kinds: FrameKinds, len: u32) -> u64 {
    if kinds.has(events::MESSAGE) { u64::from(len) + CHUNK_CHARGE } else { 0 }
}

impl Told {
    fn stream(&mut self, id: u64) -> &mut Account {
        let (send, recv) = self.windows;
        self.streams.entry(id).or_insert(Account { look: StreamLook::default(), send, recv })
    }

    /// Changes credit of a stream and of the session.
    fn account(&mut self, id: u64, change: impl Fn(&mut Account)) {
        change(&mut self.session);
        change(self.stream(id));
    }

    fn take(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Stream { stream, from, to, cause } => {
                let before = std::mem::replace(&mut self.stream(stream).look, to);
                if before != from || from == to {
                    self.wrong = Some(format!("{stream} {cause}: from {from} to {to}, and was {before}"));
                }
            }
            SessionEvent::Sent { stream, kinds, code, len, place } => {
                self.sent.push_back((stream, kinds, code, len, place));
                if cost(kinds, len) > 0 {
                    self.account(stream, |account| account.send -= cost(kinds, len));
                }
            }
            SessionEvent::Received { stream, kinds, code, len, place } => {
                self.received.push_back((stream, kinds, code, len, place));
                if cost(kinds, len) > 0 {
                    // A stream that has ended has no account any more.
                    self.account(stream, |account| {
                        account.recv = account.recv.wrapping_sub(cost(kinds, len))
                    });
                }
            }
            SessionEvent::Credit { by, stream, amount } => {
                let account = if stream == 0 { &mut self.session } else { self.stream(stream) };
                match by {
                    Side::Here => account.recv += amount,
                    Side::Peer => account.send += amount,
                }
            }
            SessionEvent::Call { stream, .. } => {
                if stream <= self.called {
                    self.wrong = Some(format!("call {stream} began behind {}", self.called));
                }
                self.called = stream;
            }
            SessionEvent::Draining { .. } => self.is_draining = true,
            SessionEvent::Ended { .. } => self.is_over = true,
            SessionEvent::Blocked { stream, lack } => self.blocked = Some((stream, lack)),
            other => self.wrong = Some(format!("a session by itself tells of no {other:?}")),
        }
    }
}

impl Replay {
    pub(crate) fn new(local: Limits, peer: Limits) -> Replay {
        let session =
            Account { look: StreamLook::default(), send: peer.session_window, recv: local.session_window };
        Replay(Arc::new(Mutex::new(Told {
            windows: (peer.stream_window, local.stream_window),
            session,
            streams: BTreeMap::new(),
            sent: VecDeque::new(),
            received: VecDeque::new(),
            called: 0,
            blocked: None,
            is_draining: false,
            is_over: false,
            wrong: None,
        })))
    }

    pub(crate) fn recording(&self) -> Recording {
        Recording::to(Box::new(self.clone()))
    }

    /// Whether the session is as its events say.
    fn check<T: Watched>(&self, session: &Session<T>, call_count: u64) -> Step {
        let told = self.0.lock().unwrap();
        if let Some(wrong) = &told.wrong {
            return Err(wrong.clone());
        }
        if (told.is_over, told.is_draining) != (session.closed().is_some(), session.is_draining()) {
            return Err(format!("{:?} ended or drains, and {told:?}", session.role()));
        }
        for id in (1..=call_count).map(StreamId) {
            let account = told.streams.get(&id.0);
            // A stream that is only known for a chunk that nobody wanted never was one.
            let is_live =
                account.is_some_and(|account| account.look.live && account.look != StreamLook::default());
            if is_live != session.is_live(id) {
                return Err(format!("{id} is live: {}, by its events {account:?}", session.is_live(id)));
            }
            if let (Some(credit), Some(account)) = (session.credit(id), account)
                && (credit.send, credit.recv) != (account.send, account.recv)
            {
                return Err(format!("credit of {id} is {credit:?}, by its events {account:?}"));
            }
        }
        let credit = session.credit(StreamId::SESSION).expect("there always is");
        if !told.is_over && (credit.send, credit.recv) != (told.session.send, told.session.recv) {
            return Err(format!("credit of the session is {credit:?}, by its events {:?}", told.session));
        }
        Ok(())
    }

    /// Whether what came here is what the other end tells that it has sent.
    fn check_wire(&self, other: &Replay) -> Step {
        let received = std::mem::take(&mut self.0.lock().unwrap().received);
        let sent = &mut other.0.lock().unwrap().sent;
        for frame in received {
            let before = sent.pop_front();
            if before != Some(frame) {
                return Err(format!("{frame:?} came, and {before:?} was sent"));
            }
        }
        Ok(())
    }

    /// Whether it was told that a sender is blocked.
    pub(crate) fn check_blocked(&self, id: StreamId, lack: Lack) -> Step {
        let told = self.0.lock().unwrap().blocked;
        if told == Some((id.0, lack)) {
            Ok(())
        } else {
            Err(format!("{id} lacks {lack:?}, and was told {told:?}"))
        }
    }

    fn look(&self, id: u64) -> StreamLook {
        self.0.lock().unwrap().streams.get(&id).map(|account| account.look).unwrap_or_default()
    }

    fn has_sent_more(&self) -> bool {
        !self.0.lock().unwrap().sent.is_empty()
    }
}

impl World {
    /// Both ends are as their events say.
    pub(crate) fn check_events(&self) -> Step {
        let count = self.calls.len() as u64;
        self.client.replay.check(&self.client.session, count)?;
        let called = self.client.replay.0.lock().unwrap().called;
        if called != count {
            return Err(format!("{called} is the last call that was told of, and there are {count}"));
        }
        self.server.replay.check(&self.server.session, count)?;
        self.client.replay.check_wire(&self.server.replay)?;
        self.server.replay.check_wire(&self.client.replay)
    }

    /// The same where all that was said has come: what one end has said of a call is what the other has heard.
    pub(crate) fn check_events_agree(&self) -> Step {
        self.check_events()?;
        let is_open = |side: &super::world::Side| side.session.closed().is_none();
        if !is_open(&self.client) || !is_open(&self.server) {
            return Ok(());
        }
        if self.client.replay.has_sent_more() || self.server.replay.has_sent_more() {
            return Err("frames were sent, by the events, and have not come".to_owned());
        }
        for call in &self.calls {
            let (client, server) = (self.client.replay.look(call.id.0), self.server.replay.look(call.id.0));
            // An end that is over has forgotten what was said before.
            if !client.live || !server.live || server == StreamLook::default() {
                continue;
            }
            let said = (client.send == SendHalf::Closed) == (server.recv == RecvHalf::Ended);
            let answered = (server.send == SendHalf::Head) == (client.recv == RecvHalf::Head);
            let parts = (client.unsent, server.unsent) == (server.unreceived, client.unreceived);
            if !said || !answered || !parts {
                return Err(format!("{} is {client} at the client, and {server} at the server", call.id));
            }
        }
        Ok(())
    }
}
