//! The library as C programs have it: its header, its functions, and programs that use both.

mod examples;
mod header;
mod manual;
mod peers;
mod programs;
mod support;
