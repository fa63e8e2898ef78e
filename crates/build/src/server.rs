//! The module of a service's trait and server. The trait has the service's name, which may be that of anything: what the code
//! uses is called by its whole path, and so is the trait itself, for a parameter may have the same name.

use proc_macro2::TokenStream;
use prost_build::Service;
use quote::{format_ident, quote};
use syn::Ident;

use crate::client::codec;
use crate::names::{self, MethodNames};
use crate::service::Options;

/// What the code of all methods needs to know.
struct Context<'a> {
    options: &'a Options,
    /// `package.Service`.
    full_name: &'a str,
    /// The trait.
    handler: Ident,
    codec: syn::Path,
}

pub(crate) fn generate(service: &Service, options: &Options) -> Result<TokenStream, String> {
    let module = format_ident!("{}", names::module(&service.name, "server"));
    let server = format_ident!("{}Server", service.name);
    let full_name = &names::full(service, options.emit_package);
    let context =
        Context { options, full_name, handler: format_ident!("{}", service.name), codec: codec(options)? };
    let handler = &context.handler;
    let docs = options.docs(full_name, &service.comments.leading);
    let mod_attributes = options.server_mods.of(options.package(service))?;
    let attributes = options.servers.of(full_name)?;
    let trait_attributes = options.traits.of(&service.name)?;
    let trait_doc = format!(
        " Generated trait containing gRPC methods that should be implemented for use with {}Server.",
        service.name
    );
    let methods: Vec<MethodNames<'_>> = service
        .methods
        .iter()
        .map(|method| MethodNames::new(service, method, options))
        .collect::<Result<_, String>>()?;
    let declared: TokenStream = methods.iter().map(|names| context.declaration(names)).collect();
    let routed: TokenStream = methods.iter().map(|names| context.route(names)).collect();
    let direct: TokenStream = methods.iter().filter_map(|names| context.direct(names)).collect();
    let call = choice(
        quote!(req.uri().path()),
        routed,
        quote!(std::boxed::Box::pin(std::future::ready(Ok(::tollfree::direct::unimplemented())))),
    );
    let method = choice(quote!(name), direct, quote!(None));
    let types = context.types(&methods);
    let (constructors, settings) = (constructors(), settings());
    Ok(quote! {
        /// Generated server implementations.
        #mod_attributes
        pub mod #module {
            #![allow(unused_variables, dead_code, missing_docs, clippy::wildcard_imports, clippy::let_unit_value)]
            use tonic::codegen::*;

            #[doc = #trait_doc]
            #trait_attributes
            #[async_trait]
            pub trait #handler: std::marker::Send + std::marker::Sync + 'static {
                #declared
            }

            #docs
            #attributes
            #[derive(Debug)]
            pub struct #server<T> {
                inner: std::sync::Arc<T>,
                accept_compression_encodings: tonic::codegen::EnabledCompressionEncodings,
                send_compression_encodings: tonic::codegen::EnabledCompressionEncodings,
                max_decoding_message_size: std::option::Option<usize>,
                max_encoding_message_size: std::option::Option<usize>,
                wrapper: std::option::Option<std::any::TypeId>,
            }

            impl<T> #server<T> {
                #constructors
                #settings
            }

            impl<T, B> tonic::codegen::Service<http::Request<B>> for #server<T>
            where
                T: self::#handler,
                B: tonic::codegen::Body + std::marker::Send + 'static,
                B::Error: std::convert::Into<tonic::codegen::StdError> + std::marker::Send + 'static,
            {
                type Response = http::Response<tonic::body::Body>;
                type Error = std::convert::Infallible;
                type Future = tonic::codegen::BoxFuture<Self::Response, Self::Error>;

                fn poll_ready(&mut self, _cx: &mut std::task::Context<'_>) -> std::task::Poll<std::result::Result<(), Self::Error>> {
                    ::tollfree::direct::register(self);
                    std::task::Poll::Ready(Ok(()))
                }

                fn call(&mut self, mut req: http::Request<B>) -> Self::Future {
                    if ::tollfree::direct::pass(&mut req) {
                        return std::boxed::Box::pin(std::future::ready(Ok(http::Response::default())));
                    }
                    #call
                }
            }

            impl<T: self::#handler> ::tollfree::direct::Direct for #server<T> {
                fn method(&self, name: &str) -> std::option::Option<std::boxed::Box<dyn ::tollfree::direct::Run>> {
                    #method
                }

                #types

                fn max_decoding_message_size(&self) -> std::option::Option<usize> {
                    self.max_decoding_message_size
                }

                fn wrapper(&self) -> std::option::Option<std::any::TypeId> {
                    self.wrapper
                }
            }

            impl<T> std::clone::Clone for #server<T> {
                fn clone(&self) -> Self {
                    Self {
                        inner: std::sync::Arc::clone(&self.inner),
                        accept_compression_encodings: self.accept_compression_encodings,
                        send_compression_encodings: self.send_compression_encodings,
                        max_decoding_message_size: self.max_decoding_message_size,
                        max_encoding_message_size: self.max_encoding_message_size,
                        wrapper: self.wrapper,
                    }
                }
            }

            /// Generated gRPC service name
            pub const SERVICE_NAME: &str = #full_name;

            impl<T> tonic::server::NamedService for #server<T> {
                const NAME: &'static str = SERVICE_NAME;
            }
        }
    })
}

/// What the arm of a subject says, or else the last word. Users' lints find a match that has no other arm.
fn choice(subject: TokenStream, arms: TokenStream, otherwise: TokenStream) -> TokenStream {
    if arms.is_empty() { otherwise } else { quote!(match #subject { #arms _ => #otherwise, }) }
}

fn constructors() -> TokenStream {
    quote! {
        pub fn new(inner: T) -> Self {
            Self::from_arc(std::sync::Arc::new(inner))
        }

        pub fn from_arc(inner: std::sync::Arc<T>) -> Self {
            Self {
                inner,
                accept_compression_encodings: std::default::Default::default(),
                send_compression_encodings: std::default::Default::default(),
                max_decoding_message_size: None,
                max_encoding_message_size: None,
                wrapper: None,
            }
        }

        pub fn with_interceptor<F>(inner: T, interceptor: F) -> tonic::codegen::InterceptedService<Self, F>
        where
            F: tonic::service::Interceptor,
        {
            let mut server = Self::new(inner);
            server.wrapper = Some(::tollfree::direct::type_id::<tonic::codegen::InterceptedService<Self, F>>());
            tonic::codegen::InterceptedService::new(server, interceptor)
        }
    }
}

fn settings() -> TokenStream {
    quote! {
        /// Accepts requests that are compressed in this encoding.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: tonic::codegen::CompressionEncoding) -> Self {
            self.accept_compression_encodings.enable(encoding);
            self
        }

        /// Compresses responses in this encoding for clients that accept it.
        #[must_use]
        pub fn send_compressed(mut self, encoding: tonic::codegen::CompressionEncoding) -> Self {
            self.send_compression_encodings.enable(encoding);
            self
        }

        /// The longest message that is decoded, in bytes: 4 MiB unless said here.
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.max_decoding_message_size = Some(limit);
            self
        }

        /// The longest message that is encoded, in bytes: any unless said here.
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.max_encoding_message_size = Some(limit);
            self
        }
    }
}

impl Context<'_> {
    /// A method in the trait, and the type of its stream of responses.
    fn declaration(&self, names: &MethodNames<'_>) -> TokenStream {
        let MethodNames { method, request, response, .. } = names;
        let name = format_ident!("{}", method.name);
        let proto_name = &method.proto_name;
        let docs = self.options.docs(&format!("{}.{proto_name}", self.full_name), &method.comments.leading);
        let receiver =
            if self.options.use_arc_self { quote!(self: std::sync::Arc<Self>) } else { quote!(&self) };
        let request =
            if method.client_streaming { self.options.streaming(request) } else { quote!(#request) };
        let stubs = self.options.generate_default_stubs;
        let (stream, answer) = match (method.server_streaming, stubs) {
            (false, _) => (None, quote!(#response)),
            (true, true) => (None, quote!(tonic::codegen::BoxStream<#response>)),
            (true, false) => {
                let stream = format_ident!("{proto_name}Stream");
                let doc = format!(" Server streaming response type for the {proto_name} method.");
                let declared = quote! {
                    #[doc = #doc]
                    type #stream: tonic::codegen::tokio_stream::Stream<
                            Item = std::result::Result<#response, tonic::Status>,
                        > + std::marker::Send + 'static;
                };
                (Some(declared), quote!(Self::#stream))
            }
        };
        let body = if stubs {
            quote!({ Err(tonic::Status::unimplemented("Not yet implemented")) })
        } else {
            quote!(;)
        };
        quote! {
            #stream
            #docs
            async fn #name(
                #receiver,
                request: tonic::Request<#request>,
            ) -> std::result::Result<tonic::Response<#answer>, tonic::Status> #body
        }
    }

    /// A closure that calls a method of the trait.
    fn closure(&self, names: &MethodNames<'_>) -> TokenStream {
        let MethodNames { method, request, .. } = names;
        let (handler, name) = (&self.handler, format_ident!("{}", method.name));
        let request =
            if method.client_streaming { self.options.streaming(request) } else { quote!(#request) };
        let receiver = if self.options.use_arc_self { quote!(inner) } else { quote!(&inner) };
        quote! {
            move |request: tonic::Request<#request>| {
                let inner = std::sync::Arc::clone(&inner);
                async move { <T as self::#handler>::#name(#receiver, request).await }
            }
        }
    }

    /// The arm that serves a method from an HTTP request.
    fn route(&self, names: &MethodNames<'_>) -> TokenStream {
        let method = names.method;
        let path = format!("/{}/{}", self.full_name, method.proto_name);
        let (codec, closure) = (&self.codec, self.closure(names));
        let kind = match (method.client_streaming, method.server_streaming) {
            (false, false) => quote!(unary),
            (false, true) => quote!(server_streaming),
            (true, false) => quote!(client_streaming),
            (true, true) => quote!(streaming),
        };
        let is_direct = self.options.is_direct();
        let codec = if is_direct {
            let coding = names.coding();
            quote! {
                ::tollfree::direct::codec(
                    #coding,
                    &mut req,
                    self.max_encoding_message_size,
                    self.max_decoding_message_size,
                    !self.send_compression_encodings.is_empty(),
                )
            }
        } else {
            quote!(#codec::default())
        };
        // Streams' messages go past tonic's server, which makes and reads the heads.
        let is_past = is_direct && (method.client_streaming || method.server_streaming);
        let (kept, codec, mutable, answer) = if is_past {
            let answer = quote!(::tollfree::direct::#kind(grpc, codec, #closure, req));
            (Some(quote!(let codec = #codec;)), quote!(codec.clone()), None, answer)
        } else {
            (None, codec, Some(quote!(mut)), quote!(grpc.#kind(::tollfree::direct::handler(#closure), req)))
        };
        quote! {
            #path => {
                let inner = std::sync::Arc::clone(&self.inner);
                #kept
                let #mutable grpc = tonic::server::Grpc::new(#codec)
                    .apply_compression_config(
                        self.accept_compression_encodings,
                        self.send_compression_encodings,
                    )
                    .apply_max_message_size_config(
                        self.max_decoding_message_size,
                        self.max_encoding_message_size,
                    );
                std::boxed::Box::pin(async move { Ok(#answer.await) })
            }
        }
    }

    /// The types of the methods that take objects; nothing where there are none.
    fn types(&self, methods: &[MethodNames<'_>]) -> Option<TokenStream> {
        let arms: Vec<TokenStream> = methods
            .iter()
            .filter(|names| names.objects)
            .map(|names| {
                let MethodNames { method, request, response, .. } = names;
                let (name, coding) = (&method.proto_name, names.coding());
                quote!(#name => ::tollfree::direct::types::<_, #request, #response>(#coding),)
            })
            .collect();
        (!arms.is_empty()).then(|| {
            quote! {
                fn types(&self, name: &str) -> std::option::Option<::tollfree::direct::Types> {
                    match name {
                        #(#arms)*
                        _ => None,
                    }
                }

                fn encodings(&self) -> ::tollfree::direct::Encodings {
                    ::tollfree::direct::Encodings::new(
                        self.accept_compression_encodings,
                        self.send_compression_encodings,
                    )
                }
            }
        })
    }

    /// The arm that serves a method from the session; none for those that only go over HTTP.
    fn direct(&self, names: &MethodNames<'_>) -> Option<TokenStream> {
        let method = names.method;
        if !self.options.is_direct() || method.client_streaming || method.server_streaming {
            return None;
        }
        let (name, closure, coding) = (&method.proto_name, self.closure(names), names.coding());
        Some(quote! {
            #name => {
                let inner = std::sync::Arc::clone(&self.inner);
                Some(::tollfree::direct::unary(#coding, #closure, self.max_encoding_message_size))
            }
        })
    }
}
