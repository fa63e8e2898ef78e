//! What a doorbell costs: waking a sleeping process and being woken by it, through a Unix socket and through eventfds.
//!
//! Two processes wait for each other in turn, both by `epoll_wait` and a call that never blocks, as a runtime does. Says
//! also what an eventfd shares with the process it was passed to. `docs/adr/0001-doorbell-over-the-socket.md` has the figures.
//!
//! `cargo run --release -p tollfree-driver-tokio --example doorbell_cost`

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Turns of one measurement; the peer makes as many.
const TURN_COUNT: usize = 20_000;
const ROUND_COUNT: usize = 5;

/// How two processes ring each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Socket,
    Eventfd,
}

/// One process's end: what it hears on, and what it rings.
struct End<'a> {
    kind: Kind,
    hear: BorrowedFd<'a>,
    ring: BorrowedFd<'a>,
    epoll: OwnedFd,
}

impl<'a> End<'a> {
    fn new(kind: Kind, hear: BorrowedFd<'a>, ring: BorrowedFd<'a>) -> io::Result<End<'a>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            hear,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        Ok(End { kind, hear, ring, epoll })
    }

    fn ring(&self) -> io::Result<()> {
        match self.kind {
            Kind::Socket => rustix::net::send(self.ring, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?,
            Kind::Eventfd => rustix::io::write(self.ring, &1u64.to_ne_bytes())?,
        };
        Ok(())
    }

    /// Sleeps until it rings. `false`: the other end is gone.
    fn wait(&self) -> io::Result<bool> {
        let mut buffer = [0u8; 64];
        let mut events = Vec::with_capacity(4);
        loop {
            let heard = match self.kind {
                Kind::Socket => {
                    rustix::net::recv(self.hear, &mut buffer[..], RecvFlags::DONTWAIT).map(|got| got.1)
                }
                Kind::Eventfd => rustix::io::read(self.hear, &mut buffer[..]),
            };
            match heard {
                Ok(count) => return Ok(count > 0),
                Err(Errno::AGAIN) => {
                    epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None)?;
                    events.clear();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// The second process: rings back as often as it was told. Its ends are standard input and output.
fn echo(kind: Kind, cpu: usize) -> io::Result<()> {
    pin(cpu)?;
    let (input, output) = (io::stdin(), io::stdout());
    let end = End::new(kind, input.as_fd(), output.as_fd())?;
    for _ in 0..TURN_COUNT {
        if !end.wait()? {
            break;
        }
        end.ring()?;
    }
    Ok(())
}

fn start(kind: Kind, cpu: usize, hear: OwnedFd, ring: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["echo", if kind == Kind::Socket { "socket" } else { "eventfd" }, &cpu.to_string()]);
    command.stdin(Stdio::from(hear)).stdout(Stdio::from(ring)).spawn()
}

/// Microseconds there and back, on average.
fn measure(kind: Kind, cpu: usize, peer_cpu: usize) -> io::Result<f64> {
    pin(cpu)?;
    let (hear, ring, peer_hear, peer_ring) = match kind {
        Kind::Socket => {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            (a.try_clone()?, a, b.try_clone()?, b)
        }
        Kind::Eventfd => {
            let make = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let (there, back) = (make()?, make()?);
            (back.try_clone()?, there.try_clone()?, there, back)
        }
    };
    let mut peer = start(kind, peer_cpu, peer_hear, peer_ring)?;
    let end = End::new(kind, hear.as_fd(), ring.as_fd())?;
    // The peer's start isn't a doorbell's cost.
    for _ in 0..TURN_COUNT / 10 {
        end.ring()?;
        end.wait()?;
    }
    let count = TURN_COUNT - TURN_COUNT / 10;
    let began = Instant::now();
    for _ in 0..count {
        end.ring()?;
        if !end.wait()? {
            return Err(io::Error::other("the other process has gone"));
        }
    }
    let took = began.elapsed();
    if !peer.wait()?.success() {
        return Err(io::Error::other("the other process has failed"));
    }
    Ok(took.as_secs_f64() * 1e6 / count as f64)
}

/// What somebody with a duplicate of an eventfd can do to its maker, and can't with a socket.
fn tell_what_is_shared() -> io::Result<()> {
    let ours = eventfd(0, EventfdFlags::NONBLOCK)?;
    let theirs = ours.try_clone()?;
    rustix::fs::fcntl_setfl(&theirs, OFlags::empty())?;
    rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes())?;
    let blocking = !rustix::fs::fcntl_getfl(&ours)?.contains(OFlags::NONBLOCK);
    let mut fds = [PollFd::new(&ours, PollFlags::OUT)];
    let writable = poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0;
    println!(
        "eventfd, after the holder of a duplicate cleared O_NONBLOCK and filled the counter:\n  \
         ours is {}, and {} be written: a write {}",
        if blocking { "blocking now" } else { "still non-blocking" },
        if writable { "can" } else { "can't" },
        if blocking && !writable { "would never return" } else { "returns" },
    );
    let flags = SocketFlags::NONBLOCK;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fcntl_setfl(&theirs, OFlags::empty())?;
    while rustix::net::send(&ours, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
    let non_blocking = rustix::fs::fcntl_getfl(&ours)?.contains(OFlags::NONBLOCK);
    let full = rustix::net::send(&ours, b"!", SendFlags::DONTWAIT) == Err(Errno::AGAIN);
    println!(
        "socket, after the peer cleared its O_NONBLOCK and stopped reading:\n  ours is {}; MSG_DONTWAIT {}",
        if non_blocking { "non-blocking as before" } else { "blocking now" },
        if full { "returns EAGAIN" } else { "did not return EAGAIN" },
    );
    Ok(())
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, role, kind, cpu] = &args[..]
        && role == "echo"
    {
        let kind = if kind == "socket" { Kind::Socket } else { Kind::Eventfd };
        return echo(kind, cpu.parse().map_err(io::Error::other)?);
    }
    tell_what_is_shared()?;
    println!("there and back, µs; least and greatest of {ROUND_COUNT} rounds of {TURN_COUNT} turns:");
    for (name, cpu, peer_cpu) in [("two cores", 0, 1), ("one core", 0, 0)] {
        let mut rounds = [Vec::new(), Vec::new()];
        for _ in 0..ROUND_COUNT {
            rounds[0].push(measure(Kind::Socket, cpu, peer_cpu)?);
            rounds[1].push(measure(Kind::Eventfd, cpu, peer_cpu)?);
        }
        for (kind, mut times) in [Kind::Socket, Kind::Eventfd].into_iter().zip(rounds) {
            times.sort_by(f64::total_cmp);
            let (least, most) = (times[0], times[times.len() - 1]);
            println!(
                "  {name:<10} {kind:<8?} median {:6.1}   {least:.1} to {most:.1}",
                times[times.len() / 2]
            );
        }
    }
    Ok(())
}
