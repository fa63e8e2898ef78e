//! A forked child notices, cannot reach the parent's regions, and leaves them alone; exec inherits nothing.

use std::process::Command;
use std::sync::atomic::Ordering;

use tollfree_region::{Patch, PeerRegion, PrivateView, ReadMemory, Region, WriteMemory};

use crate::alone;

const LEN: usize = 8192;

/// Runs `child` in a forked process, whose exit status is what it returns; gives back the status as `wait` has it.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs `child` on the one thread it has and leaves by `_exit`; what that allocates is fine, as
    // the C library's heap is usable after a fork.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            libc::_exit(child());
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    }
}

fn is_mapped(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(&format!("memfd:{name}"))
}

/// The exit status of a child that returns the number of the first check that failed, or 0.
fn first_failure(checks: &[bool]) -> i32 {
    checks.iter().position(|ok| !ok).map_or(0, |idx| idx as i32 + 1)
}

#[test]
fn a_child_notices_and_leaves_the_parents_memory_alone() {
    alone!();
    let own = Region::create("tollfree-parent", LEN).unwrap();
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), LEN).unwrap();
    let patch = Patch { at: 0, fd: own.fd(), off: 0, len: LEN };
    let view = PrivateView::new(LEN, &[patch]).unwrap();
    let origin = own.origin();
    assert!(
        !origin.is_elsewhere() && !own.is_inherited() && !peer.is_inherited() && is_mapped("tollfree-parent")
    );
    let status = in_child(|| {
        let noticed = [
            origin.is_elsewhere(),
            own.is_inherited(),
            peer.is_inherited(),
            view.is_inherited(),
            !is_mapped("tollfree-parent"),
        ];
        // Something else comes to lie where the regions were: dropping them must not take it away.
        let fresh: Vec<Region> = (0..64).map(|_| Region::create("tollfree-child", LEN).unwrap()).collect();
        drop((own, peer, view));
        let whole = fresh.iter().all(|region| {
            region.store_u64(0, 7, Ordering::Relaxed);
            !region.is_inherited() && region.load_u64(0, Ordering::Relaxed) == 7
        });
        let still = [whole, origin.is_elsewhere(), is_mapped("tollfree-child")];
        drop(fresh);
        first_failure(&[&noticed[..], &still[..], &[!is_mapped("tollfree-child")]].concat())
    });
    assert_eq!(status, 0, "check {} failed in the child", libc::WEXITSTATUS(status));
    assert!(!origin.is_elsewhere());
}

#[test]
fn a_grandchild_knows_its_parents_regions_from_its_own() {
    alone!();
    let own = Region::create("tollfree-first", LEN).unwrap();
    let status = in_child(|| {
        let childs = Region::create("tollfree-second", LEN).unwrap();
        let status = in_child(|| {
            let before = [own.is_inherited(), childs.is_inherited(), own.origin() != childs.origin()];
            let grandchilds = Region::create("tollfree-third", LEN).unwrap();
            let after = [own.is_inherited(), childs.is_inherited(), !grandchilds.is_inherited()];
            first_failure(&[&before[..], &after[..]].concat())
        });
        if status == 0 && !childs.is_inherited() { 0 } else { 100 + libc::WEXITSTATUS(status) }
    });
    assert_eq!(status, 0, "check {} failed", libc::WEXITSTATUS(status));
}

#[test]
fn touching_inherited_memory_is_impossible() {
    alone!();
    let own = Region::create("tollfree-parent", LEN).unwrap();
    let status = in_child(|| own.load_u64(0, Ordering::Relaxed) as i32);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:#x}");
}

#[test]
fn exec_inherits_no_fd() {
    alone!();
    let own = Region::create("tollfree-exec", LEN).unwrap();
    let listing = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    assert!(listing.status.success());
    let listing = String::from_utf8_lossy(&listing.stdout);
    assert!(listing.contains("/proc/") && !listing.contains("memfd"), "{listing}");
    drop(own);
}
