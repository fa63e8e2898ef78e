//! The generator of services, for prost-build to call.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use proc_macro2::TokenStream;
use prost_build::Service;
use quote::{ToTokens, quote};

use crate::names::{self, Attributes};
use crate::{blocking, client, server};

/// tonic's codec for prost's messages: the only one that the direct way stands in for.
pub(crate) const PROST_CODEC: &str = "tonic_prost::ProstCodec";

/// What is generated of each service, and how.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) build_client: bool,
    pub(crate) build_blocking_client: bool,
    pub(crate) build_server: bool,
    pub(crate) build_transport: bool,
    pub(crate) emit_package: bool,
    pub(crate) proto_path: String,
    pub(crate) codec_path: String,
    /// Services and methods whose stubs take objects.
    pub(crate) objects: Vec<String>,
    pub(crate) views_path: String,
    pub(crate) own_streaming: bool,
    pub(crate) use_arc_self: bool,
    pub(crate) generate_default_stubs: bool,
    pub(crate) disable_comments: HashSet<String>,
    pub(crate) client_mods: Attributes,
    pub(crate) clients: Attributes,
    pub(crate) server_mods: Attributes,
    pub(crate) servers: Attributes,
    pub(crate) traits: Attributes,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            build_client: true,
            build_blocking_client: false,
            build_server: true,
            build_transport: true,
            emit_package: true,
            proto_path: "super".to_owned(),
            codec_path: PROST_CODEC.to_owned(),
            objects: Vec::new(),
            views_path: "super::views".to_owned(),
            own_streaming: false,
            use_arc_self: false,
            generate_default_stubs: false,
            disable_comments: HashSet::new(),
            client_mods: Attributes::default(),
            clients: Attributes::default(),
            server_mods: Attributes::default(),
            servers: Attributes::default(),
            traits: Attributes::default(),
        }
    }
}

impl Options {
    /// Whether messages are prost's, so that unary calls may go the direct way.
    pub(crate) fn is_direct(&self) -> bool {
        self.codec_path == PROST_CODEC
    }

    /// The type of a stream's messages, as programs have it: tonic's, or ours.
    pub(crate) fn streaming(&self, message: &impl ToTokens) -> TokenStream {
        if self.own_streaming {
            quote!(::tollfree::Streaming<#message>)
        } else {
            quote!(tonic::Streaming<#message>)
        }
    }

    /// Whether the stubs of a method take objects. The service is named in full.
    pub(crate) fn takes_objects(&self, service: &str, method: &str) -> bool {
        let name = format!("{service}.{method}");
        self.objects.iter().any(|path| names::matches(path, service) || names::matches(path, &name))
    }

    /// The comments of a service or method, unless they are not wanted.
    pub(crate) fn docs(&self, name: &str, lines: &[String]) -> TokenStream {
        if self.disable_comments.contains(name) { TokenStream::new() } else { names::docs(lines) }
    }

    /// The package, for attributes of modules.
    pub(crate) fn package<'a>(&self, service: &'a Service) -> &'a str {
        if self.emit_package { &service.package } else { "" }
    }

    /// Looks at what a caller has spelled out, before anything is generated with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        client::codec(self)?;
        names::message("Type", &self.proto_path)?;
        if !self.objects.is_empty() && !self.is_direct() {
            return Err(format!(
                "objects(\"{}\") and codec_path(\"{}\") contradict each other: objects have a codec of their own",
                self.objects[0], self.codec_path
            ));
        }
        [&self.client_mods, &self.clients, &self.server_mods, &self.servers, &self.traits]
            .into_iter()
            .try_for_each(Attributes::check)
    }

    pub(crate) fn generate(&self, service: &Service) -> Result<String, String> {
        let mut tokens = TokenStream::new();
        if self.build_client {
            tokens.extend(client::generate(service, self)?);
        }
        if self.build_blocking_client {
            if !self.build_client {
                return Err("a blocking client needs the asynchronous one: switch build_client on".to_owned());
            }
            tokens.extend(blocking::generate(service, self)?);
        }
        if self.build_server {
            tokens.extend(server::generate(service, self)?);
        }
        let file: syn::File = syn::parse2(tokens).map_err(|error| error.to_string())?;
        Ok(prettyplease::unparse(&file))
    }
}

/// What went wrong while prost-build called, which takes no errors.
pub(crate) type Failures = Arc<Mutex<Vec<String>>>;

/// Generates services while prost-build generates messages.
#[derive(Debug, Default)]
pub(crate) struct Generator {
    pub(crate) options: Options,
    pub(crate) failures: Failures,
}

impl prost_build::ServiceGenerator for Generator {
    fn generate(&mut self, service: Service, buf: &mut String) {
        match self.options.generate(&service) {
            Ok(text) => buf.push_str(&text),
            Err(error) => {
                let failure = format!("service {}: {error}", names::full(&service, true));
                self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
        }
    }
}
