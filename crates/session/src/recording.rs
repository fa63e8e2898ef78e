//! Reports what a session does to a recorder. Without the feature `events` nothing of this is compiled in but its names.
//!
//! A session has no clock: the recorder adds the time. That a sender is blocked, and how this end waits, is reported once until something
//! else happens.

use std::fmt;

#[cfg(feature = "events")]
use tollfree_events::{FrameKinds, Place};
use tollfree_events::{Lack, SessionEvent};
use tollfree_layout::StreamId;
use tollfree_layout::frame::FrameHead;

use crate::frame::Frame;
use crate::send::Progress;

/// Takes the events of a session, in their order. The thread that holds the session calls it: it must not wait, and must not panic.
pub trait Recorder: fmt::Debug + Send {
    /// This has happened.
    fn record(&self, event: SessionEvent);
}

/// A session's recorder, if it has one.
#[derive(Debug, Default)]
pub struct Recording {
    #[cfg(feature = "events")]
    to: Option<Box<dyn Recorder>>,
    #[cfg(feature = "events")]
    repeated: Repeated,
}

/// The same, lent to functions that change a session's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log<'a> {
    #[cfg(feature = "events")]
    recording: Option<&'a Recording>,
    #[cfg(not(feature = "events"))]
    recording: std::marker::PhantomData<&'a ()>,
}

impl Recording {
    /// Records nothing.
    #[inline]
    pub fn off() -> Recording {
        Recording::default()
    }

    /// Reports to this recorder.
    #[cfg(feature = "events")]
    pub fn to(recorder: Box<dyn Recorder>) -> Recording {
        Recording { to: Some(recorder), repeated: Repeated::default() }
    }

    /// Whether there is a recorder.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        #[cfg(feature = "events")]
        return self.to.is_some();
        #[cfg(not(feature = "events"))]
        return false;
    }

    /// Reports what `event` makes.
    #[inline(always)]
    pub fn record(&self, event: impl FnOnce() -> SessionEvent) {
        #[cfg(feature = "events")]
        if let Some(recorder) = &self.to {
            let event = event();
            if self.repeated.is_new(&event) {
                recorder.record(event);
            }
        }
        #[cfg(not(feature = "events"))]
        let _ = event;
    }

    #[inline(always)]
    pub(crate) fn log(&self) -> Log<'_> {
        #[cfg(feature = "events")]
        return Log { recording: Some(self) };
        #[cfg(not(feature = "events"))]
        return Log { recording: std::marker::PhantomData };
    }
}

impl Log<'_> {
    /// Records nothing.
    #[cfg(test)]
    pub(crate) fn none() -> Log<'static> {
        Log {
            #[cfg(feature = "events")]
            recording: None,
            #[cfg(not(feature = "events"))]
            recording: std::marker::PhantomData,
        }
    }

    #[cfg(feature = "events")]
    pub(crate) fn is_on(self) -> bool {
        self.recording.is_some_and(Recording::is_on)
    }

    #[inline(always)]
    pub(crate) fn record(self, event: impl FnOnce() -> SessionEvent) {
        #[cfg(feature = "events")]
        if let Some(recording) = self.recording {
            recording.record(event);
        }
        #[cfg(not(feature = "events"))]
        let _ = event;
    }

    /// A sender can't go on, if this is so.
    #[inline(always)]
    pub(crate) fn blocked(self, stream: StreamId, progress: Progress) {
        let lack = match progress {
            Progress::NeedCredit => Lack::Credit,
            Progress::NeedRoom | Progress::RanOut => Lack::Ring,
            Progress::NeedStream => Lack::Calls,
            Progress::Done | Progress::Partly => return,
        };
        self.record(|| SessionEvent::Blocked { stream: stream.0, lack });
    }

    /// A frame was staged.
    #[inline(always)]
    pub(crate) fn sent(self, head: &FrameHead) {
        #[cfg(feature = "events")]
        self.record(|| SessionEvent::Sent {
            stream: head.stream.get(),
            kinds: FrameKinds(head.events),
            code: head.code.get(),
            len: head.chunk_len.get(),
            place: place(head.events, head.flags),
        });
        #[cfg(not(feature = "events"))]
        let _ = head;
    }

    /// A frame came.
    #[inline(always)]
    pub(crate) fn received(self, frame: &Frame) {
        #[cfg(feature = "events")]
        self.record(|| SessionEvent::Received {
            stream: frame.stream,
            kinds: FrameKinds(frame.events),
            code: frame.code,
            len: frame.chunk_len,
            place: place(frame.events, frame.flags),
        });
        #[cfg(not(feature = "events"))]
        let _ = frame;
    }
}

#[cfg(feature = "events")]
fn place(events: u8, flags: u8) -> Place {
    use tollfree_layout::frame::{events::MESSAGE, flags};
    match events & MESSAGE != 0 {
        true if flags & flags::IN_AREA != 0 => Place::Area,
        true if flags & flags::SEGMENTED != 0 => Place::Pool,
        _ => Place::Ring,
    }
}

/// What was reported since something happened that is not waiting.
#[cfg(feature = "events")]
#[derive(Debug, Default)]
struct Repeated {
    blocked: std::cell::Cell<Option<(u64, Lack)>>,
    /// A bit for each decision, and for each outcome of arming the doorbell.
    waits: std::cell::Cell<u8>,
}

#[cfg(feature = "events")]
impl Repeated {
    /// Whether it was not reported since something else happened.
    fn is_new(&self, event: &SessionEvent) -> bool {
        let bit = match event {
            SessionEvent::Waits { decision, .. } => 1 << *decision as u8,
            SessionEvent::Armed { found } => 8 << u8::from(*found),
            SessionEvent::Blocked { stream, lack } => {
                return self.blocked.replace(Some((*stream, *lack))) != Some((*stream, *lack));
            }
            _ => {
                self.blocked.set(None);
                self.waits.set(0);
                return true;
            }
        };
        self.waits.replace(self.waits.get() | bit) & bit == 0
    }
}

#[cfg(test)]
mod tests {
    use tollfree_events::Decision;

    use super::*;
    use crate::tests::script::Kept;

    #[test]
    fn a_message_is_where_its_flags_say_and_a_cancellation_is_in_the_ring() {
        use tollfree_layout::frame::{events, flags};
        let whole = flags::FIRST | flags::LAST;
        for (events, flags, at) in [
            (events::MESSAGE, whole, Place::Ring),
            (events::MESSAGE, whole | flags::IN_AREA, Place::Area),
            (events::HEADERS | events::MESSAGE, whole | flags::IN_AREA | flags::SEGMENTED, Place::Area),
            (events::MESSAGE, whole | flags::SEGMENTED, Place::Pool),
            (events::CANCEL, flags::IN_AREA | flags::SEGMENTED, Place::Ring),
        ] {
            assert_eq!(place(events, flags), at, "{events} {flags}");
        }
        assert!(Kept::default().recording().log().is_on());
        assert!(!Log::none().is_on() && !Recording::off().log().is_on());
    }

    #[test]
    fn waiting_is_reported_once_until_something_else_happens() {
        let kept = Kept::default();
        let recording = kept.recording();
        let waits = |decision| SessionEvent::Waits { decision, looked_ns: 1, budget_ns: 2 };
        let blocked = |stream| SessionEvent::Blocked { stream, lack: Lack::Credit };
        let (probe, park) = (waits(Decision::Probe), waits(Decision::Park));
        let (armed, found) = (SessionEvent::Armed { found: false }, SessionEvent::Armed { found: true });
        let (woken, one, two) = (SessionEvent::Woken, blocked(1), blocked(2));
        let told =
            [&probe, &armed, &probe, &armed, &found, &park, &one, &one, &two, &one, &woken, &probe, &one];
        for event in told {
            recording.record(|| event.clone());
        }
        let expected = [&probe, &armed, &found, &park, &one, &two, &one, &woken, &probe, &one];
        assert_eq!(kept.take().iter().collect::<Vec<_>>(), expected);
        assert!(recording.is_on() && !Recording::off().is_on());
    }
}
