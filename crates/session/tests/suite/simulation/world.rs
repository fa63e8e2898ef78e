//! Two sessions, the wires between them, and the applications on top.

use std::collections::BTreeSet;

use tollfree_events::Lack;
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, events, flags};
use tollfree_layout::{AreaIdx, SegmentedIdx, StreamId};
use tollfree_session::{
    Accepted, AreaEvent, Closed, End, Ending, Incoming, Limits, OBJECT_PREFIX, Opening, Part, Progress,
    Received, Role, SendError, Session, Watched,
};

use super::call::{Call, Hearing, Keeping, Talk, Wait, block};
use super::replay::Replay;
use super::rng::Rng;
use super::wire::Wire;

pub(crate) type Step = Result<(), String>;

/// Of a frame whose messages lie together in a payload area.
const AREA_BATCH: u8 = flags::BATCH | flags::IN_AREA;

/// Who waits on a stream, as a transport notes it there.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    reads: Option<StreamId>,
    writes: Option<StreamId>,
}

impl Watched for Waits {
    fn waits_to_read(&self) -> bool {
        self.reads.is_some()
    }

    fn waits_to_write(&self) -> bool {
        self.writes.is_some()
    }
}

/// One end: its session and the wire it writes.
pub(crate) struct Side {
    pub(crate) session: Session<Waits>,
    /// What its events say of it.
    pub(crate) replay: Replay,
    pub(crate) out: Wire,
    next_area: u32,
    /// The area offered last, while it may come into use.
    offered: Option<AreaIdx>,
    /// Areas offered and not answered, those that were dropped since among them.
    unanswered: Vec<AreaIdx>,
    /// SegmentedMessages received that somebody still looks at.
    pub(crate) untaken: Vec<SegmentedIdx>,
    /// What is kept for the segmented messages that it has sent, or is about to.
    pub(crate) keeping: Keeping,
    /// Those who wait for news of a stream, and were not woken: readers, and writers.
    pub(crate) readers: BTreeSet<StreamId>,
    pub(crate) writers: BTreeSet<StreamId>,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) client: Side,
    pub(crate) server: Side,
    pub(crate) calls: Vec<Call>,
    pub(crate) limits: (Limits, Limits),
    segmented_messages: bool,
    /// Calls still to be opened.
    pub(crate) to_open: usize,
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) seen: BTreeSet<String>,
    /// Counts everything that moved.
    pub(crate) moves: u64,
    pub(crate) hung_up: bool,
    /// The side that does nothing for so many steps.
    pub(crate) still: Option<(Role, usize)>,
}

const PATHS: [&str; 3] = ["/a.A/One", "/b.Long.Package/AnotherMethod", "/c/C"];

impl Side {
    /// Takes hold of what the segmented message names that came last, or has no use for it.
    pub(crate) fn take_one(&mut self) -> bool {
        let segmented = self.untaken.pop();
        segmented.into_iter().for_each(|segmented| self.session.take_segmented(segmented));
        drop(self.session.take_spent());
        segmented.is_some()
    }

    /// A reader waits until it is woken. It can't on a stream that is gone.
    fn wait_to_read(&mut self, id: StreamId) -> Step {
        let Some(waits) = self.session.user_mut(id) else {
            return Err(format!("the reader of {id} waits, and {id} is gone"));
        };
        waits.reads = Some(id);
        self.readers.insert(id);
        Ok(())
    }

    /// A writer waits until it is woken. It can't on a call that has ended.
    fn wait_to_write(&mut self, id: StreamId) -> Step {
        let is_live = self.session.is_live(id);
        match self.session.user_mut(id) {
            Some(waits) if is_live => waits.writes = Some(id),
            _ => return Err(format!("the writer of {id} waits, and {id} has ended")),
        }
        self.writers.insert(id);
        Ok(())
    }

    /// Those who are to be woken: readers, and writers.
    fn woken(&mut self) -> (Vec<StreamId>, Vec<StreamId>) {
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        while let Some(ready) = self.session.next_ready() {
            let waits = self.session.user_mut(ready.id).expect("news are of streams that exist");
            readers.extend(waits.reads.take_if(|_| ready.read));
            writers.extend(waits.writes.take_if(|_| ready.write));
        }
        while let Some(waits) = self.session.next_abandoned() {
            readers.extend(waits.reads);
            writers.extend(waits.writes);
        }
        readers.iter().for_each(|id| _ = self.readers.remove(id));
        writers.iter().for_each(|id| _ = self.writers.remove(id));
        (readers, writers)
    }
}

impl World {
    pub(crate) fn new(seed: u64, traced: bool) -> World {
        let mut rng = Rng::new(seed);
        let limits = |rng: &mut Rng, stream_count| {
            let stream_window = rng.pick(&[256, 300, 1000, 2112, 3000, 4200, 8192, 20_000, 65_536]);
            let first_windows = stream_window * u64::from(stream_count);
            Limits {
                stream_window,
                session_window: first_windows + rng.pick(&[0, 0, 1, stream_window, 10 * stream_window]),
                stream_count,
                metadata_len_max: rng.pick(&[64, 700, 1900, 15_360]),
            }
        };
        let stream_count = 1 + rng.below(6) as u32;
        let local = limits(&mut rng, stream_count);
        let remote = limits(&mut rng, stream_count);
        let segmented_messages = rng.one_in(2);
        let side = |rng: &mut Rng, role, local, remote| {
            let replay = Replay::new(local, remote);
            let session = Session::new(role, local, remote).recorded(replay.recording());
            Side {
                session: session.with_segmented(segmented_messages),
                replay,
                out: Wire::new(rng.pick(&[1976, 1976, 4024, 16_312])),
                next_area: 0,
                offered: None,
                unanswered: Vec::new(),
                untaken: Vec::new(),
                keeping: Keeping::default(),
                readers: BTreeSet::new(),
                writers: BTreeSet::new(),
            }
        };
        let client_word = Limits { stream_count: 0, ..local };
        let client = side(&mut rng, Role::Client, client_word, remote);
        let server = side(&mut rng, Role::Server, remote, client_word);
        World {
            to_open: 1 + rng.below(14),
            segmented_messages,
            rng,
            client,
            server,
            calls: Vec::new(),
            limits: (client_word, remote),
            trace: traced.then(Vec::new),
            seen: BTreeSet::new(),
            moves: 0,
            hung_up: false,
            still: None,
        }
    }

    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(what());
        }
    }

    pub(crate) fn see(&mut self, what: &str) {
        if !self.seen.contains(what) {
            self.seen.insert(what.to_owned());
        }
    }

    pub(crate) fn side(&mut self, role: Role) -> &mut Side {
        match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        }
    }

    fn message_len(&mut self) -> usize {
        let window = self.limits.1.stream_window as usize;
        let edge = self.rng.pick(&[0, 1, 100, 1900, 2048, 8192, 16_312, window, 2 * window, 60_000]);
        let len = (edge + self.rng.below(5)).saturating_sub(self.rng.below(90));
        // Windows of a few hundred bytes would cut the longest into thousands of chunks.
        len.min(20 * window)
    }

    fn plan(&mut self, streaming: bool) -> Vec<usize> {
        let count = if streaming { self.rng.below(6) } else { 1 };
        (0..count).map(|_| self.message_len()).collect()
    }

    fn block_len(&mut self, max: usize) -> usize {
        let near = max - self.rng.below(40).min(max);
        self.rng.pick(&[0, 20, 20, 20, near])
    }

    pub(crate) fn open(&mut self) -> Step {
        // Many are short and unary, as in life.
        let short = self.rng.one_in(3);
        let (streams_up, streams_down) = (self.rng.one_in(2), self.rng.one_in(2));
        let (plan, reply) = match short {
            true => (vec![self.rng.below(90)], vec![self.rng.below(90)]),
            false => (self.plan(streams_up), self.plan(streams_down)),
        };
        let path = self.rng.pick(&PATHS);
        let id = self.calls.len() as u64 + 1;
        let beside = FRAME_HEAD_LEN + 8 + 2 + path.len();
        let room = |wire: &Wire, beside| tollfree_session::Outbound::record_len_max(wire) - beside;
        let headers_max = self.limits.1.metadata_len_max.min(room(&self.client.out, beside));
        let too_long = self.rng.one_in(40);
        let headers_len = if too_long { headers_max + 42 } else { self.block_len(headers_max) };
        let headers = block(id, 1, headers_len);
        let reply_max = self.limits.0.metadata_len_max.min(room(&self.server.out, FRAME_HEAD_LEN));
        let reply_headers = block(id, 2, self.block_len(reply_max));
        let trailers_len = if short { 0 } else { self.block_len(reply_max) };
        let trailers = block(id, 3, trailers_len);
        let trailers_only = !short && self.rng.one_in(6);
        let code = if trailers_only { 5 } else { self.rng.pick(&[0, 0, 0, 13]) };
        let reply_block = (!trailers_only).then(|| reply_headers.clone());
        let reply = if trailers_only { vec![] } else { reply };
        let mut call = Call {
            id: StreamId(id),
            path,
            deadline_ns: self.rng.pick(&[0, 77]),
            headers: headers.clone(),
            reply_headers,
            client: Talk::new(1000, plan, Some(headers), Ending::HalfClose),
            server: Talk::new(5000, reply, reply_block, Ending::Trailers { code, block: trailers }),
            client_hears: Hearing { stopped: self.rng.one_in(8), ..Hearing::default() },
            server_hears: Hearing { stopped: self.rng.one_in(8), ..Hearing::default() },
            eager: self.rng.one_in(3),
            accepted: false,
            client_forgot: false,
            server_forgot: false,
            client_cancelled: false,
            server_cancelled: None,
        };
        if self.segmented_messages {
            call.client.keeping = Some(self.client.keeping.clone());
            call.server.keeping = Some(self.server.keeping.clone());
        }
        call.client.fill(id, self.rng.one_in(2));
        let unsaid = call.client.unsaid();
        let opening = Opening { path, deadline_ns: call.deadline_ns };
        let opened = self.client.session.open(&mut self.client.out, opening, &mut call.client.outgoing);
        self.client.out.publish();
        self.say(|| {
            format!("open {id}: {opened:?}, {:?} there, {:?} back", call.client.plan, call.server.plan)
        });
        match opened {
            Ok(Ok(got)) => {
                if got != call.id {
                    return Err(format!("opened {got}, expected {id}"));
                }
                call.client.note(unsaid);
                self.calls.push(call);
                self.to_open -= 1;
                self.moves += 1;
            }
            Ok(Err(progress)) => self.see(&format!("{progress:?}")),
            Err(SendError::MetadataLen { .. }) if too_long => self.see("MetadataLen"),
            Err(SendError::Draining) => {
                self.see("Draining");
                self.to_open -= 1;
            }
            Err(SendError::Closed(_)) => self.to_open = 0,
            Err(error) => return Err(format!("open {id}: {error}")),
        }
        if too_long && !matches!(opened, Ok(Err(_)) | Err(_)) {
            return Err(format!("open {id}: headers too long were taken"));
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, role: Role, idx: usize) -> Step {
        let joined = self.rng.one_in(2);
        let gives_up = role == Role::Server && self.rng.one_in(25);
        let (more_parts, heard_first) = (self.rng.below(8), self.rng.one_in(4));
        let call = &mut self.calls[idx];
        let id = call.id;
        // A sender is a task of its own: that its call was let go of, it has to learn from the session.
        let (talk, forgot) = match role {
            Role::Client => (&mut call.client, call.client_forgot),
            Role::Server if !call.may_answer() && !call.server_forgot => return Ok(()),
            Role::Server => (&mut call.server, call.server_forgot),
        };
        if talk.done || talk.cut_off || talk.wait != Wait::No {
            return Ok(());
        }
        talk.fill(id.0, joined);
        if gives_up && talk.outgoing.message.is_some() && talk.outgoing.headers.is_none() {
            talk.abort(10);
        }
        let unsaid = talk.unsaid();
        let side = match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        };
        let mut staged = side.session.send(&mut side.out, id, &mut talk.outgoing);
        // A long part is published, so that the peer copies it out while the next one is copied in.
        for _ in 0..more_parts {
            if staged != Ok(Progress::Partly) {
                break;
            }
            side.out.publish();
            staged = side.session.send(&mut side.out, id, &mut talk.outgoing);
        }
        side.out.publish();
        talk.note(unsaid);
        let mut aborted = talk.aborted;
        match &staged {
            Ok(progress) if forgot => {
                return Err(format!("{role:?}: {id} is gone, and its sender learns {progress:?}"));
            }
            Ok(Progress::NeedRoom | Progress::RanOut) => {
                talk.wait = Wait::Room;
                side.replay.check_blocked(id, Lack::Ring)?;
                side.wait_to_write(id)?;
            }
            Ok(Progress::NeedCredit) => {
                talk.wait = Wait::Credit;
                side.replay.check_blocked(id, Lack::Credit)?;
                side.wait_to_write(id)?;
                // A server may get tired of waiting, in the middle of a message or before it.
                if role == Role::Server && talk.outgoing.headers.is_none() && self.rng.one_in(6) {
                    talk.abort(4);
                    aborted = true;
                }
            }
            Ok(Progress::Done | Progress::Partly) => {}
            Err(SendError::Ended | SendError::Closed(_)) => talk.cut_off = true,
            other => return Err(format!("{role:?} stages {id}: {other:?}")),
        }
        let name = match &staged {
            Ok(progress) => format!("{progress:?}"),
            Err(SendError::Ended) => "Ended".to_owned(),
            Err(_) => "Closed".to_owned(),
        };
        self.say(|| format!("{role:?} stages {id}: {name}"));
        self.see(&name);
        if aborted {
            self.see("aborted");
        }
        if staged == Ok(Progress::Done) { self.settle(role, idx, heard_first) } else { Ok(()) }
    }

    /// What was said last is published: the peer may hear it before this side has drawn its conclusions.
    fn settle(&mut self, role: Role, idx: usize, heard_first: bool) -> Step {
        if heard_first {
            while self.deliver(role.peer())? {}
        }
        let id = self.calls[idx].id;
        let side = self.side(role);
        if side.session.settle(id) {
            side.session.forget(id, 1);
            let call = &mut self.calls[idx];
            let (forgot, ended) = match role {
                Role::Client => (&mut call.client_forgot, call.client_hears.is_over()),
                Role::Server => (&mut call.server_forgot, call.server.done),
            };
            *forgot = true;
            if !ended {
                return Err(format!("{role:?}: {id} is settled, and goes on"));
            }
            self.see("settled");
            self.say(|| format!("{role:?} has settled {id}"));
        }
        Ok(())
    }

    pub(crate) fn read(&mut self, role: Role, idx: usize, max: usize) -> Step {
        self.read_from(role, idx, max, None)
    }

    /// The same, where the `first` was taken already.
    fn read_from(&mut self, role: Role, idx: usize, max: usize, mut first: Option<Incoming>) -> Step {
        for _ in 0..max {
            let call = &mut self.calls[idx];
            let id = call.id;
            let (hears, said) = match role {
                Role::Client if call.client_forgot => return Ok(()),
                Role::Client => (&mut call.client_hears, &call.server),
                Role::Server if !call.accepted || call.server_forgot => return Ok(()),
                Role::Server => (&mut call.server_hears, &call.client),
            };
            if hears.waits {
                return Ok(());
            }
            let side = match role {
                Role::Client => &mut self.client,
                Role::Server => &mut self.server,
            };
            let has_end = side.session.has_end(id);
            // An answer that is looked for is taken so.
            if role == Role::Client && self.rng.one_in(2) {
                first = side.session.take_answer(id).map(Incoming::Answer);
            }
            let Some(incoming) = first.take().or_else(|| side.session.take(id)) else {
                if has_end || hears.end.is_some() {
                    return Err(format!("{role:?} {id}: the end has come, and is not given"));
                }
                hears.waits = true;
                return side.wait_to_read(id);
            };
            let is_known = side.session.user_mut(id).is_some();
            let came_as = match &incoming {
                Incoming::Request(whole) if role != Role::Server || *whole.headers() != call.headers => {
                    return Err(format!("{id}: {whole:?} is not what was asked"));
                }
                Incoming::Answer(whole) if role != Role::Client || whole.headers() != call.reply_headers => {
                    return Err(format!("{id}: {whole:?} is not what was answered"));
                }
                Incoming::Request(_) => "Request",
                Incoming::Answer(_) => "Answer",
                Incoming::Part(_) => "Part",
            };
            let Part { headers, chunk, end, forgotten } = incoming.into_part();
            let holds_parts = headers.is_some() || chunk.is_some();
            let batch = chunk.as_ref().filter(|chunk| chunk.batch_count > 0).map(|chunk| {
                let of_objects = chunk.bytes.first() == Some(&OBJECT_PREFIX);
                if of_objects { "a batch of objects" } else { "a batch" }
            });
            if holds_parts && hears.is_over() {
                return Err(format!("{role:?} {id}: {headers:?} {chunk:?} after the end"));
            }
            if is_known == forgotten || (forgotten || !holds_parts) && end.is_none() {
                return Err(format!("{role:?} {id}: forgotten {forgotten}, known {is_known}, {end:?}"));
            }
            if let Some(block) = headers {
                if role == Role::Server || hears.headers || block != call.reply_headers {
                    return Err(format!("{role:?} {id}: odd headers"));
                }
                hears.headers = true;
            }
            if let Some(chunk) = chunk {
                hears.chunk(id.0, said, &chunk)?;
                side.untaken.extend(chunk.segmented);
                if self.rng.one_in(2) {
                    side.take_one();
                }
            }
            match role {
                Role::Client => call.client_forgot = forgotten,
                Role::Server => call.server_forgot = forgotten,
            }
            if holds_parts {
                self.moves += 1;
                self.see(came_as);
                if let Some(batch) = batch {
                    self.see(&format!("{batch} to {role:?}"));
                }
                self.say(|| format!("{role:?} reads {id}: {came_as}"));
            }
            if let Some(end) = end {
                if forgotten {
                    self.see("forgotten with its end");
                }
                return self.read_end(role, idx, end);
            }
        }
        Ok(())
    }

    fn read_end(&mut self, role: Role, idx: usize, end: End) -> Step {
        let closed = self.side(role).session.closed().is_some();
        let call = &mut self.calls[idx];
        let id = call.id;
        let (hears, said) = match role {
            Role::Client => (&mut call.client_hears, &call.server),
            Role::Server => (&mut call.server_hears, &call.client),
        };
        hears.waits = true;
        if let Some(before) = &hears.end {
            let goes_on = *before == End::HalfClosed && !matches!(end, End::Trailers { .. });
            if *before != end && !goes_on {
                return Err(format!("{role:?} {id}: {end:?} after {before:?}"));
            }
        }
        let fits = match &end {
            End::HalfClosed => role == Role::Server && said.done && hears.is_complete(said),
            End::Trailers { code, block } => {
                let Ending::Trailers { code: meant, block: meant_block } = &said.ending else {
                    unreachable!()
                };
                let whole = *code != 0 || hears.heard_count == said.plan.len();
                role == Role::Client
                    && said.done
                    && whole
                    && hears.is_complete(said)
                    && code == meant
                    && block == meant_block
            }
            End::Cancelled { code, refused } => match role {
                Role::Client => {
                    // By DRAIN, or where too many ended calls wait to be forgotten: nobody looked at it.
                    let unseen = *refused && !call.accepted;
                    call.client_cancelled || (!refused && call.server_cancelled == Some(*code)) || unseen
                }
                Role::Server => call.client_cancelled || call.server_cancelled.is_some() || call.server.done,
            },
            End::SessionClosed => closed,
        };
        if !fits {
            let (heard, said) = (hears.heard_count, said.said_count);
            return Err(format!("{role:?} {id}: {end:?} does not fit, heard {heard} of {said}"));
        }
        if hears.end.as_ref() != Some(&end) {
            self.moves += 1;
        }
        hears.end = Some(end.clone());
        // Of a request that has ended, a cancellation may yet be heard.
        let side = match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        };
        if side.session.user_mut(id).is_some() {
            side.wait_to_read(id)?;
        }
        let name = match end {
            End::HalfClosed => "HalfClosed",
            End::Trailers { .. } => "Trailers",
            End::Cancelled { refused: false, .. } => "Cancelled",
            End::Cancelled { refused: true, .. } => "Refused",
            End::SessionClosed => "SessionClosed",
        };
        self.see(&format!("{role:?} end {name}"));
        self.say(|| format!("{role:?} reads the end of {id}: {name}"));
        Ok(())
    }

    /// Moves one record to the end `to`. False where there is none, or it doesn't read.
    pub(crate) fn deliver(&mut self, to: Role) -> Result<bool, String> {
        let (from, into) = match to {
            Role::Client => (&mut self.server, &mut self.client),
            Role::Server => (&mut self.client, &mut self.server),
        };
        if into.session.is_congested() {
            return match to {
                Role::Client => Err("the client is congested".to_owned()),
                Role::Server => Ok(false),
            };
        }
        let mut head = FrameHead::default();
        let received = from.out.fetch(|record| {
            head = super::wire::head_of(&record.bytes);
            into.session.receive(record)
        });
        let Some(received) = received else { return Ok(false) };
        let received =
            received.map_err(|violation| format!("{to:?} saw a violation: {violation} in {head:?}"))?;
        self.moves += 1;
        self.say(|| format!("{to:?} receives {head:?}"));
        self.see_frame(&head);
        if let Received::Area(event) = received {
            self.area_event(to, event);
        }
        if to == Role::Server && self.rng.one_in(2) {
            self.answer_at_once(StreamId(head.stream.get()))?;
        }
        Ok(true)
    }

    /// As most servers do with a request that comes as a whole, before anything else happens.
    fn answer_at_once(&mut self, id: StreamId) -> Step {
        if !self.server.session.has_whole(id) {
            return Ok(());
        }
        let idx = id.0 as usize - 1;
        while !self.calls[idx].accepted && self.server.session.has_accepted() {
            self.accept()?;
        }
        self.read(Role::Server, idx, 1)?;
        self.send(Role::Server, idx)?;
        if self.calls[idx].server.done {
            self.see("answered at once");
        }
        Ok(())
    }

    fn see_frame(&mut self, head: &FrameHead) {
        for bit in 0..8 {
            if head.events & 1 << bit != 0 {
                self.see(&format!("event {bit}"));
            }
            if head.flags & 1 << bit != 0 {
                self.see(&format!("flag {bit}"));
            }
        }
        let opens = head.events & events::HEADERS != 0;
        if !opens && head.events & events::MESSAGE != 0 && head.flags & AREA_BATCH == AREA_BATCH {
            self.see("a batch in an area");
        }
        if head.events == events::CONTROL {
            self.see(&format!("control {}", head.code));
        }
    }

    fn area_event(&mut self, to: Role, event: AreaEvent) {
        let accept = !self.rng.one_in(4);
        let (into, from) = match to {
            Role::Client => (&mut self.client, &mut self.server),
            Role::Server => (&mut self.server, &mut self.client),
        };
        if let AreaEvent::Accepted(area) | AreaEvent::Refused(area) = event {
            into.unanswered.retain(|unanswered| *unanswered != area);
        }
        match event {
            AreaEvent::Offered { area, .. } => {
                from.out.take_descriptor();
                if accept {
                    from.out.mapped.insert(area.0);
                }
                into.session.answer_area(area, accept);
            }
            AreaEvent::Accepted(area) if into.offered == Some(area) => {
                into.offered = None;
                into.out.area = Some(area);
            }
            AreaEvent::Refused(area) if into.offered == Some(area) => into.offered = None,
            AreaEvent::Accepted(_) | AreaEvent::Refused(_) => {}
            AreaEvent::Dropped(area) => from.out.unmap(area),
        }
    }

    pub(crate) fn offer_or_drop_area(&mut self, role: Role) {
        let len = self.rng.pick(&[20_000, 40_000, 100_000]);
        let drop_offered = self.rng.one_in(3);
        let side = self.side(role);
        if side.session.closed().is_some() {
            return;
        }
        if let Some(area) = side.out.area.take() {
            side.session.drop_area(area);
        } else if let Some(area) = side.offered {
            // A drop may overtake the answer.
            if drop_offered {
                side.offered = None;
                side.session.drop_area(area);
            }
        } else if side.unanswered.len() < 2 {
            let area = AreaIdx(side.next_area);
            side.next_area += 1;
            side.offered = Some(area);
            side.unanswered.push(area);
            side.out.add_area(area, len);
            side.session.offer_area(area, len as u32);
        }
        self.say(|| format!("{role:?} offers or drops an area"));
    }

    pub(crate) fn accept(&mut self) -> Step {
        if self.rng.one_in(2) {
            return match self.server.session.accept() {
                Some(accepted) => self.take_accepted(accepted, false),
                None => Ok(()),
            };
        }
        // As a transport does.
        let Some((accepted, whole)) = self.server.session.accept_whole() else { return Ok(()) };
        let idx = accepted.id.0 as usize - 1;
        self.take_accepted(accepted, whole.is_some())?;
        match whole {
            Some(whole) => self.read_from(Role::Server, idx, 1, Some(Incoming::Request(whole))),
            None => Ok(()),
        }
    }

    /// Compares a call that has come with what was opened. `is_taken`: it came as a whole, which was taken.
    pub(crate) fn take_accepted(&mut self, accepted: Accepted, is_taken: bool) -> Step {
        let path = self.server.session.path_of(&accepted);
        // Its headers are there, and compared when it is read.
        let is_whole =
            (is_taken || self.server.session.has_whole(accepted.id)) && accepted.headers.is_empty();
        self.moves += 1;
        self.say(|| format!("accept {}", accepted.id));
        let call = self.calls.get_mut(accepted.id.0 as usize - 1).ok_or("a call that nobody opened")?;
        let refused = matches!(call.client_hears.end, Some(End::Cancelled { refused: true, .. }));
        let same = !call.accepted
            && !refused
            && path == call.path.as_bytes()
            && (accepted.headers == call.headers || is_whole)
            && accepted.deadline_ns == call.deadline_ns;
        call.accepted = true;
        if same { Ok(()) } else { Err(format!("{accepted:?} is not what was opened")) }
    }

    /// Wakes each task that waits for what has changed, and those that wait for room if there is some.
    pub(crate) fn wake(&mut self, role: Role) {
        let side = self.side(role);
        let (readers, mut writers) = side.woken();
        let room_came = side.out.has_room() || side.session.closed().is_some();
        if room_came {
            let waiting = std::mem::take(&mut side.writers);
            for id in &waiting {
                // A wait for credit ends, too: it is just tried again.
                if let Some(waits) = side.session.user_mut(*id) {
                    waits.writes = None;
                }
            }
            writers.extend(waiting);
        }
        for id in readers {
            let call = &mut self.calls[id.0 as usize - 1];
            match role {
                Role::Client => call.client_hears.wake(),
                Role::Server => call.server_hears.wake(),
            }
        }
        for id in writers {
            let call = &mut self.calls[id.0 as usize - 1];
            match role {
                Role::Client => call.client.wait = Wait::No,
                Role::Server => call.server.wait = Wait::No,
            }
        }
    }

    pub(crate) fn stage_pending(&mut self, role: Role) {
        let side = self.side(role);
        let _ = side.session.stage_pending(&mut side.out);
        side.out.publish();
    }

    pub(crate) fn cancel(&mut self, role: Role, idx: usize) {
        let call = &mut self.calls[idx];
        let id = call.id;
        match role {
            Role::Client => {
                call.client_cancelled = true;
                self.client.session.cancel(id, 1);
            }
            Role::Server if call.accepted => {
                call.server_cancelled = call.server_cancelled.or(Some(8));
                self.server.session.cancel(id, 8);
            }
            Role::Server => {}
        }
        self.say(|| format!("{role:?} cancels {id}"));
    }

    pub(crate) fn forget(&mut self, role: Role, idx: usize) {
        let call = &mut self.calls[idx];
        let id = call.id;
        let waits = match role {
            Role::Client => call.client.wait,
            Role::Server => call.server.wait,
        };
        let (had, was_full) = (self.side(role).session.is_live(id), !self.side(role).out.has_room());
        if had && was_full && waits == Wait::Room && self.still.is_some() {
            self.see("dropped while the peer stood still and the sender waited for room");
        }
        let call = &mut self.calls[idx];
        match role {
            Role::Client => {
                call.client_cancelled |= !call.client_hears.is_over();
                call.client_forgot = true;
                self.client.session.forget(id, 1);
            }
            Role::Server if call.accepted => {
                call.server_cancelled = call.server_cancelled.or(Some(9));
                call.server_forgot = true;
                self.server.session.forget(id, 9);
            }
            Role::Server => {}
        }
        self.say(|| format!("{role:?} forgets {id}"));
    }

    pub(crate) fn end(&mut self, role: Role) {
        self.hung_up = true;
        let says = self.rng.one_in(2);
        let side = self.side(role);
        match says {
            true => side.session.close(&mut side.out, Closed::Here("the simulation ends it")),
            false => side.session.end_session(Closed::HungUp),
        }
        side.out.publish();
        self.say(|| format!("{role:?} ends the session"));
    }
}
