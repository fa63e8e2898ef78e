//! The tests of the processor, in one binary. `tests/fixture` and the rows of `hostile` and `bad_input` serve other parts, too.

mod bad_input;
mod builders;
mod corpora;
mod differential;
mod exchange;
#[path = "../fixture/mod.rs"]
mod fixture;
mod hostile;
mod protobuf;
mod steps;
mod thrift;
