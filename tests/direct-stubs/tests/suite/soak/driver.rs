//! What happens to the processes of a soak: by seed they are killed, stopped, cut off and started again.

use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, SocketAddrUnix, getpeername, getsockname, shutdown, sockopt};
use rustix::process::{
    PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_getfd, pidfd_open, prlimit,
};
use tollfree::pool::show;
use tollfree_testkit::{Chance, Process};

use super::client::LANE_COUNT;
use super::station::{LIMIT, now_ms, pool_address};

pub(crate) const SERVER_COUNT: usize = 2;
const CLIENT_COUNT: usize = 2;
const MEMBER_COUNT: usize = 2;
/// A call that fails so long after something was done to either end of it may be owed to that: a server that was killed is
/// found again by and by, and the machine is slow.
const AFTERMATH_MS: u64 = 30_000;

/// Descriptors that are not enough for a client with a session to each server and a pool.
const FEW: u64 = 16;

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Anything to anybody.
    All,
    /// Things to the coordinator, and to connections with it: no call may fail for that.
    Coordinator,
    /// One after the other has few descriptors.
    Descriptors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Coordinator,
    Server(usize),
    Client,
    Member,
}

struct Seat {
    kind: Kind,
    id: u64,
    process: Process,
    stopped_until: Option<Instant>,
}

/// Something was done to a process that has to do with calls.
struct Trouble {
    kind: Kind,
    id: u64,
    from_ms: u64,
    until_ms: u64,
}

pub(crate) struct Soak {
    directory: tempfile::TempDir,
    seed: u64,
    reach: Reach,
    chance: Chance,
    seats: Vec<Seat>,
    last_id: u64,
    probe_count: u64,
    began: Instant,
    events: Vec<String>,
    troubles: Vec<Trouble>,
}

impl Drop for Soak {
    /// A soak that failed says what it takes to run it again.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let seconds = self.began.elapsed().as_secs();
        let mut told = format!("{:?}: SOAK_SEED={} SOAK_SECONDS={seconds}\n", self.reach, self.seed);
        self.events.iter().for_each(|event| writeln!(told, "{event}").unwrap());
        let file =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{}-{:?}.txt", self.seed, self.reach));
        let kept = std::fs::write(&file, &told).map(|()| file.display().to_string());
        eprintln!("the soak's events are in {kept:?}:\n{told}");
    }
}

impl Soak {
    pub(crate) fn start(seed: u64, reach: Reach) -> Soak {
        let mut soak = Soak {
            directory: tempfile::tempdir().unwrap(),
            seed,
            reach,
            chance: Chance::new(seed),
            seats: Vec::new(),
            last_id: 0,
            probe_count: 0,
            began: Instant::now(),
            events: Vec::new(),
            troubles: Vec::new(),
        };
        let backend_connections = [Kind::Coordinator]
            .into_iter()
            .chain((0..SERVER_COUNT).map(Kind::Server))
            .chain([Kind::Client; CLIENT_COUNT])
            .chain([Kind::Member; MEMBER_COUNT]);
        for kind in backend_connections {
            let seat = soak.seat(kind);
            soak.seats.push(seat);
        }
        soak
    }

    /// A new process.
    fn seat(&mut self, kind: Kind) -> Seat {
        self.last_id += 1;
        let (role, socket) = match kind {
            Kind::Coordinator => ("coordinator", "pool.sock".to_owned()),
            Kind::Server(idx) => ("server", format!("server-{idx}.sock")),
            Kind::Client => ("client", "none".to_owned()),
            Kind::Member => ("member", "none".to_owned()),
        };
        let (id, seed) = (self.last_id, self.seed);
        let process =
            Process::start(&format!("soak::{role}"), &self.path(&socket), &format!("{role} {seed} {id}"));
        self.note(format!("{kind:?} is process {id}, pid {}", process.pid().as_raw_nonzero()));
        self.trouble(kind, id, 0);
        Seat { kind, id, process, stopped_until: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn note(&mut self, event: String) {
        self.events.push(format!("{:>7} ms {event}", self.began.elapsed().as_millis()));
    }

    fn trouble(&mut self, kind: Kind, id: u64, for_ms: u64) {
        let from_ms = now_ms();
        self.troubles.push(Trouble { kind, id, from_ms, until_ms: from_ms + for_ms + AFTERMATH_MS });
    }

    /// Waits until every lane has made a call, from now on, that came back with the right bytes.
    fn see_calls_go_on(&mut self) {
        self.probe_count += 1;
        let word = format!("probe-{}", self.probe_count);
        self.tell(&word);
        let answer = format!("went-{}-", self.probe_count);
        self.until("calls of all lanes", |soak| {
            let mut clients = soak.seats.iter().filter(|seat| seat.kind == Kind::Client);
            clients.all(|seat| soak.count(&answer, seat.id) == SERVER_COUNT * LANE_COUNT)
        });
    }

    /// Stops the coordinator for so long, and for as long as calls take to go on.
    pub(crate) fn hold_up(&mut self, duration: Duration) {
        self.see_calls_go_on();
        self.note(format!("the coordinator stands still for {duration:?} at least"));
        let until = Instant::now() + duration;
        self.seats[0].process.signal(Signal::STOP);
        while {
            self.see_calls_go_on();
            Instant::now() < until
        } {
            std::thread::sleep(Duration::from_millis(200));
        }
        self.seats[0].process.signal(Signal::CONT);
    }

    /// Gives a coordinator, a server and a client in turn so few descriptors, and cuts their connections, so that they need
    /// new ones. What they have already they keep. With few enough, it lasts until the client has said so.
    pub(crate) fn squeeze(&mut self, limit: u64) {
        for kind in [Kind::Coordinator, Kind::Server(0), Kind::Client] {
            self.see_calls_go_on();
            let at = self.seats.iter().position(|seat| seat.kind == kind).expect("there is one of each");
            let (id, pid) = (self.seats[at].id, self.seats[at].process.pid());
            self.note(format!("{kind:?}, process {id}, has {limit} descriptors"));
            self.trouble(kind, id, 0);
            let before = getrlimit(Resource::Nofile);
            let few = Rlimit { current: Some(limit), maximum: before.maximum };
            prlimit(Some(pid), Resource::Nofile, few).unwrap();
            for _ in 0..3 {
                self.cut(at, false, true);
                std::thread::sleep(Duration::from_millis(50));
            }
            let began = Instant::now();
            while kind == Kind::Client && limit <= FEW && !self.is_short(id) {
                assert!(
                    began.elapsed() < LIMIT,
                    "{limit} descriptors are enough, or nobody says that they aren't"
                );
                self.look_after();
                self.cut(at, false, true);
                std::thread::sleep(Duration::from_millis(50));
            }
            self.look_after();
            prlimit(Some(pid), Resource::Nofile, before).unwrap();
            self.trouble(kind, id, 0);
        }
        self.see_calls_go_on();
    }

    /// Whether a call has failed, and the client has said that it is short of descriptors.
    fn is_short(&self, id: u64) -> bool {
        let failures = std::fs::read_to_string(self.path(&format!("failed-{id}"))).unwrap_or_default();
        failures.contains("open files") || failures.contains("descriptor")
    }

    /// Does one thing after the other for so long.
    pub(crate) fn disturb(&mut self, duration: Duration) {
        // Nothing is lost where nothing has been shared.
        self.see_calls_go_on();
        let until = Instant::now() + duration;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20 + self.chance.below(400)));
            self.look_after();
            let at = match self.reach {
                Reach::Coordinator if self.chance.below(2) == 0 => 0,
                _ => self.chance.below(self.seats.len() as u64) as usize,
            };
            match (self.reach, self.seats[at].kind, self.chance.below(4)) {
                (Reach::Coordinator, kind, _) if kind != Kind::Coordinator => {
                    let all = self.chance.below(3) == 0;
                    self.cut(at, true, all);
                }
                (_, _, 0) => self.stop(at),
                (_, _, 1) => {
                    let all = self.chance.below(3) == 0;
                    self.cut(at, false, all);
                }
                (_, Kind::Coordinator, 2) if self.seats[at].stopped_until.is_none() => self.dismiss(at),
                _ => self.kill(at),
            }
        }
    }

    /// Lets those go on who have been stopped for long enough; nobody has ended by themselves.
    fn look_after(&mut self) {
        for seat in &mut self.seats {
            if let Some(ended) = seat.process.ended() {
                panic!("{:?}, process {}, ended by itself: {ended}", seat.kind, seat.id);
            }
            if seat.stopped_until.is_some_and(|until| until <= Instant::now()) {
                seat.process.signal(Signal::CONT);
                seat.stopped_until = None;
            }
        }
    }

    fn stop(&mut self, at: usize) {
        let for_ms = match self.seats[at].kind {
            Kind::Coordinator => 1000 + self.chance.below(4000),
            _ => 50 + self.chance.below(1500),
        };
        let seat = &mut self.seats[at];
        if seat.stopped_until.is_none() {
            seat.process.signal(Signal::STOP);
        }
        seat.stopped_until = Some(Instant::now() + Duration::from_millis(for_ms));
        let (kind, id) = (seat.kind, seat.id);
        self.trouble(kind, id, for_ms);
        self.note(format!("{kind:?}, process {id}, stands still for {for_ms} ms"));
    }

    fn kill(&mut self, at: usize) {
        let (kind, id) = (self.seats[at].kind, self.seats[at].id);
        self.note(format!("{kind:?}, process {id}, is killed"));
        self.trouble(kind, id, 0);
        self.seats[at].process.signal(Signal::KILL);
        self.seats[at].process.wait_end(LIMIT).expect("it was killed");
        self.replace(at);
    }

    /// Has the coordinator stop in order.
    fn dismiss(&mut self, at: usize) {
        let id = self.seats[at].id;
        self.note(format!("the coordinator, process {id}, is to leave"));
        std::fs::write(self.path(&format!("leave-{id}")), "").unwrap();
        let ended = self.seats[at].process.wait_end(LIMIT).expect("a coordinator that is told to leaves");
        assert!(ended.success(), "the coordinator left with {ended}");
        self.replace(at);
    }

    /// Starts another for one that is gone, in a while.
    fn replace(&mut self, at: usize) {
        std::thread::sleep(Duration::from_millis(self.chance.below(4) * 100));
        self.seats[at] = self.seat(self.seats[at].kind);
    }

    /// Cuts some of a process's connections, as if the kernel had lost them.
    fn cut(&mut self, at: usize, only_pool: bool, all: bool) {
        let (kind, id, pid) = (self.seats[at].kind, self.seats[at].id, self.seats[at].process.pid());
        let life = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let entries = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().flatten();
        let mut numbers: Vec<i32> = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|fd| *fd > 2)
            .collect();
        numbers.sort_unstable();
        let mut found: Vec<OwnedFd> = numbers
            .into_iter()
            // Some are closed by now.
            .filter_map(|fd| pidfd_getfd(&life, fd, PidfdGetfdFlags::empty()).ok())
            .filter(|fd| connection(fd).is_some_and(|name| name == "pool.sock" || !only_pool))
            .collect();
        if !all && !found.is_empty() {
            let kept = self.chance.below(found.len() as u64) as usize;
            found = vec![found.swap_remove(kept)];
        }
        let names: Vec<_> = found.iter().filter_map(connection).collect();
        found.iter().for_each(|fd| shutdown(fd, Shutdown::Both).unwrap_or_default());
        if names.iter().any(|name| name != "pool.sock") {
            self.trouble(kind, id, 0);
        }
        self.note(format!("{kind:?}, process {id}, loses {names:?}"));
    }

    /// No more faults: everything works again, everything is let go of, and the pool is empty.
    pub(crate) fn settle(mut self) {
        for seat in &mut self.seats {
            if seat.stopped_until.take().is_some() {
                seat.process.signal(Signal::CONT);
            }
        }
        self.tell("calm");
        self.until("every lane has had a payload by ref, and every member has mapped one", |soak| {
            soak.seats.iter().all(|seat| match seat.kind {
                Kind::Client => soak.count("fine", seat.id) == SERVER_COUNT * LANE_COUNT,
                Kind::Member => soak.count("fine", seat.id) == 1,
                _ => true,
            })
        });
        self.tell("over");
        self.until("all memory is free", |soak| {
            soak.seats
                .iter()
                .all(|seat| seat.kind == Kind::Coordinator || soak.count("drained", seat.id) == 1)
        });
        self.tell("end");
        for mut seat in self.seats.drain(1..) {
            let ended = seat.process.wait_end(LIMIT).expect("a process that is told to ends");
            assert!(ended.success(), "{:?}, process {}, ended with {ended}", seat.kind, seat.id);
        }
        let mut shown = None;
        self.until("the pool is empty", |soak| {
            shown = Some(show(&pool_address(soak.directory.path()), LIMIT).unwrap());
            shown.as_ref().is_some_and(|pool| pool.members.is_empty() && pool.used_bytes == 0)
        });
        self.judge();
    }

    fn tell(&mut self, word: &str) {
        self.note(format!("the driver says {word}"));
        std::fs::write(self.path(word), "").unwrap();
    }

    /// How often a process has said a word.
    fn count(&self, word: &str, id: u64) -> usize {
        let end = format!("-{id}");
        let names =
            std::fs::read_dir(self.directory.path()).unwrap().flatten().map(|entry| entry.file_name());
        names
            .filter(|name| name.to_str().is_some_and(|name| name.starts_with(word) && name.ends_with(&end)))
            .count()
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Soak) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            self.look_after();
            assert!(began.elapsed() < 2 * LIMIT, "not within {:?}: {what}", 2 * LIMIT);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Every call that failed is owed to something that was done to either end of it.
    fn judge(&mut self) {
        let names = std::fs::read_dir(self.directory.path()).unwrap().flatten();
        let files =
            names.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with("failed-")));
        let lines: Vec<String> = files
            .flat_map(|entry| {
                std::fs::read_to_string(entry.path()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        println!(
            "{:?}, seed {}: {} events, {} calls failed",
            self.reach,
            self.seed,
            self.events.len(),
            lines.len()
        );
        let (count, of) = (self.events.len(), lines.len());
        println!("{:?}, seed {}: {count} events, {of} calls failed", self.reach, self.seed);
        for line in lines {
            let mut words = line.splitn(5, ' ');
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap();
            let (client, server, began, ended) = (number(), number(), number(), number());
            let why = words.next().unwrap();
            let is_owed = self.troubles.iter().any(|trouble| {
                let is_end = trouble.id == client || trouble.kind == Kind::Server(server as usize);
                is_end && trouble.from_ms <= ended && began <= trouble.until_ms
            });
            let codes = ["Unavailable ", "DeadlineExceeded ", "ResourceExhausted "];
            let codes = if self.reach == Reach::Descriptors { &codes[..] } else { &codes[..2] };
            let is_fitting = codes.iter().any(|code| why.starts_with(code));
            let is_excused = self.reach != Reach::Coordinator && is_owed && is_fitting;
            assert!(is_excused, "process {client} called server {server} from {began} to {ended} ms: {why}");
        }
    }
}

/// The name of the socket at whose address a connection was made. `None` for anything else.
fn connection(fd: &OwnedFd) -> Option<String> {
    if sockopt::socket_acceptconn(fd).ok()? {
        return None;
    }
    let own = getsockname(fd).ok().and_then(|name| SocketAddrUnix::try_from(name).ok());
    let other = getpeername(fd).ok().flatten().and_then(|name| SocketAddrUnix::try_from(name).ok());
    [own, other].into_iter().flatten().find_map(|name| {
        let path = name.path()?;
        let name = Path::new(path.to_str().ok()?).file_name()?.to_str()?.to_owned();
        name.ends_with(".sock").then_some(name)
    })
}
