//! A system call filter that forbids what regions need: found out at once and named.

use std::mem::offset_of;

use tollfree_region::{Region, RegionError};

use crate::alone;

/// Lets this process make every system call but `number`, which fails with `errno`.
fn forbid(number: libc::c_long, errno: i32) {
    let op = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let mut program = [
        op(load, 0, 0, offset_of!(libc::seccomp_data, nr) as u32),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        op(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it; the filter concerns only this (forked) process.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

/// Whether a process in which `number` fails with `errno` is told that `step` is forbidden.
fn is_named(number: libc::c_long, errno: i32, step: &str) -> bool {
    // SAFETY: the child runs on the one thread it has and leaves by `_exit`.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            forbid(number, errno);
            let named = match Region::create("forbidden", 4096) {
                Err(error @ RegionError::Forbidden { .. }) => {
                    error.to_string().contains(step) && error.to_string().contains("seccomp")
                }
                _ => false,
            };
            libc::_exit(if named { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status == 0
    }
}

#[test]
fn what_policy_forbids_is_named() {
    alone!();
    assert!(is_named(libc::SYS_memfd_create, libc::EPERM, "memfd_create"));
    assert!(is_named(libc::SYS_memfd_create, libc::ENOSYS, "memfd_create"));
    assert!(is_named(libc::SYS_fallocate, libc::EPERM, "fallocate"));
    assert!(is_named(libc::SYS_madvise, libc::EPERM, "fork detection"));
}
