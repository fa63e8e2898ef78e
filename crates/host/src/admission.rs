//! Who is let in: what the clients of one process, and those of one user, may have of a server at once.
//!
//! # States
//! ```text
//! HELLO is there ──admit──► seated ──the session ends──► its memory counts for ten minutes
//!                     └───► refused, in words that name the setting; counted
//! ```
//!
//! # Trust
//! A process is known by its pid and, where the kernel gives each process's pidfd a number of its own (Linux 6.9), by that
//! number; a user by the id that the kernel vouches for. A process that is visible by neither counts for its user only.
//! Memory of a session that has ended stays charged to this process for as long as the client keeps its descriptor or its
//! mapping, which nobody here can see. So it counts for ten minutes, whatever the client did with it.
//!
//! Payload areas that sessions have count beside it, from when they are made: together they stay below half of a quota. So an
//! area can always be given up, and the areas that were given up never keep a session out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollfree_connection::AreaAllowance;
use tollfree_os::fd::{AsFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_rendezvous::{PeerIdentity, descriptor_limit};

use crate::error::HandshakeError;
use tollfree_os::clock::now_ns;

const MINUTE_NS: u64 = 60_000_000_000;
/// For how many minutes memory of a session that has ended counts.
const ENDED_MINUTES: usize = 10;
/// Processes without a session that are remembered.
const ACCOUNT_COUNT_MAX: usize = 4096;

/// What clients of one process, and of one user, may have of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Sessions of one process at once. `None`: an eighth of the descriptors that this process may have, from 16 to 1024.
    pub sessions_per_process: Option<u32>,
    /// Sessions of one user at once. `None`: three eighths of the descriptors that this process may have, from 16 to 8192.
    pub sessions_per_user: Option<u32>,
    /// Memory, in bytes, that this side made for sessions and payload areas of one process which ended within ten minutes.
    pub ended_memory_per_process: u64,
    /// The same for all processes of one user.
    pub ended_memory_per_user: u64,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas {
            sessions_per_process: None,
            sessions_per_user: None,
            ended_memory_per_process: 256 << 20,
            ended_memory_per_user: 1 << 30,
        }
    }
}

/// How often clients were refused. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<AtomicU64>);

impl Refusals {
    /// Clients refused so far, for whatever reason.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A client was refused.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: i32,
    number: u64,
}

impl Process {
    /// `None` for one of which nothing is known here but its user.
    fn of(identity: PeerIdentity, pidfd: Option<&OwnedFd>) -> Option<Process> {
        // Of this process's own making: no file system is asked.
        let number =
            pidfd.and_then(|pidfd| rustix::fs::fstat(pidfd.as_fd()).ok()).map_or(0, |stat| stat.st_ino);
        (identity.pid != 0 || number != 0).then_some(Process { pid: identity.pid, number })
    }
}

/// What is known of a process or a user.
#[derive(Debug, Default)]
struct Account {
    session_count: u32,
    /// Bytes of payload areas that its sessions have.
    areas_len: u64,
    /// Bytes of ended sessions and of areas that were given up, by the minute in which that was.
    ended: [u64; ENDED_MINUTES],
    /// The minute that was looked at last.
    minute: u64,
}

impl Account {
    /// Forgets minutes that are too long ago.
    fn turn_to(&mut self, minute: u64) {
        let passed = minute.saturating_sub(self.minute).min(ENDED_MINUTES as u64);
        for past in 1..=passed {
            self.ended[((self.minute + past) % ENDED_MINUTES as u64) as usize] = 0;
        }
        self.minute = self.minute.max(minute);
        if passed == ENDED_MINUTES as u64 {
            self.ended = [0; ENDED_MINUTES];
        }
    }

    fn ended_len(&mut self, minute: u64) -> u64 {
        self.turn_to(minute);
        self.ended.iter().sum()
    }

    fn add_ended(&mut self, minute: u64, len: u64) {
        self.turn_to(minute);
        self.ended[(self.minute % ENDED_MINUTES as u64) as usize] += len;
    }

    /// Whether one more area may be made: half of the quota is left for sessions.
    fn has_room(&mut self, minute: u64, len: u64, quota: u64) -> bool {
        self.areas_len + self.ended_len(minute) + len <= quota / 2
    }
}

#[derive(Debug, Default)]
struct Book {
    processes: HashMap<Process, Account>,
    users: HashMap<u32, Account>,
}

/// The book of a listener.
#[derive(Debug)]
pub struct QuotaUsage {
    quotas: Quotas,
    book: Mutex<Book>,
}

/// A session's place. Dropped with it.
#[derive(Debug)]
pub struct Seat {
    quota_usage: Arc<QuotaUsage>,
    process: Option<Process>,
    uid: u32,
    /// Bytes that this side has made for the session and not given up, but for payload areas.
    held_len: u64,
    /// Bytes of its payload areas.
    areas_len: u64,
}

fn minute_now() -> u64 {
    now_ns() / MINUTE_NS
}

impl QuotaUsage {
    /// Of a listener that has let in nobody yet.
    pub fn new(quotas: &Quotas) -> Arc<QuotaUsage> {
        let of_limit = |eighths: u64, most: u32| {
            let share = (descriptor_limit() / 8).saturating_mul(eighths);
            u32::try_from(share).unwrap_or(u32::MAX).clamp(16, most)
        };
        let quotas = Quotas {
            sessions_per_process: quotas.sessions_per_process.or_else(|| Some(of_limit(1, 1024))),
            sessions_per_user: quotas.sessions_per_user.or_else(|| Some(of_limit(3, 8192))),
            ..quotas.clone()
        };
        Arc::new(QuotaUsage { quotas, book: Mutex::default() })
    }

    /// Sessions that one user may have at once, or one subject of certificates.
    pub fn sessions_per_user(quotas: &Quotas) -> u32 {
        QuotaUsage::new(quotas).quotas.sessions_per_user.unwrap_or(u32::MAX)
    }

    /// Gives a client a place, if its process and its user may have one more.
    ///
    /// # Errors
    /// [`HandshakeError::Quota`], which names the setting.
    pub fn admit(
        self: &Arc<Self>,
        identity: PeerIdentity,
        pidfd: Option<&OwnedFd>,
    ) -> Result<Seat, HandshakeError> {
        self.admit_at(Process::of(identity, pidfd), identity.uid, minute_now())
    }

    fn admit_at(
        self: &Arc<Self>,
        process: Option<Process>,
        uid: u32,
        minute: u64,
    ) -> Result<Seat, HandshakeError> {
        let quotas = &self.quotas;
        let mut book = self.book.lock();
        let book = &mut *book;
        book.forget_some(minute);
        let user = book.users.entry(uid).or_default();
        check(user, "this user", quotas.sessions_per_user, "sessions_per_user")?;
        check_ended(user, "this user", quotas.ended_memory_per_user, "ended_memory_per_user", minute)?;
        if let Some(process) = process {
            let account = book.processes.entry(process).or_default();
            let most = quotas.sessions_per_process;
            check(account, "this process", most, "sessions_per_process")?;
            let most = quotas.ended_memory_per_process;
            check_ended(account, "this process", most, "ended_memory_per_process", minute)?;
            account.session_count += 1;
        }
        user.session_count += 1;
        Ok(Seat { quota_usage: self.clone(), process, uid, held_len: 0, areas_len: 0 })
    }
}

fn check(
    account: &Account,
    whose: &'static str,
    most: Option<u32>,
    setting: &'static str,
) -> Result<(), HandshakeError> {
    match most.filter(|most| account.session_count >= *most) {
        Some(most) => {
            Err(HandshakeError::Quota { whose, what: "sessions at once", most: most.into(), setting })
        }
        None => Ok(()),
    }
}

fn check_ended(
    account: &mut Account,
    whose: &'static str,
    most: u64,
    setting: &'static str,
    minute: u64,
) -> Result<(), HandshakeError> {
    if account.ended_len(minute) < most {
        return Ok(());
    }
    Err(HandshakeError::Quota { whose, what: "bytes of ended sessions", most, setting })
}

impl Book {
    /// Processes and users come and go; those without sessions are forgotten when they have nothing to remember, or are too many.
    fn forget_some(&mut self, minute: u64) {
        if self.processes.len() > ACCOUNT_COUNT_MAX {
            self.processes.retain(|_, account| account.session_count > 0 || account.ended_len(minute) > 0);
        }
        if self.processes.len() > ACCOUNT_COUNT_MAX {
            // Their users' accounts still count what they left.
            self.processes.retain(|_, account| account.session_count > 0);
        }
        if self.users.len() > ACCOUNT_COUNT_MAX {
            self.users.retain(|_, account| account.session_count > 0 || account.ended_len(minute) > 0);
        }
    }

    fn accounts(&mut self, process: Option<Process>, uid: u32) -> impl Iterator<Item = &mut Account> {
        let process = process.and_then(|process| self.processes.get_mut(&process));
        process.into_iter().chain(self.users.get_mut(&uid))
    }
}

impl Seat {
    /// Memory was made for the session.
    pub fn made(&mut self, len: usize) {
        self.held_len += len as u64;
    }

    /// Counts what the session has no more (sessions, bytes of its areas), and what may be kept of it.
    fn end(&mut self, session_count: u32, areas_len: u64, kept_len: u64) {
        let minute = minute_now();
        self.areas_len -= areas_len;
        for account in self.quota_usage.book.lock().accounts(self.process, self.uid) {
            account.areas_len = account.areas_len.saturating_sub(areas_len);
            account.session_count = account.session_count.saturating_sub(session_count);
            account.add_ended(minute, kept_len);
        }
    }
}

impl AreaAllowance for Seat {
    /// Counts a payload area that is to be made, if the process and its user may have one more. Locks the book.
    fn reserve(&mut self, len: usize) -> bool {
        let (quotas, minute, len) = (&self.quota_usage.quotas, minute_now(), len as u64);
        let mut book = self.quota_usage.book.lock();
        let of_process = self.process.and_then(|process| book.processes.get_mut(&process));
        if of_process.is_some_and(|account| !account.has_room(minute, len, quotas.ended_memory_per_process)) {
            return false;
        }
        let of_user = book.users.get_mut(&self.uid);
        if of_user.is_some_and(|account| !account.has_room(minute, len, quotas.ended_memory_per_user)) {
            return false;
        }
        for account in book.accounts(self.process, self.uid) {
            account.areas_len += len;
        }
        self.areas_len += len;
        true
    }

    /// An area that was counted could not be made: nobody has it.
    fn give_back(&mut self, len: usize) {
        self.end(0, self.areas_len.min(len as u64), 0);
    }

    /// An area was given up here; the client may keep it for as long as it likes.
    fn gave_up(&mut self, len: usize) {
        let len = self.areas_len.min(len as u64);
        self.end(0, len, len);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.end(1, self.areas_len, self.held_len + self.areas_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota_usage(process: u32, user: u32, ended: u64) -> Arc<QuotaUsage> {
        QuotaUsage::new(&Quotas {
            sessions_per_process: Some(process),
            sessions_per_user: Some(user),
            ended_memory_per_process: ended,
            ended_memory_per_user: 2 * ended,
        })
    }

    fn process(pid: i32) -> Option<Process> {
        Some(Process { pid, number: 0 })
    }

    fn setting(refused: Result<Seat, HandshakeError>) -> &'static str {
        match refused {
            Err(HandshakeError::Quota { setting, .. }) => setting,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_process_and_each_user_has_its_share_and_no_more() {
        let quota_usage = quota_usage(2, 3, 1 << 30);
        let first = [1, 1, 2].map(|pid| quota_usage.admit_at(process(pid), 7, 0).unwrap());
        assert_eq!(setting(quota_usage.admit_at(process(1), 8, 0)), "sessions_per_process");
        assert_eq!(setting(quota_usage.admit_at(process(3), 7, 0)), "sessions_per_user");
        assert_eq!(setting(quota_usage.admit_at(None, 7, 0)), "sessions_per_user");
        // Others are not concerned, and nothing is left of what was refused.
        let _other = quota_usage.admit_at(process(4), 8, 0).unwrap();
        drop(first);
        let _again = [1, 1, 2].map(|pid| quota_usage.admit_at(process(pid), 7, 0).unwrap());
    }

    #[test]
    fn what_ended_counts_for_ten_minutes() {
        let quota_usage = quota_usage(10, 10, 1000);
        let minute = minute_now();
        let leave = |pid| {
            let mut seat = quota_usage.admit_at(process(pid), 7, minute).unwrap();
            seat.made(1000);
        };
        leave(1);
        assert_eq!(setting(quota_usage.admit_at(process(1), 7, minute)), "ended_memory_per_process");
        leave(2);
        assert_eq!(setting(quota_usage.admit_at(process(3), 7, minute)), "ended_memory_per_user");
        quota_usage.admit_at(process(1), 8, minute + 8).unwrap_err();
        quota_usage.admit_at(process(1), 8, minute + 12).unwrap();
        quota_usage.admit_at(process(3), 7, minute + 12).unwrap();
    }

    #[test]
    fn areas_had_and_given_up_take_half_and_keep_no_session_out() {
        let quota_usage = quota_usage(10, 10, 1000);
        let seat = |pid| quota_usage.admit_at(process(pid), 7, minute_now()).unwrap();
        let mut seats = [seat(1), seat(1), seat(2)];
        assert!(seats[0].reserve(250) && seats[1].reserve(250));
        assert!(!seats[0].reserve(1), "half of the process's is spent by areas that are in use");
        seats[0].give_back(250);
        assert!(seats[0].reserve(250), "what came to nothing counts no more");
        assert!(seats[2].reserve(500), "another process has its own");
        assert!(!seat(3).reserve(1), "half of the user's is spent");
        for seat in &mut seats {
            seat.gave_up(500);
            assert!(!seat.reserve(1), "what was given up may be kept");
        }
        drop(seats);
        let _newcomers = [seat(1), seat(2), seat(3)];
    }

    #[test]
    fn who_comes_and_goes_is_forgotten() {
        let quota_usage = quota_usage(10, 10, 1000);
        for pid in 0..3 * ACCOUNT_COUNT_MAX as i32 {
            drop(quota_usage.admit_at(process(pid), 7, 0).unwrap());
        }
        assert!(quota_usage.book.lock().processes.len() <= ACCOUNT_COUNT_MAX + 1);
    }
}
