//! Measures ways to copy out of memory that a peer writes, hot in this core's cache. Prints nanoseconds a copy: the
//! least of many rounds, since the machine's noise only ever adds.
//!
//! `cargo run --release -p tollfree-region --example copies`

use std::hint::black_box;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

type Copy = unsafe fn(*const u8, *mut u8, usize);

/// What Rust and C programs use: not allowed for us, as the bytes may change meanwhile.
unsafe fn memcpy(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the buffers below are long enough, and nobody writes them here.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
}

unsafe fn words(src: *const u8, dst: *mut u8, len: usize) {
    let mut at = 0;
    // SAFETY: as above; `main` passes a source that is a multiple of 8 to this one.
    unsafe {
        while at + 8 <= len {
            let word = AtomicU64::from_ptr(src.add(at).cast_mut().cast()).load(Ordering::Relaxed);
            dst.add(at).cast::<u64>().write_unaligned(word);
            at += 8;
        }
        while at < len {
            dst.add(at).write(AtomicU8::from_ptr(src.add(at).cast_mut()).load(Ordering::Relaxed));
            at += 1;
        }
    }
}

unsafe fn volatile(src: *const u8, dst: *mut u8, len: usize) {
    let mut at = 0;
    // SAFETY: as above.
    unsafe {
        while at + 8 <= len {
            let word = src.add(at).cast::<u64>().read_volatile();
            dst.add(at).cast::<u64>().write_unaligned(word);
            at += 8;
        }
        while at < len {
            dst.add(at).write(src.add(at).read_volatile());
            at += 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn rep_movsb(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rsi") src => _, inout("rdi") dst => _,
            options(nostack, preserves_flags));
    }
}

/// 64 bytes a turn through four SSE2 registers, the last 64 overlapping.
#[cfg(target_arch = "x86_64")]
unsafe fn sse2(src: *const u8, dst: *mut u8, len: usize) {
    if len < 64 {
        // SAFETY: as above.
        return unsafe { rep_movsb(src, dst, len) };
    }
    // SAFETY: as above; all four loads of a turn lie within the 64 bytes at `rsi`, which ends at the last 64.
    unsafe {
        let (last_src, last_dst) = (src.add(len - 64), dst.add(len - 64));
        std::arch::asm!(
            "2:",
            "cmp {src}, {last_src}",
            "jae 3f",
            "movups {a}, [{src}]",
            "movups {b}, [{src} + 16]",
            "movups {c}, [{src} + 32]",
            "movups {d}, [{src} + 48]",
            "movups [{dst}], {a}",
            "movups [{dst} + 16], {b}",
            "movups [{dst} + 32], {c}",
            "movups [{dst} + 48], {d}",
            "add {src}, 64",
            "add {dst}, 64",
            "jmp 2b",
            "3:",
            "movups {a}, [{last_src}]",
            "movups {b}, [{last_src} + 16]",
            "movups {c}, [{last_src} + 32]",
            "movups {d}, [{last_src} + 48]",
            "movups [{last_dst}], {a}",
            "movups [{last_dst} + 16], {b}",
            "movups [{last_dst} + 32], {c}",
            "movups [{last_dst} + 48], {d}",
            src = inout(reg) src => _, dst = inout(reg) dst => _,
            last_src = in(reg) last_src, last_dst = in(reg) last_dst,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack)
        );
    }
}

fn measure(copy: Copy, src: &[u8], dst: &mut [u8], len: usize) -> f64 {
    let turns = (4 << 20) / len.max(256);
    let mut least = f64::MAX;
    for _ in 0..60 {
        let start = Instant::now();
        for _ in 0..turns {
            // SAFETY: `len` fits both; see `main`.
            unsafe { copy(black_box(src.as_ptr()), black_box(dst.as_mut_ptr()), black_box(len)) };
        }
        least = least.min(start.elapsed().as_nanos() as f64 / turns as f64);
    }
    least
}

fn main() {
    let ways: &[(&str, Copy)] = &[
        ("memcpy", memcpy),
        ("words", words),
        ("volatile", volatile),
        #[cfg(target_arch = "x86_64")]
        ("rep movsb", rep_movsb),
        #[cfg(target_arch = "x86_64")]
        ("sse2", sse2),
    ];
    let src = vec![7u8; (1 << 20) + 4096];
    let mut dst = vec![0u8; (1 << 20) + 4096];
    let src_off = src.as_ptr().align_offset(4096);
    let dst_off = dst.as_ptr().align_offset(4096);
    for (what, src_at, dst_at) in [
        ("both line-aligned", 0, 0),
        ("source + 8", 8, 0),
        ("source + 8, target + 24", 8, 24),
        ("source + 8, target + 5", 8, 5),
    ] {
        println!("\n{what}");
        print!("{:>8}", "bytes");
        ways.iter().for_each(|(name, _)| print!("{name:>12}"));
        println!();
        for len in [8, 24, 56, 64, 96, 128, 192, 256, 512, 1024, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
        {
            let len = len.min((1 << 20) - 64);
            print!("{len:>8}");
            for (_, copy) in ways {
                let ns = measure(*copy, &src[src_off + src_at..], &mut dst[dst_off + dst_at..], len);
                print!("{ns:>12.1}");
            }
            println!();
        }
    }
}
