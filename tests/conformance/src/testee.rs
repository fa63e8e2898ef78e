//! One request after the other, through the engine.

use tollfree_json::Unknown;
use tollfree_processor::{Arena, EncodeBuffer, Field, FieldError, Limits, Object, Processor, Record, Text};
use tollfree_schema::{Schema, SchemaError};

use crate::answer::Answer;
#[cfg(not(feature = "generated"))]
use crate::dynamic::Engine;
#[cfg(feature = "generated")]
use crate::generated::Engine;

/// Bytes that one object may take.
pub(crate) const ARENA_LIMIT: usize = 1 << 30;
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
pub(crate) enum Form {
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
    engine: Engine,
}

impl Testee {
    pub(crate) fn new(descriptor_set: &[u8]) -> Result<Testee, StartError> {
        let table = Schema::from_descriptor_set(descriptor_set)?.compile()?;
        let processor = Processor::new(table);
        let fields = RequestFields::new(&processor)?;
        let requests = Arena::with_limit(ARENA_LIMIT);
        Ok(Testee { processor, fields, requests, engine: Engine::new() })
    }

    /// Does what the request asks for.
    pub(crate) fn answer(&mut self, request: &[u8]) -> Answer {
        let limits = Limits::default();
        match self.processor.decode(self.fields.type_idx, request, &mut self.requests, &limits) {
            Ok(request) => answer(&mut self.engine, &self.processor, &self.fields, request.root()),
            Err(error) => Answer::RuntimeError(format!("the request itself: {error}")),
        }
    }
}

/// Does to the message under test what the request asks for.
fn answer(engine: &mut Engine, processor: &Processor, fields: &RequestFields, request: Record<'_>) -> Answer {
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
        (Some(payload), _) => engine.again(processor, type_idx, payload, form),
        (_, Some(text)) => {
            let unknown = match request.read(&fields.test_category) {
                Some(JSON_IGNORE_UNKNOWN) => Unknown::Skip,
                _ => Unknown::Refuse,
            };
            let text = String::from_utf8_lossy(text.as_bytes());
            match tollfree_json::read(processor, type_idx, &text, unknown) {
                Ok(payload) => engine.again(processor, type_idx, &payload, form),
                Err(error) => Answer::ParseError(error.to_string()),
            }
        }
        _ => Answer::Skipped("only binary and JSON input is read"),
    }
}

/// The object in the form that is asked for.
pub(crate) fn written(
    processor: &Processor,
    object: &Object<'_>,
    form: Form,
    buffer: &mut EncodeBuffer,
) -> Answer {
    match form {
        Form::Protobuf => match object.encode(buffer) {
            Ok(bytes) => Answer::Message(bytes.to_vec()),
            Err(error) => Answer::SerializeError(error.to_string()),
        },
        Form::Json => match tollfree_json::write(processor, object.root()) {
            Ok(text) => Answer::Json(text),
            Err(error) => Answer::SerializeError(error.to_string()),
        },
    }
}
