//! The shepherd from outside: gRPC clients that know nothing of it, and peers that mean it no good.

mod answers;
// Each test counts what it leaves behind.
extern crate tollfree_counting as tokio;

mod calls;
mod compression;
mod compression_limits;
mod connections;
mod crowds;
mod cut;
mod deadlines;
mod ended;
mod files;
mod floods;
mod identity;
mod lab;
mod leaving;
mod levels;
mod liars;
mod limits;
mod nested;
mod nested_lies;
mod nested_limits;
mod objects;
mod outward;
mod outward_limits;
mod pages;
mod placed;
mod probe;
mod raw;
mod registers;
mod reload;
mod secrets;
mod shares;
mod shortcuts;
mod silence;
mod sockets;
mod steering;
mod stream;
mod stream_via;
mod table_loads;
mod tables;
mod taker;
mod tenants;
mod tls;
mod traces;
mod unasked;
