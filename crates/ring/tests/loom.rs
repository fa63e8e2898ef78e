//! Every interleaving of the two sides, and every stale value that the memory model allows, in small models.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tollfree-ring --release --test loom`
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::thread;
use tollfree_layout::control::{CONSUMED_OFF, CPU_OFF, WAITING_OFF};
use tollfree_layout::limits::{LINE_LEN, PAGE_LEN};
use tollfree_layout::record::HEAD_LEN;
use tollfree_region::{LoomMemory, ReadMemory};
use tollfree_ring::*;

type Sender = RingSender<LoomMemory, LoomMemory>;
type Receiver = RingReceiver<LoomMemory, LoomMemory>;

const RING: usize = Geometry::RING_LEN_MIN;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// A region whose ring has the head word and the first payload word of each line. All records are as short, so that
/// each word has just one of these roles.
fn region() -> Arc<LoomMemory> {
    let lines = (0..RING / LINE_LEN).map(|idx| PAGE_LEN + idx * LINE_LEN);
    let heads = lines.clone().map(|line| line..line + HEAD_LEN);
    let wide: Vec<_> = heads.chain([CONSUMED_OFF..CONSUMED_OFF + 8]).collect();
    let plain: Vec<_> = lines.map(|line| line + HEAD_LEN..line + 2 * HEAD_LEN).collect();
    Arc::new(LoomMemory::new(PAGE_LEN + RING, &wide, &[WAITING_OFF, CPU_OFF], &plain))
}

fn ends(a: &Arc<LoomMemory>, b: &Arc<LoomMemory>) -> (Sender, Receiver) {
    let ring = Geometry::new(PAGE_LEN, RING).unwrap();
    (RingSender::new(a.clone(), b.clone(), ring), RingReceiver::new(b.clone(), a.clone(), ring))
}

/// A payload that no other record has, and that looks like the head word of one.
fn payload(number: u64) -> [u8; 8] {
    (8 << 32 | 1 << 31 | (number + 1)).to_le_bytes()
}

/// Takes what there is and checks it; returns whether there was anything.
fn take(receiver: &mut Receiver, next: &mut u64) -> bool {
    let Some(record) = receiver.peek().expect("a correct peer violates nothing") else { return false };
    assert_eq!(record.len(), 8);
    let mut got = [0; 8];
    record.read(0, &mut got);
    assert_eq!(got, payload(*next), "record {next} is not what was sent");
    receiver.advance();
    *next += 1;
    true
}

fn wait_for(receiver: &mut Receiver, next: &mut u64) {
    while !take(receiver, next) {
        thread::yield_now();
    }
}

/// Brings both ends to `count` records, all released, so that the model proper begins near the end of the ring.
fn run_ahead(sender: &mut Sender, receiver: &mut Receiver, count: u64) -> u64 {
    let mut next = 0;
    for number in 0..count {
        sender.stage(&[&payload(number)]).unwrap();
        sender.publish();
        assert!(take(receiver, &mut next));
        receiver.release();
    }
    next
}

#[test]
fn single_records_arrive_over_the_wrap() {
    model(|| {
        let (a, b) = (region(), region());
        let (mut sender, mut receiver) = ends(&a, &b);
        let start = run_ahead(&mut sender, &mut receiver, 3);
        let reader = thread::spawn(move || {
            let mut next = start;
            while next < start + 2 {
                wait_for(&mut receiver, &mut next);
            }
        });
        for number in start..start + 2 {
            sender.stage(&[&payload(number)]).unwrap();
            sender.publish();
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_batch_appears_at_once_and_whole() {
    model(|| {
        let (a, b) = (region(), region());
        let (mut sender, mut receiver) = ends(&a, &b);
        let start = run_ahead(&mut sender, &mut receiver, 2);
        let reader = thread::spawn(move || {
            let mut next = start;
            wait_for(&mut receiver, &mut next);
            // All others are there with the first, and nothing after them.
            assert!(take(&mut receiver, &mut next) && take(&mut receiver, &mut next));
            assert!(!take(&mut receiver, &mut next));
        });
        for number in start..start + 3 {
            sender.stage(&[&payload(number)]).unwrap();
        }
        assert_eq!(sender.stage(&[]), Err(StageError::Full));
        sender.publish();
        reader.join().unwrap();
    });
}

#[test]
fn lines_are_reused_only_after_their_release() {
    model(|| {
        let (a, b) = (region(), region());
        let (mut sender, mut receiver) = ends(&a, &b);
        let mut start = 0;
        for number in 0..3 {
            sender.stage(&[&payload(number)]).unwrap();
        }
        sender.publish();
        let reader = thread::spawn(move || {
            for _ in 0..3 {
                assert!(take(&mut receiver, &mut start));
                receiver.release();
            }
            wait_for(&mut receiver, &mut start);
            wait_for(&mut receiver, &mut start);
        });
        // Full: each of these waits for a release, and the second then writes where the reader has read.
        for number in 3..5 {
            loop {
                match sender.stage(&[&payload(number)]) {
                    Ok(()) => break,
                    Err(StageError::Full) => thread::yield_now(),
                    Err(other) => panic!("{other}"),
                }
            }
            sender.publish();
        }
        reader.join().unwrap();
    });
}

/// An eventfd as the model sees it.
#[derive(Clone)]
struct Bell(Arc<(loom::sync::Mutex<bool>, loom::sync::Condvar)>);

impl Bell {
    fn new() -> Bell {
        Bell(Arc::new((loom::sync::Mutex::new(false), loom::sync::Condvar::new())))
    }

    fn ring(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    /// Sleeps until rung. A model in which nobody rings deadlocks, which loom reports.
    fn sleep(&self) {
        let mut rung = self.0.0.lock().unwrap();
        while !*rung {
            rung = self.0.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

#[test]
fn no_record_goes_unnoticed_by_a_sleeper() {
    model(|| {
        let (a, b) = (region(), region());
        let (mut sender, mut receiver) = ends(&a, &b);
        let (mut waiter, mut ringer) = (Waiter::new(b.clone()), Ringer::new(b.clone()));
        let bell = Bell::new();
        let reader = thread::spawn({
            let bell = bell.clone();
            move || {
                let mut next = 0;
                while next < 2 {
                    if take(&mut receiver, &mut next) {
                        continue;
                    }
                    waiter.park(false);
                    if receiver.is_empty() {
                        bell.sleep();
                    }
                    waiter.unpark();
                }
            }
        });
        for number in 0..2 {
            sender.stage(&[&payload(number)]).unwrap();
            sender.publish();
            if ringer.should_ring() {
                bell.ring();
            }
        }
        reader.join().unwrap();
    });
}

/// A ring that is put off, so that several records share it, and asked for again at the end.
#[test]
fn no_record_goes_unnoticed_whose_ring_was_put_off() {
    model(|| {
        let (a, b) = (region(), region());
        let (mut sender, mut receiver) = ends(&a, &b);
        let (mut waiter, mut ringer) = (Waiter::new(b.clone()), Ringer::new(b.clone()));
        let bell = Bell::new();
        let reader = thread::spawn({
            let bell = bell.clone();
            move || {
                let mut next = 0;
                while next < 2 {
                    if take(&mut receiver, &mut next) {
                        continue;
                    }
                    waiter.park(false);
                    if receiver.is_empty() {
                        bell.sleep();
                    }
                    waiter.unpark();
                }
            }
        });
        let mut is_owed = false;
        for number in 0..2 {
            sender.stage(&[&payload(number)]).unwrap();
            sender.publish();
            // Who is awake after this finds all of it; who sleeps is rung for it later.
            is_owed = ringer.is_peer_parked();
        }
        if is_owed && ringer.should_ring() {
            bell.ring();
        }
        reader.join().unwrap();
    });
}

#[test]
fn no_room_goes_unnoticed_by_a_sleeper() {
    model(|| {
        let (a, b) = (region(), region());
        let (mut sender, mut receiver) = ends(&a, &b);
        for number in 0..3 {
            sender.stage(&[&payload(number)]).unwrap();
        }
        sender.publish();
        // The sender of records sleeps for room: its own word, which the reader of records looks at.
        let (mut waiter, mut ringer) = (Waiter::new(a.clone()), Ringer::new(a.clone()));
        let bell = Bell::new();
        let reader = thread::spawn({
            let bell = bell.clone();
            move || {
                let mut next = 0;
                for _ in 0..2 {
                    assert!(take(&mut receiver, &mut next));
                    assert!(receiver.release());
                    if ringer.should_ring_for_space() {
                        bell.ring();
                    }
                }
            }
        });
        for number in 3..5 {
            while !sender.has_room(8).unwrap() {
                waiter.park(true);
                if !sender.has_room(8).unwrap() {
                    bell.sleep();
                }
                waiter.unpark();
            }
            sender.stage(&[&payload(number)]).unwrap();
            sender.publish();
        }
        reader.join().unwrap();
    });
}

#[test]
fn an_epoch_is_rung_for_once() {
    model(|| {
        let b = region();
        let (mut waiter, mut ringer) = (Waiter::new(b.clone()), Ringer::new(b.clone()));
        let sleeper = thread::spawn(move || {
            waiter.park(false);
            waiter.unpark();
        });
        let rung = (0..3).filter(|_| ringer.should_ring()).count();
        sleeper.join().unwrap();
        assert!(rung <= 1, "rung {rung} times for one epoch");
        assert!(b.load_u32(WAITING_OFF, Ordering::Relaxed) & 1 == 0);
    });
}
