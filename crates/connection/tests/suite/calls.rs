//! What an end of a simulated pair says and hears: a client that makes one call after the other, a server that answers them.

use bytes::Bytes;
use tollfree_connection::{Connection, PeerIo};
use tollfree_layout::StreamId;
use tollfree_session::{
    End, Ending, GRPC_PREFIX_LEN, Incoming, Opening, Outgoing, OutgoingMessage, Progress,
};

/// What came of doing what there was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The rest waits for the peer.
    Waits,
    /// The rest waits for room in the ring.
    LacksRoom,
    /// A client's call has ended, and another is to be made.
    CallEnded,
    /// No call is to be made any more.
    Over,
}

/// Messages of one direction of a call: how many, and how long each is.
type Many = (u32, usize);

/// One call at one end.
#[derive(Debug)]
struct Call {
    id: StreamId,
    /// What is being said.
    outgoing: Outgoing,
    /// Messages to say after that.
    left: u32,
    /// A server's, before its messages.
    headers: Option<Bytes>,
    /// What this end says last, after its messages.
    ending: Option<Ending>,
    heard_count: u32,
    heard_len: usize,
    /// A server's: the client has said everything.
    is_heard: bool,
    /// All is said.
    is_said: bool,
    /// It never ends, for the session is over.
    is_lost: bool,
}

/// All calls of one end.
#[derive(Debug)]
pub(crate) struct Calls {
    is_client: bool,
    calls: Vec<Call>,
    /// A client's: calls that are still to be made.
    left: u32,
    ended: u32,
    says: Many,
    hears: Many,
}

/// What the next outgoing of a call is.
fn next(says: Many, headers: &mut Option<Bytes>, left: &mut u32, ending: &mut Option<Ending>) -> Outgoing {
    let message = (*left > 0).then(|| OutgoingMessage::new(Bytes::from(vec![7; says.1]), false));
    *left = left.saturating_sub(1);
    let ending = if *left == 0 { ending.take() } else { None };
    Outgoing { headers: headers.take(), message, ending }
}

impl Calls {
    pub(crate) fn client(count: u32, up: Many, down: Many) -> Calls {
        Calls { is_client: true, calls: Vec::new(), left: count, ended: 0, says: up, hears: down }
    }

    pub(crate) fn server(up: Many, down: Many) -> Calls {
        Calls { is_client: false, calls: Vec::new(), left: 0, ended: 0, says: down, hears: up }
    }

    /// Calls that have ended with all that was to be said.
    pub(crate) fn ended(&self) -> u32 {
        self.ended
    }

    /// Does what there is to do.
    pub(crate) fn act(&mut self, connection: &mut Connection<()>, io: &mut impl PeerIo) -> Done {
        while connection.session_mut().next_ready().is_some() {}
        while connection.session_mut().next_abandoned().is_some() {}
        let before = self.ended;
        self.hear(connection);
        if connection.session().closed().is_some() {
            return Done::Over;
        }
        if self.is_client && self.ended > before {
            return if self.left == 0 { Done::Over } else { Done::CallEnded };
        }
        let mut lacks_room = self.is_client && self.calls.is_empty() && !self.open(connection);
        for call in &mut self.calls {
            lacks_room |= call.say(self.says, self.is_client, connection, io);
        }
        self.settle(connection);
        if lacks_room { Done::LacksRoom } else { Done::Waits }
    }

    /// Makes the next call. `false`: there is no room for it.
    fn open(&mut self, connection: &mut Connection<()>) -> bool {
        let (mut left, mut ending) = (self.says.0, Some(Ending::HalfClose));
        let mut outgoing = next(self.says, &mut None, &mut left, &mut ending);
        let opening = Opening { path: "/simulated.Echo/Call", deadline_ns: 0 };
        match connection.open(opening, &mut outgoing).unwrap() {
            Ok(id) => {
                self.left -= 1;
                self.calls.push(Call::new(id, outgoing, None, left, ending));
                true
            }
            Err(progress) => {
                assert_eq!(progress, Progress::NeedRoom);
                false
            }
        }
    }

    /// Takes what has come.
    fn hear(&mut self, connection: &mut Connection<()>) {
        while let Some((accepted, whole)) = connection.session_mut().accept_whole() {
            connection.accepted();
            let ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
            let mut call =
                Call::new(accepted.id, Outgoing::default(), Some(Bytes::new()), self.says.0, ending);
            if let Some(whole) = whole {
                call.heard(Incoming::Request(whole));
            }
            self.calls.push(call);
        }
        connection.no_call();
        let hears = self.hears;
        let mut ended = 0;
        self.calls.retain_mut(|call| {
            while !call.is_heard
                && !call.is_lost
                && let Some(incoming) = connection.session_mut().take(call.id)
            {
                call.heard(incoming);
            }
            if call.is_heard {
                assert_eq!((call.heard_count, call.heard_len), (hears.0, hears.0 as usize * hears.1));
            }
            let is_over = self.is_client && call.is_heard;
            ended += u32::from(is_over);
            !is_over && !call.is_lost
        });
        self.ended += ended;
    }

    /// Lets go of a server's calls that are answered.
    fn settle(&mut self, connection: &mut Connection<()>) {
        if self.is_client {
            return;
        }
        let mut ended = 0;
        self.calls.retain(|call| {
            let is_over = call.is_said && connection.session_mut().settle(call.id);
            if is_over {
                connection.session_mut().forget(call.id, 1);
                ended += 1;
            }
            !is_over
        });
        self.ended += ended;
    }
}

impl Call {
    fn new(
        id: StreamId,
        outgoing: Outgoing,
        headers: Option<Bytes>,
        left: u32,
        ending: Option<Ending>,
    ) -> Call {
        let (heard_count, heard_len) = (0, 0);
        Call {
            id,
            outgoing,
            headers,
            left,
            ending,
            heard_count,
            heard_len,
            is_heard: false,
            is_said: false,
            is_lost: false,
        }
    }

    fn heard(&mut self, incoming: Incoming) {
        let part = incoming.into_part();
        if let Some(chunk) = part.chunk {
            let count = if chunk.batch_count > 0 { chunk.batch_count } else { u32::from(chunk.last) };
            let prefixes = if chunk.batch_count > 0 { chunk.batch_count } else { u32::from(chunk.first) };
            self.heard_count += count;
            self.heard_len += chunk.bytes.len() - prefixes as usize * GRPC_PREFIX_LEN;
        }
        match part.end {
            Some(End::HalfClosed | End::Trailers { code: 0, .. }) => self.is_heard = true,
            Some(End::SessionClosed) => self.is_lost = true,
            None => {}
            end => panic!("{end:?}"),
        }
    }

    /// Says what there is to say. Whether the rest finds no room.
    fn say(
        &mut self,
        says: Many,
        is_client: bool,
        connection: &mut Connection<()>,
        io: &mut impl PeerIo,
    ) -> bool {
        if !is_client && !self.is_heard {
            return false;
        }
        while !self.is_said {
            if self.outgoing.is_empty() {
                if self.left == 0 && self.ending.is_none() {
                    self.is_said = true;
                    break;
                }
                self.outgoing = next(says, &mut self.headers, &mut self.left, &mut self.ending);
            }
            match connection.send(self.id, &mut self.outgoing).unwrap() {
                Progress::Done => {}
                Progress::Partly => _ = connection.flush(io, false),
                Progress::NeedRoom | Progress::RanOut => return true,
                Progress::NeedCredit => return false,
                Progress::NeedStream => unreachable!("it is open"),
            }
        }
        false
    }
}
