//! The result of a run: for programs as JSON, for people as a table, for later questions as raw counts.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tollfree_bench::harness::measured::{each, interval_of_ratios, ratios, together};
use tollfree_bench::harness::{self, Machine, Rows, Tried, is_failure};
use tollfree_bench::latency::{Latencies, Quantiles};

use crate::dagger::{self, DaggerFigure};
use crate::load::Measured;
use crate::plan::{Case, Plan};
use crate::side::Side;
use crate::sizes::Sizes;
use crate::slope::{Slope, slopes};
use crate::tally::Tally;
use crate::{plot, table};

/// The load generator's name among the processes.
pub(crate) const LOAD: &str = "load";

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was run.
    pub title: String,
    /// The figure that it is, where its table and plot are not those of all workloads.
    pub figure: Option<DaggerFigure>,
    /// Payloads of at least so many bytes went by ref, where there was a pool; the library's default, if null.
    pub ref_threshold: Option<usize>,
    /// Whether Tollfree's processes slept through every wait instead of spinning first.
    pub park: bool,
    /// How the figures came to be.
    pub label: &'static str,
    /// One row for each case of the plan, in its order.
    #[serde(flatten)]
    pub rows: Rows<Row>,
    /// What a further call of a chain, and a further KiB, cost.
    pub slopes: Vec<Slope>,
}

/// One case. The figures are of all rounds together, and null when the case was not run.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub case: Case,
    /// Latencies and rate of all rounds together.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// Calls that an open load did not make, because too many were outstanding.
    pub shed: u64,
    /// What all processes counted, for each call.
    pub all: Option<PerCall>,
    /// The share of useful work in the processor time of all processes but the load generator (NotNets, figure 1b).
    pub useful_share: Option<f64>,
    /// The share of the mean latency that is no handler's time: what is left when no call is under way, in all services of a request
    /// together (Dagger, figure 1).
    pub networking_share: Option<f64>,
    /// What those counted that pass payloads on without a look at them, for each call.
    pub movers: Option<PerCall>,
    /// Beside tonic in the same setting.
    pub vs_tonic: Option<Comparison>,
    /// Beside Tollfree without a pool in the same setting.
    pub vs_inline: Option<Comparison>,
    /// Each round.
    pub rounds: Vec<Round>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

/// Counts of several processes, divided by the calls that the load generator made.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct PerCall {
    /// Processor time in nanoseconds, waiting by spinning included.
    pub cpu_ns: f64,
    /// Of this, outside of the image library.
    pub cpu_outside_codec_ns: f64,
    /// Bytes that Tollfree says it copied for large messages; of tonic nobody counts them.
    pub copied_bytes: Option<f64>,
    /// Processor time of handlers, the calls that they make left out, in nanoseconds.
    pub useful_ns: f64,
    /// Time of handlers while no call of theirs was under way, in nanoseconds.
    pub own_ns: f64,
    /// Payload bytes that were sent as refs.
    pub ref_bytes: f64,
    /// Messages that came as flat messages.
    pub objects: f64,
    /// Bytes that system calls wrote: copied into the kernel, and out of it again by who reads them.
    pub sent_bytes: f64,
}

/// One round of a case.
#[derive(Debug, Serialize)]
pub struct Round {
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
    /// Calls that were answered in a second of wall clock.
    pub rate_per_s: f64,
    /// What each process counted.
    pub processes: Vec<Process>,
    #[serde(skip)]
    latencies: Latencies,
    #[serde(skip)]
    elapsed_ns: u64,
    #[serde(skip)]
    shed: u64,
}

/// A process in one round.
#[derive(Debug, Serialize)]
pub struct Process {
    /// Its part, and its place among the others.
    pub name: String,
    /// Whether it passes payloads on without a look at them.
    pub is_mover: bool,
    /// What it counted.
    #[serde(flatten)]
    pub tally: Tally,
    /// How long the messages were of its calls, the warm-up's too.
    #[serde(skip)]
    pub sizes: Sizes,
}

/// A case divided by the same case on another side: below 1 is less time, or fewer calls a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Comparison {
    /// Of the medians of all rounds together.
    pub p50: f64,
    /// 95 % interval of that ratio, from ratios within rounds; needs two.
    pub p50_interval: Option<(f64, f64)>,
    /// Of the rates.
    pub rate: f64,
    /// 95 % interval of that ratio.
    pub rate_interval: Option<(f64, f64)>,
    /// Of the processor time outside of the image library, all processes together.
    pub cpu_outside_codec: f64,
    /// 95 % interval of that ratio.
    pub cpu_outside_codec_interval: Option<(f64, f64)>,
    /// Of the processor time of those that pass payloads on without a look at them: what hops cost, where there are any.
    pub cpu_in_movers: Option<f64>,
    /// 95 % interval of that ratio.
    pub cpu_in_movers_interval: Option<(f64, f64)>,
}

impl Round {
    pub(crate) fn new(measured: Measured, processes: Vec<(String, bool, Tally)>) -> Self {
        let Measured { latencies, elapsed_ns, shed } = measured;
        Self {
            p50_ns: latencies.quantile_ns(0.5),
            mean_ns: latencies.mean_ns(),
            rate_per_s: latencies.count() as f64 / (elapsed_ns as f64 / 1e9),
            processes: processes
                .into_iter()
                .map(|(name, is_mover, tally)| Process { name, is_mover, tally, sizes: Sizes::default() })
                .collect(),
            latencies,
            elapsed_ns,
            shed,
        }
    }
}

impl Process {
    /// Takes in how long the messages of its calls were.
    pub(crate) fn saw(&mut self, sizes: Sizes) {
        self.sizes = sizes;
    }
}

impl Round {
    /// Processor time of all processes for each call, in nanoseconds.
    pub(crate) fn cpu_ns_per_call(&self) -> f64 {
        self.per_call(|process| process.tally.cpu_ns)
    }

    /// Processor time outside of the image library.
    fn cpu_outside_codec_ns(&self) -> f64 {
        self.per_call(|process| process.tally.cpu_ns.saturating_sub(process.tally.codec_ns))
    }

    /// Processor time of those that pass payloads on.
    fn cpu_in_movers_ns(&self) -> f64 {
        self.per_call(|process| if process.is_mover { process.tally.cpu_ns } else { 0 })
    }

    fn per_call(&self, of: impl Fn(&Process) -> u64) -> f64 {
        each(self.processes.iter().map(of).sum(), self.latencies.count())
    }
}

impl Row {
    pub(crate) fn of(Tried { case, rounds, not_run }: Tried<Case, Round>) -> Self {
        Self {
            case,
            quantiles: Quantiles::default(),
            shed: 0,
            all: None,
            useful_share: None,
            networking_share: None,
            movers: None,
            vs_tonic: None,
            vs_inline: None,
            rounds,
            not_run,
        }
    }

    /// All rounds' calls together; none when the case was not run.
    #[must_use]
    pub fn latencies(&self) -> Option<Latencies> {
        let rounds = self.rounds.iter().map(|round| &round.latencies);
        (!self.rounds.is_empty()).then(|| together(rounds))
    }

    fn sum_up(&mut self) {
        let Some(all) = self.latencies() else { return };
        let elapsed_ns: u64 = self.rounds.iter().map(|round| round.elapsed_ns).sum();
        self.quantiles = Quantiles::of(&all, Duration::from_nanos(elapsed_ns));
        self.shed = self.rounds.iter().map(|round| round.shed).sum();
        self.all = Some(self.per_call(|_| true));
        let services = self.per_call(|process| process.name != LOAD);
        self.useful_share = (services.cpu_ns > 0.0).then(|| services.useful_ns / services.cpu_ns);
        self.networking_share =
            self.quantiles.mean_ns.map(|mean_ns| (1.0 - services.own_ns / mean_ns).clamp(0.0, 1.0));
        self.movers = Some(self.per_call(|process| process.is_mover));
    }

    /// The calls that were not made, where some were.
    pub(crate) fn shed_in_words(&self) -> String {
        if self.shed == 0 { String::new() } else { format!("{} calls shed", self.shed) }
    }

    fn per_call(&self, counts: impl Fn(&Process) -> bool) -> PerCall {
        let mut sum = Tally::default();
        let processes = self.rounds.iter().flat_map(|round| &round.processes);
        let (mut useful_ns, mut own_ns) = (0.0, 0.0);
        for process in processes.filter(|process| counts(process)) {
            sum.add(process.tally);
            useful_ns += process.tally.useful_ns_of_all();
            own_ns += process.tally.own_ns_of_all();
        }
        let calls = self.quantiles.calls;
        let each = |total: u64| each(total, calls);
        PerCall {
            cpu_ns: each(sum.cpu_ns),
            cpu_outside_codec_ns: each(sum.cpu_ns.saturating_sub(sum.codec_ns)),
            useful_ns: useful_ns / calls.max(1) as f64,
            own_ns: own_ns / calls.max(1) as f64,
            copied_bytes: (self.case.side != Side::Tonic).then(|| each(sum.copied_bytes)),
            ref_bytes: each(sum.ref_bytes),
            objects: each(sum.objects),
            sent_bytes: each(sum.sent_bytes),
        }
    }

    fn compare(&self, yardstick: &Self) -> Option<Comparison> {
        let interval =
            |of: fn(&Round) -> f64| interval_of_ratios(&ratios(&self.rounds, &yardstick.rounds, of));
        let (moved, theirs) = (self.movers?.cpu_ns, yardstick.movers?.cpu_ns);
        let has_movers = moved > 0.0 && theirs > 0.0;
        Some(Comparison {
            p50: self.quantiles.p50_ns? as f64 / yardstick.quantiles.p50_ns? as f64,
            p50_interval: interval(|round| round.p50_ns as f64),
            rate: self.quantiles.rate_per_s? / yardstick.quantiles.rate_per_s?,
            rate_interval: interval(|round| round.rate_per_s),
            cpu_outside_codec: self.all?.cpu_outside_codec_ns / yardstick.all?.cpu_outside_codec_ns,
            cpu_outside_codec_interval: interval(Round::cpu_outside_codec_ns),
            cpu_in_movers: has_movers.then(|| moved / theirs),
            cpu_in_movers_interval: interval(Round::cpu_in_movers_ns).filter(|_| has_movers),
        })
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, plan: &Plan, tried: Vec<Tried<Case, Round>>) -> Self {
        let mut all = Rows::of(machine, plan.lasting, tried, Row::of);
        let rows = &mut all.rows;
        rows.iter_mut().for_each(Row::sum_up);
        let beside =
            |row: &Row, side| row.compare(rows.iter().find(|other| other.case == row.case.on(side))?);
        let compared: Vec<_> =
            rows.iter().map(|row| (beside(row, Side::Tonic), beside(row, Side::Inline))).collect();
        for (row, (tonic, inline)) in rows.iter_mut().zip(compared) {
            (row.vs_tonic, row.vs_inline) = (tonic, inline);
        }
        Self {
            title: plan.title.clone(),
            figure: plan.figure,
            ref_threshold: plan.ref_threshold,
            park: plan.park,
            label: "measured",
            slopes: slopes(rows),
            rows: all,
        }
    }

    /// Every call that was measured: how many took how long.
    fn csv(&self) -> String {
        let mut text = String::from("setting,pressure,side,round,up_to_ns,calls\n");
        for row in &self.rows.rows {
            let Case { side, shape, pressure } = &row.case;
            let setting = shape.setting();
            for (round_idx, round) in row.rounds.iter().enumerate() {
                for (up_to_ns, calls) in round.latencies.pairs() {
                    let _ = writeln!(
                        text,
                        "\"{setting}\",{pressure},{side},{},{up_to_ns},{calls}",
                        round_idx + 1
                    );
                }
            }
        }
        text
    }
}

impl harness::Report for Report {
    fn table(&self) -> String {
        let (machine, Rows { seconds, rounds, .. }) = (&self.rows.machine, &self.rows);
        let head = format!(
            "{} ({})\n{}, {} cores, Linux {}, {} build of Tollfree {}, {rounds} rounds of {seconds} s, processes pinned in turn\n",
            self.title,
            self.label,
            machine.cpu,
            machine.cores,
            machine.kernel,
            machine.build,
            machine.version
        );
        head + &self.figure.map_or_else(|| table::tables(self), |figure| dagger::tables(self, figure))
    }

    fn began(&self) -> &str {
        &self.rows.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.rows.rows.iter().filter(|row| is_failure(row.not_run.as_ref())).count()
    }

    /// With `sizes.csv` where lengths of messages are what is asked.
    fn files(&self) -> Vec<(&'static str, String)> {
        let sizes = (self.figure == Some(DaggerFigure::Fig2)).then(|| ("sizes.csv", dagger::sizes_csv(self)));
        [("latencies.csv", self.csv()), ("plot.svg", plot::draw(self))].into_iter().chain(sizes).collect()
    }
}
