//! How a client's calls begin.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use tollfree_session::{Emission, EmitError, Opening, Whole};

use crate::attachment::Attachment;
use crate::call::{CANCELLED, Stream};
use crate::core::Core;
use crate::runtime_waiters::{Slot, WaitKey};
use crate::shared::Shared;

/// How a call has begun.
#[derive(Debug)]
pub enum Started {
    /// The answer has come, all of it in one frame. The call is over.
    Answered(Whole),
    /// The call is open.
    Open(Stream),
    /// The same, and the task is woken when something has come for it.
    Waits(Stream),
    /// It can't be opened now, and nothing was sent: it has to [wait](Attachment::open).
    MustWait,
}

impl Attachment {
    /// Begins a call with as much of `emission` as fits (client); what is left over goes by [`Stream::poll_emit`]. Where that
    /// is everything, and nobody else looks at the ring, looks for the answer too, for as long as a task looks within one
    /// `poll`.
    ///
    /// `meanwhile` is done while the request is on its way, without the session's lock, before the look for the answer. Not
    /// done where there is none.
    ///
    /// # Errors
    /// [`EmitError`]; nothing of the call was sent then, so it may be made elsewhere.
    #[inline]
    pub fn start(
        &self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        emission: &mut Emission,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<Started, EmitError> {
        let (shared, socket) = (&self.shared, &self.shared.socket);
        let says_all = emission.ending.is_some();
        let mut core = shared.enter()?;
        let Core { session, sending, .. } = &mut *core;
        let opened = session.open(sending, opening, emission);
        // Who polls looks for all, and who gathers publishes later.
        let alone = !core.waiters.is_polled() && !core.gathers;
        let looks = says_all && emission.is_empty() && alone && core.looks_long();
        let id = match opened {
            Ok(Ok(id)) if looks => id,
            opened => {
                // Small frames that waited may have gone, though the call did not.
                core.flush_soon(socket);
                let Ok(id) = opened? else { return Ok(Started::MustWait) };
                let waits = emission.is_empty() && core.follow(cx, WaitKey::Read(id));
                let stream = Stream::new(shared.clone(), id);
                return Ok(if waits { Started::Waits(stream) } else { Started::Open(stream) });
            }
        };
        core.flush(socket);
        if let Some(meanwhile) = meanwhile
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| core.without_lock(meanwhile)))
        {
            // Nobody would look after the call.
            core.forget(id, CANCELLED, socket);
            resume_unwind(panic);
        }
        Ok(match shared.look_for_answer(&mut core, id) {
            Some(answer) => Started::Answered(answer),
            None => Started::Open(Stream::new(shared.clone(), id)),
        })
    }

    /// Opens a call that may have to wait until it can be (client).
    pub fn open(&self) -> Opener {
        Opener { shared: self.shared.clone(), number: None }
    }
}

/// A call that is being opened (client).
#[derive(Debug)]
pub struct Opener {
    shared: Arc<Shared>,
    /// Set once the call has had to wait.
    number: Option<u64>,
}

impl Opener {
    /// Opens the call with as much of `emission` as fits; what is left over goes by [`Stream::poll_emit`].
    ///
    /// # Errors
    /// [`EmitError`]; nothing of the call was sent then, so it may be made elsewhere.
    pub fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        emission: &mut Emission,
    ) -> Poll<Result<Stream, EmitError>> {
        let number = match self.number {
            Some(number) => number,
            None => *self.number.insert(self.shared.enter()?.next_opener()),
        };
        let key = WaitKey::Open(number);
        let polled = self.shared.poll_wait(cx, key, |core, socket| {
            let opened = core.session.open(&mut core.sending, opening, emission);
            core.flush_soon(socket);
            match opened {
                Ok(Ok(id)) => Some(Ok(id)),
                Err(error) => Some(Err(error)),
                Ok(Err(progress)) => {
                    core.wait_for(key, progress);
                    None
                }
            }
        });
        polled.map(|result| Ok(Stream::new(self.shared.clone(), result??)))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Ok(mut core) = self.shared.enter()
        {
            core.leave(WaitKey::Open(number));
            core.opens.remove(&number);
            // Its turn to open may have come already: it is the next one's then.
            core.wake_ready();
        }
    }
}

impl Core {
    /// A number under which a task waits to open a call.
    fn next_opener(&mut self) -> u64 {
        self.next_open += 1;
        self.opens.insert(self.next_open, Slot::default());
        self.next_open
    }
}
