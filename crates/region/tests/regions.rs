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
