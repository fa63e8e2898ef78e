//! Objects that a hostile peer has changed, through generated views: what is accepted is read by all getters, and of some built
//! anew by all setters, and encoded.

use tollfree_processor::typed::{MessageView, Owned};
use tollfree_processor::{Arena, EncodeBuffer, OwnError, Processor, VerifyError};
use tollfree_view_stubs::kinds::t3;

use super::bad_input::again_by_struct;
use super::fixture::{bytes, field, schemas, varint};

#[path = "../../../../../crates/processor/tests/suite/hostile/rows.rs"]
mod rows;

/// Verifies a `t3.All` and reads it to the end.
fn verified(_: &Processor, bytes: &[u8], depth: u32) -> Result<(), VerifyError> {
    match Owned::<t3::All>::verify(bytes, Arena::with_limit(1 << 20), depth) {
        Ok(message) => {
            std::hint::black_box(message.view().to_prost().expect("all strings of proto3 are checked"));
            // Tens of thousands of objects are accepted: those are built anew that a peer's bytes choose.
            if bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) < 16 {
                assert!(again_by_struct(&message).is_some());
                message.object().encode(&mut EncodeBuffer::new()).unwrap();
            }
            Ok(())
        }
        Err(OwnError::Verify(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}
