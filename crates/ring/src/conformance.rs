//! What every kind of ring has to do, as checks that panic: for the tests of this ring and of those to come.
//!
//! All take a factory of fresh, connected pairs of ends. [`all`] runs those that one thread can; [`two_threads`] needs
//! ends that can be sent; [`against_oracle`] replays a list of operations, which property tests make up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::record::{RecordRead, RecordReceiver, RecordSender, StageError};

/// One step of a run against the oracle.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Stage a record of `len` bytes in `part_count` parts.
    Stage {
        /// Length in bytes; may be too long.
        len: usize,
        /// Into how many parts the bytes are cut; 0 counts as 1.
        part_count: usize,
    },
    /// Make all staged records visible.
    Publish,
    /// Look at the next record, without passing it.
    Peek,
    /// Take the next record.
    Take,
    /// Give room back.
    Release,
    /// Ask how far the reader has released.
    Consumed,
    /// Ask for room for `len` bytes.
    HasRoom {
        /// Length in bytes; may be too long.
        len: usize,
    },
}

/// The record that a run stages as its `number`th: its bytes differ from those of all neighbors.
pub fn numbered(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32) ^ at) as u8)
        .collect()
}

/// What the two ends must amount to: queues of records.
struct Oracle {
    staged: VecDeque<Vec<u8>>,
    published: VecDeque<Vec<u8>>,
    unreleased_count: usize,
    sent: u64,
}

/// Replays `operations` on a fresh pair and on queues, and compares all that can be seen. `body` makes the bytes of a
/// record from its number and length, and the position where it will lie.
pub fn against_oracle<S: RecordSender, R: RecordReceiver>(
    (mut sender, mut receiver): (S, R),
    operations: &[Operation],
    mut body: impl FnMut(u64, usize, u64) -> Vec<u8>,
) {
    let mut oracle =
        Oracle { staged: VecDeque::new(), published: VecDeque::new(), unreleased_count: 0, sent: 0 };
    for operation in operations {
        match *operation {
            Operation::Stage { len, part_count } => {
                let bytes = body(oracle.sent, len, sender.staged_end().0);
                check_stage(&mut sender, &mut oracle, bytes, part_count.max(1));
            }
            Operation::Publish => {
                assert_eq!(sender.publish(), !oracle.staged.is_empty());
                oracle.published.append(&mut oracle.staged);
            }
            Operation::Peek => check_peek(&mut receiver, oracle.published.front()),
            Operation::Take => {
                check_peek(&mut receiver, oracle.published.front());
                if oracle.published.pop_front().is_some() {
                    receiver.advance();
                    oracle.unreleased_count += 1;
                }
            }
            Operation::Release => {
                assert_eq!(receiver.release(), oracle.unreleased_count > 0);
                assert_eq!(sender.consumed(), Ok(receiver.pos()));
                oracle.unreleased_count = 0;
            }
            Operation::Consumed => {
                let consumed = sender.consumed().expect("a correct peer violates nothing");
                assert_eq!(consumed == receiver.pos(), oracle.unreleased_count == 0);
            }
            Operation::HasRoom { len } => {
                let room = sender.has_room(len).expect("a correct peer violates nothing");
                assert!(!room || len <= sender.record_len_max());
            }
        }
        assert_eq!(receiver.is_empty(), oracle.published.is_empty());
        let looks_left = receiver.glance(3);
        assert_eq!(looks_left == 0, oracle.published.is_empty(), "{looks_left} of 3 looks left");
        assert_eq!(receiver.unreleased_lines() == 0, oracle.unreleased_count == 0);
    }
    // Whatever state it was left in, everything sent arrives.
    sender.publish();
    oracle.published.append(&mut oracle.staged);
    while let Some(expected) = oracle.published.pop_front() {
        check_peek(&mut receiver, Some(&expected));
        receiver.advance();
    }
    check_peek(&mut receiver, None);
    assert_eq!(receiver.pos(), sender.staged_end());
}

fn check_stage<S: RecordSender>(sender: &mut S, oracle: &mut Oracle, bytes: Vec<u8>, part_count: usize) {
    let (len, max) = (bytes.len(), sender.record_len_max());
    let room = sender.has_room(len).expect("a correct peer violates nothing");
    let before = sender.staged_end();
    let parts: Vec<&[u8]> = bytes.chunks(len.div_ceil(part_count).max(1)).collect();
    match sender.stage(&parts) {
        Ok(()) => {
            assert!(room, "staged {len} bytes where there was no room");
            assert!(sender.staged_end() > before);
            oracle.staged.push_back(bytes);
            oracle.sent += 1;
            return;
        }
        Err(StageError::TooLong { len: said, max: most }) => {
            assert!(said == len && most == max && len > max);
        }
        Err(StageError::Full) => {
            assert!(!room && len <= max, "full for {len} bytes where there was room");
            let outstanding = oracle.staged.len() + oracle.published.len() + oracle.unreleased_count;
            assert!(outstanding > 0, "an empty ring has no room for {len} bytes");
        }
        Err(other) => panic!("{other}"),
    }
    assert_eq!(sender.staged_end(), before, "a record that was not staged takes no room");
}

fn check_peek<R: RecordReceiver>(receiver: &mut R, expected: Option<&Vec<u8>>) {
    let record = receiver.peek().expect("a correct peer violates nothing");
    match (record, expected) {
        (None, None) => {}
        (Some(record), Some(expected)) => {
            assert_eq!(record.len(), expected.len());
            let mut whole = vec![0; record.len()];
            record.read(0, &mut whole);
            assert_eq!(&whole, expected);
            let cut = record.len() / 3;
            let mut parts = BytesMut::from(&b"before"[..]);
            record.append_to(cut, record.len() - cut, &mut parts);
            record.append_to(0, cut, &mut parts);
            assert!(parts.starts_with(b"before") && parts[6..].starts_with(&expected[cut..]));
            assert!(parts.ends_with(&expected[..cut]));
        }
        (found, expected) => {
            panic!("found {:?} bytes, expected {expected:?}", found.map(|record| record.len()))
        }
    }
}

/// Runs all checks that one thread can make, each on a fresh pair.
pub fn all<S: RecordSender, R: RecordReceiver>(mut fresh: impl FnMut() -> (S, R)) {
    staged_records_are_invisible(fresh());
    every_length_arrives(fresh());
    too_long_is_refused(fresh());
    fills_and_recovers(fresh());
    room_comes_back_only_with_release(fresh());
    reads_are_bounded(fresh());
}

/// Nothing staged is seen before it is published, and then all of it is.
pub fn staged_records_are_invisible<S: RecordSender, R: RecordReceiver>((mut sender, mut receiver): (S, R)) {
    assert!(receiver.is_empty() && !sender.publish());
    for _ in 0..50 {
        let mut count = 0;
        while count < 3 && sender.has_room(1).unwrap() {
            sender.stage(&[&[count]]).unwrap();
            count += 1;
            assert!(receiver.is_empty() && receiver.peek().unwrap().is_none());
        }
        assert!(sender.publish() && !sender.publish());
        for number in 0..count {
            check_peek(&mut receiver, Some(&vec![number]));
            receiver.advance();
        }
        check_peek(&mut receiver, None);
        receiver.release();
    }
}

/// Records of every length from none to the longest arrive, at every place of the ring they come to lie.
pub fn every_length_arrives<S: RecordSender, R: RecordReceiver>((mut sender, mut receiver): (S, R)) {
    let max = sender.record_len_max();
    let lens = (0..=max).step_by(if max > 1000 { 37 } else { 1 }).chain([max, max - 1, 0, max]);
    for (number, len) in (0..).zip(lens) {
        let bytes = numbered(number, len);
        sender.stage(&[&[], &bytes[..len / 2], &bytes[len / 2..], &[]]).unwrap();
        sender.publish();
        check_peek(&mut receiver, Some(&bytes));
        receiver.advance();
        receiver.release();
    }
}

/// A record that can never fit is refused at once, by its whole length, and harms nothing.
pub fn too_long_is_refused<S: RecordSender, R: RecordReceiver>((mut sender, mut receiver): (S, R)) {
    let max = sender.record_len_max();
    let longest = vec![1; max];
    assert_eq!(sender.stage(&[&longest, &[2]]), Err(StageError::TooLong { len: max + 1, max }));
    assert_eq!(sender.has_room(max + 1), Ok(false));
    assert_eq!(sender.has_room(usize::MAX), Ok(false));
    assert!(!sender.publish() && receiver.is_empty());
    sender.stage(&[&longest]).unwrap();
    sender.publish();
    check_peek(&mut receiver, Some(&longest));
}

/// A ring that nobody reads fills up, says so without losing anything, and goes on when it is read.
pub fn fills_and_recovers<S: RecordSender, R: RecordReceiver>((mut sender, mut receiver): (S, R)) {
    let len = sender.record_len_max() / 3;
    let mut number = 0;
    for _ in 0..20 {
        let first = number;
        while sender.has_room(len).unwrap() {
            sender.stage(&[&numbered(number, len)]).unwrap();
            number += 1;
        }
        assert!(number > first, "an empty ring takes a record");
        assert_eq!(sender.stage(&[&numbered(number, len)]), Err(StageError::Full));
        sender.publish();
        for number in first..number {
            check_peek(&mut receiver, Some(&numbered(number, len)));
            receiver.advance();
        }
        assert!(receiver.release());
    }
}

/// Passing a record is not giving it back.
pub fn room_comes_back_only_with_release<S: RecordSender, R: RecordReceiver>(
    (mut sender, mut receiver): (S, R),
) {
    let len = sender.record_len_max();
    while sender.has_room(len).unwrap() {
        sender.stage(&[&numbered(0, len)]).unwrap();
    }
    sender.publish();
    while receiver.peek().unwrap().is_some() {
        receiver.advance();
    }
    assert!(receiver.unreleased_lines() > 0);
    assert!(sender.consumed().unwrap() < receiver.pos());
    assert_eq!(sender.has_room(len), Ok(false));
    assert!(receiver.release() && !receiver.release());
    assert_eq!(receiver.unreleased_lines(), 0);
    assert_eq!(sender.consumed(), Ok(receiver.pos()));
    assert_eq!(sender.has_room(len), Ok(true));
}

/// Reading outside of a record is a bug that is caught, wherever the record lies.
pub fn reads_are_bounded<S: RecordSender, R: RecordReceiver>((mut sender, mut receiver): (S, R)) {
    sender.stage(&[&[7; 10]]).unwrap();
    sender.publish();
    let record = receiver.peek().unwrap().unwrap();
    for (at, len) in [(0, 11), (10, 1), (11, 0), (usize::MAX, 1), (1, usize::MAX)] {
        let read = std::panic::AssertUnwindSafe(|| {
            let mut dst = BytesMut::new();
            record.append_to(at, len, &mut dst);
        });
        assert!(std::panic::catch_unwind(read).is_err(), "{len} bytes at {at} of a record of 10");
    }
    record.read(10, &mut []);
}

/// How long a thread of [`two_threads`] waits for the other before it takes the ring for broken.
const STALL: Duration = Duration::from_secs(30);

/// Lets the other thread run; panics when it hasn't got on for too long.
fn wait(since: Instant, number: u64) {
    assert!(since.elapsed() < STALL, "nothing moves at record {number}");
    std::thread::yield_now();
}

/// Sends `count` records of mixed lengths and batches from one thread to another.
pub fn two_threads<S: RecordSender + Send, R: RecordReceiver + Send>(
    (mut sender, mut receiver): (S, R),
    count: u64,
) {
    let max = sender.record_len_max();
    // Mostly short, at times any length: from the number alone, so that both sides know it.
    let len_of = move |number: u64| {
        let mixed = number.wrapping_mul(0xd134_2543_de82_ef95).rotate_left(23) as usize;
        if mixed.is_multiple_of(16) { mixed / 16 % (max + 1) } else { mixed / 16 % max.min(120) }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..count {
                let bytes = numbered(number, len_of(number));
                let (head, tail) = bytes.split_at(bytes.len() / 3);
                let since = Instant::now();
                while let Err(error) = sender.stage(&[head, tail]) {
                    assert_eq!(error, StageError::Full);
                    sender.publish();
                    wait(since, number);
                }
                if number % 7 != 3 {
                    sender.publish();
                }
            }
            sender.publish();
        });
        scope.spawn(move || {
            let mut got = BytesMut::new();
            for number in 0..count {
                let since = Instant::now();
                while receiver.is_empty() {
                    receiver.release();
                    wait(since, number);
                }
                let record = receiver.peek().unwrap().unwrap();
                got.clear();
                record.append_to(0, record.len(), &mut got);
                drop(record);
                assert_eq!(got[..], numbered(number, len_of(number)), "record {number}");
                receiver.advance();
                if number % 5 == 0 {
                    receiver.release();
                }
            }
        });
    });
}
