//! gRPC's interoperability cases, ours with ours, and TLS.

mod own;
mod tls;
