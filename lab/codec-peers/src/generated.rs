//! What `build.rs` generates: types for each schema, and the list of them.
#![allow(
    clippy::all,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "generated code"
)]

use crate::{Buffa, BuffaWithView, Entry, Prost};
use std::marker::PhantomData;

/// The types that prost generates.
mod prost_types_of {
    pub mod bench0 {
        include!(concat!(env!("OUT_DIR"), "/prost_bench0/hyperprotobench.rs"));
    }
    pub mod bench1 {
        include!(concat!(env!("OUT_DIR"), "/prost_bench1/hyperprotobench.rs"));
    }
    pub mod bench2 {
        include!(concat!(env!("OUT_DIR"), "/prost_bench2/hyperprotobench.rs"));
    }
    pub mod bench3 {
        include!(concat!(env!("OUT_DIR"), "/prost_bench3/hyperprotobench.rs"));
    }
    pub mod bench4 {
        include!(concat!(env!("OUT_DIR"), "/prost_bench4/hyperprotobench.rs"));
    }
    pub mod bench5 {
        include!(concat!(env!("OUT_DIR"), "/prost_bench5/hyperprotobench.rs"));
    }
}

/// The types that buffa generates.
mod buffa_types_of {
    pub mod bench0 {
        include!(concat!(env!("OUT_DIR"), "/buffa_bench0/mod.rs"));
    }
    pub mod bench1 {
        include!(concat!(env!("OUT_DIR"), "/buffa_bench1/mod.rs"));
    }
    pub mod bench2 {
        include!(concat!(env!("OUT_DIR"), "/buffa_bench2/mod.rs"));
    }
    pub mod bench3 {
        include!(concat!(env!("OUT_DIR"), "/buffa_bench3/mod.rs"));
    }
    pub mod bench4 {
        include!(concat!(env!("OUT_DIR"), "/buffa_bench4/mod.rs"));
    }
    pub mod bench5 {
        include!(concat!(env!("OUT_DIR"), "/buffa_bench5/mod.rs"));
    }
}

include!(concat!(env!("OUT_DIR"), "/entries.rs"));
