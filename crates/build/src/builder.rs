//! What is to be generated, and where: the builder for `build.rs`.

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use prost::Message as _;
use prost_build::Config;
use prost_types::FileDescriptorSet;

use crate::check::{self, Generated};
use crate::manifest::{self, Needed};
use crate::service::{Failures, Generator, Options};
use crate::sources::Sources;
use crate::views::{self, Structs};
use crate::{defaults, editions, names};

/// Settings of the generator, named as in `tonic-prost-build`; made by [`configure`].
#[derive(Debug)]
#[must_use = "nothing is generated before compile_protos"]
pub struct Builder {
    pub(crate) options: Options,
    pub(crate) settings: Vec<Setting>,
    views: Vec<String>,
    prost_path: Option<String>,
    out_dir: Option<PathBuf>,
    file_descriptor_set_path: Option<PathBuf>,
    emit_rerun_if_changed: bool,
}

/// What is handed on to prost-build.
#[derive(Clone, Debug)]
pub(crate) enum Setting {
    ExternPath(String, String),
    FieldAttribute(String, String),
    MessageAttribute(String, String),
    EnumAttribute(String, String),
    TypeAttribute(String, String),
    Boxed(String),
    BtreeMap(String),
    Bytes(String),
    SkipDebug(String),
    IncludeFile(PathBuf),
    WellKnownTypes,
}

/// A builder that generates clients and servers into cargo's `OUT_DIR`.
pub fn configure() -> Builder {
    Builder {
        options: Options::default(),
        settings: Vec::new(),
        views: Vec::new(),
        prost_path: None,
        out_dir: None,
        file_descriptor_set_path: None,
        emit_rerun_if_changed: std::env::var_os("CARGO").is_some(),
    }
}

/// Settings that prost-build takes as a path, or as a path and something for it.
macro_rules! prost_settings {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident),+) = $setting:ident;)+) => {$(
        $(#[$doc])+
        pub fn $name(mut self, $($argument: impl AsRef<str>),+) -> Self {
            self.settings.push(Setting::$setting($($argument.as_ref().to_owned()),+));
            self
        }
    )+};
}

/// Attributes of services.
macro_rules! attributes {
    ($($(#[$doc:meta])+ $name:ident = $field:ident;)+) => {$(
        $(#[$doc])+
        pub fn $name(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
            self.options.$field.push(path.as_ref(), attribute.as_ref());
            self
        }
    )+};
}

/// Switches.
macro_rules! switches {
    ($($(#[$doc:meta])+ $name:ident;)+) => {$(
        $(#[$doc])+
        pub fn $name(mut self, enable: bool) -> Self {
            self.options.$name = enable;
            self
        }
    )+};
}

impl Builder {
    switches! {
        /// Generates clients: on unless said here.
        build_client;
        /// Generates clients that block their thread, for programs without a runtime: off unless said here.
        build_blocking_client;
        /// Generates servers: on unless said here.
        build_server;
        /// Gives clients functions that connect, to addresses of any kind: on unless said here.
        build_transport;
        /// Puts the package before services' names on the wire: on unless said here.
        emit_package;
        /// Has callers and handlers read streams as `tollfree::Streaming` instead of `tonic::Streaming`: the same methods, and
        /// less of tonic's work for each message. Off unless said here. Blocking clients have it always.
        own_streaming;
        /// Handlers take `Arc<Self>`: off unless said here.
        use_arc_self;
        /// Gives all methods of the trait a body that answers UNIMPLEMENTED: off unless said here.
        generate_default_stubs;
    }

    attributes! {
        /// Adds an attribute to the modules of matched packages' servers.
        server_mod_attribute = server_mods;
        /// Adds an attribute to matched services' servers.
        server_attribute = servers;
        /// Adds an attribute to matched services' traits.
        trait_attribute = traits;
        /// Adds an attribute to the modules of matched packages' clients.
        client_mod_attribute = client_mods;
        /// Adds an attribute to matched services' clients.
        client_attribute = clients;
    }

    prost_settings! {
        /// Takes the types of a package from elsewhere, as [`Config::extern_path`].
        extern_path(proto_path, rust_path) = ExternPath;
        /// Adds an attribute to fields, as [`Config::field_attribute`].
        field_attribute(path, attribute) = FieldAttribute;
        /// Adds an attribute to messages, as [`Config::message_attribute`].
        message_attribute(path, attribute) = MessageAttribute;
        /// Adds an attribute to enums, as [`Config::enum_attribute`].
        enum_attribute(path, attribute) = EnumAttribute;
        /// Adds an attribute to types, as [`Config::type_attribute`].
        type_attribute(path, attribute) = TypeAttribute;
        /// Boxes a field, as [`Config::boxed`].
        boxed(path) = Boxed;
        /// Makes maps `BTreeMap`s, as [`Config::btree_map`].
        btree_map(path) = BtreeMap;
        /// Makes `bytes` fields `Bytes`, which are not copied out of a received message, as [`Config::bytes`].
        bytes(path) = Bytes;
    }

    /// Also generates views and builders of messages, which are read and built in place, into the file `views.rs`, to be
    /// included in a module of its own. The path is a package (`.shop`), a message or a service (whose requests and responses
    /// are meant); `.` is everything. What these messages reach is generated, too. The crate needs `tollfree-processor`.
    pub fn views(mut self, path: impl AsRef<str>) -> Self {
        self.views.push(path.as_ref().to_owned());
        self
    }

    /// The stubs of these methods take and give objects that are read and built in place (`Owned`), where they would have
    /// prost's structs. The path is a package, a service or a method (`.shop.Orders.Price`); `.` is everything. Views of these
    /// methods' messages are generated as if [`views`](Builder::views) named them.
    pub fn objects(mut self, path: impl AsRef<str>) -> Self {
        self.options.objects.push(path.as_ref().to_owned());
        self
    }

    /// Where `views.rs` is included, seen from the modules of services: `super::views` unless said here.
    pub fn views_path(mut self, path: impl AsRef<str>) -> Self {
        path.as_ref().clone_into(&mut self.options.views_path);
        self
    }

    /// Also generates what makes prost's structs of views, and builders of structs (`to_prost`, `from_prost`). The path is the
    /// module in which each package has its module, seen from where `views.rs` is included. Types that are said to stand elsewhere
    /// ([`extern_path`](Builder::extern_path), prost-types) are looked for there, by a path that begins with `::` or `crate`.
    pub fn prost_path(mut self, path: impl AsRef<str>) -> Self {
        self.prost_path = Some(path.as_ref().to_owned());
        self
    }

    /// Leaves out `Debug`, as [`Config::skip_debug`].
    pub fn skip_debug<S: AsRef<str>>(mut self, paths: impl IntoIterator<Item = S>) -> Self {
        self.settings.extend(paths.into_iter().map(|path| Setting::SkipDebug(path.as_ref().to_owned())));
        self
    }

    /// Leaves out the comments of services (`package.Service`) and methods (`package.Service.Method`).
    pub fn disable_comments<S: AsRef<str>>(mut self, paths: impl IntoIterator<Item = S>) -> Self {
        self.options.disable_comments.extend(paths.into_iter().map(|path| path.as_ref().to_owned()));
        self
    }

    /// Generates the well-known types too, as [`Config::compile_well_known_types`].
    pub fn compile_well_known_types(mut self, enable: bool) -> Self {
        self.settings.retain(|setting| !matches!(setting, Setting::WellKnownTypes));
        self.settings.extend(enable.then_some(Setting::WellKnownTypes));
        self
    }

    /// Also writes a file that includes all others, as [`Config::include_file`].
    pub fn include_file(mut self, path: impl AsRef<Path>) -> Self {
        self.settings.push(Setting::IncludeFile(path.as_ref().to_owned()));
        self
    }

    /// Where messages are, seen from the modules of services: `super` unless said here.
    pub fn proto_path(mut self, path: impl AsRef<str>) -> Self {
        path.as_ref().clone_into(&mut self.options.proto_path);
        self
    }

    /// Another codec than tonic's for prost; its calls go as HTTP requests.
    pub fn codec_path(mut self, path: impl AsRef<str>) -> Self {
        path.as_ref().clone_into(&mut self.options.codec_path);
        self
    }

    /// Writes to this directory: cargo's `OUT_DIR` unless said here.
    pub fn out_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.out_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Also writes the descriptors, for the reflection service.
    pub fn file_descriptor_set_path(mut self, path: impl AsRef<Path>) -> Self {
        self.file_descriptor_set_path = Some(path.as_ref().to_owned());
        self
    }

    /// Tells cargo to run the build script again when a proto has changed: on in a build script.
    pub fn emit_rerun_if_changed(mut self, enable: bool) -> Self {
        self.emit_rerun_if_changed = enable;
        self
    }

    /// Compiles `.proto` files that stand in the `includes` directories, and generates the code.
    ///
    /// # Errors
    /// What is wrong with a file, with its place in it; what can't be written.
    pub fn compile_protos(
        self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> io::Result<()> {
        let fds = self.parse(protos, includes)?;
        self.compile_fds(fds)
    }

    /// [`compile_protos`](Builder::compile_protos) with settings of prost-build that the builder doesn't have.
    ///
    /// # Errors
    /// As there.
    pub fn compile_with_config(
        self,
        config: Config,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> io::Result<()> {
        let fds = self.parse(protos, includes)?;
        self.compile_fds_with_config(fds, config)
    }

    /// Reads `.proto` files, and what they import.
    fn parse(
        &self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> io::Result<FileDescriptorSet> {
        // Its `Debug` says file, line and column.
        let refused = |error: protox::Error| {
            let name = error.file().filter(|_| error.is_parse()).unwrap_or_default();
            let mut places = includes.iter().map(|include| include.as_ref().join(name));
            let advice =
                if places.any(|path| editions::is_of_edition(&path)) { editions::ADVICE } else { "" };
            io::Error::other(format!("{error:?}{advice}"))
        };
        let mut compiler = protox::Compiler::with_file_resolver(Sources::new(includes));
        compiler.include_source_info(true).include_imports(true);
        compiler.open_files(protos).map_err(refused)?;
        if self.emit_rerun_if_changed {
            for path in compiler.files().filter_map(|file| file.path()) {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
        Ok(compiler.file_descriptor_set())
    }

    /// Generates the code of files that were compiled elsewhere, imports among them.
    ///
    /// # Errors
    /// What of the files can't be generated; what can't be written.
    pub fn compile_fds(self, fds: FileDescriptorSet) -> io::Result<()> {
        self.check_manifest(&fds)?;
        self.compile_fds_with_config(fds, Config::new())
    }

    /// Generates the code of files that protoc or buf has compiled into a descriptor set, imports among them. Only the set's own
    /// bytes have what makes an edition, which [`compile_fds`](Builder::compile_fds) is not told of.
    ///
    /// # Errors
    /// As there; what is no descriptor set.
    pub fn compile_descriptor_set(self, set: &[u8]) -> io::Result<()> {
        let (mut fds, raw) = (FileDescriptorSet::decode(set)?, editions::Set::decode(set)?);
        for (file, raw) in fds.file.iter_mut().zip(&raw.files) {
            editions::lower(file, raw).map_err(io::Error::other)?;
        }
        self.check_manifest(&fds)?;
        self.compile(fds, set, Config::new())
    }

    /// [`compile_fds`](Builder::compile_fds) with settings of prost-build that the builder doesn't have.
    ///
    /// # Errors
    /// As there.
    pub fn compile_fds_with_config(self, fds: FileDescriptorSet, config: Config) -> io::Result<()> {
        let encoded = fds.encode_to_vec();
        self.compile(fds, &encoded, config)
    }

    /// Looks into the manifest of the crate that is generated for, where that is known: if the code goes to cargo's `OUT_DIR`.
    fn check_manifest(&self, fds: &FileDescriptorSet) -> io::Result<()> {
        let Some(directory) = std::env::var_os("CARGO_MANIFEST_DIR") else { return Ok(()) };
        if self.out_dir.is_some() {
            return Ok(());
        }
        let has_services = fds.file.iter().any(|file| !file.service.is_empty());
        let has_stubs = has_services && (self.options.build_client || self.options.build_server);
        let has_views = !self.views.is_empty() || !self.options.objects.is_empty();
        let stubs = Needed { package: "tollfree", why: "the generated code of services" };
        let views = Needed { package: "tollfree-processor", why: "the generated code of views" };
        let needed: Vec<Needed> =
            has_stubs.then_some(stubs).into_iter().chain(has_views.then_some(views)).collect();
        manifest::lacks(Path::new(&directory), &needed).map_err(io::Error::other)
    }

    /// Generates the code of files that are also `encoded`, in which they say more.
    fn compile(self, mut fds: FileDescriptorSet, encoded: &[u8], mut config: Config) -> io::Result<()> {
        self.options.check().map_err(io::Error::other)?;
        let here = fds.file.iter().filter(|file| !self.is_elsewhere(file.package()));
        let complaints = check::complaints(here, self.generated());
        if !complaints.is_empty() {
            return Err(io::Error::other(complaints.join("\n")));
        }
        let mut viewed = self.views.clone();
        viewed.extend(self.messages_of_objects(&fds)?);
        if !viewed.is_empty() {
            let structs = self.structs().map_err(io::Error::other)?;
            let text = views::text(&fds, encoded, &viewed, structs.as_ref()).map_err(io::Error::other)?;
            let out_dir = self.out_dir.clone().or_else(|| std::env::var_os("OUT_DIR").map(PathBuf::from));
            let out_dir =
                out_dir.ok_or_else(|| io::Error::other("views need an out_dir, or cargo's OUT_DIR"))?;
            std::fs::write(out_dir.join(views::FILE), text)?;
        }
        if let Some(path) = &self.file_descriptor_set_path {
            std::fs::write(path, encoded)?;
        }
        if let Some(out_dir) = &self.out_dir {
            config.out_dir(out_dir);
        }
        let failures = self.apply(&mut config);
        defaults::rename(&mut fds.file);
        generate(&failures, || config.compile_fds(fds))
    }

    /// Whether the types of a package are generated by somebody else.
    fn is_elsewhere(&self, package: &str) -> bool {
        let name = format!(".{package}");
        let has_well_known = self.settings.iter().any(|it| matches!(it, Setting::WellKnownTypes));
        let is_extern = |setting: &Setting| match setting {
            Setting::ExternPath(proto, _) => names::matches(proto, package) && name.starts_with(proto),
            _ => false,
        };
        !has_well_known && names::matches(".google.protobuf", package) || self.settings.iter().any(is_extern)
    }

    /// Where prost's types stand, if views are to know.
    fn structs(&self) -> Result<Option<Structs>, String> {
        let Some(root) = &self.prost_path else { return Ok(None) };
        let pair = |setting: &Setting| match setting {
            Setting::ExternPath(proto, rust) => Some((proto.clone(), rust.clone())),
            _ => None,
        };
        let has_well_known = self.settings.iter().any(|it| matches!(it, Setting::WellKnownTypes));
        Structs::new(root, self.settings.iter().filter_map(pair).collect(), has_well_known).map(Some)
    }

    /// The messages of all methods whose stubs take objects, as paths of views.
    fn messages_of_objects(&self, fds: &FileDescriptorSet) -> io::Result<Vec<String>> {
        let mut messages = Vec::new();
        for (file, service) in fds.file.iter().flat_map(|file| file.service.iter().map(move |it| (file, it)))
        {
            let dot = if file.package().is_empty() { "" } else { "." };
            let full_name = format!("{}{dot}{}", file.package(), service.name());
            let methods = service.method.iter();
            for method in methods.filter(|it| self.options.takes_objects(&full_name, it.name())) {
                messages.extend([method.input_type().to_owned(), method.output_type().to_owned()]);
            }
        }
        if messages.is_empty() && !self.options.objects.is_empty() {
            return Err(io::Error::other(format!(
                "objects({}) matches no method; name a package, service or method",
                self.options.objects.join(", ")
            )));
        }
        Ok(messages)
    }

    /// The generator of services alone, for a [`Config`] of one's own. What goes wrong shows as services that are missing.
    pub fn service_generator(self) -> Box<dyn prost_build::ServiceGenerator> {
        Box::new(Generator { options: self.options, failures: Failures::default() })
    }

    /// What is to be generated, for the names in it.
    pub(crate) fn generated(&self) -> Generated {
        let Options { build_client, build_blocking_client, build_server, .. } = self.options;
        Generated {
            clients: build_client,
            blocking: build_blocking_client,
            servers: build_server,
            bundled: self.is_elsewhere("google.protobuf") && !self.settings.iter().any(is_well_known_extern),
        }
    }

    /// Puts all settings into a [`Config`]; what goes wrong in it is gathered where the result says.
    pub(crate) fn apply(self, config: &mut Config) -> Failures {
        config.type_attribute(".", "#[allow(clippy::all)]");
        for setting in &self.settings {
            match setting {
                Setting::ExternPath(proto, rust) => config.extern_path(proto, rust),
                Setting::FieldAttribute(path, text) => config.field_attribute(path, text),
                Setting::MessageAttribute(path, text) => config.message_attribute(path, text),
                Setting::EnumAttribute(path, text) => config.enum_attribute(path, text),
                Setting::TypeAttribute(path, text) => config.type_attribute(path, text),
                Setting::Boxed(path) => config.boxed(path),
                Setting::IncludeFile(path) => config.include_file(path),
                Setting::WellKnownTypes => config.compile_well_known_types(),
                Setting::BtreeMap(_) | Setting::Bytes(_) | Setting::SkipDebug(_) => config,
            };
        }
        // These take all their paths at once.
        let paths = |pick: fn(&Setting) -> Option<&String>| self.settings.iter().filter_map(pick);
        let pick = |setting: &Setting| matches!(setting, Setting::BtreeMap(_));
        if self.settings.iter().any(pick) {
            config.btree_map(paths(|it| if let Setting::BtreeMap(path) = it { Some(path) } else { None }));
        }
        let pick = |setting: &Setting| matches!(setting, Setting::Bytes(_));
        if self.settings.iter().any(pick) {
            config.bytes(paths(|it| if let Setting::Bytes(path) = it { Some(path) } else { None }));
        }
        let pick = |setting: &Setting| matches!(setting, Setting::SkipDebug(_));
        if self.settings.iter().any(pick) {
            config.skip_debug(paths(|it| if let Setting::SkipDebug(path) = it { Some(path) } else { None }));
        }
        let failures = Failures::default();
        if self.options.build_client || self.options.build_server {
            let generator = Generator { options: self.options, failures: failures.clone() };
            config.service_generator(Box::new(generator));
        }
        failures
    }
}

/// Whether types of google.protobuf are said to stand in another crate than prost-types.
fn is_well_known_extern(setting: &Setting) -> bool {
    matches!(setting, Setting::ExternPath(proto, _) if proto == "." || proto.starts_with(".google"))
}

/// Lets prost-build work, which panics where it finds that it can't go on.
pub(crate) fn generate<T>(failures: &Failures, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let done = std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(io::Error::other(format!("prost-build can't generate this: {text}")))
    })?;
    let failures = std::mem::take(&mut *failures.lock().unwrap_or_else(PoisonError::into_inner));
    if failures.is_empty() { Ok(done) } else { Err(io::Error::other(failures.join("\n"))) }
}
