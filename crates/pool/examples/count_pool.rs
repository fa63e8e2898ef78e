//! Operations of a pool, again and again, to count instructions by: what more of them cost more, divided by how many more.
//!
//! `valgrind --tool=callgrind target/release/examples/count_pool OPERATION COUNT`, with one of [`OPERATIONS`].

use std::hint::black_box;
use std::time::Duration;

use tollfree_pool::{Address, Capacity, Config, Pool, WhenShort};

const LEN: usize = 64 << 10;
/// What [`main`] knows.
const OPERATIONS: [&str; 7] = ["allocate", "life", "mixed", "map", "share", "slice", "export"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (operation, count) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let count: usize = count.parse().map_err(|_| format!("count OPERATION COUNT, of {OPERATIONS:?}"))?;
    let directory = tempfile::tempdir()?;
    let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse()?;
    let patient = Config { when_short: WhenShort::Wait(Duration::from_secs(60)), ..Config::default() };
    let owner = Pool::create(&address, Capacity::default(), patient)?;
    let reader = Pool::join(&address, Config { low_watermark: 0, ..patient })?;
    let shared = owner.copy_from_slice(&[1; LEN])?;
    let travelled = shared.to_bytes()?;
    let held = reader.map_ref(&travelled)?;
    let known = bytes::Bytes::from(held.clone());
    // What there is of other lengths is had before anything is counted.
    drop(owner.buffer(2 << 20)?);
    // A fixed sequence of lengths, of 1 to 64 pages; up to 16 blocks are there at a time.
    let mut seed = 1_u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as usize
    };
    let mut some: Vec<Option<tollfree_pool::Buffer>> = (0..16).map(|_| None).collect();
    for _ in 0..count {
        match operation.as_str() {
            "allocate" => drop(black_box(owner.try_buffer(LEN)?)),
            "life" => {
                let mut buffer = owner.try_buffer(LEN)?;
                buffer.extend_from_slice(&[1]);
                black_box(buffer.freeze()?.to_bytes()?);
            }
            "mixed" => {
                let (which, len) = (next() % some.len(), next() % (64 * 4096) + 1);
                some[which] = None;
                some[which] = Some(owner.try_buffer(len)?);
            }
            "map" => drop(black_box(reader.try_map_ref(&travelled)?)),
            "share" => drop(black_box(reader.ref_of(&known))),
            "slice" => drop(black_box(held.slice(1..)?)),
            "export" => drop(black_box(shared.to_bytes()?)),
            _ => return Err(format!("{operation:?} is none of {OPERATIONS:?}").into()),
        }
    }
    Ok(())
}
