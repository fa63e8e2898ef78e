//! Holds in every order of the processes involved, and with every stale value that the memory model allows, in small
//! models. Pages are words that loom watches: an owner that used a block under a reader would be a race.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tollfree-pool --release --test loom`
#![cfg(loom)]

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_layout::pool::{BlockState, ExtentShape, HOLD_COUNT_MAX, hold_off, state_off};
use tollfree_layout::{Generation, PageIdx};
use tollfree_pool::holds::{Directory, Row, Survey, TakeError, take};
use tollfree_region::{LoomMemory, ReadMemory, WriteMemory};

const PAGE: PageIdx = PageIdx(2);
const KEY: u64 = 77;
const BLOCK: BlockState = BlockState { page_count: 1, generation: Generation(0) };

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

fn shape() -> ExtentShape {
    ExtentShape::of_pages(16).unwrap()
}

fn data_off() -> usize {
    shape().data_off() + PAGE.as_usize() * PAGE_LEN
}

/// An extent with one directory entry and one word of the block's data.
fn extent() -> Arc<LoomMemory> {
    let entry = state_off(PAGE);
    Arc::new(LoomMemory::new(shape().file_len(), &[entry..entry + 16], &[], &[data_off()..data_off() + 8]))
}

fn row_memory() -> Arc<LoomMemory> {
    let word = hold_off(PAGE);
    Arc::new(LoomMemory::new(shape().row_len(), &[word..word + 8], &[], &[]))
}

/// A block with data in it, of which a ref was passed on.
fn exported() -> Arc<LoomMemory> {
    let extent = extent();
    extent.copy_in(data_off(), &[1; 8]);
    Directory::new(extent.clone()).publish(PAGE, BLOCK, KEY);
    extent
}

fn read(extent: &LoomMemory) {
    let mut seen = [0; 8];
    extent.copy_out(data_off(), &mut seen);
    assert_eq!(seen, [1; 8], "the bytes of a block that is held");
}

fn try_take(row: &mut Row<Arc<LoomMemory>>, extent: &LoomMemory) -> Result<BlockState, TakeError> {
    take(row, extent, PAGE, BLOCK.generation, |key| key == KEY)
}

/// Looks, and if nobody holds the block, uses it again. Whether it did.
fn reuse(extent: &Arc<LoomMemory>, rows: &[Arc<LoomMemory>]) -> bool {
    if !Survey::default().nobody_holds(rows, PAGE) {
        return false;
    }
    assert!(Directory::new(extent.clone()).condemn(PAGE, BLOCK));
    if !Survey::nobody_is_left(rows, PAGE) {
        return false;
    }
    extent.copy_in(data_off(), &[2; 8]);
    true
}

/// As [`reuse`], where no stale ref is about: "nobody holds it" is then the truth, and stays it. Were it said of a block that
/// somebody holds, its generation would be raised, and the next in the chain refused.
fn reuse_surely(extent: &Arc<LoomMemory>, rows: &[Arc<LoomMemory>]) {
    let nobody = Survey::default().nobody_holds(rows, PAGE);
    if nobody {
        assert!(Survey::nobody_is_left(rows, PAGE), "somebody holds it");
        extent.copy_in(data_off(), &[2; 8]);
    }
}

/// The owner's ref was taken by one reader, which passes it to another and lets go, while the owner looks.
#[test]
fn a_hold_that_moves_from_reader_to_reader_is_never_missed() {
    model(|| {
        let extent = exported();
        let rows = [row_memory(), row_memory()];
        let mut first = Row::new(rows[0].clone(), HOLD_COUNT_MAX);
        let mut second = Row::new(rows[1].clone(), HOLD_COUNT_MAX);
        // The first has answered the owner: that is how the owner may let go at all.
        try_take(&mut first, &extent).unwrap();
        let answered = Arc::new(AtomicUsize::new(0));
        let (theirs, answer) = (extent.clone(), answered.clone());
        let receiver = thread::spawn(move || {
            try_take(&mut second, &theirs).expect("its sender holds it");
            answer.store(1, Ordering::Release);
            read(&theirs);
            second.release(PAGE);
        });
        let (theirs, answer) = (extent.clone(), answered);
        let sender = thread::spawn(move || {
            read(&theirs);
            while answer.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            first.release(PAGE);
        });
        // The receiver's row first: what moves there behind the owner's back is to be found.
        reuse_surely(&extent, &[rows[1].clone(), rows[0].clone()]);
        receiver.join().unwrap();
        sender.join().unwrap();
    });
}

/// It goes back and forth: the second reader's take lies before the owner's first look or after it, the first's twice.
#[test]
fn a_hold_that_comes_back_is_never_missed() {
    model(|| {
        let extent = exported();
        let rows = [row_memory(), row_memory()];
        let mut first = Row::new(rows[0].clone(), HOLD_COUNT_MAX);
        let mut second = Row::new(rows[1].clone(), HOLD_COUNT_MAX);
        try_take(&mut first, &extent).unwrap();
        let theirs = extent.clone();
        let readers = thread::spawn(move || {
            try_take(&mut second, &theirs).expect("the first holds it");
            first.release(PAGE);
            try_take(&mut first, &theirs).expect("the second holds it");
            second.release(PAGE);
            read(&theirs);
            first.release(PAGE);
        });
        reuse_surely(&extent, &rows);
        readers.join().unwrap();
    });
}

/// A ref that was kept although nobody holds anything, while the block is given up and refs to what is in it next are passed
/// on: it is good still, or it is told that it is stale. Never is it taken for one that somebody made up.
#[test]
fn a_stale_ref_is_never_told_that_it_is_forged() {
    model(|| {
        let extent = exported();
        let row = row_memory();
        let (mut reader, theirs) = (Row::new(row.clone(), HOLD_COUNT_MAX), extent.clone());
        let reading = thread::spawn(move || match try_take(&mut reader, &theirs) {
            Ok(_) => reader.release(PAGE),
            Err(fault) => assert_eq!(fault, TakeError::Stale),
        });
        let directory = Directory::new(extent.clone());
        assert!(directory.condemn(PAGE, BLOCK));
        if Survey::nobody_is_left(&[row], PAGE) {
            directory.publish(PAGE, BlockState { generation: Generation(1), ..BLOCK }, KEY + 1);
        }
        reading.join().unwrap();
    });
}

/// A ref that was kept although nobody holds anything: it is refused, or seen in time.
#[test]
fn a_stale_ref_that_is_tried_meanwhile_reads_nothing_new() {
    model(|| {
        let extent = exported();
        let rows = [row_memory(), row_memory()];
        let readers: Vec<_> = rows
            .iter()
            .map(|row| {
                let (mut row, theirs) = (Row::new(row.clone(), HOLD_COUNT_MAX), extent.clone());
                thread::spawn(move || match try_take(&mut row, &theirs) {
                    Ok(_) => {
                        read(&theirs);
                        row.release(PAGE);
                    }
                    Err(fault) => assert_eq!(fault, TakeError::Stale),
                })
            })
            .collect();
        reuse(&extent, &rows);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// What was put off because a stale ref was being tried is used once that is over.
#[test]
fn a_condemned_block_is_free_in_the_end() {
    model(|| {
        let extent = exported();
        let rows = [row_memory()];
        let (mut row, theirs) = (Row::new(rows[0].clone(), HOLD_COUNT_MAX), extent.clone());
        let reader = thread::spawn(move || {
            if try_take(&mut row, &theirs).is_ok() {
                read(&theirs);
                row.release(PAGE);
            }
        });
        let used = reuse(&extent, &rows);
        reader.join().unwrap();
        if !used {
            assert!(Survey::nobody_is_left(&rows, PAGE));
            extent.copy_in(data_off(), &[2; 8]);
        }
    });
}
