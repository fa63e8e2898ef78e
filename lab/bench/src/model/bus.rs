//! Dagger's figures 5 and 6: 64-byte requests from a core to a device over a bus, by how the device is told of them.

use serde::Serialize;

use crate::harness::chart::side_by_side;
use crate::harness::words::figure;
use crate::harness::{Chart, Machine, Report, Table, refuse};
use crate::{BenchError, cells};

/// How a device is told of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The request itself is written to the device.
    Mmio,
    /// It lies in memory; a write to the device tells of it, or of a batch.
    Doorbell,
    /// It lies in memory that the device looks at; nothing else is written.
    Coherent,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Mode::Mmio => "mmio",
            Mode::Doorbell => "doorbell",
            Mode::Coherent => "coherent",
        }
    }
}

/// What the core pays, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BusCosts {
    /// For each request: making it, and taking the reply.
    pub software_ns: f64,
    /// For each request that lies in memory for DMA: the transfer's bookkeeping.
    pub dma_ns: f64,
    /// For each write to the device.
    pub mmio_ns: f64,
    /// For each time that the device fetches lines of coherent memory, of one request or of a batch.
    pub fetch_ns: f64,
    /// How many times as much two threads of a core do as one does.
    pub core_of_two: f64,
}

impl Default for BusCosts {
    /// All fitted to the rates that the paper prints, of figure 5 and of four threads on two cores; none is printed itself.
    fn default() -> BusCosts {
        BusCosts { software_ns: 66.4, dma_ns: 12.2, mmio_ns: 154.0, fetch_ns: 57.1, core_of_two: 1.69 }
    }
}

impl BusCosts {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value.
    pub fn check(&self) -> Result<(), BenchError> {
        let all = [self.software_ns, self.dma_ns, self.mmio_ns, self.fetch_ns];
        match all.iter().find(|cost| !(0.1..=1e6).contains(*cost)) {
            Some(cost) => refuse(format!("{cost} ns: must be 0.1 to 1000000")),
            None if !(1.0..=2.0).contains(&self.core_of_two) => {
                refuse(format!("{} times: must be 1 to 2", self.core_of_two))
            }
            None => Ok(()),
        }
    }

    /// Millions of requests a second of one thread.
    fn rate(&self, mode: Mode, batch: u32) -> f64 {
        let batch = f64::from(batch);
        let each_ns = match mode {
            Mode::Mmio => self.software_ns + self.dma_ns + self.mmio_ns,
            Mode::Doorbell => self.software_ns + self.dma_ns + self.mmio_ns / batch,
            Mode::Coherent => self.software_ns + self.fetch_ns / batch,
        };
        1e3 / each_ns
    }
}

/// Microseconds from request to reply when nothing is batched: what the paper prints.
const fn alone_us(mode: Mode) -> f64 {
    match mode {
        Mode::Mmio => 3.8,
        Mode::Doorbell => 4.4,
        // 1.8 to 2.0.
        Mode::Coherent => 1.9,
    }
}

/// The same with batches that are filled at a load: a request waits for half of those behind it.
fn latency_us(mode: Mode, batch: u32, load: f64) -> f64 {
    alone_us(mode) + f64::from(batch - 1) / 2.0 / load
}

/// The load at which figure 5's latencies are, in millions a second.
const LOAD: f64 = 4.0;
/// Modes, batches, and the rate that the paper prints.
const FIGURE_5: [(Mode, u32, f64); 8] = [
    (Mode::Mmio, 1, 4.2),
    (Mode::Doorbell, 1, 4.3),
    (Mode::Doorbell, 3, 7.9),
    (Mode::Doorbell, 7, 9.9),
    (Mode::Doorbell, 11, 10.8),
    (Mode::Doorbell, 32, 12.0),
    (Mode::Coherent, 1, 8.1),
    (Mode::Coherent, 4, 12.4),
];
/// Batches that figure 6 chooses from.
const BATCHES: [u32; 2] = [1, 4];
/// Threads of a core, and the cores of figure 6.
const THREADS_OF_CORE: u32 = 2;
const CORES: u32 = 2;

/// A bar of figure 5.
#[derive(Debug, Clone, Serialize)]
pub struct BusRow {
    /// `modelled`.
    pub kind: &'static str,
    /// How the device is told.
    pub mode: Mode,
    /// Of how many requests at once.
    pub batch: u32,
    /// Millions of requests a second of one thread.
    pub rate_mrps: f64,
    /// What the paper prints.
    pub printed_mrps: f64,
    /// Microseconds at 4 million a second.
    pub latency_us: f64,
}

/// A load of figure 6, one thread, coherent.
#[derive(Debug, Clone, Serialize)]
pub struct LoadRow {
    /// `modelled`.
    pub kind: &'static str,
    /// Millions of requests a second.
    pub load_mrps: f64,
    /// With each fixed batch. Null beyond its rate.
    pub fixed: Vec<BatchRow>,
    /// The batch that is chosen by load: the smallest that keeps up.
    pub automatic: Option<BatchRow>,
}

/// A batch, and its latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchRow {
    /// Requests.
    pub batch: u32,
    /// Microseconds; null where it doesn't keep up.
    pub latency_us: Option<f64>,
}

/// Threads of figure 6, coherent in batches of four.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadRow {
    /// `modelled`.
    pub kind: &'static str,
    /// Threads, on cores of two threads, each core's first before any second.
    pub threads: u32,
    /// Millions of requests a second of all.
    pub rate_mrps: f64,
    /// What the paper prints.
    pub printed_mrps: Option<f64>,
}

/// Both figures.
#[derive(Debug, Clone, Serialize)]
pub struct BusModel {
    /// Of no importance for the figures: where they were worked out.
    pub machine: Machine,
    /// The costs.
    pub costs: BusCosts,
    /// Whether they are those that were fitted to the paper's figures.
    pub is_fitted: bool,
    /// Figure 5.
    pub rows: Vec<BusRow>,
    /// Figure 6, by load.
    pub loads: Vec<LoadRow>,
    /// Figure 6, by threads.
    pub threads: Vec<ThreadRow>,
}

const KIND: &str = "modelled";

impl BusModel {
    /// Works both figures out.
    #[must_use]
    pub fn new(machine: Machine, costs: BusCosts) -> BusModel {
        let rows = FIGURE_5.map(|(mode, batch, printed_mrps)| BusRow {
            kind: KIND,
            mode,
            batch,
            rate_mrps: costs.rate(mode, batch),
            printed_mrps,
            latency_us: latency_us(mode, batch, LOAD),
        });
        let loads = (1..=12).map(|load| {
            let load = f64::from(load);
            let fixed = BATCHES.map(|batch| {
                let keeps_up = costs.rate(Mode::Coherent, batch) >= load;
                BatchRow { batch, latency_us: keeps_up.then(|| latency_us(Mode::Coherent, batch, load)) }
            });
            let automatic = fixed.into_iter().find(|row| row.latency_us.is_some());
            LoadRow { kind: KIND, load_mrps: load, fixed: fixed.to_vec(), automatic }
        });
        let one = costs.rate(Mode::Coherent, 4);
        let threads = (1..=CORES * THREADS_OF_CORE).map(|threads| {
            let seconds = f64::from(threads.saturating_sub(CORES));
            let firsts = f64::from(threads.min(CORES));
            let printed_mrps = match threads {
                1 => Some(12.4),
                4 => Some(42.0),
                _ => None,
            };
            let rate_mrps = one * (firsts + seconds * (costs.core_of_two - 1.0));
            ThreadRow { kind: KIND, threads, rate_mrps, printed_mrps }
        });
        let is_fitted = costs == BusCosts::default();
        BusModel {
            machine,
            costs,
            is_fitted,
            rows: rows.to_vec(),
            loads: loads.collect(),
            threads: threads.collect(),
        }
    }
}

impl Report for BusModel {
    fn table(&self) -> String {
        let BusCosts { software_ns, dma_ns, mmio_ns, fetch_ns, core_of_two } = self.costs;
        let from = if self.is_fitted { "fitted to the paper's rates" } else { "as given" };
        let mut figure_5 = Table::new("mode", "batch|Mrps|printed|latency us");
        for row in &self.rows {
            let (rate, latency) = (format!("{:.2}", row.rate_mrps), format!("{:.2}", row.latency_us));
            figure_5.row(cells![row.mode.name(), row.batch, rate, row.printed_mrps, latency]);
        }
        let mut loads = Table::new("Mrps", "1|4|automatic");
        for row in &self.loads {
            let mut cells = cells![row.load_mrps];
            cells.extend(row.fixed.iter().map(|fixed| figure(fixed.latency_us, 2)));
            cells.push(figure(row.automatic.and_then(|row| row.latency_us), 2));
            loads.row(cells);
        }
        let mut threads = Table::new("threads", "Mrps|printed");
        for row in &self.threads {
            let rate = format!("{:.1}", row.rate_mrps);
            threads.row(cells![row.threads, rate, figure(row.printed_mrps, 1)]);
        }
        format!(
            "modelled, 64-byte requests; costs {from}: software {software_ns} ns and DMA {dma_ns} ns a request, MMIO {mmio_ns} ns a write, {fetch_ns} ns a \
             fetch of coherent lines, {core_of_two} times for a second thread of a core\n\
             figure 5: one thread; latency at {LOAD} Mrps\n{figure_5}\
             figure 6: coherent, latency in us by load\n{loads}\
             figure 6: coherent, batches of 4, by threads\n{threads}"
        )
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let line = |mode: Mode| {
            let rows = self.rows.iter().filter(move |row| row.mode == mode);
            let point = |row: &BusRow| (f64::from(row.batch), [row.rate_mrps, row.latency_us]);
            (format!("{}, modelled", mode.name()), rows.map(point).collect::<Vec<_>>())
        };
        let printed = self
            .rows
            .iter()
            .filter(|row| row.mode == Mode::Doorbell)
            .map(|row| (f64::from(row.batch), [row.printed_mrps, row.latency_us]));
        let mut lines: Vec<_> = [Mode::Mmio, Mode::Doorbell, Mode::Coherent].map(line).into();
        lines.push(("doorbell, the paper's rates".to_owned(), printed.collect()));
        let titles = ["Mrps of one thread", "latency at 4 Mrps, µs"];
        let panels = side_by_side("requests in a batch", titles, &lines);
        let title = "64-byte requests over a bus (modelled)";
        vec![("plot.svg", Chart { title, machine: &self.machine, panels }.draw())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;

    fn model(costs: BusCosts) -> BusModel {
        BusModel::new(Machine::look(&Cores::choose().unwrap(), &[]), costs)
    }

    /// Rates within 3 % of what is printed; the latency of batches of four within what is printed (2.4 to 3.1 us), less 10 %.
    #[test]
    fn the_papers_figures_come_out() {
        let model = model(BusCosts::default());
        for row in &model.rows {
            assert!((row.rate_mrps / row.printed_mrps - 1.0).abs() < 0.03, "{row:?}");
        }
        for row in &model.threads {
            let Some(printed) = row.printed_mrps else { continue };
            assert!((row.rate_mrps / printed - 1.0).abs() < 0.03, "{row:?}");
        }
        let four = model.rows.iter().find(|row| row.mode == Mode::Coherent && row.batch == 4).unwrap();
        assert!((2.4 * 0.9..=3.1).contains(&four.latency_us), "{four:?}");
        assert!(model.is_fitted && model.table().contains("fitted"));
    }

    #[test]
    fn the_automatic_batch_is_the_best_fixed_one_at_every_load() {
        for row in model(BusCosts::default()).loads {
            let best = row.fixed.iter().filter_map(|fixed| fixed.latency_us).reduce(f64::min);
            assert_eq!(row.automatic.and_then(|row| row.latency_us), best, "{}", row.load_mrps);
            assert!(best.is_some());
        }
    }

    #[test]
    fn given_costs_count_and_impossible_ones_are_refused() {
        let costs = BusCosts { mmio_ns: 308.0, ..BusCosts::default() };
        let slower = model(costs);
        assert!(slower.rows[1].rate_mrps < 0.7 * model(BusCosts::default()).rows[1].rate_mrps);
        assert!(!slower.is_fitted);
        assert!(costs.check().is_ok());
        let error = BusCosts { fetch_ns: f64::NAN, ..costs }.check().unwrap_err().to_string();
        assert!(error.contains("NaN ns"), "{error}");
        assert!(BusCosts { core_of_two: 3.0, ..costs }.check().is_err());
    }
}
