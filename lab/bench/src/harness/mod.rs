//! What all benches have in common, whatever they measure.
//!
//! A bench has a plan ([`Lasting`] and axes of its own), whose cases run by turns ([`rounds`]), each round in processes made anew
//! ([`Crew`]) that sit where a placement says ([`seats`]). What they measured is summed up ([`measured`]) in rows ([`Rows`], [`Report`])
//! that people read as a table ([`Table`]) and a drawing ([`Chart`]), and programs as JSON. What a bench alone needs stays with it.

pub mod chart;
mod crew;
mod machine;
pub mod measured;
mod plan;
mod report;
pub mod rounds;
mod svg;
mod table;
pub mod words;

pub use chart::{Axis, Chart, Line, Panel};
pub(crate) use crew::pid_of;
pub use crew::{Crew, attend, take_order};
pub use machine::Machine;
pub use plan::{Lasting, each_once, refuse, seats, some, within};
pub use report::{Report, Rows, is_failure};
pub use rounds::{Told, Tried};
pub use svg::{COLORS, Svg};
pub use table::Table;
