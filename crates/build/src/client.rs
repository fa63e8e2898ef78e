//! The module of a service's client.

use proc_macro2::TokenStream;
use prost_build::Service;
use quote::{format_ident, quote};

use crate::names::{self, MethodNames};
use crate::service::Options;

pub(crate) fn generate(service: &Service, options: &Options) -> Result<TokenStream, String> {
    let module = format_ident!("{}", names::module(&service.name, "client"));
    let client = format_ident!("{}Client", service.name);
    let full_name = names::full(service, options.emit_package);
    let docs = options.docs(&full_name, &service.comments.leading);
    let mod_attributes = options.client_mods.of(options.package(service))?;
    let attributes = options.clients.of(&full_name)?;
    let connect = if options.build_transport { connect(&client, service) } else { TokenStream::new() };
    let own = |name| names::own(service, name);
    let (new, with_origin, with_interceptor) = (own("new"), own("with_origin"), own("with_interceptor"));
    let methods: TokenStream = service
        .methods
        .iter()
        .map(|method| self::method(&MethodNames::new(service, method, options)?, &full_name, options))
        .collect::<Result<_, String>>()?;
    let settings = settings(service);
    // The blocking client, which lies beside, makes some calls itself.
    let visibility = options.build_blocking_client.then(|| quote!(pub(super)));
    Ok(quote! {
        /// Generated client implementations.
        #mod_attributes
        pub mod #module {
            #![allow(unused_variables, dead_code, missing_docs, clippy::wildcard_imports, clippy::let_unit_value)]
            use tonic::codegen::*;
            use tonic::codegen::http::Uri;

            #docs
            #attributes
            #[derive(Debug, Clone)]
            pub struct #client<T> {
                #visibility inner: ::tollfree::direct::Grpc<T>,
            }

            #connect

            impl<T> ::tollfree::Generated for #client<T> {
                fn way(&self) -> ::tollfree::Way {
                    self.inner.way()
                }
            }

            impl<T> #client<T>
            where
                T: tonic::client::GrpcService<tonic::body::Body>,
                T::Error: Into<StdError>,
                T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
                <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
            {
                pub fn #new(inner: T) -> Self {
                    Self { inner: ::tollfree::direct::Grpc::new(inner) }
                }

                pub fn #with_origin(inner: T, origin: Uri) -> Self {
                    Self { inner: ::tollfree::direct::Grpc::with_origin(inner, origin) }
                }

                pub fn #with_interceptor<F>(inner: T, interceptor: F) -> #client<InterceptedService<T, F>>
                where
                    F: tonic::service::Interceptor,
                    T::ResponseBody: Default,
                    T: tonic::codegen::Service<
                        http::Request<tonic::body::Body>,
                        Response = http::Response<
                            <T as tonic::client::GrpcService<tonic::body::Body>>::ResponseBody
                        >,
                    >,
                    <T as tonic::codegen::Service<http::Request<tonic::body::Body>>>::Error:
                        Into<StdError> + std::marker::Send + std::marker::Sync,
                {
                    #client { inner: ::tollfree::direct::Grpc::intercepted(inner, interceptor) }
                }

                #settings

                #methods
            }
        }
    })
}

fn settings(service: &Service) -> TokenStream {
    let own = |name| names::own(service, name);
    let (send_compressed, accept_compressed) = (own("send_compressed"), own("accept_compressed"));
    let max_decoding_message_size = own("max_decoding_message_size");
    let max_encoding_message_size = own("max_encoding_message_size");
    quote! {
        /// Compresses requests in this encoding, which the server must know.
        #[must_use]
        pub fn #send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.send_compressed(encoding);
            self
        }

        /// Accepts responses that are compressed in this encoding.
        #[must_use]
        pub fn #accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.accept_compressed(encoding);
            self
        }

        /// The longest message that is decoded, in bytes: 4 MiB unless said here.
        #[must_use]
        pub fn #max_decoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_decoding_message_size(limit);
            self
        }

        /// The longest message that is encoded, in bytes: any unless said here.
        #[must_use]
        pub fn #max_encoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_encoding_message_size(limit);
            self
        }
    }
}

fn connect(client: &proc_macro2::Ident, service: &Service) -> TokenStream {
    let own = |name| names::own(service, name);
    let (new, connect, connect_lazy) = (own("new"), own("connect"), own("connect_lazy"));
    quote! {
        impl #client<::tollfree::Channel> {
            /// Connects to an address of any kind, or by a channel's builder.
            pub async fn #connect(
                dst: impl Into<::tollfree::ChannelBuilder>,
            ) -> std::result::Result<Self, ::tollfree::ChannelError> {
                Ok(Self::#new(dst.into().connect().await?))
            }

            /// The same, connecting at the first call.
            pub fn #connect_lazy(
                dst: impl Into<::tollfree::ChannelBuilder>,
            ) -> std::result::Result<Self, ::tollfree::ChannelError> {
                Ok(Self::#new(dst.into().connect_lazy()?))
            }
        }
    }
}

fn method(names: &MethodNames<'_>, service: &str, options: &Options) -> Result<TokenStream, String> {
    let MethodNames { method, request, response, .. } = names;
    let name = format_ident!("{}", method.name);
    let proto_name = &method.proto_name;
    let called = called(service, proto_name);
    let docs = options.docs(&format!("{service}.{proto_name}"), &method.comments.leading);
    let deprecated = method.options.deprecated().then(|| quote!(#[deprecated]));
    let coding = coding(names, options)?;
    let (argument, into) = if method.client_streaming {
        (quote!(impl tonic::IntoStreamingRequest<Message = #request>), quote!(into_streaming_request))
    } else {
        (quote!(impl tonic::IntoRequest<#request>), quote!(into_request))
    };
    let answer = if method.server_streaming { options.streaming(response) } else { quote!(#response) };
    let call = match (method.client_streaming, method.server_streaming) {
        (false, false) if options.is_direct() => quote!(unary),
        (false, false) => quote!(http_unary),
        (false, true) => quote!(server_streaming),
        (true, false) => quote!(client_streaming),
        (true, true) => quote!(streaming),
    };
    Ok(quote! {
        #docs
        #deprecated
        pub async fn #name(
            &mut self,
            request: #argument,
        ) -> std::result::Result<tonic::Response<#answer>, tonic::Status> {
            #called
            self.inner.#call(request.#into(), &METHOD, #coding).await
        }
    })
}

/// Which method is called.
pub(crate) fn called(service: &str, proto_name: &str) -> TokenStream {
    let path = format!("/{service}/{proto_name}");
    quote! {
        static METHOD: ::tollfree::direct::GeneratedMethod = ::tollfree::direct::GeneratedMethod {
            service: #service,
            name: #proto_name,
            path: #path,
        };
    }
}

/// How messages are coded.
pub(crate) fn coding(names: &MethodNames<'_>, options: &Options) -> Result<TokenStream, String> {
    let codec = codec(options)?;
    Ok(if options.is_direct() {
        names.coding()
    } else {
        quote!(::tollfree::direct::Other(#codec::default()))
    })
}

/// The path of the codec's type.
pub(crate) fn codec(options: &Options) -> Result<syn::Path, String> {
    syn::parse_str(&options.codec_path)
        .map_err(|error| format!("the codec \"{}\" is not a type: {error}", options.codec_path))
}
