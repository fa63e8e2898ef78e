//! Somebody at a coordinator's socket who passes what nobody can close without waiting.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tollfree_layout::pool::{PoolMessage, pool_kind};
use tollfree_pool::{Address, Config, Pool};
use tollfree_region::closing_count;
use tollfree_testkit::{Door, LingeringSocket, SilentFile, TimeLimit, alone};
use zerocopy::IntoBytes;

use crate::place::{Place, capacity, config};

/// Waits for as long as a busy machine may take.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_descriptor_whose_close_waits_holds_up_no_coordinator() {
    alone!();
    let _limit = TimeLimit::seconds(300);
    let place = Place::new();
    let patient = Config { patience: Duration::from_secs(60), ..config() };
    let owner = Pool::create(&place.address, capacity(), patient).unwrap();
    let Address::Path(path) = &place.address else { unreachable!("a path") };
    let file = SilentFile::open();
    if let Err(error) = &file {
        println!("skipped the file system of one's own: {error}");
    }
    let socket = LingeringSocket::open().unwrap();
    let mut given = vec![socket.as_fd()];
    given.extend(file.as_ref().ok().map(SilentFile::as_fd));
    for given in given {
        // With a word that has none, more at once than any word has, and half a word.
        let join = PoolMessage::new(pool_kind::JOIN);
        let doors = [1, 6, 2].map(|count| {
            let door = Door::knock(path).unwrap();
            let bytes = if count == 2 { &join.as_bytes()[..8] } else { join.as_bytes() };
            door.send(bytes, &vec![given; count]).unwrap();
            door
        });
        doors[1].wait_for_hang_up().unwrap();
        drop(doors);
        // The coordinator answers others: a member joins, and maps what the first one shares.
        let reader = Pool::join(&place.address, patient).unwrap();
        let shared = owner.copy_from_slice(&[7; 20_000]).unwrap();
        let seen = reader.map_ref(&shared.to_bytes().unwrap()).unwrap();
        assert_eq!(&seen[..], [7; 20_000]);
    }
    if file.is_ok() {
        until("some of them wait for the file system", || closing_count() > 0);
    }
    drop((socket, file));
    until("all are closed", || closing_count() == 0);
}
