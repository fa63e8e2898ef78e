//! System call filters: what a container's policy forbids, or a kernel can't give.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// A system call that a test can forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `memfd_create`.
    MemfdCreate,
    /// `eventfd2`.
    Eventfd,
    /// `preadv2`.
    Preadv,
    /// `pidfd_open`.
    PidfdOpen,
    /// `fallocate` of this many bytes or more.
    Fallocate(u64),
}

/// From now on a system call of this thread, and of those that it starts, fails with `errno`. It can't be undone: for
/// processes that a test has started for it.
///
/// # Panics
/// When the kernel takes no filter.
pub fn forbid(call: Call, errno: Errno) {
    let (number, rules) = match call {
        Call::MemfdCreate => (libc::SYS_memfd_create, vec![]),
        Call::Eventfd => (libc::SYS_eventfd2, vec![]),
        Call::Preadv => (libc::SYS_preadv2, vec![]),
        Call::PidfdOpen => (libc::SYS_pidfd_open, vec![]),
        Call::Fallocate(len) => {
            let long = SeccompCondition::new(3, SeccompCmpArgLen::Qword, SeccompCmpOp::Ge, len);
            let rule = SeccompRule::new(vec![long.expect("a condition")]);
            (libc::SYS_fallocate, vec![rule.expect("a rule")])
        }
    };
    let filter = SeccompFilter::new(
        BTreeMap::from([(number, rules)]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw_os_error() as u32),
        std::env::consts::ARCH.try_into().expect("a known processor"),
    );
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    seccompiler::apply_filter(&program).expect("the kernel takes filters");
}
