//! What `tollfree-build` generates for the services that tests and examples call, unmodified.
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

/// The same of stubs that take objects: all methods but two of `Freight`.
#[allow(missing_docs, unreachable_pub)]
pub mod objects {
    /// What the objects are read and built by.
    pub mod views {
        include!(concat!(env!("OUT_DIR"), "/objects/views.rs"));
    }

    /// The service that tests call.
    pub mod probe {
        include!(concat!(env!("OUT_DIR"), "/objects/tollfree.probe.v1.rs"));
    }

    /// The service of the examples.
    pub mod greeter {
        include!(concat!(env!("OUT_DIR"), "/objects/tollfree.greeter.v1.rs"));
    }

    /// The service that carries bytes.
    pub mod freight {
        include!(concat!(env!("OUT_DIR"), "/objects/tollfree.freight.v1.rs"));
    }

    /// The service of the examples that has all four kinds of calls.
    pub mod sensors {
        include!(concat!(env!("OUT_DIR"), "/objects/tollfree.sensors.v1.rs"));
    }
}

/// The service that tests call as a later version of its schema has it, of stubs that take objects.
#[allow(missing_docs, unreachable_pub)]
pub mod later {
    /// What the objects are read and built by.
    pub mod views {
        include!(concat!(env!("OUT_DIR"), "/later/views.rs"));
    }

    /// The service.
    pub mod probe {
        include!(concat!(env!("OUT_DIR"), "/later/tollfree.probe.v1.rs"));
    }
}

/// Stubs whose streams are of our own type.
#[allow(missing_docs, unreachable_pub)]
pub mod own {
    /// What the objects are read and built by.
    pub mod views {
        include!(concat!(env!("OUT_DIR"), "/own/views.rs"));
    }

    /// The service that carries bytes.
    pub mod freight {
        include!(concat!(env!("OUT_DIR"), "/own/tollfree.freight.v1.rs"));
    }

    /// The service of the examples that has all four kinds of calls, whose stubs take objects.
    pub mod sensors {
        include!(concat!(env!("OUT_DIR"), "/own/tollfree.sensors.v1.rs"));
    }
}

/// Descriptors of all files, as the reflection service wants them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
