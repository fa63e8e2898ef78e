//! What is worked out from costs, and not measured: the models of Cerebros' figure 6 and of Dagger's figures 5 and 6.

mod bus;
mod offload;

pub use bus::{BatchRow, BusCosts, BusModel, BusRow, LoadRow, Mode, ThreadRow};
pub use offload::{Offload, OffloadCosts, OffloadModel, OffloadRow};
