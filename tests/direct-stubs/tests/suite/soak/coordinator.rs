//! The soak's coordinator: one process after the other, all at the same address.

use std::time::{Duration, Instant};

use tollfree::pool::{Capacity, Coordinator, JoinError};
use tollfree_testkit::Role;

use super::station::{LIMIT, Station, pool_address};

const CAPACITY: Capacity = Capacity { total: 512 << 20, member_quota: 48 << 20, batch: 8 << 20 };

pub(crate) fn run(role: &Role) {
    let station = Station::new(role);
    let began = Instant::now();
    let coordinator = loop {
        match Coordinator::start(&pool_address(&station.directory), CAPACITY) {
            Ok(coordinator) => break coordinator,
            Err(JoinError::Bind(error)) => assert!(began.elapsed() < LIMIT, "{error}"),
            Err(error) => panic!("no coordinator: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let leave = format!("leave-{}", station.id);
    while !station.is(&leave) {
        assert!(coordinator.is_running(), "the coordinator ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    coordinator.stop();
}
