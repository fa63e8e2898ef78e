//! One request after the other, through the engine.

use tollfree_json::Unknown;
use tollfree_processor::{Arena, EncodeBuffer, Field, FieldError, Limits, Object, Processor, Record, Text};
use tollfree_schema::{Schema, SchemaError};

use crate::answer::Answer;

/// Bytes that one object may take.
const ARENA_LIMIT: usize = 1 << 30;
/// `conformance.WireFormat`: the binary form.
const PROTOBUF: i32 = 1;
/// `conformance.WireFormat`: JSON.
const JSON: i32 = 2;
/// `conformance.TestCategory`: what the message has no field for is to be ignored.
const JSON_IGNORE_UNKNOWN: i32 = 3;
/// The runner asks for it first, to learn which failures the program itself expects. It expects none.
const FAILURE_SET: &[u8] = b"conformance.FailureSet";
const REQUEST: &str = "conformance.ConformanceRequest";

/// The form in which a message is to come back.
#[derive(Clone, Copy)]
enum Form {
    Protobuf,
    Json,
}

/// Why the program could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("the descriptor set lacks {REQUEST}")]
    NoRequest,
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// The request, and what is read of it.
struct RequestFields {
    type_idx: u32,
    message_type: Field<Text<'static>>,
    requested_output_format: Field<i32>,
    protobuf_payload: Field<&'static [u8]>,
    json_payload: Field<Text<'static>>,
    test_category: Field<i32>,
}

impl RequestFields {
    fn new(processor: &Processor) -> Result<RequestFields, StartError> {
        let type_idx = processor.type_by_name(REQUEST).ok_or(StartError::NoRequest)?;
        Ok(RequestFields {
            type_idx,
            message_type: processor.field(type_idx, "message_type")?,
            requested_output_format: processor.field(type_idx, "requested_output_format")?,
            protobuf_payload: processor.field(type_idx, "protobuf_payload")?,
            json_payload: processor.field(type_idx, "json_payload")?,
            test_category: processor.field(type_idx, "test_category")?,
        })
    }
}

/// The engine and its memory, used again for every request.
pub(crate) struct Testee {
    processor: Processor,
    fields: RequestFields,
    requests: Arena<'static>,
    messages: Messages,
}

impl Testee {
    pub(crate) fn new(descriptor_set: &[u8]) -> Result<Testee, StartError> {
        let table = Schema::from_descriptor_set(descriptor_set)?.compile()?;
        let processor = Processor::new(table);
        let fields = RequestFields::new(&processor)?;
        let requests = Arena::with_limit(ARENA_LIMIT);
        Ok(Testee { processor, fields, requests, messages: Messages::new() })
    }

    /// Does what the request asks for.
    pub(crate) fn answer(&mut self, request: &[u8]) -> Answer {
        let limits = Limits::default();
        match self.processor.decode(self.fields.type_idx, request, &mut self.requests, &limits) {
            Ok(request) => self.messages.answer(&self.processor, &self.fields, request.root()),
            Err(error) => Answer::RuntimeError(format!("the request itself: {error}")),
        }
    }
}

/// Memory for the messages under test.
struct Messages {
    copied: Arena<'static>,
    staged: Arena<'static>,
    buffer: EncodeBuffer,
}

impl Messages {
    fn new() -> Messages {
        let arena = || Arena::with_limit(ARENA_LIMIT);
        Messages { copied: arena(), staged: arena(), buffer: EncodeBuffer::new() }
    }

    fn answer(&mut self, processor: &Processor, fields: &RequestFields, request: Record<'_>) -> Answer {
        let Some(name) = request.read(&fields.message_type) else {
            return Answer::RuntimeError("the request names no message type".into());
        };
        if name.as_bytes() == FAILURE_SET {
            return Answer::Message(Vec::new());
        }
        let form = match request.read(&fields.requested_output_format) {
            Some(PROTOBUF) => Form::Protobuf,
            Some(JSON) => Form::Json,
            _ => return Answer::Skipped("only binary and JSON output is written"),
        };
        let name = String::from_utf8_lossy(name.as_bytes());
        let Some(type_idx) = processor.type_by_name(&name) else {
            return Answer::RuntimeError(format!("the descriptor set lacks {name}"));
        };
        match (request.read(&fields.protobuf_payload), request.read(&fields.json_payload)) {
            (Some(payload), _) => self.again(processor, type_idx, payload, form),
            (_, Some(text)) => {
                let unknown = match request.read(&fields.test_category) {
                    Some(JSON_IGNORE_UNKNOWN) => Unknown::Skip,
                    _ => Unknown::Refuse,
                };
                let text = String::from_utf8_lossy(text.as_bytes());
                match tollfree_json::read(processor, type_idx, &text, unknown) {
                    Ok(payload) => self.again(processor, type_idx, &payload, form),
                    Err(error) => Answer::ParseError(error.to_string()),
                }
            }
            _ => Answer::Skipped("only binary and JSON input is read"),
        }
    }

    /// Decodes and encodes. Copying and staged decoding must agree, and the verifier must accept both objects.
    fn again(&mut self, processor: &Processor, type_idx: u32, payload: &[u8], form: Form) -> Answer {
        let Some(stage) = self.staged.stage(payload.len()) else {
            return Answer::RuntimeError(format!("no room for a payload of {} bytes", payload.len()));
        };
        stage.copy_from_slice(payload);
        let limits = Limits::default();
        let copied = processor.decode(type_idx, payload, &mut self.copied, &limits);
        let staged = processor.decode_staged(type_idx, &mut self.staged, &limits);
        let mut encode = |object| encode(processor, type_idx, object, form, &mut self.buffer);
        match (copied, staged) {
            (Ok(copied), Ok(staged)) => {
                let (answer, other) = (encode(&copied), encode(&staged));
                if answer == other {
                    answer
                } else {
                    Answer::RuntimeError(format!("{answer:?}, staged {other:?}"))
                }
            }
            (Err(error), Err(other)) if error == other => Answer::ParseError(error.to_string()),
            (copied, staged) => Answer::RuntimeError(format!(
                "copying and staged decoding differ: {:?}, {:?}",
                copied.err(),
                staged.err()
            )),
        }
    }
}

/// Moves the object elsewhere, verifies it there, and encodes what was verified.
fn encode(
    processor: &Processor,
    type_idx: u32,
    object: &Object<'_>,
    form: Form,
    buffer: &mut EncodeBuffer,
) -> Answer {
    let moved = object.bytes().to_vec();
    let verified = match processor.verify(type_idx, &moved, Limits::default().depth) {
        Ok(verified) => verified,
        Err(error) => return Answer::RuntimeError(format!("the verifier: {error}")),
    };
    match form {
        Form::Protobuf => match verified.encode(buffer) {
            Ok(bytes) => Answer::Message(bytes.to_vec()),
            Err(error) => Answer::SerializeError(error.to_string()),
        },
        Form::Json => match tollfree_json::write(processor, verified.root()) {
            Ok(text) => Answer::Json(text),
            Err(error) => Answer::SerializeError(error.to_string()),
        },
    }
}
