//! Who joins a pool: of all its user's processes, or only those that were invited; and of whom the kernel says nothing.

use std::hash::Hasher;
#[expect(deprecated, reason = "as the members compute their numbers")]
use std::hash::SipHasher;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use tollfree_layout::pool::{POOL_MESSAGE_LEN, PoolMessage, pool_kind, pool_reason};
use tollfree_pool::{Address, Coordinator, JoinError, Pool, Refusal};
use tollfree_testkit::{Process, Role, TimeLimit};
use zerocopy::{FromBytes, IntoBytes};

use crate::place::{Place, capacity, config};

fn refusal(joined: Result<Pool, JoinError>) -> Refusal {
    match joined {
        Err(JoinError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn connect(place: &Place) -> UnixStream {
    let Address::Path(path) = &place.address else { panic!("a path") };
    let socket = UnixStream::connect(path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// What is answered to a first word.
fn answer(mut socket: &UnixStream) -> PoolMessage {
    let mut bytes = [0; POOL_MESSAGE_LEN];
    socket.read_exact(&mut bytes).unwrap();
    PoolMessage::read_from_bytes(&bytes).unwrap()
}

#[test]
fn only_who_was_invited_joins_and_once() {
    let _limit = TimeLimit::seconds(100);
    let place = Place::new();
    let (pool, inviter) = Pool::create_by_invitation(&place.address, capacity(), config()).unwrap();
    let bytes = pool.copy_from_slice(&[7; 5000]).unwrap();
    let join = |invitation| Pool::join_by_invitation(&place.address, invitation, config());
    assert_eq!(refusal(Pool::join(&place.address, config())), Refusal::Invitation);
    let made_up = "00112233445566778899aabbccddeeff".parse().unwrap();
    assert_eq!(refusal(join(&made_up)), Refusal::Invitation);
    let invitation = inviter.invite().unwrap();
    let member = join(&invitation).unwrap();
    assert_eq!(member.map_ref(&bytes.to_bytes().unwrap()).unwrap()[..], [7; 5000]);
    assert_eq!(refusal(join(&invitation)), Refusal::Invitation, "it was good once");
    drop(member);
    assert_eq!(refusal(join(&invitation)), Refusal::Invitation);
    join(&inviter.invite().unwrap()).unwrap();
}

/// Whoever knows a pool's name can compute a number that follows from a secret of its own. That makes it no member that was there before.
#[test]
fn nobody_comes_back_who_was_never_there() {
    let _limit = TimeLimit::seconds(100);
    let place = Place::new();
    let (pool, _inviter) = Pool::create_by_invitation(&place.address, capacity(), config()).unwrap();
    let (name, secret) = (pool.id(), [7; 16]);
    let half = |at: usize| u64::from_le_bytes(name[at..at + 8].try_into().unwrap());
    #[expect(deprecated, reason = "as the members compute their numbers")]
    let mut number = SipHasher::new_with_keys(half(0), half(8));
    number.write(&secret);
    let mut join = PoolMessage::new(pool_kind::JOIN);
    (join.pool, join.secret, join.member) = (name, secret, (number.finish() as u32).into());
    let mut socket = connect(&place);
    socket.write_all(join.as_bytes()).unwrap();
    let refused = answer(&socket);
    let said = (refused.kind.get(), refused.reason.get());
    assert_eq!(said, (pool_kind::REFUSAL, pool_reason::INVITATION));
    // Where all may join, it may: a coordinator that took another's place learns its members so.
    let open = Place::new();
    let pool = open.create();
    let name = pool.id();
    let half = |at: usize| u64::from_le_bytes(name[at..at + 8].try_into().unwrap());
    #[expect(deprecated, reason = "as the members compute their numbers")]
    let mut number = SipHasher::new_with_keys(half(0), half(8));
    number.write(&secret);
    (join.pool, join.member) = (name, (number.finish() as u32).into());
    let mut socket = connect(&open);
    socket.write_all(join.as_bytes()).unwrap();
    assert_eq!(answer(&socket).kind.get(), pool_kind::WELCOME);
}

/// Connections that say nothing hold up nobody: the oldest gives way.
#[test]
fn silent_connections_keep_nobody_out() {
    let _limit = TimeLimit::seconds(100);
    let place = Place::new();
    let pool = place.create();
    let began = Instant::now();
    let silent: Vec<_> = (0..200).map(|_| connect(&place)).collect();
    for _ in 0..5 {
        place.join();
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    let refused = answer(&silent[0]);
    assert_eq!((refused.kind.get(), refused.reason.get()), (pool_kind::REFUSAL, pool_reason::BUSY));
    assert!(pool.is_attached());
}

#[test]
#[ignore = "not a test: what the processes do that a test starts"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let _limit = TimeLimit::seconds(100);
    let address: Address = format!("shm://{}", role.socket.display()).parse().unwrap();
    match role.name.as_str() {
        "coordinator" => {
            let _coordinator = Coordinator::start(&address, capacity()).unwrap();
            role.ready();
            std::thread::sleep(Duration::from_secs(100));
        }
        _ => {
            let error = Pool::join(&address, config()).unwrap_err();
            assert!(matches!(error, JoinError::User { .. }), "{error}");
            assert!(error.to_string().contains("not known in this user namespace"), "{error}");
        }
    }
}

/// This test program in a user namespace that maps nobody, or `None` where that is not to be had.
fn in_user_namespace(role: &str, socket: &Path) -> Option<Process> {
    let trial = Command::new("unshare").args(["--user", "true"]).status();
    if !trial.is_ok_and(|status| status.success()) {
        eprintln!("NOT RUN: user namespaces can't be had here");
        return None;
    }
    let inner =
        Process::command(&std::env::current_exe().unwrap(), &format!("invitations::{role}"), socket, "");
    let mut outer = Command::new("unshare");
    outer.arg("--user").arg(inner.get_program()).args(inner.get_args()).stdout(Stdio::piped());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Process::of(outer.spawn().unwrap()))
}

/// There, all users of outside and the process's own show as the same number.
#[test]
fn in_a_user_namespace_that_maps_nobody_nobody_is_the_same_user() {
    let _limit = TimeLimit::seconds(100);
    let (theirs, ours) = (Place::new(), Place::new());
    let path = |place: &Place| match &place.address {
        Address::Path(path) => path.clone(),
        Address::Abstract(_) => unreachable!(),
    };
    let Some(mut coordinator) = in_user_namespace("coordinator", &path(&theirs)) else { return };
    coordinator.wait_ready();
    for _ in 0..50 {
        // It is told so even where it is refused before it has said anything.
        assert_eq!(refusal(Pool::join(&theirs.address, config())), Refusal::User);
    }
    let _pool = ours.create();
    let mut member = in_user_namespace("member", &path(&ours)).unwrap();
    let status = member.wait_end(Duration::from_secs(60)).expect("it ends");
    assert!(status.success(), "{status}");
}
