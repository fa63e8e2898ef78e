//! Fault 41: a member that doesn't read costs its coordinator a bounded amount of memory, whatever others make it say.
//!
//! The coordinator and the member that stands still are this test binary again, in processes of their own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use tollfree_layout::pool::{POOL_MESSAGE_LEN, PoolMessage, pool_kind, pool_reason};
use tollfree_pool::{Address, Capacity, Coordinator, Pool};
use tollfree_testkit::{Process, Role, TimeLimit};
use zerocopy::{FromBytes, IntoBytes};

use crate::place::{BATCH, config};

/// One member has all of it.
const CAPACITY: Capacity = Capacity { total: 4 * BATCH, member_quota: 4 * BATCH, batch: BATCH };
/// Requests that the coordinator must refuse. Each has it ask everybody else for memory.
const ASK_COUNT: usize = 100_000;
/// Requests at once: their answers fit into a socket.
const ROUND_LEN: usize = 50;
/// Kept for each request, a message would cost several times as much.
const GROWTH_KIB_MAX: u64 = 4096;

fn address(socket: &Path) -> Address {
    format!("shm://{}", socket.display()).parse().unwrap()
}

#[test]
#[ignore = "not a test: what the processes do that the test starts"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let _limit = TimeLimit::seconds(300);
    let address = address(&role.socket);
    if role.name == "coordinator" {
        let _coordinator = Coordinator::start(&address, CAPACITY).unwrap();
        role.ready();
        std::thread::sleep(Duration::from_secs(300));
    } else {
        let _pool = Pool::join(&address, config()).unwrap();
        role.ready();
        std::thread::sleep(Duration::from_secs(300));
    }
}

/// The next answer, of those that it must give.
fn denied(socket: &mut UnixStream) {
    let mut bytes = [0; POOL_MESSAGE_LEN];
    socket.read_exact(&mut bytes).unwrap();
    let answer = PoolMessage::read_from_bytes(&bytes).unwrap();
    assert_eq!((answer.kind.get(), answer.reason.get()), (pool_kind::DENY, pool_reason::CAPACITY));
}

fn resident_kib(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// P6, H4: what is said to one that stands still is kept once, not once for each who asks.
#[test]
fn who_does_not_read_costs_a_bounded_amount() {
    let _limit = TimeLimit::seconds(240);
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("pool.sock");
    let coordinator = Process::start_ready("unread::coordinator", &socket, "");
    let owner = Pool::join(&address(&socket), config()).unwrap();
    let _all = owner.buffer(4 * BATCH as usize).unwrap();
    let silent = Process::start_ready("unread::member", &socket, "");
    silent.signal(Signal::STOP);
    // A member without a library, which asks faster than any with one.
    let mut asking = UnixStream::connect(&socket).unwrap();
    asking.write_all(PoolMessage::new(pool_kind::JOIN).as_bytes()).unwrap();
    let mut welcome = [0; POOL_MESSAGE_LEN];
    asking.read_exact(&mut welcome).unwrap();
    let need = PoolMessage::new(pool_kind::NEED).of(BATCH);
    let round = need.as_bytes().repeat(ROUND_LEN);
    let mut ask = |count: usize| {
        for _ in 0..count / ROUND_LEN {
            asking.write_all(&round).unwrap();
            (0..ROUND_LEN).for_each(|_| denied(&mut asking));
        }
    };
    // What sockets and queues hold at most, they hold by now.
    ask(ASK_COUNT / 10);
    let before = resident_kib(&coordinator);
    ask(ASK_COUNT);
    let grown = resident_kib(&coordinator).saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "{ASK_COUNT} requests cost {grown} KiB, {before} KiB before");
    // Once it reads, it is a member as any other.
    silent.signal(Signal::CONT);
    assert!(owner.is_attached());
}
