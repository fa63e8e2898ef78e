//! The descriptors of a loop, behind one that a host can poll: epoll.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollfree_os::clock::now_ns;
use tollfree_os::fd::{AsFd, BorrowedFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use tollfree_os::rustix::event::{EventfdFlags, Timespec, eventfd};

/// Events taken from the kernel at once.
const EVENT_COUNT: usize = 64;

/// Which of a session's descriptors has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Another thread has called.
    Waker,
    /// A listener's socket, by its index.
    Listener(u32),
    /// The socket of a session, or of a handshake.
    Socket(u32),
    /// The doorbell of a session.
    Doorbell(u32),
    /// The peer's process has ended.
    Death(u32),
}

impl Source {
    fn data(self) -> EventData {
        let (kind, idx) = match self {
            Source::Waker => (0, 0),
            Source::Listener(idx) => (1, idx),
            Source::Socket(idx) => (2, idx),
            Source::Doorbell(idx) => (3, idx),
            Source::Death(idx) => (4, idx),
        };
        EventData::new_u64(kind << 32 | u64::from(idx))
    }

    fn of(data: EventData) -> Source {
        let idx = data.u64() as u32;
        match data.u64() >> 32 {
            1 => Source::Listener(idx),
            2 => Source::Socket(idx),
            3 => Source::Doorbell(idx),
            4 => Source::Death(idx),
            _ => Source::Waker,
        }
    }
}

/// Wakes a loop that sleeps, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wakes>);

#[derive(Debug)]
struct Wakes {
    fd: OwnedFd,
    /// Another thread has called since the loop heard of that last.
    is_called: AtomicBool,
    /// The loop may be asleep: a call has to go by the descriptor.
    may_sleep: AtomicBool,
}

impl Waker {
    /// Has [`EventLoop::wait`](crate::EventLoop::wait), or the host's poll, return soon, also where the loop is not asleep yet.
    pub fn wake(&self) {
        // In one order with the loop's own two: either it sees the call, or this sees that it may sleep.
        self.0.is_called.store(true, Ordering::SeqCst);
        if self.0.may_sleep.load(Ordering::SeqCst) {
            let _ = rustix::io::write(&self.0.fd, &1_u64.to_ne_bytes());
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    wakes: Arc<Wakes>,
    /// When the kernel was asked last, in nanoseconds.
    asked_ns: u64,
    /// What was heard last, for its memory.
    heard: Vec<Source>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wakes = Wakes { fd: waker, is_called: AtomicBool::new(false), may_sleep: AtomicBool::new(false) };
        let poller = Poller { epoll, wakes: Arc::new(wakes), asked_ns: 0, heard: Vec::new() };
        poller.watch(&poller.wakes.fd, Source::Waker, EventFlags::IN)?;
        Ok(poller)
    }

    /// Becomes readable when there is something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(self.wakes.clone())
    }

    /// Watches a descriptor until it is closed, or [`forget`](Poller::forget).
    fn watch(&self, fd: impl AsFd, source: Source, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), flags)?)
    }

    /// Whenever it has something to read.
    pub(crate) fn watch_reads(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        self.watch(fd, source, EventFlags::IN | EventFlags::RDHUP)
    }

    /// Whenever it takes more, told once each time.
    pub(crate) fn watch_rings(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        self.watch(fd, source, EventFlags::OUT | EventFlags::ET)
    }

    /// A socket is watched from now on so that it takes more, or has something to read, whatever it was watched for before.
    pub(crate) fn wait_for(&self, socket: impl AsFd, source: Source, writes: bool) -> io::Result<()> {
        let flags = if writes { EventFlags::OUT } else { EventFlags::IN | EventFlags::RDHUP };
        match epoll::modify(&self.epoll, &socket, source.data(), flags) {
            Err(rustix::io::Errno::NOENT) => self.watch(socket, source, flags),
            changed => Ok(changed?),
        }
    }

    pub(crate) fn forget(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Whether the kernel was not asked for so long.
    pub(crate) fn is_due(&self, now_ns: u64, every_ns: u64) -> bool {
        now_ns.saturating_sub(self.asked_ns) >= every_ns
    }

    /// Whether another thread has called since this was asked last.
    pub(crate) fn take_call(&mut self) -> bool {
        self.is_called() && self.wakes.is_called.swap(false, Ordering::SeqCst)
    }

    /// The same, and it will be said again.
    pub(crate) fn is_called(&self) -> bool {
        self.wakes.is_called.load(Ordering::Relaxed)
    }

    /// The loop is about to sleep. `false`: another thread has called before.
    pub(crate) fn may_sleep(&self) -> bool {
        self.wakes.may_sleep.store(true, Ordering::SeqCst);
        !self.wakes.is_called.load(Ordering::SeqCst)
    }

    /// The loop is awake: a call need not go by the descriptor.
    pub(crate) fn is_awake(&self) {
        if self.wakes.may_sleep.load(Ordering::Relaxed) {
            self.wakes.may_sleep.store(false, Ordering::Relaxed);
        }
    }

    /// What has something, within a time; `None`: however long that takes. To be [given back](Poller::give_back).
    pub(crate) fn ask(&mut self, most: Option<Duration>) -> io::Result<Vec<Source>> {
        let mut events =
            [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENT_COUNT];
        let most = most.map(|most| Timespec {
            tv_sec: most.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: most.subsec_nanos().into(),
        });
        let count = match epoll::wait(&self.epoll, &mut events[..], most.as_ref()) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        self.asked_ns = now_ns();
        let mut heard = std::mem::take(&mut self.heard);
        heard.extend(events[..count].iter().map(|event| Source::of(event.data)));
        if heard.contains(&Source::Waker) {
            let _ = rustix::io::read(&self.wakes.fd, &mut [0; 8]);
        }
        Ok(heard)
    }

    pub(crate) fn give_back(&mut self, mut heard: Vec<Source>) {
        heard.clear();
        self.heard = heard;
    }
}
