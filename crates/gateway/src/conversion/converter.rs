//! A method's messages as protobuf's bytes on one side and as flat messages on the other, by tables that came at run time: what a
//! gateway does for handlers that take objects, so that their process encodes and decodes nothing (Cerebros, section 4).
//!
//! # Trust
//! A table is checked when it is loaded, and only describes. An object that comes is verified in private memory before it is
//! encoded. A message that can't be decoded goes on as it is: the process that it is for says what is wrong with it.

use std::cell::Cell;
use std::sync::LazyLock;

use bytes::{BufMut, Bytes, BytesMut};
use tollfree::gateway::{Converter, Encoded, Turns, Which};
use tollfree_layout::description::{Description, DescriptionHead, method_fingerprint};
use tollfree_layout::limits::OBJECT_LEN_MAX;
use tollfree_layout::table::Table;
use tollfree_processor::{Arenas, DecodeError, EncodeBuffer, Limits, OwnedObject, Processor};
use tonic::{Code, Status};

use crate::config::OnUnconvertible;
use crate::conversion::counts::{Conversion, Conversions};
use crate::conversion::encoding::Encodings;
use crate::conversion::{PREFIX_LEN, content};

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

/// The two types of a method.
#[derive(Clone, Debug)]
pub(super) struct TableConverter {
    request: Described,
    reply: Described,
    /// The fingerprint of both.
    types: u64,
    /// `None`: its process has not said so yet.
    encodings: Option<Encodings>,
    /// What becomes of messages is counted here.
    conversions: Conversions,
    on_unconvertible: OnUnconvertible,
    /// In which long messages are changed.
    turns: Turns,
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

impl TableConverter {
    /// What a process told. `load` gives a table's processor, which may be an earlier one. As much work as the tables are long.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(
        bytes: Bytes,
        mut load: impl FnMut(Bytes) -> Result<Processor, String>,
    ) -> Result<TableConverter, String> {
        let (Description { head, request, reply }, encodings) = parts(&bytes)?;
        let mut described = |table: Bytes, type_idx: u32| {
            let processor = load(table)?;
            match processor.table().types().get(type_idx as usize) {
                Some(_) => Ok(Described { processor, type_idx }),
                None => Err(format!("a table has no type {type_idx}")),
            }
        };
        Ok(TableConverter::between(
            described(bytes.slice(request), head.request_idx.get())?,
            described(bytes.slice(reply), head.reply_idx.get())?,
            Some(encodings),
        ))
    }

    /// Of a method whose types, which are there, have one table.
    pub(super) fn of(processor: &Processor, request_idx: u32, reply_idx: u32) -> TableConverter {
        let described = |type_idx| Described { processor: processor.clone(), type_idx };
        TableConverter::between(described(request_idx), described(reply_idx), None)
    }

    fn between(request: Described, reply: Described, encodings: Option<Encodings>) -> TableConverter {
        let types = method_fingerprint(request.fingerprint(), reply.fingerprint());
        let (conversions, on_unconvertible, turns) =
            (Conversions::default(), OnUnconvertible::default(), Turns::default());
        TableConverter { request, reply, types, encodings, conversions, on_unconvertible, turns }
    }

    /// The same, which counts what becomes of messages, and has been told what is to become of some.
    pub(super) fn counted(
        self,
        conversions: Conversions,
        on_unconvertible: OnUnconvertible,
    ) -> TableConverter {
        TableConverter { conversions, on_unconvertible, ..self }
    }

    /// The same, whose long messages have the turns of a group.
    pub(super) fn in_turns(self, turns: &Turns) -> TableConverter {
        TableConverter { turns: turns.clone(), ..self }
    }

    /// How the method's server takes and sends messages that are compressed, as far as that is known.
    pub(super) fn encodings(&self) -> Option<Encodings> {
        self.encodings
    }

    pub(super) fn with_encodings(self, encodings: Encodings) -> TableConverter {
        TableConverter { encodings: Some(encodings), ..self }
    }

    /// No more than that of what a process told.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read_encodings(description: &Bytes) -> Result<Encodings, String> {
        parts(description).map(|(_, encodings)| encodings)
    }

    /// Counts what became of a message.
    fn count(&self, conversion: Conversion) {
        self.conversions.add(conversion);
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
            (Conversion::TooLong, OnUnconvertible::Refuse) => Err(content(
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
    fn verified(&self, which: Which, object: &Bytes) -> Result<OwnedObject, Status> {
        let (Described { processor, type_idx }, what) = match which {
            Which::Request => (&self.request, "request"),
            Which::Reply => (&self.reply, "answer"),
        };
        let refused = |reason: String| {
            if which == Which::Reply {
                self.count(Conversion::Unsound);
            }
            content(Code::Internal, format!("the {what} came as a flat message that is refused: {reason}"))
        };
        let owned = processor
            .verify_held(*type_idx, object.clone(), Limits::default().depth)
            .map_err(|error| refused(error.to_string()))?;
        match owned.object().bytes().len() == object.len() {
            true => Ok(owned),
            false => Err(refused("bytes stand behind it".into())),
        }
    }
}

impl Converter for TableConverter {
    fn types(&self) -> u64 {
        self.types
    }

    fn flat(&self, request: &[u8]) -> Result<Option<Encoded>, Status> {
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

    fn put_flat(&self, request: &[u8], put: &mut dyn FnMut(&[u8])) -> bool {
        let Described { processor, type_idx } = &self.request;
        let slot = ARENAS.take_for_good();
        let made = processor.decode_owned(*type_idx, request, slot, &Limits::default());
        if let Ok(object) = &made {
            self.count(Conversion::Handed);
            put(object.object().bytes());
        }
        made.is_ok()
    }

    fn check(&self, which: Which, message: &Bytes) -> Result<(), Status> {
        self.verified(which, message).map(drop)
    }

    fn encoded(&self, which: Which, message: &Bytes) -> Result<Bytes, Status> {
        let owned = self.verified(which, message)?;
        // Taken out meanwhile, so that nothing finds it in use.
        let mut buffer = BUFFER.try_with(Cell::take).ok().flatten().unwrap_or_default();
        let bytes = owned
            .object()
            .encode(&mut buffer)
            .map_err(|error| content(Code::ResourceExhausted, error.to_string()))?;
        if which == Which::Reply {
            self.count(Conversion::Encoded);
        }
        let mut framed = BytesMut::with_capacity(PREFIX_LEN + bytes.len());
        framed.put_u8(0);
        framed.put_u32(bytes.len() as u32);
        framed.put_slice(bytes);
        if bytes.len() <= KEPT_LEN_MAX {
            _ = BUFFER.try_with(|place| place.set(Some(buffer)));
        }
        Ok(framed.freeze())
    }

    fn passed(&self, which: Which) {
        self.count(match which {
            Which::Request => Conversion::Handed,
            Which::Reply => Conversion::Encoded,
        });
    }

    fn came_encoded(&self) {
        self.count(Conversion::Bytes);
    }

    fn turns(&self) -> &Turns {
        &self.turns
    }
}

/// The status of a request that was to be handed over as an object of types that nobody can tell.
pub(super) fn no_tables() -> Status {
    content(
        Code::ResourceExhausted,
        "the message can't be handed over as an object: its process has no tables of the method's types that can be used",
    )
}

/// The processor of a table that came from elsewhere.
///
/// # Errors
/// What is wrong with the table.
pub(super) fn load(table: &[u8]) -> Result<Processor, String> {
    let table = Table::load(table).map_err(|error| format!("a table is refused: {error}"))?;
    Ok(Processor::new(table))
}
