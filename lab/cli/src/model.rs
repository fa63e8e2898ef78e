//! `tollfree-lab model`: what is worked out, and not measured.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tollfree_bench::Machine;
use tollfree_bench::cores::Cores;
use tollfree_bench::model::{BusCosts, BusModel, OffloadCosts, OffloadModel, ring_plan};
use tollfree_workloads::SteeringModel;

use crate::bench::{measure, print};
use crate::bench_paced::{out, warn_of_debug_build};
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    Steering(SteeringArgs),
    Offload(OffloadArgs),
    Bus(BusArgs),
}

/// Simulate the shepherd's steering policies on traces, beside the offline optimum
#[derive(Debug, Args)]
#[command(after_help = "\
Every row is simulated. A hit is a request to a worker that has its function among the last that it ran. Times of requests don't
depend on hits. The optimum heeds the same bound. It is exact for small traces; for others it is between what a schedule has that was
made with all requests known, and what one cache has that is as large as all together and knows no bound (Belady's rule).")]
pub(crate) struct SteeringArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Repeat Cerebros' figure 6: what is left of the RPC layer on a business core, by what is offloaded
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

#[derive(Debug, Args)]
struct Output {
    /// Directory for the raw data, the table and the plot [default: bench-out/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl Model {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Model::Steering(SteeringArgs { json }) => {
                let model = SteeringModel::run();
                print(&if json { format!("{}\n", serde_json::json!(model)) } else { model.text() })
            }
            Model::Offload(OffloadArgs { measure: is_measured, output }) => {
                let here = is_measured
                    .then(|| {
                        warn_of_debug_build();
                        Ok::<_, Failure>(OffloadCosts::measure(&measure(&ring_plan())?)?)
                    })
                    .transpose()?;
                let model = OffloadModel::new(machine()?, here);
                let dir = out(output.out, "model-offload", &model.machine.started_at);
                model.save(&dir)?;
                eprintln!("raw data, table and plot are in {}", dir.display());
                print(&if output.json { model.json() + "\n" } else { model.table() })
            }
            Model::Bus(bus) => {
                let BusArgs { software_ns, dma_ns, mmio_ns, fetch_ns, core_of_two, output } = bus;
                let costs = BusCosts { software_ns, dma_ns, mmio_ns, fetch_ns, core_of_two };
                costs.check()?;
                let model = BusModel::new(machine()?, costs);
                let dir = out(output.out, "model-bus", &model.machine.started_at);
                model.save(&dir)?;
                eprintln!("raw data, table and plot are in {}", dir.display());
                print(&if output.json { model.json() + "\n" } else { model.table() })
            }
        }
    }
}

fn machine() -> Result<Machine, Failure> {
    Ok(Machine::look(&Cores::choose()?, &[]))
}
