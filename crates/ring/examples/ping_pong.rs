//! Two pinned processes echo a record over two rings, spinning: the floor under everything that is built on them.
//!
//! `cargo run --release -p tollfree-ring --example ping_pong [cpu_a cpu_b]`
//!
//! Prints p50, p99 and mean of the time there and back: for a single word in a line of its own, which is what the
//! machine can do; for records over the rings alone; and with the look at the peer's `waiting` word after each
//! publication that a session has to take. The other process is this program again; each opens the other's region
//! through `/proc`. Rounds alternate between the cases, since a virtual machine's processors move about.

use std::hint::spin_loop;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{CpuSet, sched_setaffinity};
use tollfree_layout::limits::{PAGE_LEN, RING_LEN_DEFAULT};
use tollfree_region::{PeerRegion, ReadMemory, Region, WriteMemory};
use tollfree_ring::*;

const REGION_LEN: usize = PAGE_LEN + RING_LEN_DEFAULT;
const ROUNDS: usize = 31;
const ECHOES: usize = 20_000;
const WARM_UP: usize = 2_000;
const SIZES: [usize; 5] = [8, 64, 96, 1024, 8192];
/// A word of the control page that nothing else uses.
const WORD_OFF: usize = 1024;
/// Length of the record that says: now the single word, for as many turns as a round has.
const WORD_PHASE: usize = 1;
/// Length of the record that ends the other process.
const END_PHASE: usize = 0;
/// Length of the record that says: from now on with or without the look, in turn.
const LOOK_PHASE: usize = 2;

struct End {
    sender: RingSender<Region, PeerRegion>,
    receiver: RingReceiver<Region, PeerRegion>,
    ringer: Ringer<PeerRegion>,
    buffer: Vec<u8>,
    own: Arc<Region>,
    peer: Arc<PeerRegion>,
    turn: u64,
    look: bool,
}

impl End {
    fn new(own: Region, peer: PeerRegion) -> End {
        let (own, peer) = (Arc::new(own), Arc::new(peer));
        let ring = Geometry::new(PAGE_LEN, RING_LEN_DEFAULT).expect("the default is a ring");
        End {
            sender: RingSender::new(own.clone(), peer.clone(), ring),
            receiver: RingReceiver::new(own.clone(), peer.clone(), ring),
            ringer: Ringer::new(peer.clone()),
            buffer: vec![0; 16 * 1024],
            own,
            peer,
            turn: 0,
            look: false,
        }
    }

    #[inline(always)]
    fn send(&mut self, len: usize) {
        let (head, body) = self.buffer[..len].split_at(24.min(len));
        self.sender.stage(&[head, body]).expect("the ring is empty but for what is read");
        self.sender.publish();
        assert!(!self.look || !self.ringer.should_ring(), "nobody sleeps");
    }

    /// Spins for a record and returns its length.
    #[inline(always)]
    fn take(&mut self) -> usize {
        while self.receiver.is_empty() {
            spin_loop();
        }
        let record = self.receiver.peek().expect("the peer is correct").expect("something is there");
        let len = record.len();
        record.read(0, &mut self.buffer[..len]);
        self.receiver.advance();
        self.receiver.release();
        len
    }

    /// The next value of the single word, sent or waited for.
    #[inline(always)]
    fn send_word(&mut self) {
        self.turn += 1;
        self.own.store_u64(WORD_OFF, self.turn, Ordering::Release);
    }

    #[inline(always)]
    fn take_word(&self, turn: u64) {
        while self.peer.load_u64(WORD_OFF, Ordering::Acquire) != turn {
            spin_loop();
        }
    }

    /// One round of a case; times are added in nanoseconds.
    fn round(&mut self, times: &mut Vec<u64>, mut echo: impl FnMut(&mut End)) {
        for turn in 0..WARM_UP + ECHOES {
            let start = Instant::now();
            echo(self);
            let ns = start.elapsed().as_nanos() as u64;
            if turn >= WARM_UP {
                times.push(ns);
            }
        }
    }
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).expect("the processor exists");
}

fn open(pid: u32, fd: i32) -> PeerRegion {
    let path = format!("/proc/{pid}/fd/{fd}");
    let fd: OwnedFd =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("the peer lives");
    PeerRegion::map(fd, REGION_LEN).expect("the peer's region is in order")
}

/// The other process: echoes until it is told to end.
fn echo(args: &[String]) {
    let number = |idx: usize| args[idx].parse::<u32>().expect("a number");
    pin(number(0) as usize);
    let own = Region::create("ping-pong", REGION_LEN).expect("memory for a region");
    println!("{}", own.fd().as_raw_fd());
    let mut end = End::new(own, open(number(1), number(2) as i32));
    loop {
        match end.take() {
            END_PHASE => break,
            LOOK_PHASE => end.look = !end.look,
            WORD_PHASE => {
                for _ in 0..WARM_UP + ECHOES {
                    end.take_word(end.turn + 1);
                    end.send_word();
                }
            }
            len => end.send(len),
        }
    }
}

fn start(cpu: usize, own: &Region) -> (Child, PeerRegion) {
    let args = [cpu as u32, std::process::id(), own.fd().as_raw_fd() as u32].map(|n| n.to_string());
    let mut child = Command::new(std::env::current_exe().expect("this program has a file"))
        .arg("echo")
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("the other process says its fd");
    let peer = open(child.id(), line.trim().parse().expect("a number"));
    (child, peer)
}

/// Medians of the rounds, in order.
fn medians(times: &[u64]) -> Vec<u64> {
    let median = |round: &[u64]| {
        let mut round = round.to_vec();
        round.sort_unstable();
        round[round.len() / 2]
    };
    times.chunks(ECHOES).map(median).collect()
}

/// Prints a line: figures over all rounds, and the middle of the rounds' ratios to the single word in the same round.
fn print(case: &str, times: &mut [u64], words: &[u64]) {
    let mut ratios: Vec<f64> =
        medians(times).iter().zip(words).map(|(ns, word)| *ns as f64 / *word as f64).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    println!("{case:<28} {:>6} {:>6} {mean:>8.1} {:>6.2}", at(0.5), at(0.99), ratios[ratios.len() / 2]);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "echo") {
        return echo(&args[1..]);
    }
    let cpu =
        |idx: usize| args.get(idx).map_or(idx, |arg| arg.parse().expect("usage: ping_pong [cpu_a cpu_b]"));
    pin(cpu(0));
    let own = Region::create("ping-pong", REGION_LEN).expect("memory for a region");
    let (mut child, peer) = start(cpu(1), &own);
    let mut end = End::new(own, peer);
    let mut word_times = Vec::new();
    let mut ring_times = vec![Vec::new(); 2 * SIZES.len()];
    for _ in 0..ROUNDS {
        end.send(WORD_PHASE);
        end.round(&mut word_times, |end| {
            end.send_word();
            end.take_word(end.turn);
        });
        for (case, times) in ring_times.iter_mut().enumerate() {
            let len = SIZES[case % SIZES.len()];
            end.round(times, |end| {
                end.send(len);
                assert_eq!(end.take(), len);
            });
            if case % SIZES.len() == SIZES.len() - 1 {
                end.send(LOOK_PHASE);
                end.look = !end.look;
            }
        }
    }
    end.send(END_PHASE);
    child.wait().expect("the other process ends");
    println!("{:<28} {:>6} {:>6} {:>8} {:>6}", "there and back, ns", "p50", "p99", "mean", "ratio");
    let words = medians(&word_times);
    print("one word", &mut word_times, &words);
    for (case, times) in ring_times.iter_mut().enumerate() {
        let look = if case < SIZES.len() { "rings alone" } else { "and waiting word" };
        print(&format!("{:>5} B, {look}", SIZES[case % SIZES.len()]), times, &words);
    }
}
