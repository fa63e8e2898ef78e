//! Calls that a client asks as a whole, and looks after without a stream until more than an answer comes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll};

use tollfree_layout::StreamId;
use tollfree_session::{Closed, Emission, EmitError, Ending, Opening, Whole};

use crate::attachment::{Attachment, CANCELLED, Stream};
use crate::core::Core;
use crate::incoming::Arrival;
use crate::stations::Token;

impl Attachment {
    /// Makes a call whose request goes as a whole, and is not compressed (client). Where nobody else looks at the ring, looks for the answer too, for as
    /// long as whoever waits looks within one `poll`. `None`: it can't be sent so now, and nothing was;
    /// [open](Attachment::try_open) it.
    pub fn ask(
        &self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        headers: &[u8],
        message: &[u8],
    ) -> Option<Asked> {
        self.ask_with(cx, opening, headers, message, None)
    }

    /// The same, and does something else while the request is on its way, without the session's lock, before it looks for the
    /// answer. Not done where it does not look.
    pub fn ask_and(
        &self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        headers: &[u8],
        message: &[u8],
        meanwhile: &mut dyn FnMut(),
    ) -> Option<Asked> {
        self.ask_with(cx, opening, headers, message, Some(meanwhile))
    }

    /// Compiled for each of the two above: most calls have nothing to do meanwhile.
    #[inline(always)]
    fn ask_with(
        &self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        headers: &[u8],
        message: &[u8],
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Option<Asked> {
        let (shared, socket) = (&self.shared, &self.shared.socket);
        let mut core = shared.enter().ok()?;
        // Who pumps looks for all.
        let looks = !core.stations.is_pumped() && core.looks_long();
        let Core { session, sending, .. } = &mut *core;
        if looks {
            let id = session.ask(sending, opening, headers, message)?;
            core.flush(socket);
            if let Some(meanwhile) = meanwhile
                && let Err(panic) = catch_unwind(AssertUnwindSafe(|| core.without_lock(meanwhile)))
            {
                // Nobody would look after the call.
                core.forget(id, CANCELLED, socket);
                resume_unwind(panic);
            }
            let answer = shared.look_for_answer(&mut core, id);
            return Some(answer.map_or(Asked::Open(id), Asked::Answered));
        }
        let id = session.ask_among(sending, opening, headers, message)?;
        core.flush_soon(socket);
        Some(Asked::open(cx, &mut core, id))
    }

    /// Opens a call (client) with as much of `emission` as fits, if that is possible now; what is left over goes by
    /// [`Stream::poll_emit`]. `None`: it has to [wait](Attachment::open).
    pub fn try_open(
        &self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        emission: &mut Emission,
    ) -> Option<Result<Asked, EmitError>> {
        let mut core = match self.shared.enter() {
            Ok(core) => core,
            Err(closed) => return Some(Err(closed.into())),
        };
        let opened = core.open(opening, emission, &self.shared.socket)?;
        Some(opened.map(|id| match emission.is_empty() {
            true => Asked::open(cx, &mut core, id),
            false => Asked::Open(id),
        }))
    }

    /// [Asks](Attachment::ask) what `emission` holds, or else [opens](Attachment::try_open) the call.
    pub fn try_ask(
        &self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        emission: &mut Emission,
    ) -> Option<Result<Asked, EmitError>> {
        if let (Some(message), Some(Ending::HalfClose)) = (&emission.message, &emission.ending)
            && let Some(message) = message.as_plain()
        {
            let headers = emission.headers.as_deref().unwrap_or_default();
            if let Some(asked) = self.ask(cx, opening, headers, message) {
                *emission = Emission::default();
                return Some(Ok(asked));
            }
        }
        self.try_open(cx, opening, emission)
    }

    /// The stream of a call that was [asked](Attachment::ask) here, of which nothing more than this was heard.
    pub fn stream(&self, id: StreamId) -> Stream {
        Stream::new(self.shared.clone(), id)
    }

    /// What the server has said on a call that was [asked](Attachment::ask) here: mostly that is the whole answer.
    ///
    /// # Errors
    /// As [`Stream::poll_recv`].
    pub fn poll_answer(&self, cx: &mut Context<'_>, id: StreamId) -> Poll<Result<Said, Closed>> {
        self.shared.poll_read(cx, id, |core| {
            if let Some(answer) = core.session.answer(id) {
                core.wake_ready();
                return Some(Said::All(answer));
            }
            let arrival = core.session.take_arrival(id)?;
            let mut stream = self.stream(id);
            if arrival.forgotten {
                *stream.gone.get_mut() = true;
                core.wake_ready();
            }
            Some(Said::Some(Box::new((stream, Arrival::of(&self.shared, arrival)))))
        })
    }

    /// Ends a call that was [asked](Attachment::ask) here and of which no [`Stream`] was made; the server sees `code`, a gRPC
    /// status.
    pub fn cancel(&self, id: StreamId, code: u16) {
        if let Ok(mut core) = self.shared.enter() {
            core.forget(id, code, &self.shared.socket);
        }
    }
}

/// What came of [asking](Attachment::ask). A call that goes on is its caller's: to be [looked after](Attachment::poll_answer),
/// made a [`Stream`](Attachment::stream), or [given up](Attachment::cancel).
#[derive(Debug)]
pub enum Asked {
    /// The answer, which came as a whole. The call is over.
    Answered(Whole),
    /// The call goes on.
    Open(StreamId),
    /// The same, and the task is woken when something has come for it.
    Waits(StreamId),
}

impl Asked {
    /// A call that is open: its task waits at once where another looks for all.
    fn open(cx: &Context<'_>, core: &mut Core, id: StreamId) -> Asked {
        if core.follow(cx, Token::Read(id)) { Asked::Waits(id) } else { Asked::Open(id) }
    }
}

/// What a server has said on a call.
#[derive(Debug)]
pub enum Said {
    /// All of it: the answer, which came as a whole. The call is over.
    All(Whole),
    /// Some of it.
    Some(Box<(Stream, Arrival)>),
}
