//! Services without a `.proto` file: said in the build script, as with `tonic_build::manual`.
//!
//! ```no_run
//! use tollfree_build::manual::{Builder, Method, Service};
//!
//! # fn main() -> std::io::Result<()> {
//! let hello = Method::builder()
//!     .name("hello")
//!     .route_name("Hello")
//!     .input_type("crate::HelloRequest")
//!     .output_type("crate::HelloReply")
//!     .codec_path("crate::JsonCodec")
//!     .build();
//! let greeter = Service::builder().name("Greeter").package("greeter.v1").method(hello).build();
//! Builder::new().compile(&[greeter])
//! # }
//! ```

use std::io;
use std::path::{Path, PathBuf};

use prost_build::Comments;

use crate::service::{Options, PROST_CODEC};

/// A service. Made by [`Service::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Service {
    name: String,
    package: String,
    comments: Vec<String>,
    methods: Vec<Method>,
}

/// A method. Made by [`Method::builder`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Method {
    name: String,
    route_name: String,
    comments: Vec<String>,
    input_type: String,
    output_type: String,
    client_streaming: bool,
    server_streaming: bool,
    deprecated: bool,
    codec_path: Option<String>,
}

/// Says what a [`Service`] has.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ServiceBuilder(Service);

/// Says what a [`Method`] has.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct MethodBuilder(Method);

impl Service {
    /// A service without a name yet.
    pub fn builder() -> ServiceBuilder {
        ServiceBuilder::default()
    }
}

impl Method {
    /// A method without a name yet.
    pub fn builder() -> MethodBuilder {
        MethodBuilder::default()
    }
}

impl ServiceBuilder {
    /// Its name, on the wire and of the trait.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        name.as_ref().clone_into(&mut self.0.name);
        self
    }

    /// The package before the name on the wire; empty for none.
    pub fn package(mut self, package: impl AsRef<str>) -> Self {
        package.as_ref().clone_into(&mut self.0.package);
        self
    }

    /// A line of documentation.
    pub fn comment(mut self, comment: impl AsRef<str>) -> Self {
        self.0.comments.push(comment.as_ref().to_owned());
        self
    }

    /// A further method.
    pub fn method(mut self, method: Method) -> Self {
        self.0.methods.push(method);
        self
    }

    /// The service. What is missing is said by [`Builder::compile`].
    pub fn build(self) -> Service {
        self.0
    }
}

impl MethodBuilder {
    /// The name of the function.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        name.as_ref().clone_into(&mut self.0.name);
        self
    }

    /// The name on the wire.
    pub fn route_name(mut self, name: impl AsRef<str>) -> Self {
        name.as_ref().clone_into(&mut self.0.route_name);
        self
    }

    /// A line of documentation.
    pub fn comment(mut self, comment: impl AsRef<str>) -> Self {
        self.0.comments.push(comment.as_ref().to_owned());
        self
    }

    /// The type of requests, by its path.
    pub fn input_type(mut self, path: impl AsRef<str>) -> Self {
        path.as_ref().clone_into(&mut self.0.input_type);
        self
    }

    /// The type of responses, by its path.
    pub fn output_type(mut self, path: impl AsRef<str>) -> Self {
        path.as_ref().clone_into(&mut self.0.output_type);
        self
    }

    /// The codec, by its path: tonic's for prost unless said here, which goes from message to shared memory directly. All
    /// methods of a service have the same.
    pub fn codec_path(mut self, path: impl AsRef<str>) -> Self {
        self.0.codec_path = Some(path.as_ref().to_owned());
        self
    }

    /// The client streams.
    pub fn client_streaming(mut self) -> Self {
        self.0.client_streaming = true;
        self
    }

    /// The server streams.
    pub fn server_streaming(mut self) -> Self {
        self.0.server_streaming = true;
        self
    }

    /// It is deprecated.
    pub fn deprecated(mut self) -> Self {
        self.0.deprecated = true;
        self
    }

    /// The method. What is missing is said by [`Builder::compile`].
    pub fn build(self) -> Method {
        self.0
    }
}

/// What is generated of services, and where it is written.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is generated before compile"]
pub struct Builder {
    options: Options,
    out_dir: Option<PathBuf>,
}

impl Builder {
    /// Generates clients and servers into cargo's `OUT_DIR`.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Generates clients: on unless said here.
    pub fn build_client(mut self, enable: bool) -> Self {
        self.options.build_client = enable;
        self
    }

    /// Generates servers: on unless said here.
    pub fn build_server(mut self, enable: bool) -> Self {
        self.options.build_server = enable;
        self
    }

    /// Gives clients functions that connect: on unless said here.
    pub fn build_transport(mut self, enable: bool) -> Self {
        self.options.build_transport = enable;
        self
    }

    /// Writes to this directory.
    pub fn out_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.out_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Writes a file `package.Service.rs` for each service.
    ///
    /// # Errors
    /// What a service lacks, or has that is no Rust; what can't be written.
    pub fn compile(self, services: &[Service]) -> io::Result<()> {
        let out_dir = match self.out_dir {
            Some(out_dir) => out_dir,
            None => std::env::var_os("OUT_DIR")
                .ok_or_else(|| io::Error::other("there is no OUT_DIR: call Builder::out_dir"))?
                .into(),
        };
        for service in services {
            let failed = |error| io::Error::other(format!("service {}: {error}", service.name));
            let options = Options {
                // Types are said by their whole paths.
                proto_path: String::new(),
                codec_path: codec(service).map_err(failed)?,
                ..self.options.clone()
            };
            options.check().map_err(failed)?;
            let text = options.generate(&described(service).map_err(failed)?).map_err(failed)?;
            std::fs::write(out_dir.join(format!("{}.{}.rs", service.package, service.name)), text)?;
        }
        Ok(())
    }
}

/// The codec of all methods.
fn codec(service: &Service) -> Result<String, String> {
    let of = |method: &Method| method.codec_path.clone().unwrap_or_else(|| PROST_CODEC.to_owned());
    let mut codecs: Vec<String> = service.methods.iter().map(of).collect();
    codecs.dedup();
    match codecs.len() {
        0 | 1 => Ok(codecs.pop().unwrap_or_else(|| PROST_CODEC.to_owned())),
        _ => Err(format!("its methods have several codecs ({}); give them one", codecs.join(", "))),
    }
}

/// The service as prost-build would describe it.
fn described(service: &Service) -> Result<prost_build::Service, String> {
    let comments = |leading: &[String]| Comments { leading: leading.to_vec(), ..Comments::default() };
    let name = ident(&service.name, "it", "name")?;
    let methods = service.methods.iter().map(|method| {
        let of = format!("method {}", method.name);
        if method.input_type.is_empty() || method.output_type.is_empty() {
            return Err(format!("{of} needs an input_type and an output_type"));
        }
        Ok(prost_build::Method {
            name: ident(&method.name, "a method", "name")?,
            proto_name: ident(&method.route_name, &of, "route_name")?,
            comments: comments(&method.comments),
            input_type: method.input_type.clone(),
            output_type: method.output_type.clone(),
            input_proto_type: String::new(),
            output_proto_type: String::new(),
            options: prost_types::MethodOptions {
                deprecated: Some(method.deprecated),
                ..prost_types::MethodOptions::default()
            },
            client_streaming: method.client_streaming,
            server_streaming: method.server_streaming,
        })
    });
    Ok(prost_build::Service {
        name: name.clone(),
        proto_name: name,
        package: service.package.clone(),
        comments: comments(&service.comments),
        methods: methods.collect::<Result<_, _>>()?,
        options: prost_types::ServiceOptions::default(),
    })
}

/// A name that can stand in Rust's code.
fn ident(name: &str, of: &str, what: &str) -> Result<String, String> {
    match syn::parse_str::<syn::Ident>(name) {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => Err(format!("{of} needs a {what} that is a name in Rust, and not \"{name}\"")),
    }
}
