//! What to run: workloads with their settings, and the cases that they span.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tollfree_bench::BenchError;
use tollfree_bench::harness::words::bytes_in_words;
use tollfree_bench::harness::{Lasting, each_once, refuse, some};

use crate::dagger::DaggerFigure;
use crate::scene;
use crate::services::{Part, Work};
use crate::side::Side;

/// Largest payload.
const SIZE_MAX: usize = 64 << 20;
/// Longest chain, and most workers.
const LENGTH_MAX: usize = 64;
const WORKERS_MAX: usize = 16;
/// Largest image that the generator makes for a real codec.
const IMAGE_SIZE_MAX: usize = 4 << 20;
/// Hardest loads.
const INFLIGHT_MAX: usize = 1024;
const RATE_MAX: f64 = 1e6;
/// The least room for messages: tonic's own limit.
const MESSAGE_LEN_MAX: usize = 4 << 20;

/// A workload with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "kebab-case")]
pub enum Shape {
    /// An array goes through calls of which each makes the next, and the last reads it.
    Chain {
        /// Calls.
        length: usize,
        /// Bytes of the array.
        size: usize,
        /// Whether each call's array is written anew and read whole; else the same one is passed each time, and its first
        /// byte read: what passing alone costs.
        whole: bool,
    },
    /// Arrays go through a balancer to one of several workers, who read them.
    Balancer {
        /// Workers.
        workers: usize,
        /// Bytes of an array.
        size: usize,
    },
    /// A block is written, read by a service, given back, and read again.
    Echo {
        /// Bytes of the block.
        size: usize,
    },
    /// Images go through firewall, balancer and image processing to who transcodes or compresses them, and back.
    Images {
        /// What workers do.
        work: Work,
        /// Bytes of an image, about.
        size: usize,
    },
    /// A social network.
    Social {
        /// Bytes of a post's media.
        media: usize,
    },
    /// A hotel reservation.
    Hotel {
        /// Bytes of a hotel's description.
        description: usize,
    },
}

/// How hard a workload is driven.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// Calls outstanding at any time, each followed by the next.
    Inflight(usize),
    /// Calls a second, whatever becomes of earlier ones.
    Rate(f64),
}

/// One row of the result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Case {
    /// How payloads get from one process to the next.
    pub side: Side,
    /// What is run.
    #[serde(flatten)]
    pub shape: Shape,
    /// How hard.
    #[serde(flatten)]
    pub pressure: Pressure,
}

/// What is run, on which sides, how hard and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What the result is called.
    pub title: String,
    /// The figure of Dagger's that it is, if it is one.
    pub figure: Option<DaggerFigure>,
    /// Workloads of one kind, in the order of their settings; for a figure of Dagger's, of several.
    pub shapes: Vec<Shape>,
    /// How hard.
    pub pressures: Vec<Pressure>,
    /// Sides.
    pub sides: Vec<Side>,
    /// How long and how often.
    pub lasting: Lasting,
    /// Payloads of at least so many bytes go by ref; the library's default, if not said.
    pub ref_threshold: Option<usize>,
    /// Tollfree's processes sleep through every wait instead of spinning first.
    pub park: bool,
    /// A directory with image files, for [`Work::Codec`]; else some are made.
    pub images: Option<PathBuf>,
}

impl Shape {
    /// Bytes of a payload.
    #[must_use]
    pub fn size(&self) -> usize {
        match *self {
            Self::Chain { size, .. } | Self::Balancer { size, .. } | Self::Echo { size } => size,
            Self::Images { size, .. } => size,
            Self::Social { media } => media,
            Self::Hotel { description } => description,
        }
    }

    /// The setting in words.
    #[must_use]
    pub fn setting(&self) -> String {
        let size = bytes_in_words(self.size());
        match self {
            Self::Chain { length, whole: true, .. } => format!("{length} calls, {size}"),
            Self::Chain { length, whole: false, .. } => format!("{length} calls, {size}, untouched"),
            Self::Balancer { workers, .. } => format!("{workers} workers, {size}"),
            Self::Echo { .. } | Self::Images { work: Work::Touch, .. } => size,
            Self::Images { work: Work::Codec, .. } => format!("{size}, real codec"),
            Self::Social { .. } => format!("media of {size}"),
            Self::Hotel { .. } => format!("descriptions of {size}"),
        }
    }

    pub(crate) fn message_len_max(&self) -> usize {
        // Images may grow when they are transcoded; timelines have many posts.
        self.size().saturating_mul(32).max(MESSAGE_LEN_MAX)
    }

    fn check(&self) -> Result<(), String> {
        let size = self.size();
        if !(1..=SIZE_MAX).contains(&size) {
            return Err(format!("payloads of {size} bytes: must be 1 to {SIZE_MAX}"));
        }
        match *self {
            Self::Chain { length, .. } if !(1..=LENGTH_MAX).contains(&length) => {
                Err(format!("a chain of {length} calls: must be 1 to {LENGTH_MAX}"))
            }
            Self::Balancer { workers, .. } if !(1..=WORKERS_MAX).contains(&workers) => {
                Err(format!("{workers} workers: must be 1 to {WORKERS_MAX}"))
            }
            Self::Images { work: Work::Codec, .. } if !(scene::SIZE_MIN..=IMAGE_SIZE_MAX).contains(&size) => {
                Err(format!(
                    "images of {size} bytes for a real codec: must be {} to {IMAGE_SIZE_MAX}",
                    scene::SIZE_MIN
                ))
            }
            _ => Ok(()),
        }
    }

    /// The sides that carry it where none is asked for.
    #[must_use]
    pub fn sides(&self) -> &'static [Side] {
        match self {
            Self::Hotel { .. } => {
                &[Side::Tonic, Side::Inline, Side::Gateway, Side::GatewayObjects, Side::GatewayStream]
            }
            _ => Side::BETWEEN_PROCESSES,
        }
    }

    /// The processes of the workload but its load generator, each after those that it calls; the last is called first.
    pub(crate) fn services(&self) -> Vec<Service> {
        let service = |part, calls: &[usize]| Service { part, calls: calls.to_vec() };
        match *self {
            Self::Chain { length, .. } => (0..length)
                .map(|at| if at == 0 { service(Part::Aggregate, &[]) } else { service(Part::Hop, &[at - 1]) })
                .collect(),
            Self::Balancer { workers, .. } => {
                let mut services = vec![service(Part::Aggregate, &[]); workers];
                services.push(Service { part: Part::Balancer, calls: (0..workers).collect() });
                services
            }
            Self::Echo { .. } => vec![service(Part::Echo, &[])],
            Self::Images { work, .. } => vec![
                service(Part::Transcoding(work), &[]),
                service(Part::Compressing(work), &[]),
                service(Part::ImageProcessing, &[0, 1]),
                service(Part::ImageProcessing, &[0, 1]),
                service(Part::ImageBalancer, &[2, 3]),
                service(Part::Firewall, &[4]),
            ],
            Self::Social { .. } => vec![
                service(Part::Storage, &[]),
                service(Part::Graph, &[]),
                service(Part::UserTimeline, &[0]),
                service(Part::HomeTimeline, &[0, 1]),
                service(Part::Compose, &[0, 3, 2]),
                service(Part::Front, &[4, 3, 2]),
                service(Part::SocialProxy, &[5]),
                service(Part::SocialBalancer, &[6]),
            ],
            Self::Hotel { description } => vec![
                service(Part::HotelGeo, &[]),
                service(Part::HotelRate, &[]),
                service(Part::HotelProfile(description), &[]),
                service(Part::HotelReservation, &[]),
                service(Part::HotelSearch, &[0, 1]),
                service(Part::HotelDesk, &[4, 2, 3]),
            ],
        }
    }
}

/// A process that serves.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) part: Part,
    /// Whom it calls, by their places in the list.
    pub(crate) calls: Vec<usize>,
}

impl Pressure {
    fn check(self) -> Result<(), String> {
        match self {
            Self::Inflight(count) if !(1..=INFLIGHT_MAX).contains(&count) => {
                Err(format!("{count} calls in flight: must be 1 to {INFLIGHT_MAX}"))
            }
            Self::Rate(rate) if !(rate > 0.0 && rate <= RATE_MAX) => {
                Err(format!("{rate} calls a second: must be more than 0, and at most {RATE_MAX}"))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Pressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inflight(count) => write!(f, "{count} in flight"),
            Self::Rate(rate) => write!(f, "{rate} a second"),
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} · {}, {}", self.side, self.shape.setting(), self.pressure)
    }
}

impl Case {
    /// The same case on another side.
    #[must_use]
    pub fn on(self, side: Side) -> Self {
        Self { side, ..self }
    }
}

impl Plan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        let checks = self.shapes.iter().map(Shape::check).chain(self.pressures.iter().map(|p| p.check()));
        checks.collect::<Result<(), _>>().map_err(BenchError::Refused)?;
        self.lasting.check()?;
        let others = self.shapes.iter().any(|shape| !shape.sides().contains(&Side::Gateway));
        if others && self.sides.iter().any(|side| side.has_gateway()) {
            let sides: Vec<_> = Side::BY_GATEWAY.iter().map(|side| side.name()).collect();
            return refuse(format!(
                "a gateway carries the hotel only: leave out --side {}",
                sides.join(", ")
            ));
        }
        some(&self.cases())
    }

    /// Every case once, those that are compared with each other next to each other.
    #[must_use]
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &pressure in &self.pressures {
            for &shape in &self.shapes {
                for &side in &self.sides {
                    cases.push(Case { side, shape, pressure });
                }
            }
        }
        each_once(cases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: Shape) -> Plan {
        Plan {
            title: "test".to_owned(),
            figure: None,
            shapes: vec![shape],
            pressures: vec![Pressure::Inflight(1), Pressure::Rate(100.0)],
            sides: Side::BETWEEN_PROCESSES.to_vec(),
            lasting: Lasting { seconds: 0.1, rounds: 1 },
            ref_threshold: None,
            park: false,
            images: None,
        }
    }

    #[test]
    fn services_call_only_those_before_them_and_all_but_the_last_are_called() {
        for shape in [
            Shape::Chain { length: 7, size: 1, whole: true },
            Shape::Balancer { workers: 3, size: 1 },
            Shape::Echo { size: 1 },
            Shape::Images { work: Work::Touch, size: 1 },
            Shape::Social { media: 1 },
            Shape::Hotel { description: 1 },
        ] {
            let services = shape.services();
            for (idx, service) in services.iter().enumerate() {
                assert!(service.calls.iter().all(|called| *called < idx), "{shape:?}");
                let is_called = services.iter().any(|other| other.calls.contains(&idx));
                assert_eq!(is_called, idx + 1 != services.len(), "{shape:?}: {service:?}");
            }
        }
        let images = Shape::Images { work: Work::Codec, size: 1 << 16 };
        assert_eq!(images.services().len() + 1, 7, "seven tiers, the client among them");
    }

    #[test]
    fn rivals_stay_together_and_each_case_comes_once() {
        let mut doubled = plan(Shape::Echo { size: 64 });
        doubled.shapes.push(Shape::Echo { size: 64 });
        let cases = doubled.cases();
        assert_eq!(cases.len(), 8);
        for rivals in cases.chunks(4) {
            assert!(rivals.iter().all(|case| case.on(Side::Tonic) == rivals[0]));
        }
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        let echo = plan(Shape::Echo { size: 64 });
        echo.check().unwrap();
        for (words, wrong) in [
            ("payloads of 0 bytes", plan(Shape::Echo { size: 0 })),
            ("a chain of 65 calls", plan(Shape::Chain { length: 65, size: 1, whole: true })),
            ("0 workers", plan(Shape::Balancer { workers: 0, size: 1 })),
            ("for a real codec", plan(Shape::Images { work: Work::Codec, size: 5 << 20 })),
            ("0 calls in flight", Plan { pressures: vec![Pressure::Inflight(0)], ..echo.clone() }),
            ("NaN calls a second", Plan { pressures: vec![Pressure::Rate(f64::NAN)], ..echo.clone() }),
            ("rounds", Plan { lasting: Lasting { seconds: 0.1, rounds: 0 }, ..echo.clone() }),
            ("no value", Plan { sides: Vec::new(), ..echo.clone() }),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }
}
