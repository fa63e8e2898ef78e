//! The command from outside.

mod ending;
mod events;
mod gateway;
mod others;
mod run;
