//! Sessions that have carried so much that positions outgrow what a head word holds of them.

use std::sync::Arc;

use tollfree_layout::RingPos;
use tollfree_layout::limits::PAGE_LEN;
use tollfree_region::HeapMemory;

use crate::{Geometry, RingReceiver, RingSender, conformance};

#[test]
fn rings_conform_where_the_sequence_wraps() {
    let ring = Geometry::new(PAGE_LEN, 512).unwrap();
    // Miri takes half a minute for each: one is done there, where a head word's sequence begins anew.
    let (boundaries, distances) = match cfg!(miri) {
        true => (&[1 << 31][..], &[7][..]),
        false => (&[1 << 31, 1 << 32, 1 << 40][..], &[1, 2, 7, 8, 30][..]),
    };
    for boundary in boundaries {
        for before in distances {
            let pos = RingPos(boundary - before);
            conformance::all(|| {
                let (a, b) = (Arc::new(HeapMemory::new(ring.end())), Arc::new(HeapMemory::new(PAGE_LEN)));
                let sender = RingSender::new(a.clone(), b.clone(), ring).starting_at(pos);
                (sender, RingReceiver::new(b, a, ring).starting_at(pos))
            });
        }
    }
}
