//! The command from outside.

mod ending;
mod gateway;
mod others;
mod run;
