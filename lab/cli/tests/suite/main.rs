//! The laboratory's command from outside.

mod against;
mod codec;
mod echo;
mod ending;
mod fault;
mod idle;
mod notnets;
mod run;
mod stream;
mod waiting;
mod workload;
