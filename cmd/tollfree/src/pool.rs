//! `tollfree pool`: a pool's coordinator on its own.

use std::time::Duration;

use clap::{Args, Subcommand};
use tollfree_measure::interrupt::until_interrupted;
use tollfree_pool::{Address, Capacity, Coordinator, PoolMember, PoolShown, Standing};

use crate::failure::{Failure, print};

/// How long a coordinator may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `tollfree pool` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Coordinate a pool until interrupted; its members then keep the memory that they have
    Serve(ServeArgs),

    /// List a pool's members: their processes, memory, and whether they are connected
    Show(ShowArgs),
}

/// Options of `tollfree pool show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Address of the coordinator, such as shm:///run/app/pool.sock
    address: Address,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Options of `tollfree pool serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address at which members join, such as shm:///run/app/pool.sock
    address: Address,

    /// Memory of the pool in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    capacity: u64,

    /// Maximum memory of one member in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    quota: u64,

    /// Memory assigned to a member at a time in MiB, up to 1024; members begin with less
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    batch: u64,
}

impl PoolCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Serve(arguments) => arguments.run(),
            Self::Show(arguments) => arguments.run(),
        }
    }
}

impl ShowArgs {
    fn run(self) -> Result<(), Failure> {
        let shown = tollfree_pool::show(&self.address, PATIENCE);
        let shown = shown.map_err(|error| Failure::Failed(error.to_string()))?;
        print(&if self.json { json(&shown) } else { table(&shown) })
    }
}

fn words(standing: Standing) -> &'static str {
    match standing {
        Standing::Attached => "attached",
        Standing::Returning => "returning",
        _ => "cut-off",
    }
}

fn json(shown: &PoolShown) -> String {
    let member = |member: &PoolMember| {
        serde_json::json!({
            "member": member.member,
            "process": member.process,
            "granted_bytes": member.granted_bytes,
            "extent_bytes": member.extent_bytes,
            "standing": words(member.standing),
        })
    };
    let pool = serde_json::json!({
        "total_bytes": shown.total_bytes,
        "used_bytes": shown.used_bytes,
        "members": shown.members.iter().map(member).collect::<Vec<_>>(),
    });
    format!("{pool:#}\n")
}

fn table(shown: &PoolShown) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut text = format!(
        "{:.2} of {:.2} MiB in use, {} members\n  {:>10} {:>10} {:>13} {:>13}\n",
        mib(shown.used_bytes),
        mib(shown.total_bytes),
        shown.members.len(),
        "member",
        "process",
        "granted, MiB",
        "extents, MiB",
    );
    for member in &shown.members {
        let process = member.process.map_or_else(|| "unseen".to_owned(), |process| process.to_string());
        let (granted, extents) = (mib(member.granted_bytes), mib(member.extent_bytes));
        let standing = words(member.standing);
        text +=
            &format!("  {:>10} {process:>10} {granted:>13.2} {extents:>13.2}  {standing}\n", member.member);
    }
    text
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
