//! No driver at all: both ends of a session as connections in one thread, which go on whenever the client is asked for something.
//!
//! There is no socket, no process, no sleep and no time here. It shows what of a row is the connection's alone.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tollfree_connection::{AreaFd, Connection, PeerIo, Report, Setup, WaitHints};
use tollfree_driver_tokio::Address;
use tollfree_layout::limits::{AREA_LEN_MAX, AREA_LEN_MIN, PAGE_LEN};
use tollfree_layout::{RingPos, StreamId};
use tollfree_region::{PeerRegion, Region};
use tollfree_ring::Geometry;
use tollfree_session::{
    Closed, End as CallEnd, Ending, Incoming, Opening, Outgoing, OutgoingMessage, Progress, Recording, Role,
    SendError,
};

use crate::assembly::Assembly;
use crate::driver::{CallNumber, Client, Driver, Log, Seen, Server, Settings, Start, Told};
use crate::service::{Came, Deed, Serving};

const UNAVAILABLE: u16 = 14;
const RING_LEN: usize = 4 * PAGE_LEN;

pub(crate) struct Bare;

/// Servers that "listen", by their addresses.
static LISTENING: LazyLock<Mutex<HashMap<String, (Settings, Log)>>> = LazyLock::new(Mutex::default);

struct BareServer(String);

impl Server for BareServer {}

impl Drop for BareServer {
    fn drop(&mut self) {
        LISTENING.lock().unwrap().remove(&self.0);
    }
}

impl Driver for Bare {
    const NAME: &'static str = "bare";

    fn serve(address: &Address, settings: &Settings, log: &Log) -> Box<dyn Server> {
        let address = address.to_string();
        LISTENING.lock().unwrap().insert(address.clone(), (settings.clone(), log.clone()));
        Box::new(BareServer(address))
    }

    fn connect(address: &Address, settings: &Settings) -> Result<Box<dyn Client>, String> {
        let listening = LISTENING.lock().unwrap();
        let (of_server, log) = listening.get(&address.to_string()).ok_or("nobody listens")?;
        let [client, server] = connections(settings, of_server);
        Ok(Box::new(BareClient {
            client: End::new(client),
            server: End::new(server),
            servings: BTreeMap::new(),
            log: log.clone(),
            last: 0,
            unopened: VecDeque::new(),
            numbers: HashMap::new(),
            told: VecDeque::new(),
            was_told_of_drain: false,
            is_over: [false; 2],
        }))
    }
}

/// Both ends of a session in which nothing was said.
fn connections(of_client: &Settings, of_server: &Settings) -> [Connection<()>; 2] {
    let ring = Geometry::new(PAGE_LEN, RING_LEN).unwrap();
    let regions = [0, 1].map(|_| Region::create("bare", ring.end()).unwrap());
    let [clients, servers] = [0, 1].map(|idx| {
        let region: &Region = &regions[idx];
        Arc::new(PeerRegion::map(region.fd().try_clone_to_owned().unwrap(), ring.end()).unwrap())
    });
    let [client, server] = regions.map(Arc::new);
    let end = |role, own, peer, settings: &Settings, others: &Settings| {
        Connection::new(Setup {
            role,
            policy: settings.wait,
            gathers: false,
            limits: settings.limits,
            peer_limits: others.limits,
            segmented_messages: false,
            own,
            own_ring: ring,
            peer,
            peer_ring: ring,
            area_len: AREA_LEN_MIN,
            peer_area_len_max: AREA_LEN_MAX,
            area_idle_ns: 1_000_000_000,
            allowance: None,
            hints: WaitHints::None,
            recording: Recording::off(),
        })
    };
    [
        end(Role::Client, client, servers, of_client, of_server),
        end(Role::Server, server, clients, of_server, of_client),
    ]
}

/// What one step has of a socket.
#[derive(Default)]
struct Wire {
    came: VecDeque<OwnedFd>,
    sent: Vec<OwnedFd>,
}

impl PeerIo for Wire {
    fn now_ns(&self) -> u64 {
        1
    }

    fn ring(&mut self, _: RingPos) {}

    fn send_area(&mut self, area: BorrowedFd<'_>) -> Result<(), String> {
        self.sent.push(area.try_clone_to_owned().map_err(|error| error.to_string())?);
        Ok(())
    }

    fn take_area(&mut self) -> AreaFd {
        self.came.pop_front().map_or(AreaFd::Missing, |fd| AreaFd::Came(fd.into()))
    }

    fn hang_up(&mut self, _: RingPos, _: bool) {}

    fn report(&mut self, _: Report<'_>) {}
}

/// What is to be said on a call.
#[derive(Default)]
struct Talk {
    now: Outgoing,
    later: VecDeque<Outgoing>,
    assembly: Assembly,
}

struct End {
    connection: Connection<()>,
    wire: Wire,
    talks: BTreeMap<StreamId, Talk>,
}

impl End {
    fn new(connection: Connection<()>) -> End {
        End { connection, wire: Wire::default(), talks: BTreeMap::new() }
    }

    fn say(&mut self, id: StreamId, outgoing: Outgoing) {
        if let Some(talk) = self.talks.get_mut(&id) {
            talk.later.push_back(outgoing);
        }
    }

    /// Says what there is room and credit for. Whether that was anything.
    fn write(&mut self) -> bool {
        let mut has_moved = false;
        let ids: Vec<StreamId> = self.talks.keys().copied().collect();
        for id in ids {
            while let Some(talk) = self.talks.get_mut(&id) {
                if talk.now.is_empty() {
                    let Some(next) = talk.later.pop_front() else { break };
                    talk.now = next;
                }
                let ends = matches!(talk.now.ending, Some(Ending::Trailers { .. }));
                match self.connection.send(id, &mut talk.now) {
                    Ok(Progress::Done) => {
                        has_moved = true;
                        if ends {
                            self.connection.session_mut().settle(id);
                            self.forget(id, 1);
                        }
                    }
                    Ok(Progress::Partly) => {
                        has_moved = true;
                        self.connection.flush(&mut self.wire, false);
                    }
                    Ok(_) => break,
                    Err(SendError::Ended | SendError::Closed(_)) => {
                        (talk.now, talk.later) = Default::default();
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        self.connection.flush(&mut self.wire, false);
        has_moved
    }

    fn forget(&mut self, id: StreamId, code: u16) {
        self.talks.remove(&id);
        self.connection.session_mut().forget(id, code);
    }

    /// Streams on which something has come.
    fn ready(&mut self) -> Vec<StreamId> {
        let mut ready = Vec::new();
        while let Some(next) = self.connection.session_mut().next_ready() {
            ready.push(next.id);
        }
        while self.connection.session_mut().next_abandoned().is_some() {}
        ready
    }
}

struct BareClient {
    client: End,
    server: End,
    servings: BTreeMap<StreamId, Serving>,
    log: Log,
    last: CallNumber,
    unopened: VecDeque<(CallNumber, String, Outgoing, Vec<Outgoing>)>,
    numbers: HashMap<StreamId, CallNumber>,
    told: VecDeque<Told>,
    was_told_of_drain: bool,
    /// The client was told that its session is over, and the server has seen it.
    is_over: [bool; 2],
}

fn message(bytes: Bytes) -> Outgoing {
    Outgoing { message: Some(OutgoingMessage::new(bytes, false)), ..Outgoing::default() }
}

impl BareClient {
    /// Goes on until nothing moves.
    fn run(&mut self) {
        loop {
            let mut has_moved = self.open();
            has_moved |= self.client.write() | self.server.write();
            self.server.wire.came.extend(self.client.wire.sent.drain(..));
            self.client.wire.came.extend(self.server.wire.sent.drain(..));
            has_moved |= self.client.connection.receive_all(&mut self.client.wire) > 0;
            has_moved |= self.server.connection.receive_all(&mut self.server.wire) > 0;
            has_moved |= self.serve() | self.listen();
            self.end();
            if !has_moved {
                return;
            }
        }
    }

    fn open(&mut self) -> bool {
        let mut has_moved = false;
        while let Some((number, path, mut outgoing, later)) = self.unopened.pop_front() {
            let opening = Opening { path: &path, deadline_ns: 0 };
            match self.client.connection.open(opening, &mut outgoing) {
                Ok(Ok(id)) => {
                    has_moved = true;
                    self.numbers.insert(id, number);
                    let talk = Talk { now: outgoing, later: later.into(), ..Talk::default() };
                    self.client.talks.insert(id, talk);
                }
                Ok(Err(_)) => {
                    self.unopened.push_front((number, path, outgoing, later));
                    break;
                }
                Err(_) => {
                    self.told.push_back(Told::Ended { call: number, code: UNAVAILABLE, unprocessed: true })
                }
            }
        }
        has_moved
    }

    /// The server's part.
    fn serve(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(accepted) = self.server.connection.session_mut().accept() {
            has_moved = true;
            let id = accepted.id;
            let path = self.server.connection.session().path_of(&accepted);
            let mut serving = Serving::new(&path);
            self.log.add(Seen::Began { path: serving.path(), has_deadline: accepted.deadline_ns != 0 });
            self.server.talks.insert(id, Talk::default());
            let first = self.server.connection.session_mut().take(id);
            let metadata = match &first {
                // A request that came as a whole has its headers within.
                Some(Incoming::Request(whole)) => Bytes::copy_from_slice(whole.headers()),
                _ => accepted.headers,
            };
            let deeds = serving.on(Came::Call { metadata });
            self.servings.insert(id, serving);
            self.act(id, deeds);
            if first.is_none_or(|incoming| self.heard(id, incoming)) {
                self.hear(id);
            }
        }
        for id in self.server.ready() {
            has_moved |= self.hear(id);
        }
        has_moved
    }

    fn hear(&mut self, id: StreamId) -> bool {
        let mut has_moved = false;
        while self.servings.contains_key(&id)
            && let Some(incoming) = self.server.connection.session_mut().take(id)
        {
            has_moved = true;
            if !self.heard(id, incoming) {
                break;
            }
        }
        has_moved
    }

    /// `false`: nothing follows.
    fn heard(&mut self, id: StreamId, incoming: Incoming) -> bool {
        let part = incoming.into_part();
        let talk = self.server.talks.entry(id).or_default();
        let messages = part.chunk.map(|chunk| talk.assembly.take(chunk)).unwrap_or_default();
        let came = messages.into_iter().map(Came::Message);
        let half_close = (part.end == Some(CallEnd::HalfClosed)).then_some(Came::HalfClose);
        for came in came.chain(half_close) {
            let Some(serving) = self.servings.get_mut(&id) else { break };
            let deeds = serving.on(came);
            self.act(id, deeds);
        }
        let code = match part.end {
            None => return true,
            Some(CallEnd::HalfClosed) => return false,
            Some(CallEnd::Cancelled { code, .. }) => code,
            Some(_) => UNAVAILABLE,
        };
        if let Some(serving) = self.servings.remove(&id) {
            self.log.add(Seen::Cancelled { path: serving.path(), code });
        }
        self.server.forget(id, 1);
        false
    }

    fn act(&mut self, id: StreamId, deeds: Vec<Deed>) {
        for deed in deeds {
            match deed {
                Deed::Headers(block) => {
                    self.server.say(id, Outgoing { headers: Some(block), ..Outgoing::default() });
                }
                Deed::Send(bytes) => self.server.say(id, message(bytes)),
                Deed::End(code) => {
                    self.servings.remove(&id);
                    let ending = Some(Ending::Trailers { code, block: Bytes::new() });
                    self.server.say(id, Outgoing { ending, ..Outgoing::default() });
                }
                Deed::Cancel(code) => {
                    self.servings.remove(&id);
                    self.server.forget(id, code);
                }
                Deed::Drain => self.server.connection.session_mut().drain(),
                Deed::Close => {
                    self.server.connection.close(Closed::Here("the service says so"), &mut self.server.wire);
                }
                // There is no time here, and nobody else who could be kept waiting.
                Deed::Pause(_) => {}
            }
        }
    }

    /// The client's part.
    fn listen(&mut self) -> bool {
        let mut has_moved = false;
        for id in self.client.ready() {
            while let Some(&number) = self.numbers.get(&id)
                && let Some(incoming) = self.client.connection.session_mut().take(id)
            {
                has_moved = true;
                let part = incoming.into_part();
                self.told.extend(part.headers.map(|block| Told::Headers(number, block)));
                let talk = self.client.talks.entry(id).or_default();
                let messages = part.chunk.map(|chunk| talk.assembly.take(chunk)).unwrap_or_default();
                self.told.extend(messages.into_iter().map(|message| Told::Message(number, message)));
                let (code, unprocessed) = match part.end {
                    None => continue,
                    Some(CallEnd::Trailers { code, .. }) => (code, false),
                    Some(CallEnd::Cancelled { code, refused }) => (code, refused),
                    Some(_) => (UNAVAILABLE, false),
                };
                self.told.push_back(Told::Ended { call: number, code, unprocessed });
                self.numbers.remove(&id);
                self.client.forget(id, 1);
            }
        }
        has_moved
    }

    /// Tells of drain and end.
    fn end(&mut self) {
        let session = self.client.connection.session();
        if session.closed().is_none() && session.is_draining() && !self.was_told_of_drain {
            self.was_told_of_drain = true;
            self.told.push_back(Told::Draining);
        }
        if let Some(closed) = self.client.connection.session().closed()
            && self.numbers.is_empty()
            && self.unopened.is_empty()
            && !std::mem::replace(&mut self.is_over[0], true)
        {
            self.told.push_back(Told::Closed(closed.number()));
        }
        if let Some(closed) = self.server.connection.session().closed()
            && self.servings.is_empty()
            && !std::mem::replace(&mut self.is_over[1], true)
        {
            self.log.add(Seen::Closed(closed.number()));
        }
    }

    fn id(&self, call: CallNumber) -> Option<StreamId> {
        self.numbers.iter().find(|(_, number)| **number == call).map(|(id, _)| *id)
    }

    fn say(&mut self, call: CallNumber, outgoing: Outgoing) {
        match self.id(call) {
            Some(id) => self.client.say(id, outgoing),
            None => {
                let unopened = self.unopened.iter_mut().find(|(number, ..)| *number == call);
                unopened.into_iter().for_each(|(.., later)| later.push(outgoing.clone()));
            }
        }
        self.run();
    }
}

impl Client for BareClient {
    fn begin(&mut self, start: Start<'_>) -> Option<CallNumber> {
        let session = self.client.connection.session();
        if session.closed().is_some() || session.is_draining() {
            return None;
        }
        self.last += 1;
        let outgoing = Outgoing {
            headers: Some(start.metadata),
            message: start.message.map(|bytes| OutgoingMessage::new(bytes, false)),
            ending: start.is_last.then_some(Ending::HalfClose),
        };
        self.unopened.push_back((self.last, start.path.to_owned(), outgoing, Vec::new()));
        self.run();
        Some(self.last)
    }

    fn send(&mut self, call: CallNumber, bytes: Bytes) {
        self.say(call, message(bytes));
    }

    fn finish(&mut self, call: CallNumber) {
        self.say(call, Outgoing { ending: Some(Ending::HalfClose), ..Outgoing::default() });
    }

    fn cancel(&mut self, call: CallNumber, code: u16) {
        self.unopened.retain(|(number, ..)| *number != call);
        if let Some(id) = self.id(call) {
            self.numbers.remove(&id);
            self.client.forget(id, code);
        }
        self.run();
    }

    fn next_within(&mut self, _: Duration) -> Option<Told> {
        self.run();
        self.told.pop_front()
    }

    fn go_on(&mut self) {
        self.run();
    }
}

impl Drop for BareClient {
    fn drop(&mut self) {
        self.client.connection.close(Closed::Here("the client has gone"), &mut self.client.wire);
        self.run();
    }
}
