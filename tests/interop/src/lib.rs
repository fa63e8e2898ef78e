//! gRPC's published interoperability tests (grpc/grpc, `doc/interop-test-descriptions.md`): the server, the client's
//! cases, and what lies between them.
//!
//! The program of this crate runs every pairing of them with each other and with grpc-go's (`make interop`); the tests
//! run ours with ours over every kind of address.
#![forbid(unsafe_code)]

pub mod cases;
mod certificates;
mod channel;
mod layers;
mod messages;
mod metrics;
mod service;

pub use certificates::Certificates;
pub use channel::{AnyChannel, Target, Via};
pub use service::{plain_tonic, server};

/// The test services' messages and stubs.
#[allow(missing_docs, unreachable_pub, clippy::doc_markdown)]
pub mod testing {
    tonic::include_proto!("grpc.testing");
}

/// What a backend reports of its load. The nesting is that of the packages, as the generated code expects.
#[allow(missing_docs, unreachable_pub)]
pub mod xds {
    pub mod data {
        pub mod orca {
            pub mod v3 {
                tonic::include_proto!("xds.data.orca.v3");
            }
        }
    }
    pub mod service {
        pub mod orca {
            pub mod v3 {
                tonic::include_proto!("xds.service.orca.v3");
            }
        }
    }
}

/// Descriptors of all files, as the reflection service wants them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
