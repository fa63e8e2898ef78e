//! The blocking client of a service, beside its asynchronous one.

use proc_macro2::{Ident, TokenStream};
use prost_build::Service;
use quote::{format_ident, quote};

use crate::client;
use crate::names::{self, MethodNames};
use crate::service::Options;

pub(crate) fn generate(service: &Service, options: &Options) -> Result<TokenStream, String> {
    let module = format_ident!("{}", names::module(&service.name, "blocking_client"));
    let async_module = format_ident!("{}", names::module(&service.name, "client"));
    let async_client = format_ident!("{}Client", service.name);
    let client = format_ident!("{}BlockingClient", service.name);
    let full_name = names::full(service, options.emit_package);
    let docs = options.docs(&full_name, &service.comments.leading);
    let mod_attributes = options.client_mods.of(options.package(service))?;
    let attributes = options.clients.of(&full_name)?;
    let methods: TokenStream = service
        .methods
        .iter()
        .map(|method| {
            self::method(&MethodNames::new(service, method, options)?, &async_client, &full_name, options)
        })
        .collect::<Result<_, String>>()?;
    let own = |name| names::own(service, name);
    let (new, with_interceptor, configure) = (own("new"), own("with_interceptor"), own("configure"));
    Ok(quote! {
        /// Generated client implementations that block their thread.
        #mod_attributes
        pub mod #module {
            #![allow(unused_variables, dead_code, deprecated, missing_docs, clippy::wildcard_imports, clippy::let_unit_value)]
            use tonic::codegen::*;
            use super::#async_module::#async_client;

            #docs
            #attributes
            #[derive(Debug, Clone)]
            pub struct #client<T> {
                inner: #async_client<T>,
                channel: ::tollfree::blocking::Channel,
            }

            impl #client<::tollfree::Channel> {
                /// A client of a channel.
                pub fn #new(channel: ::tollfree::blocking::Channel) -> Self {
                    let inner = #async_client::#new(channel.get_ref().clone());
                    Self { inner, channel }
                }

                /// A client of a channel whose requests an interceptor sees first.
                pub fn #with_interceptor<F>(
                    channel: ::tollfree::blocking::Channel,
                    interceptor: F,
                ) -> #client<InterceptedService<::tollfree::Channel, F>>
                where
                    F: tonic::service::Interceptor,
                {
                    let inner = #async_client::#with_interceptor(channel.get_ref().clone(), interceptor);
                    #client { inner, channel }
                }
            }

            impl<T> ::tollfree::Generated for #client<T> {
                fn way(&self) -> ::tollfree::Way {
                    ::tollfree::Generated::way(&self.inner)
                }
            }

            impl<T> #client<T>
            where
                T: tonic::client::GrpcService<tonic::body::Body>,
                T::Error: Into<StdError>,
                T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
                <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
            {
                /// Changes what the asynchronous client can be told: compression, message sizes.
                #[must_use]
                pub fn #configure(
                    mut self,
                    change: impl FnOnce(#async_client<T>) -> #async_client<T>,
                ) -> Self {
                    self.inner = change(self.inner);
                    self
                }

                #methods
            }
        }
    })
}

fn method(
    names: &MethodNames<'_>,
    async_client: &Ident,
    service: &str,
    options: &Options,
) -> Result<TokenStream, String> {
    let MethodNames { method, request, response, .. } = names;
    let name = format_ident!("{}", method.name);
    let docs = options.docs(&format!("{service}.{}", method.proto_name), &method.comments.leading);
    let deprecated = method.options.deprecated().then(|| quote!(#[deprecated]));
    let (argument, sent) = if method.client_streaming {
        (
            quote!(impl IntoIterator<Item = #request, IntoIter: std::marker::Send + 'static>),
            quote!(tonic::Request::new(tokio_stream::iter(request))),
        )
    } else {
        (quote!(impl tonic::IntoRequest<#request>), quote!(request.into_request()))
    };
    // By its path: the method may have the name of one that every type has, as `into`.
    let call = quote!(self.channel.run(#async_client::#name(&mut self.inner, #sent)));
    Ok(if method.server_streaming {
        let kind = if method.client_streaming { quote!(streaming) } else { quote!(server_streaming) };
        let (called, coding) = (client::called(service, &method.proto_name), client::coding(names, options)?);
        quote! {
            #docs
            #deprecated
            pub fn #name(
                &mut self,
                request: #argument,
            ) -> std::result::Result<tonic::Response<::tollfree::blocking::Streaming<#response>>, tonic::Status> {
                #called
                let answer: std::result::Result<tonic::Response<::tollfree::Streaming<#response>>, tonic::Status> =
                    self.channel.run(self.inner.inner.#kind(#sent, &METHOD, #coding));
                let channel = self.channel.clone();
                answer.map(|answer| answer.map(|inner| ::tollfree::blocking::Streaming::new(channel, inner)))
            }
        }
    } else {
        quote! {
            #docs
            #deprecated
            pub fn #name(
                &mut self,
                request: #argument,
            ) -> std::result::Result<tonic::Response<#response>, tonic::Status> {
                #call
            }
        }
    })
}
