//! What tonic generates for the services that tests and examples call, unmodified.
#![forbid(unsafe_code)]

/// The service that tests call: it does what it is asked to.
#[allow(missing_docs, unreachable_pub)]
pub mod probe {
    tonic::include_proto!("tollfree.probe.v1");
}

/// The service of the examples.
#[allow(missing_docs, unreachable_pub)]
pub mod greeter {
    tonic::include_proto!("tollfree.greeter.v1");
}

/// The service that carries bytes.
#[allow(missing_docs, unreachable_pub)]
pub mod freight {
    tonic::include_proto!("tollfree.freight.v1");
}

/// The service of the examples that has all four kinds of calls.
#[allow(missing_docs, unreachable_pub)]
pub mod sensors {
    tonic::include_proto!("tollfree.sensors.v1");
}

/// The service of the demo with one trace through several languages.
#[allow(missing_docs, unreachable_pub)]
pub mod relay {
    tonic::include_proto!("tollfree.relay.v1");
}

/// Descriptors of all files, as the reflection service wants them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
