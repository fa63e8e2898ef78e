//! What a unary call costs: both sessions pumped by one thread over queues of records in memory, without waiting.
//!
//! `cargo test --release -p tollfree-session --test suite unary:: -- --nocapture` prints nanoseconds a call; nothing about
//! time is asserted. Allocations are: they don't depend on the machine.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tollfree_layout::{AreaIdx, ByteOff, StreamId, metadata};
use tollfree_session::{
    AreaFault, Ending, Full, Inbound, Incoming, Limits, Opening, Outbound, Outgoing, OutgoingMessage,
    Progress, Role, Session,
};

/// Records in buffers that are used again, so that only the sessions allocate.
#[derive(Default)]
struct Queue {
    records: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Outbound for Queue {
    fn record_len_max(&self) -> usize {
        16_312
    }

    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), Full> {
        let mut record = self.spare.pop().unwrap_or_default();
        record.clear();
        parts.iter().for_each(|part| record.extend_from_slice(part));
        self.records.push_back(record);
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

struct Record<'a>(&'a [u8]);

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

    fn append_area(&self, _: AreaIdx, _: ByteOff, _: usize, _: &mut BytesMut) -> Result<(), AreaFault> {
        Err(AreaFault)
    }

    fn pass_over_area(&self) {}
}

impl Queue {
    fn deliver(&mut self, to: &mut Session<()>) {
        while let Some(record) = self.records.pop_front() {
            to.receive(&Record(&record)).expect("an honest peer");
            self.spare.push(record);
        }
    }
}

struct Pair {
    client: Session<()>,
    server: Session<()>,
    up: Queue,
    down: Queue,
    headers: Bytes,
    body: Bytes,
}

impl Pair {
    fn new(body_len: usize) -> Pair {
        let mut headers = Vec::new();
        metadata::pack(&mut headers, "content-type", b"application/grpc").expect("it fits");
        metadata::pack(&mut headers, "authorization", b"Bearer 0123456789").expect("it fits");
        Pair {
            client: Session::new(Role::Client, Limits::default(), Limits::default()),
            server: Session::new(Role::Server, Limits::default(), Limits::default()),
            up: Queue::default(),
            down: Queue::default(),
            headers: headers.into(),
            body: vec![5; body_len].into(),
        }
    }

    /// One call: a frame there, a frame back, everything read and forgotten.
    fn call(&mut self) {
        let message = Some(OutgoingMessage::new(self.body.clone(), false));
        let ending = Some(Ending::HalfClose);
        let mut request = Outgoing { headers: Some(self.headers.clone()), message, ending };
        let opening = Opening { path: "/greeter.v1.Greeter/SayHello", deadline_ns: 1_000_000 };
        let id = self.client.open(&mut self.up, opening, &mut request).expect("it may").expect("it can");

        self.up.deliver(&mut self.server);
        let accepted = self.server.accept().expect("a call has arrived");
        while self.server.next_ready().is_some() {}
        let request = self.server.take(accepted.id).expect("a request has arrived");
        // The first call of a method says its path besides.
        assert!(matches!(request, Incoming::Request(_)) || id == StreamId(1), "{request:?}");
        black_box((accepted, request));

        let message = Some(OutgoingMessage::new(self.body.clone(), false));
        let ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
        let mut reply = Outgoing { headers: Some(self.headers.clone()), message, ending };
        assert_eq!(self.server.send(&mut self.down, id, &mut reply), Ok(Progress::Done));
        assert!(self.server.settle(id), "it is answered, and read");
        self.server.forget(id, 0);

        self.down.deliver(&mut self.client);
        while self.client.next_ready().is_some() {}
        let answer = self.client.take(id).expect("an answer has arrived");
        assert!(matches!(answer, Incoming::Answer(_)), "all of it, and the call is over: {answer:?}");
        black_box(answer);
        self.client.stage_pending(&mut self.up).expect("there is room");
        self.server.stage_pending(&mut self.down).expect("there is room");
    }
}

#[test]
fn a_unary_call_allocates_nothing() {
    let mut pair = Pair::new(64);
    (0..1000).for_each(|_| pair.call());
    let info = allocation_counter::measure(|| (0..1000).for_each(|_| pair.call()));
    assert_eq!(info.count_total, 0, "what it hands out lies in buffers that are used again: {info:?}");
    assert_eq!(info.count_current, 0, "nothing is kept: {info:?}");
}

#[test]
fn a_named_method_keeps_its_path_and_not_the_block_it_came_in() {
    let mut pair = Pair::new(0);
    let mut block = Vec::new();
    metadata::pack(&mut block, "x-long", &[b'v'; 8000]).expect("it fits");
    let headers = Bytes::from(block);
    pair.call();
    let info = allocation_counter::measure(|| {
        for method in 0..100 {
            let mut request = Outgoing { headers: Some(headers.clone()), ..Outgoing::default() };
            let opening = Opening { path: &format!("/m/{method}"), deadline_ns: 0 };
            let id = pair.client.open(&mut pair.up, opening, &mut request).expect("it may").expect("it can");
            pair.up.deliver(&mut pair.server);
            pair.server.accept().expect("a call has arrived");
            pair.server.forget(id, 1);
            pair.client.forget(id, 1);
            // A fresh queue: its buffers grow with the block and are not what is measured.
            pair.up = Queue::default();
        }
    });
    assert!(info.bytes_current < 100_000, "800 KB of blocks came by: {info:?}");
}

#[test]
fn a_unary_call_takes() {
    let count = if cfg!(debug_assertions) { 2_000 } else { 1_000_000 };
    for body_len in [0, 64, 4096] {
        let mut pair = Pair::new(body_len);
        (0..count / 10).for_each(|_| pair.call());
        let mut rounds: Vec<f64> = (0..5)
            .map(|_| {
                let start = Instant::now();
                (0..count / 5).for_each(|_| pair.call());
                start.elapsed().as_nanos() as f64 / (count / 5) as f64
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        println!(
            "{body_len} B: {:.0} ns a call, both sides ({:.0} to {:.0})",
            rounds[2], rounds[0], rounds[4]
        );
        assert_eq!(pair.client.stream_count() + pair.server.stream_count(), 0);
    }
}
