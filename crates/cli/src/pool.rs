//! `tollfree pool`: a pool's coordinator on its own.

use std::time::Duration;

use clap::{Args, Subcommand};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_pool::{Address, Capacity, Coordinator};

use crate::failure::Failure;

/// What `tollfree pool` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Coordinate a pool until interrupted; members that are left behind keep what they have
    Serve(ServeArgs),
}

/// Options of `tollfree pool serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where members meet, as shm:///run/app/pool.sock
    address: Address,

    /// Memory of the pool in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    capacity: u64,

    /// Most memory of one member in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    quota: u64,

    /// Memory dealt out at once in MiB, up to 1024; members begin with less
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    batch: u64,
}

impl PoolCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Serve(arguments) => arguments.run(),
        }
    }
}

impl ServeArgs {
    fn run(self) -> Result<(), Failure> {
        let bytes = |mib: u64| mib.saturating_mul(1 << 20);
        let capacity = Capacity {
            total: bytes(self.capacity),
            member_quota: bytes(self.quota),
            batch: bytes(self.batch),
        };
        let coordinator = Coordinator::start(&self.address, capacity)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        eprintln!("coordinating a pool of {} MiB at {}", self.capacity, self.address);
        let ended = until_interrupted(async {
            while coordinator.is_running() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        coordinator.stop();
        ended??;
        Err(Failure::Failed(format!("the coordinator at {} has ended by itself", self.address)))
    }
}
