//! The tests of schemas: what they are made from, and what is wrong with that.

mod descriptor_sets;
mod thrift;
