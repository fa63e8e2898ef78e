//! The tests of the session core without processes: simulated wires, a peer that sends anything, and what a call costs.

mod hostile;
mod simulation;
mod unary;
