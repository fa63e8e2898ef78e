//! Every number that waiting goes by, each with its reason. Nothing else in this crate is a number without a name.

/// Of a good neighbor's parks and rings, one in so many is measured: a measurement takes two readings of a clock.
pub(crate) const MEASURED_EVERY: u32 = 8;
/// The least of so many samples is kept: whatever else ran in between made a sample longer, never shorter.
pub(crate) const SAMPLE_COUNT: u32 = 8;
/// What going to sleep and coming back takes before anything was measured, in nanoseconds: a little more than virtual machines need.
pub(crate) const PARK_NS: u64 = 8_000;
/// What ringing takes before anything was measured, in nanoseconds: a system call that wakes a thread of another processor.
pub(crate) const RING_NS: u64 = 4_000;
/// No measured part of a wake-up counts for less than this, in nanoseconds: a clock may be coarse, or stand still.
pub(crate) const PART_NS_MIN: u64 = 1_000;
/// Nor for more: a clock may count in ticks.
pub(crate) const PART_NS_MAX: u64 = 30_000;

/// Where latency is all that counts, longer waits are not worth spinning for, in nanoseconds: about four times a wake-up. A megabyte
/// that the peer reads and writes takes half of it.
pub(crate) const WORTH_NS: u64 = 250_000;
/// The shortest budget of one who spins there at all: about what going to sleep and being woken takes. Where waits are short, one
/// that is longer than this by far was disturbed, and would be longer still asleep.
pub(crate) const SPIN_NS_MIN: u64 = 100_000;
/// Such a budget is so many times the average wait.
pub(crate) const SPIN_FACTOR: u64 = 4;
/// How long a probe looks, in nanoseconds: a quick peer answers within it.
pub(crate) const PROBE_NS: u64 = 5_000;
/// The budget after a wait that ended within a probe, in nanoseconds.
pub(crate) const TRIAL_NS: u64 = 4 * PROBE_NS;
/// Of waits that are not worth spinning for, one in so many is probed: what probes cost is a small part of what sleeping costs.
pub(crate) const PROBE_EVERY: u32 = 8;
/// A good neighbor whose waits are up to so many times what is worth it may be one of two that wake each other, where each
/// would be quick were the other awake: only a probe as long as a wake-up finds that out.
pub(crate) const NEAR_FACTOR: u64 = 8;
/// One wait in so many has a probe that long.
pub(crate) const LONG_PROBE_EVERY: u32 = 2 * PROBE_EVERY;
/// A single wait counts for at most so many times what is worth it more than the average: one pause is no change of habits.
pub(crate) const OUTLIER_FACTOR: u64 = 4;
/// The average counts up to so many times what is worth it, so that it comes down within a few waits.
pub(crate) const AVERAGE_FACTOR: u64 = 2 * NEAR_FACTOR;
/// Weight of the newest wait, and of the newest work, in their averages: 1 / 8.
pub(crate) const WEIGHT_SHIFT: u32 = 3;
/// Waits are taken for short at first: a sixteenth of what is worth spinning for.
pub(crate) const FIRST_AVERAGE: u64 = 16;
/// After a trial that was met, waits are taken for an eighth of what is worth spinning for.
pub(crate) const TRIED_AVERAGE: u64 = 8;
/// A server looks for at most so many nanoseconds because it works for that long: a client takes about as long to read an answer and to
/// write the next request.
pub(crate) const WORK_NS_MAX: u64 = 150_000;
/// Waits in a row that end within one long look and are not learnt from: waits of one session are much alike, and the clock need not be read
/// while an answer waits.
pub(crate) const UNLEARNT_COUNT_MAX: u32 = 7;

/// Glances at an empty ring within one poll, with a pause after each: 0.2 µs together.
pub(crate) const GLANCE_COUNT: usize = 14;
/// The same where the peer runs on another processor, and the driver seems to have nothing else to do: 1 µs together, in which
/// a quick peer answers.
pub(crate) const LONG_GLANCE_COUNT: usize = 5 * GLANCE_COUNT;
/// The same for a thread that has nothing else to do: 20 µs together, if waits are that long.
pub(crate) const DEDICATED_GLANCE_COUNT: usize = 100 * GLANCE_COUNT;
/// The same for a thread of several, which others relieve: 60 µs together, if waits are that long.
pub(crate) const FURTHER_GLANCE_COUNT: usize = 300 * GLANCE_COUNT;
/// What a glance takes, about, in nanoseconds.
pub(crate) const GLANCE_NS: u64 = 14;
/// Glances after which others may have the lock for a moment: 0.2 µs.
pub const GLANCES_AT_ONCE: usize = GLANCE_COUNT;
/// A task that gives way has its turn again sooner than this, in nanoseconds, if its driver has nothing else to do.
pub(crate) const TURN_NS: u64 = 1_000;
/// So many turns in a row that come later mean that it has. A runtime looks at its poller now and then, which is a late turn too.
pub(crate) const LATE_TURNS: u8 = 2;

/// Spinning for longer than this, in nanoseconds, a thread offers its processor to others at each turn.
pub(crate) const OFFER_AFTER_NS: u64 = 8_000;
/// A processor that was offered and comes back later than this, in nanoseconds, was taken by a thread that computes, not by a fellow spinner. A good
/// neighbor doesn't ask: if it was gone for longer than a wake-up costs, somebody else has a use for it.
pub(crate) const TAKEN_NS: u64 = 200_000;
/// A good neighbor offers its processor once in so many waits, however short they are: a thread that never waits for long would else keep
/// it until the kernel takes it.
pub(crate) const OFFER_EVERY: u32 = 64;
/// A thread doesn't spin for so many times what it lost: where others compute all the time, a tenth of it goes by in finding that out.
pub(crate) const CROWDED_FACTOR: u64 = 10;
/// And at most for so many nanoseconds, so that one long disturbance is over soon.
pub(crate) const CROWDED_NS_MAX: u64 = 40_000_000;

/// An end that has looked for longer than this, in nanoseconds, gives back what it has read of the ring: no call waits for that, and few ends look so long.
pub(crate) const LONG_LOOK_NS: u64 = 1_000_000;

/// Replies that wait for each other at most, while further calls are at hand: the first of them waits no longer than so many quick handlers take.
pub(crate) const HELD_COUNT_MAX: u32 = 8;
/// Records of one round of a runtime that wait for each other at most: what a ring holds of small requests is several times as much.
pub(crate) const GATHERED_COUNT_MAX: u32 = 64;
/// Replies of handlers that take longer than this, in nanoseconds, are published at once: some times what a doorbell costs.
pub(crate) const LONG_HANDLER_NS: u64 = 20_000;
/// Batches of replies for each of which the clock is read, while handlers are quick.
pub(crate) const BATCHES_TIMED: u8 = 16;
/// After so many rounds in a row that gathered one outgoing, a call that is under way alone is published at once.
pub(crate) const LONE_ROUNDS: u32 = 8;

/// A quota of at most so many thousandths of a core leaves nothing for spinning.
pub(crate) const TIGHT_MILLI: u64 = 1_000;
/// Readings of the quota for which a group that was kept from running is remembered: five seconds at four a second.
pub(crate) const THROTTLED_READINGS: u32 = 20;

/// Records handled in one go before others get their turn: a few microseconds' work.
pub(crate) const RECORDS_AT_ONCE: usize = 64;
/// Over how long requests are counted to know how many come in a second, in nanoseconds.
pub(crate) const RATE_WINDOW_NS: u64 = 5_000_000;
/// Requests that can be published together, or share a doorbell, where their number is fixed.
pub const BATCH_MAX: u8 = 64;
/// The peer's word that it has taken segmented messages wakes nobody: the pause before it is looked for, in nanoseconds.
pub(crate) const SEGMENTED_PAUSE_NS: u64 = 100_000_000;
/// And the longest pause, where the oldest of them is still not taken.
pub(crate) const SEGMENTED_PAUSE_MAX_NS: u64 = 1_000_000_000;
