//! Two threads pass a million records through real regions, both ways at once.

use std::sync::Arc;

use tollfree_layout::limits::PAGE_LEN;
use tollfree_region::{PeerRegion, Region};
use tollfree_ring::*;

const RECORDS: u64 = 500_000;

fn region(len: usize) -> (Arc<Region>, Arc<PeerRegion>) {
    let own = Region::create("tollfree-threads", len).unwrap();
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), len).unwrap();
    (Arc::new(own), Arc::new(peer))
}

#[test]
fn a_million_records_cross() {
    let ring = Geometry::new(PAGE_LEN, 4096).unwrap();
    let (a, a_seen) = region(ring.end());
    let (b, b_seen) = region(ring.end());
    let there = (
        RingSender::new(a.clone(), b_seen.clone(), ring),
        RingReceiver::new(b.clone(), a_seen.clone(), ring),
    );
    let back = (RingSender::new(b, a_seen, ring), RingReceiver::new(a, b_seen, ring));
    std::thread::scope(|scope| {
        scope.spawn(|| conformance::two_threads(there, RECORDS));
        scope.spawn(|| conformance::two_threads(back, RECORDS));
    });
}
