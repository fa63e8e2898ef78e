//! Thrift messages from outside, against the Rust `thrift` crate.

// What the processor's own tests compare with, and what differs rightly.
#[path = "../../../crates/processor/tests/fixture/thrift.rs"]
mod fixture;
#[path = "../../../crates/processor/tests/fixture/thrift_peer.rs"]
mod peer;

use std::sync::LazyLock;

use tollfree_processor::Processor;
use tollfree_processor::thrift::Protocol;

use crate::work::within;

const TYPES: [&str; 4] = ["test.All", "test.Node", "test.Choice", "test.Inner"];
const PROTOCOLS: [Protocol; 3] = [Protocol::Compact, Protocol::Binary, Protocol::BinaryOld];

static PROCESSOR: LazyLock<Processor> = LazyLock::new(|| fixture::processor(peer::IDL));

/// Decodes a struct, or reads a message's header, in a protocol that the first byte names: the `thrift` crate accepts
/// and refuses the same, sees the same values and the same end, and reads what was encoded again. Copying and aliasing
/// agree, and objects verify.
pub fn thrift(data: &[u8]) {
    let Some((choice, input)) = data.split_first() else { return };
    let choice = usize::from(*choice);
    if choice >= 0x80 {
        return peer::headers_agree(PROTOCOLS[choice % PROTOCOLS.len()], input);
    }
    let type_name = TYPES[choice / 2 % TYPES.len()];
    let type_idx = PROCESSOR.type_by_name(type_name).expect("the schema has it");
    // It decodes, verifies and encodes several times.
    within("all of it", 1024 * input.len() + 65_536, || {
        peer::agree(&PROCESSOR, PROTOCOLS[choice % 2], type_idx, input);
    });
}
