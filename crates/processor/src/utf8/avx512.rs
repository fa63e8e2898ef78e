//! Hot module: the UTF-8 test 64 bytes at a time, with AVX-512.
//!
//! The bytes before each byte are loaded again from one, two and three places further down, as in `avx2`. Since look-ups take
//! six bits of a byte here, two are enough: one by the byte before, of which only leads (C0 and beyond) matter, less BF;
//! the other by the six high bits of the byte itself. Their highest bits say whether the byte before is a lead and whether
//! this is a continuation. Each bit below is an error, where *both* lack it:
//!
//! | bit | byte before | this byte |
//! |---|---|---|
//! | [`NEVER`] | any | F8 and beyond |
//! | [`NO_LEAD`] | C0, C1, F5 to F7 | any |
//! | [`OVERLONG_3`] | E0 | 80 to 9F |
//! | [`SURROGATE`] | ED | A0 to BF |
//! | [`OVERLONG_4`] | F0 | 80 to 8F |
//! | [`TOO_LARGE`] | F4 | 90 to BF |
//!
//! A continuation is due behind a lead, two bytes behind E0 and beyond, three behind F0 and beyond. Where the latter two
//! ask for none, the highest bits must be equal; where they do, one of them must be set: if that is the lead's, the lead itself
//! was wrong, and has been noticed. The bits below are held together as if there were something asked for. So one function of
//! three bits serves all eight ([`WRONG`]).

use std::arch::x86_64::*;

const BLOCK: usize = 64;
/// From here on the copy is written at aligned places.
const ALIGNED_FROM: usize = 8 * BLOCK;

const NEVER: u8 = 1;
const NO_LEAD: u8 = 1 << 1;
const OVERLONG_3: u8 = 1 << 2;
const SURROGATE: u8 = 1 << 3;
const OVERLONG_4: u8 = 1 << 4;
const TOO_LARGE: u8 = 1 << 5;
/// Of the byte before: a lead; of this one: a continuation.
const HIGHEST: u8 = 1 << 7;

/// By the byte before less BF, and 0 for what is below: whether it is a lead, and the errors that it has no part in. (FF comes
/// to 0, too; it is noticed where it stands.)
static LEADS: [u8; BLOCK] = {
    let mut t = [!NEVER; BLOCK];
    t[0] &= !HIGHEST;
    (t[0xc0 - 0xbf], t[0xc1 - 0xbf]) = (!(NEVER | NO_LEAD), !(NEVER | NO_LEAD));
    (t[0xf5 - 0xbf], t[0xf6 - 0xbf], t[0xf7 - 0xbf]) = (t[1], t[1], t[1]);
    t[0xe0 - 0xbf] &= !OVERLONG_3;
    t[0xed - 0xbf] &= !SURROGATE;
    t[0xf0 - 0xbf] &= !OVERLONG_4;
    t[0xf4 - 0xbf] &= !TOO_LARGE;
    t
};
/// By the byte's six high bits: whether it is a continuation, and the errors that it has no part in.
static FOLLOWERS: [u8; BLOCK] = {
    let mut t = [!(NO_LEAD | HIGHEST); BLOCK];
    let mut at = 0;
    while at < BLOCK {
        match (at as u8) << 2 {
            0x80..0x90 => t[at] = (t[at] | HIGHEST) & !(OVERLONG_3 | OVERLONG_4),
            0x90..0xa0 => t[at] = (t[at] | HIGHEST) & !(OVERLONG_3 | TOO_LARGE),
            0xa0..0xc0 => t[at] = (t[at] | HIGHEST) & !(SURROGATE | TOO_LARGE),
            0xf8.. => t[at] &= !NEVER,
            _ => {}
        }
        at += 1;
    }
    t
};

/// `due ? !(lead | follower) : lead ^ follower`, as the table of a function of these three bits.
const WRONG: i32 = {
    let (mut table, mut at) = (0, 0);
    while at < 8 {
        let (lead, follower, due) = (at >> 2 & 1, at >> 1 & 1, at & 1);
        table |= (if due == 1 { !(lead | follower) & 1 } else { lead ^ follower }) << at;
        at += 1;
    }
    table
};
/// `a | b | c`.
const ANY: i32 = 0xfe;

/// Whether the processor has what [`check`] needs. (An atomic load after the first time.)
#[inline(always)]
pub(super) fn available() -> bool {
    !cfg!(miri) && is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw")
}

#[derive(Clone, Copy)]
struct Tables {
    leads: __m512i,
    followers: __m512i,
}

impl Tables {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new() -> Tables {
        // SAFETY: each table has 64 bytes.
        let [leads, followers] =
            [&LEADS, &FOLLOWERS].map(|table| unsafe { _mm512_loadu_si512(table.as_ptr().cast()) });
        Tables { leads, followers }
    }

    /// Not zero where a byte of `block` is wrong behind the one, two and three bytes before it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn wrong(self, block: __m512i, back: [__m512i; 3]) -> __m512i {
        let least = |byte: u8| _mm512_set1_epi8(byte as i8);
        let lead = _mm512_permutexvar_epi8(_mm512_subs_epu8(back[0], least(0xbf)), self.leads);
        let follower = _mm512_permutexvar_epi8(_mm512_srli_epi16::<2>(block), self.followers);
        // The highest bit stays where a three- or four-byte character asks for a continuation here.
        let third = _mm512_subs_epu8(back[1], least(0xe0 - 0x80));
        let fourth = _mm512_subs_epu8(back[2], least(0xf0 - 0x80));
        let due = _mm512_ternarylogic_epi32::<ANY>(third, fourth, least(!HIGHEST));
        _mm512_ternarylogic_epi32::<WRONG>(lead, follower, due)
    }

    /// [`Tables::wrong`] of the `lanes` of the block at `at`; `inner` says of each byte whether there is one before it.
    ///
    /// # Safety
    /// The `lanes` are readable at `at`, and so is the byte before each that is `inner`, and before that one, and again.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn wrong_in(self, at: *const u8, lanes: u64, inner: bool) -> __m512i {
        // SAFETY: the caller's promise; lanes that are masked out are not read.
        unsafe {
            let load = |back: usize| {
                let there = if inner { lanes } else { lanes & !0 << back };
                _mm512_maskz_loadu_epi8(there, at.wrapping_sub(back).cast())
            };
            self.wrong(load(0), [load(1), load(2), load(3)])
        }
    }

    /// [`Tables::wrong`] of the block at `at`.
    ///
    /// # Safety
    /// Three bytes before `at` and 64 from it are readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn wrong_at(self, at: *const u8) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { self.wrong(block(at), [block(at.sub(1)), block(at.sub(2)), block(at.sub(3))]) }
    }
}

/// # Safety
/// 64 bytes are readable at `at`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn block(at: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// Whether a character is not complete at the end of the first `len` bytes.
///
/// # Safety
/// `len` bytes are readable at `from`.
#[inline(always)]
unsafe fn is_open(from: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    let reaches = |back: usize, lead: u8| len >= back && unsafe { *from.add(len - back) } >= lead;
    reaches(1, 0xc0) || reaches(2, 0xe0) || reaches(3, 0xf0)
}

/// Whether `len` bytes at `from` are UTF-8; `COPY`: writes them to `to`, too.
///
/// # Safety
/// `len` bytes are readable at `from`; `COPY`: and can be written at `to`, apart from the others. The
/// processor is [`available`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn check<const COPY: bool>(from: *const u8, to: *mut u8, len: usize) -> bool {
    let tables = Tables::new();
    // SAFETY: blocks lie below `len`, the first and the last masked to what is there; all but the first have three bytes
    // before them. Noticed by `every_length_and_every_cut` and the tests beside it.
    unsafe {
        let lanes = |at: usize| if len - at < BLOCK { !(!0 << (len - at)) } else { !0 };
        macro_rules! copy {
            ($at:expr, $lanes:expr) => {
                if COPY {
                    let block = _mm512_maskz_loadu_epi8($lanes, from.add($at).cast());
                    _mm512_mask_storeu_epi8(to.add($at).cast(), $lanes, block);
                }
            };
        }
        copy!(0, lanes(0));
        let mut error = tables.wrong_in(from, lanes(0), false);
        macro_rules! step {
            ($at:expr) => {
                error = _mm512_or_si512(error, tables.wrong_at(from.add($at)))
            };
            ($at:expr, $next:expr) => {
                let (first, second) = (tables.wrong_at(from.add($at)), tables.wrong_at(from.add($next)));
                error = _mm512_ternarylogic_epi32::<ANY>(error, first, second)
            };
        }
        let mut at = BLOCK;
        if COPY && len >= ALIGNED_FROM {
            // Whole blocks from an aligned address of the copy on; blocks may overlap.
            at = BLOCK - to.addr() % BLOCK;
            if at < 3 {
                copy!(4, !0);
                step!(4);
                at += BLOCK;
            }
        }
        // Four blocks a turn, which are only copied if all is ASCII.
        while at + 4 * BLOCK <= len {
            let blocks = [0, 1, 2, 3].map(|idx| block(from.add(at + BLOCK * idx)));
            if COPY {
                for (idx, block) in blocks.into_iter().enumerate() {
                    _mm512_storeu_si512(to.add(at + BLOCK * idx).cast(), block);
                }
            }
            let (low, high) = (_mm512_or_si512(blocks[0], blocks[1]), _mm512_or_si512(blocks[2], blocks[3]));
            if _mm512_movepi8_mask(_mm512_or_si512(low, high)) != 0 {
                step!(at, at + BLOCK);
                step!(at + 2 * BLOCK, at + 3 * BLOCK);
            } else if is_open(from, at) {
                return false;
            }
            at += 4 * BLOCK;
        }
        while at < len {
            copy!(at, lanes(at));
            error = _mm512_or_si512(error, tables.wrong_in(from.add(at), lanes(at), true));
            at += BLOCK;
        }
        _mm512_test_epi8_mask(error, error) == 0 && !is_open(from, len)
    }
}
