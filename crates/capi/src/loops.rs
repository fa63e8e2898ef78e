//! Loops by their handles. A loop stays in the thread that made it, where it is looked up without a lock; other threads may wake it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use tollfree_driver_loop::{EventLoop, Waker};
use tollfree_layout::errors;
use tollfree_os::clock::now_ns;
use tollfree_os::fd::AsRawFd;

use crate::channel::CallRules;
use crate::config::Config;
use crate::error::{Failure, run};
use crate::event::{Event, Texts};

/// An event loop with its sessions and listeners. `{0}` is none. It belongs to the thread that made it, or that entered it; in other
/// threads only `tollfree_loop_wake` may be called on it. It ends with `tollfree_loop_free`, or with its thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    id: u64,
}

/// What a handle stands for.
pub(crate) struct Kept {
    pub(crate) events: EventLoop,
    pub(crate) call_rules: CallRules,
    /// What the last event says that is not the program's to release.
    pub(crate) texts: Texts,
    /// The library has failed within: nothing is known of it any more.
    is_broken: bool,
    id: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        everywhere().write().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// A loop in its thread.
type Shared = Rc<RefCell<Box<Kept>>>;

thread_local! {
    /// This thread's loops: few, most often one.
    static HERE: RefCell<Vec<(u64, Shared)>> = const { RefCell::new(Vec::new()) };
}

/// Loops that no thread has at this time: few.
fn left() -> MutexGuard<'static, BTreeMap<u64, Box<Kept>>> {
    static LEFT: Mutex<BTreeMap<u64, Box<Kept>>> = Mutex::new(BTreeMap::new());
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All loops, for the threads that wake them.
fn everywhere() -> &'static RwLock<HashMap<u64, Waker>> {
    static EVERYWHERE: OnceLock<RwLock<HashMap<u64, Waker>>> = OnceLock::new();
    EVERYWHERE.get_or_init(RwLock::default)
}

fn wakers() -> RwLockReadGuard<'static, HashMap<u64, Waker>> {
    everywhere().read().unwrap_or_else(PoisonError::into_inner)
}

impl Loop {
    fn unknown(self) -> Failure {
        match wakers().contains_key(&self.id) {
            true => Failure::new(
                errors::USE_THREAD,
                "the loop belongs to another thread, or to none: call it there, enter it, or call tollfree_loop_wake from here",
            ),
            false => Failure::new(errors::USE_LOOP, "this loop was freed, or never was"),
        }
    }

    fn kept(self) -> Result<Shared, Failure> {
        let found = HERE.try_with(|here| {
            here.borrow().iter().find(|(id, _)| *id == self.id).map(|(_, kept)| kept.clone())
        });
        found.ok().flatten().ok_or_else(|| self.unknown())
    }

    /// Takes a loop from its thread.
    fn take(self) -> Result<Box<Kept>, Failure> {
        let busy =
            || Failure::new(errors::USE_BUSY, "the loop is at work: do this when its function has returned");
        let kept = self.kept()?;
        HERE.with(|here| {
            let mut here = here.borrow_mut();
            let at = here.iter().position(|(id, _)| *id == self.id).ok_or_else(|| self.unknown())?;
            kept.try_borrow_mut().map_err(|_| busy())?;
            drop(kept);
            let (id, taken) = here.swap_remove(at);
            // A function at work has a share of it.
            Rc::try_unwrap(taken).map(RefCell::into_inner).map_err(|shared| {
                here.push((id, shared));
                busy()
            })
        })
    }

    /// Has a loop do something, in its thread.
    pub(crate) fn with<T>(self, what: impl FnOnce(&mut Kept) -> Result<T, Failure>) -> Result<T, Failure> {
        let kept = self.kept()?;
        let busy =
            |_| Failure::new(errors::USE_BUSY, "the loop is at work: a release function has called it");
        let mut kept = kept.try_borrow_mut().map_err(busy)?;
        if std::mem::replace(&mut kept.is_broken, true) {
            return Err(Failure::new(
                errors::LIBRARY_FAULT,
                "the library has failed in this loop before: free it",
            ));
        }
        if kept.events.is_inherited() {
            kept.is_broken = false;
            return Err(Failure::new(
                errors::USE_FORKED,
                "this process was forked, and the loop is its parent's: open one of its own",
            ));
        }
        let outcome = what(&mut kept);
        // Not where it panics.
        kept.is_broken = false;
        outcome
    }
}

/// Makes a loop in this thread. `config` may be null, for defaults.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_loop_new(config: *const Config<'_>, made: Option<&mut Loop>) -> c_int {
    run(|| {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let made = made.ok_or_else(|| Failure::null("the loop"))?;
        let events = EventLoop::new(Config::read(config)?)?;
        let id = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        everywhere().write().unwrap_or_else(PoisonError::into_inner).insert(id, events.waker());
        keep_here(Box::new(Kept {
            events,
            call_rules: CallRules::default(),
            texts: Texts::default(),
            is_broken: false,
            id,
        }))?;
        made.id = id;
        Ok(())
    })
}

/// A loop is this thread's from now on.
fn keep_here(kept: Box<Kept>) -> Result<(), Failure> {
    let gone = |_| Failure::new(errors::USE_THREAD, "this thread is ending: make and enter loops in others");
    HERE.try_with(|here| here.borrow_mut().push((kept.id, Rc::new(RefCell::new(kept))))).map_err(gone)
}

/// Lets another thread have a loop: until one enters it, it is nobody's, and nothing happens in it. It does not end with this thread.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_loop_leave(of: Loop) -> c_int {
    run(|| {
        let kept = of.take()?;
        left().insert(of.id, kept);
        Ok(())
    })
}

/// Makes a loop that a thread has left this thread's. Any thread: of several that try, one succeeds, and the others get
/// `TOLLFREE_ERROR_USE_THREAD`. What was done in a loop before it was left is seen where it is entered.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_loop_enter(of: Loop) -> c_int {
    run(|| {
        let kept = left().remove(&of.id);
        keep_here(kept.ok_or_else(|| of.unknown())?)
    })
}

/// Ends a loop with its sessions and listeners. Nothing more is told of them; buffers stay until they are released.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_loop_free(of: Loop) -> c_int {
    run(|| {
        // Here, where no list is borrowed: release functions may call the library.
        drop(of.take()?);
        Ok(())
    })
}

/// A descriptor that is readable when there is something to do, once the loop is armed. It is the loop's: poll it, and leave it open.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_loop_fd(of: Loop, fd: Option<&mut c_int>) -> c_int {
    run(|| {
        let fd = fd.ok_or_else(|| Failure::null("the descriptor"))?;
        of.with(|kept| {
            *fd = kept.events.fd().as_raw_fd();
            Ok(())
        })
    })
}

/// What has happened next, if anything has: else the event's kind is `TOLLFREE_EVENT_NONE`. Never waits.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_loop_poll(of: Loop, event: *mut Event) -> c_int {
    run(|| {
        Event::check(event)?;
        of.with(|kept| {
            loop {
                let next = kept.events.poll();
                if let Some(event_of) = kept.event(next)? {
                    return event_of.write(event);
                }
            }
        })
    })
}

/// Waits for what happens next, for `timeout_ns` nanoseconds at most, `UINT64_MAX` for as long as it takes: looks at the rings while that is worth it,
/// and sleeps. The event's kind is `TOLLFREE_EVENT_NONE` when the time is over, and when another thread has called `tollfree_loop_wake`.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_loop_wait(of: Loop, timeout_ns: u64, event: *mut Event) -> c_int {
    run(|| {
        Event::check(event)?;
        of.with(|kept| {
            loop {
                let most = (timeout_ns != u64::MAX).then(|| Duration::from_nanos(timeout_ns));
                let next = kept.events.wait(most)?;
                if let Some(event_of) = kept.event(next)? {
                    return event_of.write(event);
                }
            }
        })
    })
}

/// Before the program sleeps on the loop's descriptor: puts all sessions to sleep. `*may_sleep` is 0 where there is something already, or a
/// thread has called: call `tollfree_loop_poll` then. Else it is 1, and the program may sleep until the descriptor is readable, for `*timeout_ns`
/// nanoseconds at most (`UINT64_MAX`: without an end).
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_loop_arm(
    of: Loop,
    may_sleep: Option<&mut c_int>,
    timeout_ns: Option<&mut u64>,
) -> c_int {
    run(|| {
        let (Some(may_sleep), Some(timeout_ns)) = (may_sleep, timeout_ns) else {
            return Err(Failure::null("may_sleep or timeout_ns"));
        };
        of.with(|kept| {
            *may_sleep = kept.events.arm().into();
            let timeout = kept.events.timeout().map(|most| most.as_nanos().min(u64::MAX.into()) as u64);
            *timeout_ns = timeout.unwrap_or(u64::MAX);
            Ok(())
        })
    })
}

/// Has `tollfree_loop_wait`, or the program's own poll, return soon, also where the loop does not wait yet. Any thread; not in signal handlers.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_loop_wake(of: Loop) -> c_int {
    run(|| {
        let waker = wakers().get(&of.id).cloned().ok_or_else(|| of.unknown())?;
        waker.wake();
        Ok(())
    })
}

/// Now, in nanoseconds on the clock of deadlines: this host's monotonic one.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_now_ns() -> u64 {
    now_ns()
}
