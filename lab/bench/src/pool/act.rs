//! What the two processes of a pool's figure do.

use std::hint::black_box;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tollfree_pool::{Capacity, Config, Payload, Pool, REF_LEN, Ref};

use super::{BLOCK_LEN, PAGE_LEN, Side, micro, trouble};
use crate::BenchError;
use crate::peer::Starter;

/// Which of the two.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Makes the pool.
    Owner,
    /// Joins it.
    Reader,
}

/// The first order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) role: Role,
    pub(crate) address: String,
}

/// The orders that follow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Share values of `size` bytes.
    Share { side: Side, size: usize, count: usize },
    /// Take hold of each, and let go.
    Take { refs: Vec<Vec<u8>> },
    /// Take each, write `percent` of it, share the result.
    Write { side: Side, percent: usize, refs: Vec<Vec<u8>> },
    /// Take the results.
    Collect { side: Side, refs: Vec<Vec<u8>> },
    /// Let go of all.
    Forget,
    /// Single operations.
    OwnerMicro { count: usize },
    /// Single operations on a ref of the owner's.
    ReaderMicro { count: usize, refs: Vec<Vec<u8>> },
}

/// What was done.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Did {
    ns: u64,
    copied: u64,
    pub(crate) refs: Vec<Vec<u8>>,
    pub(crate) operations: Vec<(String, f64)>,
}

impl Did {
    pub(crate) fn each_ns(&self, count: usize) -> f64 {
        self.ns as f64 / count as f64
    }

    pub(crate) fn each_copied(&self, count: usize) -> f64 {
        self.copied as f64 / count as f64
    }
}

struct Actor {
    pool: Pool,
    kept: Vec<Payload>,
    /// Bytes copied out of the pool by this program rather than by the library.
    copied_out: u64,
}

/// A program that counts this process's copies from outside (`lab/workloads/tools/count-copies.c`) looks when it reads this file.
fn be_counted() {
    let _ = std::fs::read("/proc/self/io");
}

/// Plays a part until the starter is gone.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    let address = part.address.parse().map_err(trouble)?;
    let capacity = Capacity { total: 2 << 30, member_quota: 512 << 20, batch: 32 << 20 };
    let config = Config { high_watermark: u64::MAX, ..Config::default() };
    let pool = match part.role {
        Role::Owner => Pool::create(&address, capacity, config),
        Role::Reader => Pool::join(&address, config),
    };
    let mut actor = Actor { pool: pool.map_err(trouble)?, kept: Vec::new(), copied_out: 0 };
    starter.say(());
    loop {
        let task = starter.hear().map_err(BenchError::Refused)?;
        starter.say(actor.carry_out(&task)?);
    }
}

impl Actor {
    fn carry_out(&mut self, task: &Task) -> Result<Did, BenchError> {
        match task {
            Task::Share { side, size, count } => self.share(*side, *size, *count),
            Task::Take { refs } => self.timed(refs.len(), |actor, idx| {
                drop(black_box(actor.pool.map_ref(&refs[idx]).map_err(trouble)?));
                Ok(None)
            }),
            Task::Write { side, percent, refs } => {
                let len = BLOCK_LEN * percent / 100;
                self.timed(refs.len(), |actor, idx| actor.write(*side, len, &refs[idx]).map(Some))
            }
            Task::Collect { side, refs } => self.timed(refs.len(), |actor, idx| {
                for travelled in refs[idx].chunks(REF_LEN) {
                    let bytes = actor.pool.map_ref(travelled).map_err(trouble)?;
                    if *side == Side::Store {
                        black_box(actor.copy_out(&bytes));
                    }
                }
                Ok(None)
            }),
            Task::Forget => {
                self.kept.clear();
                self.pool.sweep();
                Ok(Did::default())
            }
            Task::OwnerMicro { count } => {
                Ok(Did { operations: micro::owner(&self.pool, *count)?, ..Did::default() })
            }
            Task::ReaderMicro { count, refs } => {
                let operations = micro::reader(&self.pool, &refs[0], *count)?;
                Ok(Did { operations, ..Did::default() })
            }
        }
    }

    /// Does something `count` times; refs that come of it are to be passed on.
    fn timed(
        &mut self,
        count: usize,
        mut operation: impl FnMut(&mut Actor, usize) -> Result<Option<Vec<u8>>, BenchError>,
    ) -> Result<Did, BenchError> {
        let copied = self.copied();
        be_counted();
        let mut refs = Vec::with_capacity(count);
        let began = Instant::now();
        for idx in 0..count {
            refs.extend(operation(self, idx)?);
        }
        let ns = began.elapsed().as_nanos() as u64;
        be_counted();
        Ok(Did { ns, copied: self.copied() - copied, refs, operations: Vec::new() })
    }

    fn copied(&self) -> u64 {
        self.pool.counts().copied_bytes + self.copied_out
    }

    fn share(&mut self, side: Side, size: usize, count: usize) -> Result<Did, BenchError> {
        // Values that are there already, where this side expects them.
        let private = vec![0x5a; size];
        let pooled: Result<Vec<Ref>, _> = match side {
            Side::Store => Ok(Vec::new()),
            _ => (0..count).map(|_| self.pool.copy_from_slice(&private)).collect(),
        };
        let pooled = pooled.map_err(trouble)?;
        self.kept.reserve(count);
        let did = self.timed(count, |actor, idx| {
            let shared = match side {
                Side::CopyOnWrite | Side::Transparent => pooled[idx].clone(),
                Side::Copy => actor.pool.copy_from_slice(&pooled[idx]).map_err(trouble)?,
                Side::Store => actor.pool.copy_from_slice(&private).map_err(trouble)?,
            };
            let travelling = shared.to_bytes().map_err(trouble)?;
            actor.kept.push(shared.into());
            Ok(Some(travelling.to_vec()))
        });
        self.kept.extend(pooled.into_iter().map(Payload::from));
        did
    }

    fn copy_out(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.copied_out += bytes.len() as u64;
        bytes.to_vec()
    }

    /// Takes a block, writes its first `len` bytes, and shares the result: refs to all of it, one for each segment.
    fn write(&mut self, side: Side, len: usize, travelled: &[u8]) -> Result<Vec<u8>, BenchError> {
        let bytes = self.pool.map_ref(travelled).map_err(trouble)?;
        let mut result = match side {
            Side::Transparent => return self.write_plainly(&bytes.into(), len),
            Side::CopyOnWrite => Payload::from(bytes),
            Side::Copy => self.pool.copy_from_slice(&bytes).map_err(trouble)?.into(),
            Side::Store => self.copy_out(&bytes).into(),
        };
        if len > 0 {
            result.make_mut(..len).map_err(trouble)?.fill(0xa5);
        }
        if side == Side::Store {
            result = self
                .pool
                .copy_from_slice(result.as_slice().expect("private bytes are in one piece"))
                .map_err(trouble)?
                .into();
        }
        self.send(result)
    }

    /// The same through plain memory over the block.
    fn write_plainly(&mut self, block: &Payload, len: usize) -> Result<Vec<u8>, BenchError> {
        let mut overlay = block.overlay().map_err(trouble)?;
        overlay[..len].fill(0xa5);
        // By the kernel, once, and by the library, when they are shared.
        self.copied_out += len.next_multiple_of(PAGE_LEN) as u64;
        self.send(overlay.share().map_err(trouble)?)
    }

    /// Refs to all of a payload, which is kept.
    fn send(&mut self, result: Payload) -> Result<Vec<u8>, BenchError> {
        // What was written is a segment, and what wasn't is another.
        let mut travelling = Vec::with_capacity(2 * REF_LEN);
        for bytes in result.refs() {
            travelling.extend(bytes.to_bytes().map_err(trouble)?);
        }
        self.kept.push(result);
        Ok(travelling)
    }
}
