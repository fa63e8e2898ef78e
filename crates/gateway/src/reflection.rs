//! gRPC's reflection service, for all groups whose descriptors the config names.

use std::collections::BTreeSet;

use http::{Request, Response};
use tonic::body::Body;
use tonic::service::Routes;
use tonic_reflection::server::Builder;
use tower_service::Service;

/// The services that answer, as `acme.v1.Orders` is named.
const SERVICES: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Answers from descriptor sets.
#[derive(Clone)]
pub(crate) struct Reflection {
    routes: Routes,
}

impl Reflection {
    /// Of these sets, and of the services in them. A file that several sets have is that of the first.
    ///
    /// # Errors
    /// What is wrong with a set.
    pub(crate) fn of(sets: &[Vec<u8>], services: &BTreeSet<String>) -> Result<Reflection, String> {
        let builder = || {
            let builder = sets
                .iter()
                .fold(Builder::configure(), |builder, set| builder.register_encoded_file_descriptor_set(set));
            let builder = builder.register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
            let known = services.iter().map(String::as_str).chain(["grpc.health.v1.Health"]).chain(SERVICES);
            known.fold(builder, |builder, service| builder.with_service_name(service))
        };
        let v1 = builder()
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| error.to_string())?;
        let v1alpha = builder()
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
            .build_v1alpha()
            .map_err(|error| error.to_string())?;
        Ok(Reflection { routes: Routes::new(v1).add_service(v1alpha) })
    }

    /// Whether a service is reflection, of either version.
    pub(crate) fn is(service: &str) -> bool {
        SERVICES.contains(&service)
    }

    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.routes.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

impl std::fmt::Debug for Reflection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflection").finish_non_exhaustive()
    }
}
