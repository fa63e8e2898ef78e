//! `tollfree-lab workload`: services in processes of their own, on every side.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tollfree_bench::harness::Lasting;
use tollfree_workloads::{Plan, Pressure, Shape, Side, Work};

use crate::failure::Failure;
use crate::measuring::{Output, measure, or};

/// What `tollfree-lab workload` can run. Lists are separated by commas; every combination is a row.
#[derive(Debug, Subcommand)]
pub(crate) enum Workload {
    /// An array goes through calls of which each makes the next, and the last reads it
    Chain(ChainArgs),
    /// Arrays go through a balancer to workers, who read them
    Balancer(BalancerArgs),
    /// A block is written, read by a service, given back, and read again
    Echo(EchoArgs),
    /// Images go through firewall, balancer and image processing to transcoding or compressing, and back
    Images(ImagesArgs),
    /// A social network: 60 % read home timelines, 30 % user timelines, 10 % compose posts
    Social(SocialArgs),
    /// A hotel reservation of six services: 90 % search, 10 % book
    Hotel(HotelArgs),
}

/// Options of `tollfree-lab workload chain`.
#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    /// Calls in the chain
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,3,4,5,6,7")]
    length: Vec<usize>,

    /// Bytes of the array
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "65536")]
    size: Vec<usize>,

    /// Pass the same array each time, and read its first byte only: what passing alone costs
    #[arg(long)]
    untouched: bool,

    #[command(flatten)]
    closed: ClosedArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// Options of `tollfree-lab workload balancer`.
#[derive(Debug, Args)]
pub(crate) struct BalancerArgs {
    /// Workers behind the balancer
    #[arg(long, value_name = "N", default_value_t = 3)]
    workers: usize,

    /// Bytes of an array
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "4096,8192,16384,32768")]
    size: Vec<usize>,

    #[command(flatten)]
    closed: ClosedArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// Options of `tollfree-lab workload echo`.
#[derive(Debug, Args)]
pub(crate) struct EchoArgs {
    /// Bytes of the block
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "65536,1048576")]
    size: Vec<usize>,

    #[command(flatten)]
    closed: ClosedArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// Options of `tollfree-lab workload images`.
#[derive(Debug, Args)]
pub(crate) struct ImagesArgs {
    /// What the workers do
    #[arg(long, value_name = "WORK", default_value = "codec")]
    work: WorkArg,

    /// Bytes of an image, about; ignored with --images
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "65536")]
    size: Vec<usize>,

    /// A directory with JPEG and PNG files to send [default: two are drawn]
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,

    #[command(flatten)]
    closed: ClosedArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// Options of `tollfree-lab workload social`.
#[derive(Debug, Args)]
pub(crate) struct SocialArgs {
    /// Bytes of a post's media
    #[arg(long, value_name = "N", default_value_t = 8192)]
    media: usize,

    /// Requests a second, whatever becomes of earlier ones
    #[arg(long, value_name = "R,...", value_delimiter = ',', default_value = "200,800")]
    rate: Vec<f64>,

    #[command(flatten)]
    run: RunArgs,
}

/// Options of `tollfree-lab workload hotel`.
#[derive(Debug, Args)]
pub(crate) struct HotelArgs {
    /// Bytes of a hotel's description
    #[arg(long, value_name = "N", default_value_t = 1024)]
    description: usize,

    #[command(flatten)]
    closed: ClosedArgs,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WorkArg {
    /// Decode, and encode anew
    Codec,
    /// Read every byte, and give the image back: transfer is all there is
    Touch,
}

/// How hard a closed load is.
#[derive(Debug, Args)]
struct ClosedArgs {
    /// Calls outstanding at any time
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    inflight: Vec<usize>,
}

/// What all workloads have.
#[derive(Debug, Args)]
struct RunArgs {
    /// How payloads travel: tonic, inline, ref, ref-copy; gateway, gateway-objects, gateway-stream, for the hotel [default: the
    /// first four; the hotel: tonic, inline, and those with a gateway]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<Side>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 5)]
    rounds: usize,

    /// Payloads of at least so many bytes go by ref [default: the library's]
    #[arg(long, value_name = "N")]
    ref_threshold: Option<usize>,

    /// Tollfree's processes sleep through every wait instead of spinning first
    #[arg(long)]
    park: bool,

    #[command(flatten)]
    output: Output,
}

impl Workload {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let closed = |closed: ClosedArgs| closed.inflight.into_iter().map(Pressure::Inflight).collect();
        let (name, shapes, pressures, images, run): (_, Vec<Shape>, Vec<Pressure>, _, _) = match self {
            Self::Chain(ChainArgs { length, size, untouched, closed: load, run }) => {
                let of_size = |size| {
                    let with = move |&length: &usize| Shape::Chain { length, size, whole: !untouched };
                    length.iter().map(with).collect::<Vec<_>>()
                };
                ("chain", size.into_iter().flat_map(of_size).collect(), closed(load), None, run)
            }
            Self::Balancer(BalancerArgs { workers, size, closed: load, run }) => {
                let shape = |size| Shape::Balancer { workers, size };
                ("balancer", size.into_iter().map(shape).collect(), closed(load), None, run)
            }
            Self::Echo(EchoArgs { size, closed: load, run }) => {
                let shape = |size| Shape::Echo { size };
                ("echo", size.into_iter().map(shape).collect(), closed(load), None, run)
            }
            Self::Images(ImagesArgs { work, size, images, closed: load, run }) => {
                let work = match work {
                    WorkArg::Codec => Work::Codec,
                    WorkArg::Touch => Work::Touch,
                };
                let shape = |size| Shape::Images { work, size };
                ("images", size.into_iter().map(shape).collect(), closed(load), images, run)
            }
            Self::Social(SocialArgs { media, rate, run }) => {
                let rates = rate.into_iter().map(Pressure::Rate).collect();
                ("social", vec![Shape::Social { media }], rates, None, run)
            }
            Self::Hotel(HotelArgs { description, closed: load, run }) => {
                ("hotel", vec![Shape::Hotel { description }], closed(load), None, run)
            }
        };
        let sides = shapes.first().map_or(Side::ALL, Shape::sides);
        let plan = Plan {
            title: format!("Workload {name}"),
            figure: None,
            shapes,
            pressures,
            sides: or(run.side, sides),
            lasting: Lasting { seconds: run.seconds, rounds: run.rounds },
            ref_threshold: run.ref_threshold,
            park: run.park,
            images,
        };
        carry_out(&plan, name, run.output)
    }
}

/// Runs a plan, and puts its result where it was asked for.
pub(crate) fn carry_out(plan: &Plan, name: &str, output: Output) -> Result<(), Failure> {
    let report = measure(async |tell| tollfree_workloads::run(plan, tell).await)?;
    output.give(name, &report)
}
