//! Messages through generated views and builders: decoded, verified, read by every getter and built anew by every setter.

use tollfree_processor::typed::{Builder, Message, MessageMut, Owned, processor};
use tollfree_processor::{Arenas, BuildError, EncodeBuffer, Limits, Processor};

use crate::answer::Answer;
use crate::testee::{ARENA_LIMIT, Form, written};

/// What `tollfree-build` wrote.
#[allow(missing_docs, unreachable_pub)]
mod views {
    include!(concat!(env!("OUT_DIR"), "/views.rs"));
}

/// What `build.rs` wrote.
mod rebuild {
    use super::{Answer, Built, Engine, Form, MessageMut, views};

    include!(concat!(env!("OUT_DIR"), "/rebuild.rs"));
}

type Built = Result<(), BuildError>;
/// Builds a message anew.
type Rebuild<M> = for<'v, 'e, 'd> fn(<M as Message>::View<'v>, &'e mut <M as Message>::Mut<'d>) -> Built;

/// Memory for the messages under test.
pub(crate) struct Engine {
    arenas: Arenas,
    buffer: EncodeBuffer,
}

impl Engine {
    pub(crate) fn new() -> Engine {
        Engine { arenas: Arenas::new(ARENA_LIMIT, 3), buffer: EncodeBuffer::new() }
    }

    /// Decodes and encodes.
    pub(crate) fn again(&mut self, from: &Processor, type_idx: u32, payload: &[u8], form: Form) -> Answer {
        let name = from.table().text(from.table().types()[type_idx as usize].name);
        let answer = rebuild::again(self, name, payload, form);
        answer.unwrap_or_else(|| Answer::RuntimeError(format!("no views of {name} were generated")))
    }

    fn rebuilt<M: Message>(&mut self, payload: &[u8], form: Form, rebuild: Rebuild<M>) -> Answer {
        let limits = Limits::default();
        let decoded = match Owned::<M>::decode(payload, self.arenas.take(), &limits) {
            Ok(decoded) => decoded,
            Err(error) => return Answer::ParseError(error.to_string()),
        };
        let verified = match Owned::<M>::verify(decoded.object().bytes(), self.arenas.take(), limits.depth) {
            Ok(verified) => verified,
            Err(error) => return Answer::RuntimeError(format!("the verifier: {error}")),
        };
        let built = Builder::<M>::new(self.arenas.take()).and_then(|mut builder| {
            rebuild(verified.view(), &mut builder.edit())?;
            builder.freeze()
        });
        match built {
            Ok(built) => written(processor::<M::Compiled>(), &built.object(), form, &mut self.buffer),
            Err(error) => Answer::RuntimeError(format!("the builder: {error}")),
        }
    }
}
