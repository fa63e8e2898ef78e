//! A method's messages as protobuf's bytes on one side and as flat messages on the other, by tables that came at run time: what a
//! gateway does for handlers that take objects, so that their process encodes and decodes nothing (Cerebros, section 4).
//!
//! # Trust
//! A table is checked when it is loaded, and only describes. An object that comes is verified in private memory before it is
//! encoded. A message that can't be decoded goes on as it is: whoever it is for says what is wrong with it.

use std::cell::Cell;
use std::sync::LazyLock;

use bytes::{BufMut, Bytes, BytesMut};
use tollfree_driver_tokio::{Encoded, GRPC_PREFIX_LEN};
use tollfree_layout::description::{DESCRIPTION_HEAD_LEN, Description, DescriptionHead, method_fingerprint};
use tollfree_layout::limits::OBJECT_LEN_MAX;
use tollfree_layout::table::Table;
use tollfree_processor::{Arenas, DecodeError, EncodeBuffer, Limits, OwnedObject, Processor};
use tonic::{Code, Status};

use crate::message::aside::Turns;
use crate::message::compression::Encodings;
use crate::message::conversions::{Conversion, Conversions, OnUnconvertible};
use crate::message::form::{Root, Types};
use crate::status::of_content;

/// The longest description of a method that is taken, in bytes.
pub(crate) const DESCRIPTION_LEN_MAX: usize = 4 << 20;
/// Arenas that wait to be used again.
const WAITING_COUNT_MAX: usize = 32;
/// A longer object is sent from where it lies.
const COPIED_LEN_MAX: usize = 1024;
/// A buffer that a longer message was encoded into is not kept, in bytes.
const KEPT_LEN_MAX: usize = 1 << 20;

/// Where messages are decoded. An object that would be longer than what travels is not made.
static ARENAS: LazyLock<Arenas> = LazyLock::new(|| Arenas::new(OBJECT_LEN_MAX, WAITING_COUNT_MAX));

thread_local! {
    /// Where messages are encoded on this thread.
    static BUFFER: Cell<Option<Box<EncodeBuffer>>> = const { Cell::new(None) };
}

/// A message's type in a table.
#[derive(Debug, Clone)]
struct Described {
    processor: Processor,
    type_idx: u32,
}

impl Described {
    fn fingerprint(&self) -> u64 {
        self.processor.fingerprint(self.type_idx)
    }
}

/// Which of a method's two types a message is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Request,
    Reply,
}

/// The two types of a method.
#[derive(Clone, Debug)]
pub(crate) struct Translation {
    request: Described,
    reply: Described,
    /// The fingerprint of both, as [`Types`] has it.
    types: u64,
    /// `None`: its process has not said so yet.
    encodings: Option<Encodings>,
    /// What becomes of messages is counted here.
    conversions: Conversions,
    on_unconvertible: OnUnconvertible,
    /// In which long messages are translated.
    turns: Turns,
}

/// How a method's types are told, from the process that serves it to its gateway: a [`Description`].
pub(crate) fn describe(types: &Types, encodings: Encodings) -> Bytes {
    let Types { request, reply, .. } = types;
    let head = DescriptionHead {
        request_idx: request.type_idx.into(),
        reply_idx: reply.type_idx.into(),
        request_len: (request.blob.len() as u32).into(),
        accepts: encodings.accepts,
        sends: encodings.sends,
        reserved: 0.into(),
    };
    let mut bytes = BytesMut::with_capacity(DESCRIPTION_HEAD_LEN + request.blob.len());
    bytes.put_slice(&head.to_bytes());
    bytes.put_slice(request.blob);
    if !std::ptr::eq(request.blob, reply.blob) {
        bytes.put_slice(reply.blob);
    }
    bytes.freeze()
}

/// Finds the parts of a description.
///
/// # Errors
/// What is wrong with it.
fn parts(bytes: &[u8]) -> Result<(Description, Encodings), String> {
    let description = Description::read(bytes).map_err(|error| error.to_string())?;
    let DescriptionHead { accepts, sends, .. } = description.head;
    Ok((description, Encodings { accepts, sends }))
}

impl Translation {
    /// What [`describe`] told. `load` gives a table's processor, which may be an earlier one. As much work as the tables are long.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(
        bytes: Bytes,
        mut load: impl FnMut(Bytes) -> Result<Processor, String>,
    ) -> Result<Translation, String> {
        let (Description { head, request, reply }, encodings) = parts(&bytes)?;
        let mut described = |table: Bytes, type_idx: u32| {
            let processor = load(table)?;
            match processor.table().types().get(type_idx as usize) {
                Some(_) => Ok(Described { processor, type_idx }),
                None => Err(format!("a table has no type {type_idx}")),
            }
        };
        Ok(Translation::between(
            described(bytes.slice(request), head.request_idx.get())?,
            described(bytes.slice(reply), head.reply_idx.get())?,
            Some(encodings),
        ))
    }

    /// Of a method whose types, which are there, have one table.
    pub(crate) fn of(processor: &Processor, request_idx: u32, reply_idx: u32) -> Translation {
        let described = |type_idx| Described { processor: processor.clone(), type_idx };
        Translation::between(described(request_idx), described(reply_idx), None)
    }

    fn between(request: Described, reply: Described, encodings: Option<Encodings>) -> Translation {
        let types = Types::join(request.fingerprint(), reply.fingerprint());
        let (conversions, on_unconvertible, turns) =
            (Conversions::default(), OnUnconvertible::default(), Turns::default());
        Translation { request, reply, types, encodings, conversions, on_unconvertible, turns }
    }

    /// The same, which counts what becomes of messages, and has been told what is to become of some.
    pub(crate) fn counted(self, conversions: Conversions, on_unconvertible: OnUnconvertible) -> Translation {
        Translation { conversions, on_unconvertible, ..self }
    }

    /// The same, whose long messages have the turns of a group.
    pub(crate) fn in_turns(self, turns: &Turns) -> Translation {
        Translation { turns: turns.clone(), ..self }
    }

    /// The turns in which its long messages are translated.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// How the method's server takes and sends messages that are compressed, as far as that is known.
    pub(crate) fn encodings(&self) -> Option<Encodings> {
        self.encodings
    }

    pub(crate) fn with_encodings(self, encodings: Encodings) -> Translation {
        Translation { encodings: Some(encodings), ..self }
    }

    /// No more than that of what [`describe`] told.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read_encodings(description: &Bytes) -> Result<Encodings, String> {
        parts(description).map(|(_, encodings)| encodings)
    }

    /// Counts what became of a message.
    pub(crate) fn count(&self, conversion: Conversion) {
        self.conversions.add(conversion);
    }

    /// The fingerprint of both types.
    pub(crate) fn types(&self) -> u64 {
        self.types
    }

    /// A request as an object. `None`: it is to go as it is.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED for one that has none, where [`OnUnconvertible::Refuse`] says so.
    pub(crate) fn object(&self, request: &[u8]) -> Result<Option<Encoded>, Status> {
        let Described { processor, type_idx } = &self.request;
        let slot = ARENAS.take_for_good();
        let mut object = match processor.decode_owned(*type_idx, request, slot, &Limits::default()) {
            Ok(object) => object,
            Err(error) => return self.without_object(&error).map(|()| None),
        };
        self.count(Conversion::Handed);
        let bytes = object.object().bytes();
        Ok(Some(match bytes.len() {
            len if len <= COPIED_LEN_MAX => Encoded::write(len, |buffer| buffer.put_slice(bytes)),
            _ => object.share().into(),
        }))
    }

    /// Gives a request as an object to who puts it somewhere. `false`: it has none, and what becomes of it is left to
    /// [`object`](Translation::object).
    pub(crate) fn with_object(&self, request: &[u8], put: impl FnOnce(&[u8])) -> bool {
        let Described { processor, type_idx } = &self.request;
        let slot = ARENAS.take_for_good();
        let made = processor.decode_owned(*type_idx, request, slot, &Limits::default());
        if let Ok(object) = &made {
            self.count(Conversion::Handed);
            put(object.object().bytes());
        }
        made.is_ok()
    }

    /// What is to become of a request that has no object.
    #[cold]
    fn without_object(&self, error: &DecodeError) -> Result<(), Status> {
        let conversion = match error {
            DecodeError::ArenaExhausted { .. } => Conversion::TooLong,
            DecodeError::UnknownType { .. } | DecodeError::UnsupportedLayout { .. } => Conversion::NoTables,
            _ => Conversion::Malformed,
        };
        self.count(conversion);
        match (conversion, self.on_unconvertible) {
            // The handler's side says what is wrong with it.
            (Conversion::Malformed, _) | (_, OnUnconvertible::Bytes) => Ok(()),
            (Conversion::TooLong, OnUnconvertible::Refuse) => Err(of_content(
                Code::ResourceExhausted,
                format!(
                    "the message's object would be longer than the {OBJECT_LEN_MAX} bytes that are handed over; send less in one message"
                ),
            )),
            (_, OnUnconvertible::Refuse) => Err(no_tables()),
        }
    }

    /// Verifies a message that came as an object.
    ///
    /// # Errors
    /// INTERNAL for one that is not sound.
    pub(crate) fn check(&self, which: Which, object: &Bytes) -> Result<OwnedObject, Status> {
        let (Described { processor, type_idx }, what) = match which {
            Which::Request => (&self.request, "request"),
            Which::Reply => (&self.reply, "answer"),
        };
        let refused = |reason: String| {
            if which == Which::Reply {
                self.count(Conversion::Unsound);
            }
            of_content(Code::Internal, format!("the {what} came as a flat message that is refused: {reason}"))
        };
        let owned = processor
            .verify_held(*type_idx, object.clone(), Limits::default().depth)
            .map_err(|error| refused(error.to_string()))?;
        match owned.object().bytes().len() == object.len() {
            true => Ok(owned),
            false => Err(refused("bytes stand behind it".into())),
        }
    }

    /// A message that came as an object, encoded, with gRPC's prefix.
    ///
    /// # Errors
    /// INTERNAL for one that is not sound, RESOURCE_EXHAUSTED for one that can't be encoded for its length.
    pub(crate) fn encoded(&self, which: Which, object: &Bytes) -> Result<Bytes, Status> {
        let owned = self.check(which, object)?;
        let verified = owned.object();
        // Taken out meanwhile, so that nothing finds it in use.
        let mut buffer = BUFFER.try_with(Cell::take).ok().flatten().unwrap_or_default();
        let bytes = verified
            .encode(&mut buffer)
            .map_err(|error| of_content(Code::ResourceExhausted, error.to_string()))?;
        if which == Which::Reply {
            self.count(Conversion::Encoded);
        }
        let mut framed = BytesMut::with_capacity(GRPC_PREFIX_LEN + bytes.len());
        framed.put_u8(0);
        framed.put_u32(bytes.len() as u32);
        framed.put_slice(bytes);
        if bytes.len() <= KEPT_LEN_MAX {
            _ = BUFFER.try_with(|place| place.set(Some(buffer)));
        }
        Ok(framed.freeze())
    }
}

/// The status of a request that was to be handed over as an object of types that nobody can tell.
pub(crate) fn no_tables() -> Status {
    of_content(
        Code::ResourceExhausted,
        "the message can't be handed over as an object: its process has no tables of the method's types that can be used",
    )
}

/// The processor of a table that came from elsewhere.
///
/// # Errors
/// What is wrong with the table.
pub(crate) fn load(table: &[u8]) -> Result<Processor, String> {
    let table = Table::load(table).map_err(|error| format!("a table is refused: {error}"))?;
    Ok(Processor::new(table))
}

impl Types {
    /// One fingerprint of both types. No more than a word for whoever compares it: of an object that comes, the receiver asks for
    /// the type itself.
    #[inline]
    pub(crate) fn join(request: u64, reply: u64) -> u64 {
        method_fingerprint(request, reply)
    }
}

impl Root {
    /// The type of that index in a table that was compiled with the program.
    pub(crate) const fn new(blob: &'static [u8], type_idx: u32) -> Root {
        Root { blob, type_idx }
    }
}
