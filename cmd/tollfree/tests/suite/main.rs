//! The command from outside.

mod ending;
mod others;
mod run;
mod shepherd;
