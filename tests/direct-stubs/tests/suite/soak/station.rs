//! What all processes of a soak have in common: where they are, when it is over, and how they say what came of it.
//!
//! The driver speaks by files in the directory of the soak: `calm` (no more faults), `over` (let go of everything), `end`
//! (leave). A process answers with `fine-LANE-ID` (everything works again) and `drained-ID` (all of its memory is free).

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use tollfree::pool::{Address, Config, JoinError, Pool, Refusal, WhenShort};
use tollfree_testkit::{Chance, Role};
use tonic::Status;

use super::content::Stamp;

/// How long anything may take that is sure to happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
const LEN_MIN: u64 = 1024;

pub(crate) struct Station {
    pub(crate) directory: PathBuf,
    pub(crate) seed: u64,
    /// Of this process; no other has it, before or after.
    pub(crate) id: u64,
    pub(crate) chance: Chance,
    number: u64,
    /// A line for each call that failed.
    failures: Arc<File>,
}

/// Milliseconds, the same for all processes.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

pub(crate) fn pool_address(directory: &std::path::Path) -> Address {
    format!("shm://{}/pool.sock", directory.display()).parse().unwrap()
}

impl Station {
    /// This process's. From now on it ends with its first panic, and with the driver.
    pub(crate) fn new(role: &Role) -> Station {
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let (name, pid) = (role.detail.clone(), std::process::id());
        std::panic::set_hook(Box::new(move |panic| {
            eprintln!("process {pid} ({name}): {panic}");
            std::process::exit(101);
        }));
        let mut words = role.detail.split(' ').skip(1).map(|word| word.parse().unwrap());
        let (seed, id): (u64, u64) = (words.next().unwrap(), words.next().unwrap());
        let directory = role.socket.parent().unwrap().to_owned();
        let failures = Arc::new(File::create(directory.join(format!("failed-{id}"))).unwrap());
        Station { directory, seed, id, chance: Chance::new(seed ^ id.rotate_left(32)), number: 0, failures }
    }

    /// For another task of this process.
    pub(crate) fn lane(&mut self, lane: u64) -> Station {
        let chance = Chance::new(self.chance.word());
        let (directory, failures) = (self.directory.clone(), self.failures.clone());
        Station { directory, chance, number: lane << 32, failures, ..*self }
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.directory.join(word).exists()
    }

    /// Leaves a word for the driver; once there is a descriptor for that, since the driver may have taken them away.
    pub(crate) fn say(&self, word: &str) {
        let path = self.directory.join(format!("{word}-{}", self.id));
        self.until(word, || match std::fs::write(&path, "") {
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => Err(error),
            written => {
                written.unwrap();
                Ok(())
            }
        });
    }

    /// A call failed.
    pub(crate) fn failed(&self, server: usize, began: u64, status: &Status) {
        let message = status.message().replace('\n', " ");
        let line = format!("{} {server} {began} {} {:?} {message}\n", self.id, now_ms(), status.code());
        (&*self.failures).write_all(line.as_bytes()).unwrap();
    }

    /// Joins the pool, once somebody coordinates it.
    pub(crate) fn join(&self) -> Pool {
        let config = Config {
            when_short: WhenShort::Wait(Duration::from_millis(500)),
            low_watermark: 0,
            high_watermark: 4 << 20,
            patience: Duration::from_secs(2),
            ..Config::default()
        };
        let began = Instant::now();
        loop {
            match Pool::join(&pool_address(&self.directory), config) {
                Ok(pool) => return pool,
                Err(
                    error @ (JoinError::Connect { .. }
                    | JoinError::NotACoordinator(_)
                    | JoinError::Timeout { .. }
                    | JoinError::Refused { reason: Refusal::Busy, .. }),
                ) => assert!(began.elapsed() < LIMIT, "never let into the pool: {error}"),
                Err(error) => panic!("not let into the pool: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A length: as often small as large.
    pub(crate) fn len(&mut self) -> usize {
        let longest = LEN_MIN << self.chance.below(13);
        (longest - self.chance.below(longest / 2)) as usize / 8 * 8
    }

    pub(crate) fn stamp(&mut self) -> Stamp {
        self.number += 1;
        Stamp { seed: self.seed, owner: self.id, number: self.number }
    }

    /// Lets go of everything, waits until this member's memory is free, tells, and waits for the end.
    pub(crate) fn drain(&self, pool: &Pool, mut let_go: impl FnMut()) {
        self.until("all memory is free", || {
            let_go();
            pool.sweep();
            let usage = pool.usage();
            let is_free = usage.free_bytes == usage.total_bytes && usage.limbo_count == 0;
            (is_free && pool.is_attached()).then_some(()).ok_or_else(|| format!("{usage:?} {}", pool.room()))
        });
        self.say("drained");
        self.until("the end", || {
            let_go();
            self.is("end").then_some(()).ok_or("no word of the driver")
        });
    }

    pub(crate) fn until<E: Display>(&self, what: &str, mut is_so: impl FnMut() -> Result<(), E>) {
        let began = Instant::now();
        while let Err(instead) = is_so() {
            assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}: {instead}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
