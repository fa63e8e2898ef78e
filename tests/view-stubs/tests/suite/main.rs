//! What is generated as views and builders, against prost's types.

mod kinds;
mod options;
mod shop;
mod wide;
