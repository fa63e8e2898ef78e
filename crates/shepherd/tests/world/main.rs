//! The shepherd from outside: gRPC clients that know nothing of it, and peers that mean it no good.

mod calls;
mod connections;
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
mod probe;
mod registers;
mod reload;
mod shortcuts;
mod steering;
mod stream;
mod stream_via;
mod taker;
mod tenants;
mod tls;
mod traces;
