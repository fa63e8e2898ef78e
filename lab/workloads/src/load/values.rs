//! Arrays to be summed up, and blocks to be given back.

use bytes::Bytes;

use super::{Caller, failed, in_full};
use crate::direct::{Array, Block};
use crate::pattern;
use crate::seat::Seat;
use crate::stubs::{ArraysClient, EchoClient};

/// Sends arrays, and knows what they sum up to.
pub(super) struct Arrays {
    seat: Seat,
    client: ArraysClient,
    size: usize,
    /// One that is sent again and again, of which nobody reads more than the first byte; else each call writes its own.
    same: Option<Bytes>,
}

impl Arrays {
    pub(super) async fn new(seat: &Seat, entry: &str, size: usize, whole: bool) -> Result<Arrays, String> {
        let client = ArraysClient::connect(seat, entry).await?;
        let same = if whole { None } else { Some(seat.write(size, 0)?) };
        Ok(Arrays { seat: seat.clone(), client, size, same })
    }
}

impl Caller for Arrays {
    async fn call(&self, nth: u64) -> Result<(), String> {
        let (data, expected) = match &self.same {
            Some(data) => (data.clone(), data.first().copied().map_or(0, u64::from)),
            None => (self.seat.write(self.size, nth)?, pattern::sum_of(self.size, nth)),
        };
        let sum = self.client.sum(Array { data, whole: self.same.is_none() }).await.map_err(failed)?.sum;
        if sum == expected {
            return Ok(());
        }
        Err(format!("the last service summed up {sum} instead of {expected} in call {nth}"))
    }
}

/// Sends blocks, and reads every line of what comes back.
pub(super) struct Echoes {
    seat: Seat,
    client: EchoClient,
    size: usize,
}

impl Echoes {
    pub(super) async fn new(seat: &Seat, entry: &str, size: usize) -> Result<Echoes, String> {
        Ok(Echoes { seat: seat.clone(), client: EchoClient::connect(seat, entry).await?, size })
    }
}

impl Caller for Echoes {
    async fn call(&self, nth: u64) -> Result<(), String> {
        let data = self.seat.write(self.size, nth)?;
        let sent = in_full(nth).then(|| data.clone());
        let reply = self.client.call(Block { data, sum: 0 }).await.map_err(failed)?;
        let expected = pattern::sum_lines_of(self.size, nth);
        let read = pattern::sum_lines(&reply.data);
        if (reply.sum, read) != (expected, expected) || sent.is_some_and(|sent| sent != reply.data) {
            return Err(format!(
                "sent bytes that sum up to {expected} in call {nth}; the service read {}, and {read} came back",
                reply.sum
            ));
        }
        Ok(())
    }
}
