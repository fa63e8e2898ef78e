//! Messages with refs that have come, until hold was taken of their refs or their sender has given the bytes.

use std::collections::HashMap;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tollfree_layout::SegmentedIdx;
use tollfree_pool::{Fetching, Plan, RefError, SegmentedMessage};
use tollfree_session::{Asked, Closed, End};

use crate::sharing::Sharing;
use crate::{INTERNAL, Message, UNAVAILABLE};

/// How often it is looked whether an extent has come, in nanoseconds.
const LOOK_EVERY_NS: u64 = 100_000;
/// gRPC's RESOURCE_EXHAUSTED.
const TOO_LONG: u16 = 8;

/// A message with refs, as it came.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) bytes: Bytes,
    pub(crate) compressed: bool,
    pub(crate) segmented: SegmentedIdx,
}

/// Why a call ends whose message can't be had.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    pub(crate) words: String,
}

/// What stands behind a message in the same frame.
pub(crate) type Behind = Option<(End, bool)>;

/// A message whose refs are not here yet.
#[derive(Debug)]
struct Waiting {
    plan: Plan,
    compressed: bool,
    segmented: SegmentedIdx,
    state: State,
    behind: Behind,
}

#[derive(Debug)]
enum State {
    /// Its extents are on their way here; since when this turn is.
    Fetching(Fetching, u64),
    /// Its sender was asked for the bytes: so would the call end if that does not give them.
    Asking(RefError),
}

/// What a step came to.
#[derive(Debug)]
pub(crate) enum Step {
    /// The message, or why there is none. The sender need not keep it any longer.
    Done(Result<Message, Failure>),
    /// The sender is to be asked for so many bytes.
    Ask(u32),
    Waits,
}

/// All that wait in a session, by the numbers of their calls: each call waits for one at most.
#[derive(Debug, Default)]
pub(crate) struct Refs {
    waiting: HashMap<u64, Waiting>,
}

impl Refs {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a call waits: nothing behind the message is read before that has come.
    pub(crate) fn waits(&self, number: u64) -> bool {
        self.waiting.contains_key(&number)
    }

    /// The calls that wait, in order.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<_> = self.waiting.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// What came behind a message that a call waits for.
    pub(crate) fn put_behind(&mut self, number: u64, behind: Behind) {
        if let Some(waiting) = self.waiting.get_mut(&number) {
            waiting.behind = behind;
        }
    }

    /// The message that a call waits for.
    pub(crate) fn segmented(&self, number: u64) -> Option<SegmentedIdx> {
        self.waiting.get(&number).map(|waiting| waiting.segmented)
    }

    /// A call waits no longer: which message its sender need not keep, and what came behind that.
    pub(crate) fn remove(&mut self, number: u64) -> Option<(SegmentedIdx, Behind)> {
        self.waiting.remove(&number).map(|waiting| (waiting.segmented, waiting.behind))
    }

    /// When it is to be looked again, in nanoseconds.
    pub(crate) fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let is_fetching = |waiting: &Waiting| matches!(waiting.state, State::Fetching(..));
        self.waiting.values().any(is_fetching).then_some(now_ns + LOOK_EVERY_NS)
    }

    /// Takes hold of a message's refs, for a reader of messages of at most `len_max` bytes. One that can't be had yet waits.
    pub(crate) fn take(
        &mut self,
        number: u64,
        gathered: Gathered,
        len_max: usize,
        sharing: &Sharing,
        now_ns: u64,
    ) -> Option<Result<Message, Failure>> {
        let Gathered { bytes, compressed, segmented } = gathered;
        let fails = |code, words: String| Some(Err(Failure { code, words }));
        let plan = match Plan::parse(bytes) {
            Ok(plan) => plan,
            Err(error) => return fails(INTERNAL, format!("protocol error: {error}")),
        };
        let Some(pool) = sharing.pool() else {
            return fails(INTERNAL, "a message with refs came, and there is no pool here".into());
        };
        if plan.len() > len_max {
            let words = format!("a message of {} bytes is longer than {len_max}", plan.len());
            return fails(TOO_LONG, words);
        }
        match plan.try_map(pool) {
            Ok(message) => Some(Ok(came(message, compressed, sharing))),
            Err(error) if error.may_be_asked_for() => {
                let state = State::Fetching(Fetching::new(&plan, pool), now_ns);
                let waiting = Waiting { plan, compressed, segmented, state, behind: None };
                self.waiting.insert(number, waiting);
                None
            }
            Err(error) => Some(Err(refused(&error, None, sharing))),
        }
    }

    /// Looks what has become of a message that a call waits for. `asked` gives what came of asking its sender.
    pub(crate) fn step(
        &mut self,
        number: u64,
        sharing: &Sharing,
        now_ns: u64,
        closed: Option<&Closed>,
        asked: impl FnOnce(SegmentedIdx) -> Asked,
    ) -> Step {
        let Some(waiting) = self.waiting.get_mut(&number) else { return Step::Waits };
        let done = match &mut waiting.state {
            State::Fetching(fetching, began_ns) => match poll(fetching, began_ns, now_ns) {
                Poll::Pending => return Step::Waits,
                Poll::Ready(Ok(message)) => Ok(came(message, waiting.compressed, sharing)),
                Poll::Ready(Err(error)) => {
                    let len = u32::try_from(waiting.plan.ref_bytes()).ok();
                    match len.filter(|_| error.may_be_asked_for()) {
                        Some(len) => {
                            waiting.state = State::Asking(error);
                            return Step::Ask(len);
                        }
                        None => Err(refused(&error, closed, sharing)),
                    }
                }
            },
            State::Asking(error) => match asked(waiting.segmented) {
                Asked::Coming if closed.is_none() => return Step::Waits,
                Asked::Here(bytes) => match waiting.plan.fill(bytes) {
                    Some(message) => {
                        sharing.asked_for();
                        Ok(Message::segmented(message, waiting.compressed))
                    }
                    None => Err(refused(error, closed, sharing)),
                },
                Asked::Coming | Asked::Refused => Err(refused(error, closed, sharing)),
            },
        };
        Step::Done(done)
    }
}

/// Whether the extents have come; an error also when that took too long.
fn poll(
    fetching: &mut Fetching,
    began_ns: &mut u64,
    now_ns: u64,
) -> Poll<Result<SegmentedMessage, RefError>> {
    if let Poll::Ready(fetched) = fetching.poll(&mut Context::from_waker(Waker::noop())) {
        return Poll::Ready(fetched);
    }
    let took = std::time::Duration::from_nanos(now_ns.saturating_sub(*began_ns));
    match fetching.turn() {
        Ok(turn) if took >= turn => {
            fetching.waited(took);
            *began_ns = now_ns;
            fetching.turn().map_or_else(|error| Poll::Ready(Err(error)), |_| Poll::Pending)
        }
        Ok(_) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

fn came(message: SegmentedMessage, compressed: bool, sharing: &Sharing) -> Message {
    sharing.received_by_ref();
    Message::segmented(message, compressed)
}

/// Refs that can't be had. A sender that has died keeps nothing any more, whatever its refs look like then.
fn refused(error: &RefError, closed: Option<&Closed>, sharing: &Sharing) -> Failure {
    sharing.refused();
    let words = format!("a ref in the message is of no use: {error}");
    match closed {
        Some(closed) if !error.is_forbidden() => {
            Failure { code: UNAVAILABLE, words: format!("{words}; its session {closed}") }
        }
        _ => Failure { code: error.grpc_code(), words },
    }
}
