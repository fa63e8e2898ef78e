//! `tollfree-lab codec`: messages through the engine, by hand.

mod near;
mod show;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use tollfree_gateway::read_file;
use tollfree_json::Unknown;
use tollfree_processor::{Arena, EncodeBuffer, Limits, Object, Processor};
use tollfree_schema::Schema;

use crate::failure::Failure;
use crate::measuring::print;

/// Longest input and largest object, in bytes: protobuf's own limit, and that of objects.
const INPUT_LIMIT: u64 = i32::MAX as u64;
/// The longest descriptor set, in bytes: as a gateway reads.
const DESCRIPTOR_SET_LEN_MAX: u64 = 64 << 20;
const OBJECT_LIMIT: usize = u32::MAX as usize;

/// What `tollfree-lab codec` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Codec {
    /// Decode a protobuf message into a flat message and show its fields
    Decode(DecodeArgs),
    /// Encode a message from protobuf's JSON form
    Encode(EncodeArgs),
    /// Verify a flat message, as an engine does with one from another process
    Verify(VerifyArgs),
}

impl Codec {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Decode(arguments) => arguments.run(),
            Self::Encode(arguments) => arguments.run(),
            Self::Verify(arguments) => arguments.run(),
        }
    }
}

/// What all three need.
#[derive(Debug, Args)]
struct Source {
    /// Serialized google.protobuf.FileDescriptorSet with all imports (protoc --include_imports -o F, buf build -o F)
    #[arg(long, value_name = "F")]
    descriptor_set: PathBuf,

    /// Full name of the message's type, such as helloworld.HelloRequest
    #[arg(long = "type", value_name = "T")]
    type_name: String,

    /// Input; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    input: PathBuf,

    /// Print one JSON object instead of text or bytes
    #[arg(long)]
    json: bool,
}

impl Source {
    /// The engine for the descriptor set, and the index of the type.
    fn engine(&self) -> Result<(Processor, u32), Failure> {
        let path = self.descriptor_set.display();
        let bytes = read_file(&self.descriptor_set, DESCRIPTOR_SET_LEN_MAX)
            .map_err(|error| Failure::Refused(format!("the descriptor set {path} {error}")))?;
        let table = Schema::from_descriptor_set(&bytes)
            .and_then(|schema| schema.compile())
            .map_err(|error| Failure::Refused(format!("the descriptor set {path}: {error}")))?;
        let processor = Processor::new(table);
        match processor.type_by_name(self.type_name.trim_start_matches('.')) {
            Some(type_idx) => Ok((processor, type_idx)),
            None => Err(Failure::Refused(near::unknown_type(processor.table(), &self.type_name, &path))),
        }
    }

    fn name(&self) -> String {
        if self.is_stdin() { "standard input".into() } else { self.input.display().to_string() }
    }

    fn is_stdin(&self) -> bool {
        self.input.as_os_str() == "-"
    }

    /// All of the input.
    fn read(&self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let read = if self.is_stdin() {
            std::io::stdin().lock().take(INPUT_LIMIT + 1).read_to_end(&mut bytes)
        } else {
            std::fs::File::open(&self.input)
                .and_then(|file| file.take(INPUT_LIMIT + 1).read_to_end(&mut bytes))
        };
        match read {
            Err(error) => Err(Failure::Refused(format!("cannot read {}: {error}", self.name()))),
            Ok(_) if bytes.len() as u64 > INPUT_LIMIT => {
                Err(Failure::Refused(format!("{} is longer than {INPUT_LIMIT} bytes", self.name())))
            }
            Ok(_) => Ok(bytes),
        }
    }

    fn failed(&self, error: impl std::fmt::Display) -> Failure {
        Failure::Failed(format!("{}: {error}", self.name()))
    }

    /// The object as text, or in protobuf's JSON form.
    fn print(&self, processor: &Processor, object: &Object<'_>) -> Result<(), Failure> {
        if self.json {
            let text = tollfree_json::write(processor, object.root()).map_err(|error| self.failed(error))?;
            return print(&(text + "\n"));
        }
        print(&show::text(processor, object))
    }
}

/// Options of `tollfree-lab codec decode`.
#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    #[command(flatten)]
    source: Source,

    /// Write the flat message to a file, too
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
}

impl DecodeArgs {
    fn run(self) -> Result<(), Failure> {
        let (processor, type_idx) = self.source.engine()?;
        let input = self.source.read()?;
        let mut arena = Arena::with_limit(OBJECT_LIMIT);
        let object = processor
            .decode(type_idx, &input, &mut arena, &Limits::default())
            .map_err(|error| self.source.failed(error))?;
        if let Some(path) = &self.object {
            write_file(path, object.bytes())?;
        }
        self.source.print(&processor, &object)
    }
}

/// Options of `tollfree-lab codec encode`.
#[derive(Debug, Args)]
pub(crate) struct EncodeArgs {
    #[command(flatten)]
    source: Source,

    /// Write the message to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What `encode --json` says.
#[derive(Debug, Serialize)]
struct Encoded<'e> {
    r#type: &'e str,
    bytes: usize,
    object_bytes: usize,
    hex: String,
}

impl EncodeArgs {
    fn run(self) -> Result<(), Failure> {
        let to_terminal = self.out.is_none() && !self.source.json && std::io::stdout().is_terminal();
        if to_terminal {
            let words = "the message is binary: redirect standard output, or give --out FILE or --json";
            return Err(Failure::Refused(words.into()));
        }
        let (processor, type_idx) = self.source.engine()?;
        let text = String::from_utf8(self.source.read()?).map_err(|error| self.source.failed(error))?;
        let wire = tollfree_json::read(&processor, type_idx, &text, Unknown::Refuse)
            .map_err(|error| self.source.failed(error))?;
        let mut arena = Arena::with_limit(OBJECT_LIMIT);
        let object = processor
            .decode(type_idx, &wire, &mut arena, &Limits::default())
            .map_err(|error| self.source.failed(error))?;
        let mut buffer = EncodeBuffer::new();
        let bytes = object.encode(&mut buffer).map_err(|error| self.source.failed(error))?;
        if let Some(path) = &self.out {
            write_file(path, bytes)?;
        }
        if self.source.json {
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            return print_json(&Encoded {
                r#type: object.root().type_name(),
                bytes: bytes.len(),
                object_bytes: object.bytes().len(),
                hex,
            });
        }
        if self.out.is_some() {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::Failed(format!("cannot write the message: {error}")))
    }
}

/// Options of `tollfree-lab codec verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    source: Source,
}

/// What `verify --json` says.
#[derive(Debug, Serialize)]
struct Verified<'v> {
    sound: bool,
    r#type: &'v str,
    object_bytes: usize,
    fields: usize,
}

impl VerifyArgs {
    fn run(self) -> Result<(), Failure> {
        let (processor, type_idx) = self.source.engine()?;
        let input = self.source.read()?;
        let object = processor
            .verify(type_idx, &input, Limits::default().depth)
            .map_err(|error| self.source.failed(format!("not a sound object: {error}")))?;
        let root = object.root();
        let (fields, object_bytes) = (root.fields().count(), object.bytes().len());
        if self.source.json {
            return print_json(&Verified { sound: true, r#type: root.type_name(), object_bytes, fields });
        }
        let name = root.type_name();
        print(&format!("a sound object of {name}: {object_bytes} bytes, {fields} fields present\n"))
    }
}

fn print_json(findings: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(findings).map_err(|error| Failure::Failed(error.to_string()))?;
    print(&(text + "\n"))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
}
