//! The tests of the generator: what it writes, word for word, and what it refuses.

mod golden;
mod manual;
mod objects;
mod plugin;
mod refused;
mod views;
