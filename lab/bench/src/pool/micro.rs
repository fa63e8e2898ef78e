//! Single operations of a pool, and three ways in which a hold could be written.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Instant;

use tollfree_pool::{Payload, Pool};

use super::{PAGE_LEN, trouble};
use crate::BenchError;

/// Operations for each that is asked for: single ones are short.
const REPEAT: usize = 200;

fn each_ns(count: usize, mut operation: impl FnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..count {
        operation();
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

/// What an owner does.
pub(super) fn owner(pool: &Pool, count: usize) -> Result<Vec<(String, f64)>, BenchError> {
    let count = count * REPEAT;
    pool.buffer(64 << 10).map_err(trouble)?;
    let allocate =
        each_ns(count, || drop(black_box(pool.try_buffer(64 << 10).expect("it was there just now"))));
    let shared = pool.copy_from_slice(&[1; 64 << 10]).map_err(trouble)?;
    let again = each_ns(count, || {
        black_box(shared.to_bytes().expect("not forked"));
    });
    let life = each_ns(count, || {
        let mut buffer = pool.try_buffer(64 << 10).expect("as above");
        buffer.extend_from_slice(&[1]);
        let bytes = buffer.freeze().expect("not empty");
        black_box(bytes.to_bytes().expect("not forked"));
    });
    let bytes = bytes::Bytes::from(shared.clone());
    let known = each_ns(count, || drop(black_box(pool.ref_of(&bytes).expect("it lies there"))));
    let mut rows = vec![
        ("allocate and free 64 KiB".to_owned(), allocate),
        ("to_bytes of a ref".to_owned(), again),
        ("allocate, freeze, to_bytes, free once nobody holds it".to_owned(), life),
        ("ref_of Bytes that lie in the pool, and drop".to_owned(), known),
    ];
    rows.extend(ways(count));
    Ok(rows)
}

/// What a reader does.
pub(super) fn reader(pool: &Pool, travelled: &[u8], count: usize) -> Result<Vec<(String, f64)>, BenchError> {
    let count = count * REPEAT;
    let held = pool.map_ref(travelled).map_err(trouble)?;
    let map = each_ns(count, || drop(black_box(pool.try_map_ref(travelled).expect("its owner holds it"))));
    let slice = each_ns(count, || drop(black_box(held.slice(1..).expect("within"))));
    let mut rows = vec![("map and drop a ref".to_owned(), map), ("slice a ref and drop".to_owned(), slice)];
    rows.extend(writes(&Payload::from(held), count / 20));
    Ok(rows)
}

/// What writing to 64 KiB of another member's costs: asked for beforehand, and to plain memory.
fn writes(whole: &Payload, count: usize) -> Vec<(String, f64)> {
    let touch = |bytes: &mut [u8]| bytes.iter_mut().step_by(PAGE_LEN).for_each(|byte| *byte += 1);
    let explicit = |len: usize| {
        each_ns(count, || {
            let mut mine = whole.clone();
            touch(mine.make_mut(..len).expect("there is room"));
            black_box(mine);
        })
    };
    let plain = |len: usize, share: bool| {
        each_ns(count, || {
            let mut mine = whole.overlay().expect("there are addresses");
            touch(&mut mine[..len]);
            if share {
                black_box(mine.share().expect("there is room"));
            }
            black_box(mine);
        })
    };
    let rows = [
        ("64 KiB of another's: write a page, explicit", explicit(PAGE_LEN)),
        ("64 KiB of another's: write all, explicit", explicit(whole.len())),
        ("64 KiB of another's: an overlay, nothing written", plain(0, false)),
        ("64 KiB of another's: write a page, overlay", plain(PAGE_LEN, false)),
        ("64 KiB of another's: write a page, overlay, share", plain(PAGE_LEN, true)),
        ("64 KiB of another's: write all, overlay", plain(whole.len(), false)),
        ("64 KiB of another's: write all, overlay, share", plain(whole.len(), true)),
    ];
    rows.map(|(operation, ns)| (operation.to_owned(), ns)).into()
}

#[repr(align(128))]
struct Line(AtomicU64);

/// A take and a release on this thread, while another does the same with the same block, or looks at it: in a row of
/// one's own (what the pool does), in a counter that all add to, and in a log that the owner reads.
fn ways(count: usize) -> Vec<(String, f64)> {
    let rows = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let in_row = |row: &Line, count: usize| {
        each_ns(count, || {
            let word = row.0.load(Ordering::Relaxed);
            row.0.store(word + (1 << 32) + 1, Ordering::Release);
            fence(Ordering::SeqCst);
            row.0.store(word + (1 << 32), Ordering::Release);
        })
    };
    let counter = Line(AtomicU64::new(0));
    let in_counter = |count: usize| {
        each_ns(count, || {
            counter.0.fetch_add(1, Ordering::SeqCst);
            counter.0.fetch_sub(1, Ordering::SeqCst);
        })
    };
    let log: Vec<Line> = (0..256).map(|_| Line(AtomicU64::new(0))).collect();
    let read = Line(AtomicU64::new(0));
    let mut written = 0;
    let mut append = || {
        while written - read.0.load(Ordering::Acquire) >= 256 {
            std::thread::yield_now();
        }
        written += 1;
        log[written as usize % 256].0.store(written, Ordering::Release);
    };
    let taking = beside(
        || {
            in_row(&rows[1], 1000);
        },
        || in_row(&rows[0], count),
    );
    let adding = beside(
        || {
            in_counter(1000);
        },
        || in_counter(count),
    );
    let mut next = 1;
    let reader = || {
        if log[next as usize % 256].0.load(Ordering::Acquire) == next {
            read.0.store(next, Ordering::Release);
            next += 1;
        }
    };
    let logging = beside(reader, || {
        each_ns(count, || {
            append();
            append();
        })
    });
    vec![
        ("take and release in a row of one's own".to_owned(), taking),
        ("take and release in a shared counter".to_owned(), adding),
        ("take and release in a log that the owner reads".to_owned(), logging),
    ]
}

/// Does something on this thread while another thread does something else again and again, wherever the kernel puts it.
fn beside<T: Send>(mut other: impl FnMut() + Send, this: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            unpin();
            while !over.load(Ordering::Relaxed) {
                other();
            }
        });
        let result = this();
        over.store(true, Ordering::Relaxed);
        result
    })
}

/// The process is pinned to one core; the other thread needs another one.
fn unpin() {
    let mut all = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // Where the kernel refuses, both share a core, and the figures say so by being alike.
    let _ = rustix::thread::sched_setaffinity(None, &all);
}
