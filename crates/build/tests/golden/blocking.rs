/// Generated client implementations that block their thread.
pub mod kinds_blocking_client {
    #![allow(
        unused_variables,
        dead_code,
        deprecated,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value
    )]
    use tonic::codegen::*;
    use super::kinds_client::KindsClient;
    /// All kinds of calls, \[with brackets\] and `code`.
    ///
    /// ```text
    /// set in by four columns
    /// ```
    #[derive(Debug, Clone)]
    pub struct KindsBlockingClient<T> {
        inner: KindsClient<T>,
        channel: ::tollfree::blocking::Channel,
    }
    impl KindsBlockingClient<::tollfree::Channel> {
        /// A client of a channel.
        pub fn new(channel: ::tollfree::blocking::Channel) -> Self {
            let inner = KindsClient::new(channel.get_ref().clone());
            Self { inner, channel }
        }
        /// A client of a channel whose requests an interceptor sees first.
        pub fn with_interceptor<F>(
            channel: ::tollfree::blocking::Channel,
            interceptor: F,
        ) -> KindsBlockingClient<InterceptedService<::tollfree::Channel, F>>
        where
            F: tonic::service::Interceptor,
        {
            let inner = KindsClient::with_interceptor(
                channel.get_ref().clone(),
                interceptor,
            );
            KindsBlockingClient {
                inner,
                channel,
            }
        }
    }
    impl<T> ::tollfree::Generated for KindsBlockingClient<T> {
        fn way(&self) -> ::tollfree::Way {
            ::tollfree::Generated::way(&self.inner)
        }
    }
    impl<T> KindsBlockingClient<T>
    where
        T: tonic::client::GrpcService<tonic::body::Body>,
        T::Error: Into<StdError>,
        T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
        <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
    {
        /// Changes what the asynchronous client can be told: compression, message sizes.
        #[must_use]
        pub fn configure(
            mut self,
            change: impl FnOnce(KindsClient<T>) -> KindsClient<T>,
        ) -> Self {
            self.inner = change(self.inner);
            self
        }
        /// One and one.
        pub fn say(
            &mut self,
            request: impl tonic::IntoRequest<super::Chat>,
        ) -> std::result::Result<tonic::Response<super::Chat>, tonic::Status> {
            self.channel.run(KindsClient::say(&mut self.inner, request.into_request()))
        }
        /// One and many.
        /// On two lines.
        pub fn listen(
            &mut self,
            request: impl tonic::IntoRequest<super::Chat>,
        ) -> std::result::Result<
            tonic::Response<::tollfree::blocking::Streaming<super::chat::Line>>,
            tonic::Status,
        > {
            static METHOD: ::tollfree::direct::GeneratedMethod = ::tollfree::direct::GeneratedMethod {
                service: "golden.kinds.v1.Kinds",
                name: "Listen",
                path: "/golden.kinds.v1.Kinds/Listen",
            };
            let answer: std::result::Result<
                tonic::Response<::tollfree::Streaming<super::chat::Line>>,
                tonic::Status,
            > = self
                .channel
                .run(
                    self
                        .inner
                        .inner
                        .server_streaming(
                            request.into_request(),
                            &METHOD,
                            ::tollfree::direct::Prost,
                        ),
                );
            let channel = self.channel.clone();
            answer
                .map(|answer| {
                    answer
                        .map(|inner| ::tollfree::blocking::Streaming::new(
                            channel,
                            inner,
                        ))
                })
        }
        pub fn tell(
            &mut self,
            request: impl IntoIterator<
                Item = super::Chat,
                IntoIter: std::marker::Send + 'static,
            >,
        ) -> std::result::Result<
            tonic::Response<super::super::super::other::v1::Note>,
            tonic::Status,
        > {
            self.channel
                .run(
                    KindsClient::tell(
                        &mut self.inner,
                        tonic::Request::new(tokio_stream::iter(request)),
                    ),
                )
        }
        pub fn talk(
            &mut self,
            request: impl IntoIterator<
                Item = super::super::super::other::v1::Note,
                IntoIter: std::marker::Send + 'static,
            >,
        ) -> std::result::Result<
            tonic::Response<::tollfree::blocking::Streaming<super::Chat>>,
            tonic::Status,
        > {
            static METHOD: ::tollfree::direct::GeneratedMethod = ::tollfree::direct::GeneratedMethod {
                service: "golden.kinds.v1.Kinds",
                name: "Talk",
                path: "/golden.kinds.v1.Kinds/Talk",
            };
            let answer: std::result::Result<
                tonic::Response<::tollfree::Streaming<super::Chat>>,
                tonic::Status,
            > = self
                .channel
                .run(
                    self
                        .inner
                        .inner
                        .streaming(
                            tonic::Request::new(tokio_stream::iter(request)),
                            &METHOD,
                            ::tollfree::direct::Prost,
                        ),
                );
            let channel = self.channel.clone();
            answer
                .map(|answer| {
                    answer
                        .map(|inner| ::tollfree::blocking::Streaming::new(
                            channel,
                            inner,
                        ))
                })
        }
        pub fn ping(
            &mut self,
            request: impl tonic::IntoRequest<()>,
        ) -> std::result::Result<
            tonic::Response<::prost_types::Timestamp>,
            tonic::Status,
        > {
            self.channel.run(KindsClient::ping(&mut self.inner, request.into_request()))
        }
        pub fn is(
            &mut self,
            request: impl tonic::IntoRequest<::prost::alloc::string::String>,
        ) -> std::result::Result<tonic::Response<bool>, tonic::Status> {
            self.channel.run(KindsClient::is(&mut self.inner, request.into_request()))
        }
        /// Names that Rust keeps for itself.
        #[deprecated]
        pub fn r#type(
            &mut self,
            request: impl tonic::IntoRequest<super::Chat>,
        ) -> std::result::Result<tonic::Response<super::Chat>, tonic::Status> {
            self.channel
                .run(KindsClient::r#type(&mut self.inner, request.into_request()))
        }
    }
}
