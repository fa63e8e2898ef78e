//! `tollfree-lab model`: what is worked out, and not measured.

use clap::{Args, Subcommand};
use tollfree_bench::echo;
use tollfree_bench::harness::{self, Machine};
use tollfree_bench::model::{BusCosts, BusModel, OffloadModel};
use tollfree_codec_bench::{offload_costs, ring_plan};
use tollfree_workloads::LoadBalancingModel;

use crate::failure::Failure;
use crate::measuring::{Output, measure, print};

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    LoadBalancing(LoadBalancingArgs),
    Offload(OffloadArgs),
    Bus(BusArgs),
}

/// Simulate the gateway's load balancing policies on traces, beside the offline optimum
#[derive(Debug, Args)]
#[command(after_help = "\
Every row is simulated. A hit is a request to a worker that has its function among the last that it ran. Times of requests don't
depend on hits. The optimum heeds the same bound. It is exact for small traces; for others it is between what a schedule has that was
made with all requests known, and what one cache has that is as large as all together and knows no bound (Belady's rule).")]
pub(crate) struct LoadBalancingArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Repeat Cerebros' figure 6: what is left of the RPC layer on a backend's core, by what is offloaded
#[derive(Debug, Args)]
#[command(after_help = "\
Every row is modelled: from the paper's costs, and with --measure from this machine's too, which are measured first (headers, payloads
and dispatch of the service UniqueId by the processor, and a round trip over two bare rings as what an offload costs).")]
pub(crate) struct OffloadArgs {
    /// Measure this machine's costs, in a few seconds
    #[arg(long)]
    measure: bool,

    #[command(flatten)]
    output: Output,
}

/// Repeat Dagger's figures 5 and 6: 64-byte requests over a bus, by how a device is told of them
#[derive(Debug, Args)]
#[command(after_help = "\
Every row is modelled. Costs are fitted to the rates that the paper prints, unless they are given.")]
pub(crate) struct BusArgs {
    /// Nanoseconds of software for each request
    #[arg(long, value_name = "NS", default_value_t = BusCosts::default().software_ns)]
    software_ns: f64,

    /// Nanoseconds of bookkeeping for each request that goes by DMA
    #[arg(long, value_name = "NS", default_value_t = BusCosts::default().dma_ns)]
    dma_ns: f64,

    /// Nanoseconds of a write to the device
    #[arg(long, value_name = "NS", default_value_t = BusCosts::default().mmio_ns)]
    mmio_ns: f64,

    /// Nanoseconds of a fetch of coherent lines
    #[arg(long, value_name = "NS", default_value_t = BusCosts::default().fetch_ns)]
    fetch_ns: f64,

    /// How many times as much two threads of a core do as one
    #[arg(long, value_name = "TIMES", default_value_t = BusCosts::default().core_of_two)]
    core_of_two: f64,

    #[command(flatten)]
    output: Output,
}

impl Model {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Model::LoadBalancing(LoadBalancingArgs { json }) => {
                let model = LoadBalancingModel::run();
                print(&if json { format!("{}\n", serde_json::json!(model)) } else { model.text() })
            }
            Model::Offload(OffloadArgs { measure: is_measured, output }) => {
                let here = match is_measured {
                    true => {
                        let ring = measure(async |tell| echo::run(&ring_plan(), tell).await)?;
                        Some(offload_costs(&ring)?)
                    }
                    false => None,
                };
                output.give("model-offload", &OffloadModel::new(machine()?, here))
            }
            Model::Bus(bus) => {
                let BusArgs { software_ns, dma_ns, mmio_ns, fetch_ns, core_of_two, output } = bus;
                let costs = BusCosts { software_ns, dma_ns, mmio_ns, fetch_ns, core_of_two };
                costs.check()?;
                output.give("model-bus", &BusModel::new(machine()?, costs))
            }
        }
    }
}

fn machine() -> Result<Machine, Failure> {
    Ok(Machine::look(&harness::seats([])?, &[]))
}
