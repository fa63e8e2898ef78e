//! One request after the other, through the engine.

use tollfree_processor::{Arena, EncodeBuffer, Limits, Object, Processor, Record, Value};
use tollfree_schema::{Schema, SchemaError};

use crate::answer::Answer;

/// Bytes that one object may take.
const ARENA_LIMIT: usize = 1 << 30;
/// `conformance.WireFormat`: the binary form.
const PROTOBUF: i32 = 1;
/// The runner asks for it first, to learn which failures the program itself expects. It expects none.
const FAILURE_SET: &[u8] = b"conformance.FailureSet";
const REQUEST: &str = "conformance.ConformanceRequest";

/// Why the program could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error("the descriptor set lacks {REQUEST}")]
    NoRequest,
}

/// The engine and its memory, used again for every request.
pub(crate) struct Testee {
    processor: Processor,
    request_idx: u32,
    requests: Arena<'static>,
    messages: Messages,
}

impl Testee {
    pub(crate) fn new(descriptor_set: &[u8]) -> Result<Testee, StartError> {
        let table = Schema::from_descriptor_set(descriptor_set)?.compile()?;
        let processor = Processor::new(table);
        let request_idx = processor.type_by_name(REQUEST).ok_or(StartError::NoRequest)?;
        let requests = Arena::with_limit(ARENA_LIMIT);
        Ok(Testee { processor, request_idx, requests, messages: Messages::new() })
    }

    /// Does what the request asks for.
    pub(crate) fn answer(&mut self, request: &[u8]) -> Answer {
        let limits = Limits::default();
        match self.processor.decode(self.request_idx, request, &mut self.requests, &limits) {
            Ok(request) => self.messages.answer(&self.processor, request.root()),
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

    fn answer(&mut self, processor: &Processor, request: Record<'_>) -> Answer {
        let Some(Value::String(name)) = request.by_name("message_type") else {
            return Answer::RuntimeError("the request names no message type".into());
        };
        if name.as_bytes() == FAILURE_SET {
            return Answer::Message(Vec::new());
        }
        let Some(Value::Bytes(payload)) = request.by_name("protobuf_payload") else {
            return Answer::Skipped("only binary input is read");
        };
        if !matches!(request.by_name("requested_output_format"), Some(Value::Enum(PROTOBUF))) {
            return Answer::Skipped("only binary output is written");
        }
        let name = String::from_utf8_lossy(name.as_bytes());
        match processor.type_by_name(&name) {
            Some(type_idx) => self.again(processor, type_idx, payload),
            None => Answer::RuntimeError(format!("the descriptor set lacks {name}")),
        }
    }

    /// Decodes and encodes. Copying and staged decoding must agree, and the verifier must accept both objects.
    fn again(&mut self, processor: &Processor, type_idx: u32, payload: &[u8]) -> Answer {
        let Some(stage) = self.staged.stage(payload.len()) else {
            return Answer::RuntimeError(format!("no room for a payload of {} bytes", payload.len()));
        };
        stage.copy_from_slice(payload);
        let limits = Limits::default();
        let copied = processor.decode(type_idx, payload, &mut self.copied, &limits);
        let staged = processor.decode_staged(type_idx, &mut self.staged, &limits);
        match (copied, staged) {
            (Ok(copied), Ok(staged)) => match both(processor, type_idx, [copied, staged], &mut self.buffer) {
                Ok(bytes) => Answer::Message(bytes),
                Err(answer) => answer,
            },
            (Err(error), Err(other)) if error == other => Answer::ParseError(error.to_string()),
            (copied, staged) => Answer::RuntimeError(format!(
                "copying and staged decoding differ: {:?}, {:?}",
                copied.err(),
                staged.err()
            )),
        }
    }
}

/// What both objects are encoded to.
fn both(
    processor: &Processor,
    type_idx: u32,
    objects: [Object<'_>; 2],
    buffer: &mut EncodeBuffer,
) -> Result<Vec<u8>, Answer> {
    let mut forms = Vec::with_capacity(2);
    for object in objects {
        let moved = object.bytes().to_vec();
        let verified = processor
            .verify(type_idx, &moved, Limits::default().depth)
            .map_err(|error| Answer::RuntimeError(format!("the verifier: {error}")))?;
        let bytes = verified.encode(buffer).map_err(|error| Answer::SerializeError(error.to_string()))?;
        forms.push(bytes.to_vec());
    }
    let (staged, copied) = (forms.pop(), forms.pop());
    match (copied, staged) {
        (Some(copied), staged) if staged.as_ref() == Some(&copied) => Ok(copied),
        _ => Err(Answer::RuntimeError("copied and staged objects are encoded differently".into())),
    }
}
