//! Messages that are lent to a session, which encodes them while it sends them: the bytes of a long field go from there into shared
//! memory, and nowhere else.
//!
//! A lent message is shared, so that it is still there when a call is made again.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use tollfree_transport::{Encoded, Outgoing, PeerPool, RangeWriter, Unencoded, Written};
use tonic::Status;

use crate::message::bypass::Large;
use crate::message::encoding::encode;
use crate::message::form::{Form, Ready as _};
use crate::message::payloads::{Outlet, Sharing};

/// A message in form `F` that doesn't change any more.
pub(crate) struct Lent<F, M> {
    pub(crate) message: M,
    /// Its bytes, where it travels as an object.
    object: Option<Encoded>,
    /// How long it may be in bytes.
    len_max: Option<usize>,
    form: PhantomData<F>,
}

impl<F, M> Lent<F, M> {
    pub(crate) fn new(message: M, object: Option<Encoded>, len_max: Option<usize>) -> Arc<Lent<F, M>> {
        Arc::new(Lent { message, object, len_max, form: PhantomData })
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> Large for Lent<F, M> {
    fn encode(
        self: Arc<Self>,
        sharing: &Sharing,
        peer: PeerPool,
        outlet: &dyn Outlet,
        takes_objects: bool,
    ) -> Result<Outgoing, Status> {
        if let Some(object) = self.object.as_ref().filter(|_| takes_objects)
            && let Some(object) = sharing.object(object.clone(), self.len_max, peer, outlet)?
        {
            return Ok(object);
        }
        let lent = F::TAKE.map(|_| -> Arc<dyn Unencoded> { self.clone() });
        F::ready(&self.message, |ready| sharing.encode(ready, self.len_max, peer, outlet, lent))
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> Unencoded for Lent<F, M> {
    fn write_range(&self, len: usize, from: usize, range: &mut [u8]) -> Written {
        let mut writer = RangeWriter::new(len, from, range);
        // A message that has no encoding writes nothing, and is refused for its length.
        let _ = F::ready(&self.message, |ready| {
            ready.write(&mut writer);
            Ok(())
        });
        let (len, is_crumbly) = (writer.written_len(), writer.is_crumbly());
        Written { len, is_crumbly, whole: writer.into_whole().map(Bytes::from) }
    }

    fn encode(&self, len: usize) -> Bytes {
        F::ready(&self.message, |ready| Ok(encode(ready, len).into_bytes())).unwrap_or_default()
    }
}

/// Makes a program's message ready for a session. A large one is taken out of its place for that where it can be, and is `lent`
/// from then on.
///
/// # Errors
/// As [`Sharing::encode`].
#[inline]
pub(crate) fn send<F: Form<M>, M: Send + Sync + 'static>(
    message: &mut M,
    lent: &mut Option<Arc<Lent<F, M>>>,
    sharing: &Sharing,
    len_max: Option<usize>,
    peer: PeerPool,
    outlet: &dyn Outlet,
) -> Result<Outgoing, Status> {
    if let Some(lent) = lent {
        return Large::encode(lent.clone(), sharing, peer, outlet, false);
    }
    let sent = F::ready(message, |ready| match (sharing.encode_short(ready, len_max)?, F::TAKE) {
        (Some(short), _) => Ok(Ok(Outgoing::plain(short))),
        (None, Some(take)) => Ok(Err(take)),
        (None, None) => sharing.encode(ready, len_max, peer, outlet, None).map(Ok),
    })?;
    match sent {
        Ok(outgoing) => Ok(outgoing),
        Err(take) => {
            let lent = lent.insert(Lent::new(take(message), None, len_max)).clone();
            Large::encode(lent, sharing, peer, outlet, false)
        }
    }
}
