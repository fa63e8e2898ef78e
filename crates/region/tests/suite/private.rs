//! Private views: a file's pages until they are stored to, and one's own from then on.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use tollfree_region::{Patch, PeerRegion, PrivateView, ReadMemory, Region, WriteMemory};

const PAGE_LEN: usize = 4096;

/// Pages that say which they are.
fn region(page_count: usize) -> Region {
    let region = Region::create("tollfree-test", page_count * PAGE_LEN).unwrap();
    for page in 0..page_count {
        region.copy_in(page * PAGE_LEN, &[page as u8 + 1; PAGE_LEN]);
    }
    region
}

fn patch(at: usize, region: &Region, page: usize, page_count: usize) -> Patch<'_> {
    Patch { at: at * PAGE_LEN, fd: region.fd(), off: page * PAGE_LEN, len: page_count * PAGE_LEN }
}

fn read(view: &PrivateView, at: usize) -> u8 {
    let byte: NonNull<u8> = view.ptr(at, 1);
    // SAFETY: one byte of the view, whose pages nobody writes in the meantime.
    unsafe { byte.read() }
}

fn write(view: &mut PrivateView, at: usize, value: u8) {
    let byte: NonNull<u8> = view.ptr(at, 1);
    // SAFETY: one byte of the view, to which there is no reference.
    unsafe { byte.write(value) }
}

#[test]
fn what_is_shown_is_what_the_file_has_until_it_is_written() {
    let own = region(4);
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), 4 * PAGE_LEN).unwrap();
    // Pages 2 and 3, nothing, page 0, nothing.
    let patches = [patch(0, &own, 2, 2), patch(3, &own, 0, 1)];
    let mut view = PrivateView::new(5 * PAGE_LEN - 7, &patches).unwrap();
    let firsts = |view: &PrivateView| [0, 1, 2, 3, 4].map(|page| read(view, page * PAGE_LEN));
    assert_eq!(firsts(&view), [3, 4, 0, 1, 0]);
    assert!([0, 1, 3].iter().all(|page| !view.stored().unwrap()[*page]), "reading is not storing");
    write(&mut view, PAGE_LEN + 100, 99);
    write(&mut view, 2 * PAGE_LEN, 98);
    assert_eq!(view.stored().unwrap()[..4], [false, true, true, false]);
    assert_eq!(firsts(&view), [3, 4, 98, 1, 0]);
    // What was stored is here and nowhere else; what wasn't is still the file's.
    own.copy_in(2 * PAGE_LEN, &[77; 2 * PAGE_LEN]);
    let view = std::thread::spawn(move || {
        assert_eq!((read(&view, 0), read(&view, PAGE_LEN), read(&view, PAGE_LEN + 100)), (77, 4, 99));
        view
    });
    let view = view.join().unwrap();
    let mut seen = [0; PAGE_LEN];
    peer.copy_out(3 * PAGE_LEN, &mut seen);
    assert_eq!(seen, [77; PAGE_LEN]);
    assert!(!view.is_inherited());
}

#[test]
fn a_view_of_one_patch_is_like_any_other() {
    let own = region(2);
    let mut view = PrivateView::new(2 * PAGE_LEN, &[patch(0, &own, 0, 2)]).unwrap();
    write(&mut view, 0, 9);
    assert_eq!(view.stored().unwrap(), [true, false]);
    assert_eq!((read(&view, 0), read(&view, 1), read(&view, PAGE_LEN)), (9, 1, 2));
}

#[test]
fn what_does_not_fit_is_refused() {
    let own = region(2);
    let caught = |patch: Patch<'_>| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| PrivateView::new(2 * PAGE_LEN, &[patch])))
            .is_err()
    };
    assert!(caught(patch(1, &own, 0, 2)), "beyond the view");
    assert!(caught(patch(0, &own, 0, 0)), "no pages");
    assert!(caught(Patch { off: 1, ..patch(0, &own, 0, 1) }), "crooked");
    for len in [usize::MAX, usize::MAX - 2 * PAGE_LEN, 1 << 62] {
        let error = PrivateView::new(len, &[]).unwrap_err();
        assert!(error.is_exhausted(), "{error}");
    }
    let nothing = PrivateView::new(0, &[]).unwrap_err();
    assert!(!nothing.is_peer_fault());
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let error =
        PrivateView::new(PAGE_LEN, &[Patch { at: 0, fd: pipe.as_fd(), off: 0, len: PAGE_LEN }]).unwrap_err();
    assert!(error.to_string().contains("mmap"), "{error}");
}
