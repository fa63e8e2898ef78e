//! What is generated as views and drafts, against prost's types.

mod kinds;
mod options;
mod shop;
mod wide;
