//! Code that is generated of protos whose names are those of generated code (`build.rs`), or of Google's public files. That it
//! compiles is what is tested: by `make test`, which builds all of the workspace, and by `make googleapis`.
#![allow(warnings, clippy::all)]
#![forbid(unsafe_code)]

#[cfg(not(feature = "googleapis"))]
pub mod types {
    include!(concat!(env!("OUT_DIR"), "/types/all.rs"));
}

#[cfg(not(feature = "googleapis"))]
pub mod views {
    include!(concat!(env!("OUT_DIR"), "/types/views.rs"));
}

#[cfg(feature = "googleapis")]
pub mod views {
    include!(concat!(env!("OUT_DIR"), "/structs/views.rs"));
}

pub mod structs {
    include!(concat!(env!("OUT_DIR"), "/structs/all.rs"));
}

pub mod objects {
    include!(concat!(env!("OUT_DIR"), "/objects/all.rs"));
}

pub mod object_views {
    include!(concat!(env!("OUT_DIR"), "/objects/views.rs"));
}
