//! Other protobuf libraries behind one interface, with types generated from the kept schemas.
//!
//! A crate of its own because generated code takes long to compile and seldom changes. The schemas are the bench's,
//! whose `schemas/NOTICE.md` says where they come from.
#![forbid(unsafe_code)]

mod generated;

use buffa::HasMessageView;
use std::hint::black_box;
use std::marker::PhantomData;

/// What a peer's library says about bytes that it refuses.
pub type Refusal = String;

/// One generated message type of one library.
pub trait Peer: Sync {
    /// Decodes the message, copying, and drops it.
    ///
    /// # Errors
    /// The library's own, in words.
    fn decode_and_drop(&self, input: &[u8]) -> Result<(), Refusal>;

    /// Decodes the message into types that borrow from the input, and drops it. False if the library has none.
    ///
    /// # Errors
    /// The library's own, in words.
    fn view_and_drop(&self, input: &[u8]) -> Result<bool, Refusal>;

    /// Decodes the message and keeps it.
    ///
    /// # Errors
    /// The library's own, in words.
    fn decode(&self, input: &[u8]) -> Result<Box<dyn Decoded>, Refusal>;
}

/// A message that a peer holds.
pub trait Decoded {
    /// Encodes it in place of what `out` holds.
    fn encode(&self, out: &mut Vec<u8>);
}

/// The generated types of one message.
pub struct Entry {
    /// Name of its schema: `bench0`, `descriptor`, …
    pub schema: &'static str,
    /// Full name of the type.
    pub type_name: &'static str,
    /// prost's.
    pub prost: &'static dyn Peer,
    /// buffa's.
    pub buffa: &'static dyn Peer,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({} of {})", self.type_name, self.schema)
    }
}

/// All types that can be the root of a payload.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    const DESCRIPTOR: &Entry = &Entry {
        schema: "descriptor",
        type_name: "google.protobuf.FileDescriptorSet",
        prost: &Prost::<prost_types::FileDescriptorSet>(PhantomData),
        buffa: &BuffaWithView::<buffa_descriptor::generated::descriptor::FileDescriptorSet>(PhantomData),
    };
    generated::GENERATED.iter().chain([DESCRIPTOR])
}

struct Prost<M>(PhantomData<M>);

struct Held<M>(M);

impl<M: prost::Message + Default + 'static> Peer for Prost<M> {
    fn decode_and_drop(&self, input: &[u8]) -> Result<(), Refusal> {
        black_box(&M::decode(input).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn view_and_drop(&self, _: &[u8]) -> Result<bool, Refusal> {
        Ok(false)
    }

    fn decode(&self, input: &[u8]) -> Result<Box<dyn Decoded>, Refusal> {
        Ok(Box::new(Held(M::decode(input).map_err(|error| error.to_string())?)))
    }
}

impl<M: prost::Message> Decoded for Held<M> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        self.0.encode(out).expect("a vector grows");
    }
}

/// Generated with borrowing types beside the others.
struct BuffaWithView<M>(PhantomData<M>);

/// Generated without.
struct Buffa<M>(PhantomData<M>);

/// A message and what its library keeps between two encodings.
struct HeldByBuffa<M>(M, std::cell::RefCell<buffa::SizeCache>);

impl<M: buffa::Message + 'static> Peer for Buffa<M> {
    fn decode_and_drop(&self, input: &[u8]) -> Result<(), Refusal> {
        black_box(&M::decode_from_slice(input).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn view_and_drop(&self, _: &[u8]) -> Result<bool, Refusal> {
        Ok(false)
    }

    fn decode(&self, input: &[u8]) -> Result<Box<dyn Decoded>, Refusal> {
        let message = M::decode_from_slice(input).map_err(|error| error.to_string())?;
        Ok(Box::new(HeldByBuffa(message, Default::default())))
    }
}

impl<M: HasMessageView + Send + Sync + 'static> Peer for BuffaWithView<M> {
    fn decode_and_drop(&self, input: &[u8]) -> Result<(), Refusal> {
        Buffa::<M>(PhantomData).decode_and_drop(input)
    }

    fn view_and_drop(&self, input: &[u8]) -> Result<bool, Refusal> {
        black_box(&M::decode_view(input).map_err(|error| error.to_string())?);
        Ok(true)
    }

    fn decode(&self, input: &[u8]) -> Result<Box<dyn Decoded>, Refusal> {
        Buffa::<M>(PhantomData).decode(input)
    }
}

impl<M: buffa::Message> Decoded for HeldByBuffa<M> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        self.0.encode_with_cache(&mut self.1.borrow_mut(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_peers_hold_what_they_read() {
        let set: &[u8] = include_bytes!("../../bench/schemas/bench3.fds.binpb");
        let entry = entries().find(|entry| entry.schema == "descriptor").unwrap();
        let mut out = Vec::new();
        for peer in [entry.prost, entry.buffa] {
            peer.decode_and_drop(set).unwrap();
            peer.decode(set).unwrap().encode(&mut out);
            assert_eq!(out, set);
            assert!(peer.decode_and_drop(&set[..set.len() - 1]).is_err());
        }
        assert!(entry.buffa.view_and_drop(set).unwrap());
    }
}
