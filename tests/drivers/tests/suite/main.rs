//! What each driver of sessions has to do, written once, and run for every pair of them: one as client, one as server.
//!
//! A row is a function of a [`Place`](driver::Place), which has a server of one driver and connects clients of another. `rows.rs` lists the rows, and
//! what a driver does not do, with the reason.

mod assembly;
mod bare_driver;
mod blocking_driver;
mod driver;
mod loop_driver;
mod rows;
mod service;
mod tokio_driver;

mod calls;
mod ends;
mod flow;
mod hostile;
mod recording;
mod waiting;
