//! Messages through objects whose fields are found while the program runs.

use tollfree_processor::{Arena, EncodeBuffer, Limits, Object, Processor};

use crate::answer::Answer;
use crate::testee::{ARENA_LIMIT, Form, written};

/// Memory for the messages under test.
pub(crate) struct Engine {
    copied: Arena<'static>,
    staged: Arena<'static>,
    buffer: EncodeBuffer,
}

impl Engine {
    pub(crate) fn new() -> Engine {
        let arena = || Arena::with_limit(ARENA_LIMIT);
        Engine { copied: arena(), staged: arena(), buffer: EncodeBuffer::new() }
    }

    /// Decodes and encodes. Copying and staged decoding must agree, and the verifier must accept both objects.
    pub(crate) fn again(
        &mut self,
        processor: &Processor,
        type_idx: u32,
        payload: &[u8],
        form: Form,
    ) -> Answer {
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
    match processor.verify(type_idx, &moved, Limits::default().depth) {
        Ok(verified) => written(processor, &verified, form, buffer),
        Err(error) => Answer::RuntimeError(format!("the verifier: {error}")),
    }
}
