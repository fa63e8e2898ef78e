//! A region and the peer's view of it.

use std::sync::atomic::Ordering;

use bytes::BytesMut;
use tollfree_region::{PeerRegion, ReadMemory, Region, WriteMemory};

#[test]
fn what_the_creator_writes_the_peer_reads() {
    let own = Region::create("tollfree-test", 8192).unwrap();
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), 8192).unwrap();
    own.store_u64(8, 0x1122_3344_5566_7788, Ordering::Release);
    assert_eq!(peer.load_u64(8, Ordering::Acquire), 0x1122_3344_5566_7788);
    assert_eq!(peer.load_u32(12, Ordering::Relaxed), 0x1122_3344);
    let bytes: Vec<u8> = (0..4000).map(|n| (n * 7) as u8).collect();
    for at in [0, 1, 7, 8, 64, 4191] {
        for len in [0, 1, 7, 8, 9, 56, 255, 256, 257, 1000, 4000] {
            own.copy_in(at, &bytes[..len]);
            let mut got = vec![0; len];
            peer.copy_out(at, &mut got);
            assert_eq!(got, bytes[..len], "{len} at {at}");
            let mut appended = BytesMut::from(&b"ab"[..]);
            peer.append_to(at, len, &mut appended);
            assert_eq!(appended[2..], bytes[..len]);
        }
    }
}

/// Every access outside of the memory, or to a crooked word, is caught before it touches anything.
#[test]
fn what_lies_outside_panics() {
    const LEN: usize = 4096;
    let own = Region::create("tollfree-test", LEN).unwrap();
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), LEN).unwrap();
    let caught = |access: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err();
    for at in [LEN, LEN - 3, LEN - 4 + 1, LEN + 8, usize::MAX, usize::MAX - 7] {
        for memory in [&own as &dyn ReadMemory, &peer] {
            assert!(caught(&|| _ = memory.load_u32(at, Ordering::Relaxed)), "u32 at {at}");
            assert!(caught(&|| _ = memory.load_u64(at, Ordering::Relaxed)), "u64 at {at}");
            assert!(caught(&|| memory.copy_out(at, &mut [0; 8])), "8 bytes at {at}");
            assert!(caught(&|| memory.append_to(at, 8, &mut BytesMut::new())), "8 bytes at {at}");
        }
        assert!(caught(&|| own.store_u32(at, 0, Ordering::Relaxed)), "u32 at {at}");
        assert!(caught(&|| own.store_u64(at, 0, Ordering::Relaxed)), "u64 at {at}");
        assert!(caught(&|| own.copy_in(at, &[0; 8])), "8 bytes at {at}");
    }
    for at in [1, 2, 4, 7] {
        assert!(caught(&|| _ = peer.load_u64(at, Ordering::Relaxed)), "u64 at {at}");
        assert!(caught(&|| own.store_u64(at, 0, Ordering::Relaxed)), "u64 at {at}");
        assert_eq!(caught(&|| _ = peer.load_u32(at, Ordering::Relaxed)), at != 4, "u32 at {at}");
        assert_eq!(caught(&|| own.store_u32(at, 0, Ordering::Relaxed)), at != 4, "u32 at {at}");
    }
    assert!(caught(&|| peer.append_to(8, usize::MAX, &mut BytesMut::new())));
    peer.copy_out(LEN, &mut []);
    assert_eq!(peer.load_u32(LEN - 4, Ordering::Acquire), 0);
    assert_eq!(own.load_u64(LEN - 8, Ordering::Acquire), 0);
}

/// What a region is filled with where it lies is what its peer reads, and no byte beside it changes.
#[test]
fn fill_writes_where_the_peer_reads() {
    const LEN: usize = 8192;
    let mut own = Region::create("tollfree-test", LEN).unwrap();
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), LEN).unwrap();
    let mut expected = vec![0; LEN];
    for (nth, (at, len)) in
        [(0, 1), (7, 64), (100, 5000), (LEN - 3, 3), (LEN, 0), (0, LEN)].into_iter().enumerate()
    {
        own.fill(at, len, |place| {
            assert_eq!(place, &expected[at..at + len], "what was written before");
            place.fill(nth as u8 + 1);
        });
        expected[at..at + len].fill(nth as u8 + 1);
        let mut got = vec![0; LEN];
        peer.copy_out(0, &mut got);
        assert_eq!(got, expected);
    }
    for (at, len) in [(LEN, 1), (LEN + 1, 0), (1, LEN), (8, usize::MAX)] {
        let outside = std::panic::AssertUnwindSafe(|| own.fill(at, len, |_| panic!("it was asked for")));
        let panic = std::panic::catch_unwind(outside).unwrap_err();
        assert!(panic.downcast_ref::<String>().unwrap().contains("outside of a memory"));
    }
}

/// The processor may be asked for any line, to read or to write: neither changes a byte, for either side.
#[test]
fn hints_change_nothing() {
    const LEN: usize = 8192;
    let own = Region::create("tollfree-test", LEN).unwrap();
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), LEN).unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|n| (n * 11) as u8).collect();
    own.copy_in(0, &bytes);
    for at in (0..=LEN).step_by(61).chain([LEN]) {
        own.prefetch_to_write(at);
        own.demote(at);
        peer.prefetch(at);
    }
    let mut got = vec![0; LEN];
    peer.copy_out(0, &mut got);
    assert_eq!(got, bytes);
    for hint in [Region::prefetch_to_write, Region::demote] {
        let outside = std::panic::AssertUnwindSafe(|| hint(&own, LEN + 1));
        assert!(std::panic::catch_unwind(outside).is_err());
    }
}
