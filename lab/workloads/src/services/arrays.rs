//! Arrays that are passed on, and read by the last who gets them: hops of a chain, a balancer, and who reads.

use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::Status;

use crate::direct::{Array, Total};
use crate::pattern;
use crate::seat::Seat;
use crate::stubs::{ArraysClient, HandleArrays};

/// Passes arrays on to the one of several who has the fewest calls outstanding.
pub(super) struct Forward {
    seat: Seat,
    to: Vec<Target>,
    turn: AtomicUsize,
}

struct Target {
    client: ArraysClient,
    outstanding: AtomicUsize,
}

impl Forward {
    pub(super) async fn to(seat: &Seat, addresses: &[String]) -> Result<Forward, String> {
        let mut to = Vec::with_capacity(addresses.len());
        for address in addresses {
            let client = ArraysClient::connect(seat, address).await?;
            to.push(Target { client, outstanding: AtomicUsize::new(0) });
        }
        if to.is_empty() {
            return Err("there is nobody to pass arrays on to".to_owned());
        }
        Ok(Forward { seat: seat.clone(), to, turn: AtomicUsize::new(0) })
    }

    /// The least busy; among equals, each in turn.
    fn choose(&self) -> &Target {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..self.to.len()).map(|step| &self.to[(first + step) % self.to.len()]);
        in_turn.min_by_key(|target| target.outstanding.load(Ordering::Relaxed)).expect("there is one")
    }
}

/// A call that counts as outstanding while it lives.
struct Outstanding<'a>(&'a AtomicUsize);

impl<'a> Outstanding<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HandleArrays for Forward {
    async fn sum(&self, request: Array) -> Result<Total, Status> {
        let target = self.choose();
        let _outstanding = Outstanding::begin(&target.outstanding);
        let data = self.seat.pass_on(request.data)?;
        target.client.sum(Array { data, ..request }).await
    }
}

/// Reads arrays.
pub(super) struct Aggregate;

impl HandleArrays for Aggregate {
    async fn sum(&self, request: Array) -> Result<Total, Status> {
        let data = &request.data;
        let sum = if request.whole { pattern::sum(data) } else { data.first().copied().map_or(0, u64::from) };
        Ok(Total { sum })
    }
}
