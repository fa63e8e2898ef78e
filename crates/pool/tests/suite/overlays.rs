//! Transparent copy-on-write: plain memory over payloads, and what others see of it.

use std::io::{Read, Seek, Write};

use tollfree_pool::{AllocError, Capacity, OverlayError, Payload, Pool, Shortage, WhenShort};
use tollfree_testkit::{Chance, TimeLimit};

use crate::place::{self, BATCH, Place, config, until_all_is_free};

const PAGE_LEN: usize = 4096;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) >> 4) as u8).collect()
}

/// What another member sees of a payload.
fn seen_by(reader: &Pool, payload: &Payload) -> Vec<u8> {
    let refs = payload.refs().iter().map(|bytes| reader.map_ref(&bytes.to_bytes().unwrap()).unwrap());
    refs.flat_map(|bytes| bytes.to_vec()).collect()
}

/// Code that knows nothing of pools.
fn halve(pixels: &mut [u8]) {
    pixels.iter_mut().for_each(|pixel| *pixel /= 2);
}

#[test]
fn what_is_stored_nobody_else_sees() {
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let (writer, reader, third) = (place.create(), place.join(), place.join());
    let bytes = pattern(10 * PAGE_LEN);
    let shared = Payload::from(writer.copy_from_slice(&bytes).unwrap());
    let theirs = reader.map_ref(&shared.refs()[0].to_bytes().unwrap()).unwrap();
    // The creator writes as everybody else does, and so do two overlays of one member.
    let mut overlays = [
        shared.overlay().unwrap(),
        Payload::from(theirs.clone()).overlay().unwrap(),
        Payload::from(theirs.clone()).overlay().unwrap(),
    ];
    for (overlay, fill) in overlays.iter_mut().zip(1..) {
        assert_eq!(overlay[..], bytes);
        overlay[3 * PAGE_LEN + 5..][..10].fill(fill);
        overlay[8 * PAGE_LEN] = fill;
    }
    for (overlay, fill) in overlays.iter().zip(1..) {
        let mut expected = bytes.clone();
        expected[3 * PAGE_LEN + 5..][..10].fill(fill);
        expected[8 * PAGE_LEN] = fill;
        assert_eq!(overlay[..], expected);
        let copied = (writer.counts().copied_bytes, reader.counts().copied_bytes);
        let result = overlay.share().unwrap();
        let now = (writer.counts().copied_bytes - copied.0, reader.counts().copied_bytes - copied.1);
        let two_pages = 2 * PAGE_LEN as u64;
        assert_eq!(
            now,
            if fill == 1 { (two_pages, 0) } else { (0, two_pages) },
            "the pages that were touched"
        );
        assert_eq!(seen_by(&third, &result), expected);
        // Untouched pages are the refs that they were.
        let own: Vec<_> =
            result.refs().iter().map(|bytes| (bytes.is_own(), bytes.len() / PAGE_LEN)).collect();
        let is_own = fill == 1;
        assert_eq!(own, [(is_own, 3), (true, 1), (is_own, 4), (true, 1), (is_own, 1)]);
    }
    assert_eq!((&shared.to_vec(), &theirs[..]), (&bytes, &bytes[..]));
    drop((overlays, shared, theirs));
    until_all_is_free(&writer);
}

#[test]
fn shared_again_and_again_it_is_what_it_was_at_each_time() {
    let place = Place::new();
    let writer = place.create();
    let first = Payload::from(writer.copy_from_slice(&[1; 3 * PAGE_LEN]).unwrap());
    let mut overlay = first.overlay().unwrap();
    let untouched = overlay.share().unwrap();
    assert_eq!(untouched.refs()[0].as_ptr(), first.refs()[0].as_ptr(), "no copy, and no other memory");
    halve(&mut overlay[PAGE_LEN..2 * PAGE_LEN]);
    let second = overlay.share().unwrap();
    overlay[PAGE_LEN] = 9;
    let third = overlay.share().unwrap();
    drop((first, untouched));
    let mut expected = vec![1; 3 * PAGE_LEN];
    expected[PAGE_LEN..2 * PAGE_LEN].fill(0);
    assert_eq!(second, expected[..]);
    expected[PAGE_LEN] = 9;
    assert_eq!(third, expected[..]);
    assert_eq!(overlay[..], expected);
    // An overlay of what an overlay gave, which is in three segments by now.
    assert_eq!(third.segments().count(), 3);
    drop((overlay, second));
    let mut again = third.overlay().unwrap();
    assert_eq!(again[..], expected);
    let copied = writer.counts().copied_bytes;
    again[0] = 5;
    let last = again.share().unwrap();
    assert_eq!(
        writer.counts().copied_bytes - copied,
        PAGE_LEN as u64,
        "all segments are shown where they lie"
    );
    expected[0] = 5;
    assert_eq!(last, expected[..]);
}

/// The kernel's stores and those of other threads are stores like any.
#[test]
fn the_kernel_and_other_threads_write_it_as_plain_memory() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let bytes = pattern(8 * PAGE_LEN);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0xab; 5_000]).unwrap();
    file.rewind().unwrap();
    let shared = writer.copy_from_slice(&bytes).unwrap();
    let theirs = Payload::from(reader.map_ref(&shared.to_bytes().unwrap()).unwrap());
    let mut overlay = theirs.overlay().unwrap();
    file.read_exact(&mut overlay[100..5_100]).unwrap();
    let (left, right) = overlay.split_at_mut(6 * PAGE_LEN);
    std::thread::scope(|scope| {
        scope.spawn(|| left[4 * PAGE_LEN..].fill(1));
        scope.spawn(|| right[PAGE_LEN..].fill(2));
    });
    let mut expected = bytes.clone();
    expected[100..5_100].fill(0xab);
    expected[4 * PAGE_LEN..6 * PAGE_LEN].fill(1);
    expected[7 * PAGE_LEN..].fill(2);
    let result = overlay.share().unwrap();
    assert_eq!(result, expected[..]);
    assert_eq!(reader.counts().copied_bytes, 5 * PAGE_LEN as u64);
    assert_eq!(shared[..], bytes);
}

/// Against a plain vector: payloads of any parts in any pieces, written both ways.
#[test]
fn overlays_behave_like_vectors() {
    let _limit = TimeLimit::seconds(120);
    let place = Place::new();
    let room = Capacity { total: 32 << 20, member_quota: 8 << 20, batch: 1 << 20 };
    let (writer, reader) = (Pool::create(&place.address, room, config()).unwrap(), place.join());
    let mut chance = Chance::new(5);
    let mut below = |end: usize| chance.below(end as u64) as usize;
    for round in 0..60 {
        let mut model = pattern(1 + below(40_000));
        let mut payload = Payload::from(writer.copy_from_slice(&model).unwrap());
        let mut snapshots = Vec::new();
        for step in 0..8 {
            let start = below(model.len());
            let end = start + 1 + below((model.len() - start).min(9_000));
            match below(4) {
                0 => {
                    payload.make_mut(start..end).unwrap().fill(step);
                    model[start..end].fill(step);
                }
                1 if end - start > 1 => {
                    payload = payload.slice(start..end).unwrap();
                    model = model[start..end].to_vec();
                }
                2 => {
                    // Through the wire, so that it is another's memory from here on.
                    let wires = payload.refs().iter().map(|bytes| bytes.to_bytes().unwrap());
                    let there: Vec<_> = wires.map(|wire| reader.map_ref(&wire).unwrap()).collect();
                    if let [one] = &there[..] {
                        payload = Payload::from(one.clone());
                    }
                }
                _ => {
                    let mut overlay = payload.overlay().unwrap();
                    assert_eq!(overlay[..], model, "round {round}");
                    snapshots.push((payload.clone(), model.clone()));
                    for _ in 0..below(4) {
                        let start = below(model.len());
                        let end = start + 1 + below((model.len() - start).min(6_000));
                        overlay[start..end].fill(0x80 | step);
                        model[start..end].fill(0x80 | step);
                    }
                    payload = overlay.share().unwrap();
                    assert_eq!(overlay[..], model, "round {round}");
                }
            }
            assert_eq!(payload, model[..], "round {round}");
        }
        for (payload, model) in snapshots {
            assert_eq!(payload, model[..], "round {round}");
        }
    }
    until_all_is_free(&writer);
    until_all_is_free(&reader);
}

#[test]
fn what_has_no_overlay_says_why() {
    let place = Place::new();
    let writer = place.create();
    for private in [Payload::from(vec![1, 2, 3]), Payload::default()] {
        let refused = private.overlay().unwrap_err();
        assert!(
            matches!(refused, OverlayError::Private) && refused.to_string().contains("share"),
            "{refused}"
        );
    }
    let strict = tollfree_pool::Config { when_short: WhenShort::Fail, ..config() };
    let reader = Pool::join(&place.address, strict).unwrap();
    let whole = writer.copy_from_slice(&vec![1; BATCH as usize]).unwrap();
    let mut overlay = Payload::from(reader.map_ref(&whole.to_bytes().unwrap()).unwrap()).overlay().unwrap();
    overlay.fill(2);
    // What was stored has room here, and may have none in the pool: then it is still here.
    let all: Vec<_> = (0..3).map(|_| writer.buffer(BATCH as usize).unwrap()).collect();
    let others = [place.join(), place.join(), place.join()];
    let more: Vec<_> =
        others.iter().flat_map(|other| (0..4).map(|_| other.buffer(BATCH as usize).unwrap())).collect();
    place::until("it is refused", || {
        matches!(overlay.share(), Err(AllocError::Exhausted { by: Shortage::Capacity, .. }))
    });
    drop((all, more));
    place::until("there is room again", || {
        overlay.share().is_ok_and(|shared| shared == [2; BATCH as usize][..])
    });
    assert!(whole.iter().all(|byte| *byte == 1));
}
