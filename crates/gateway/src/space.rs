//! The room of messages that are inflated and deflated here, in place of the backend.

use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Status;

use crate::bodies::{Passage, too_long, too_much};
use crate::config::Config;
use crate::conversion::Room;
use crate::memory::Charge;
use crate::metrics::Metrics;
use crate::refusal::{Refusal, Refused};

/// The room that a call's messages have where they are inflated and deflated: they are held to the same limits as all others.
pub(crate) struct Space {
    config: Arc<Config>,
    passage: Arc<Passage>,
    metrics: Arc<Metrics>,
    inflated: Mutex<Inflated>,
    deflated: Mutex<Charge>,
}

/// What is held of the messages that were inflated.
struct Inflated {
    charge: Charge,
    at_hand: u64,
    /// Of the first, which is kept until an answer begins.
    kept: Option<u64>,
}

impl Space {
    pub(crate) fn new(
        config: Arc<Config>,
        passage: Arc<Passage>,
        metrics: Arc<Metrics>,
        [charge, deflated]: [Charge; 2],
    ) -> Space {
        let inflated = Mutex::new(Inflated { charge, at_hand: 0, kept: None });
        Space { config, passage, metrics, inflated, deflated: Mutex::new(deflated) }
    }

    /// An answer has begun.
    pub(crate) fn answered(&self) {
        let mut inflated = self.inflated.lock();
        inflated.kept = Some(0);
        let held = inflated.at_hand;
        // No more than before.
        _ = inflated.charge.set(held, self.config.limits.memory_bytes);
    }
}

impl Room for Space {
    fn inflated(&self, len: usize) -> Result<(), Status> {
        let limits = &self.config.limits;
        if len as u64 > limits.message_bytes {
            self.passage.end(Refusal::Message);
            return Err(too_long("request", limits.message_bytes));
        }
        let mut inflated = self.inflated.lock();
        if len == 0 && inflated.at_hand > 0 && inflated.kept.is_none() {
            inflated.kept = Some(inflated.at_hand);
        }
        let held = len as u64 + inflated.kept.unwrap_or(0);
        if let Err(why) = inflated.charge.set(held, limits.memory_bytes) {
            self.passage.end(why);
            return Err(too_much(why).status);
        }
        inflated.at_hand = len as u64;
        Ok(())
    }

    fn to_deflate(&self, len: usize) -> Result<(), Status> {
        let limits = &self.config.limits;
        let refused = if len as u64 > limits.message_bytes {
            Refused { why: Refusal::Message, status: too_long("answer", limits.message_bytes) }
        } else if let Err(why) = self.deflated.lock().set(len as u64, limits.memory_bytes) {
            too_much(why)
        } else {
            return Ok(());
        };
        self.metrics.refused(refused.why, self.passage.client(), "", refused.status.message());
        Err(refused.status)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;
    use crate::client::{Class, Client};
    use crate::memory::Memory;
    use crate::shares::Shares;

    #[test]
    fn what_is_inflated_is_held_to_both_limits_and_given_back() {
        let limits = "limits.message_bytes = 100000\nlimits.memory_bytes = 150000\n";
        let config = Arc::new(Config::from_toml(limits).unwrap());
        let gauge = Gauge::default();
        let shares = Arc::new(Shares::new(Memory::new(gauge.clone())));
        let client = Arc::new(Client::at("x", Class::Unix));
        let charges = [(); 2].map(|()| Charge::none(&client.claimant().stake(&shares, None)));
        let (passage, metrics) = (Arc::new(Passage::new(&client)), Arc::new(Metrics::new()));
        let space = Space::new(config.clone(), passage.clone(), metrics, charges);
        assert!(
            space.inflated(10_000).is_ok() && space.inflated(90_000).is_ok() && space.inflated(0).is_ok()
        );
        assert_eq!(gauge.get(), 90_000, "the first is kept");
        assert!(space.inflated(60_000).is_ok() && passage.refused(&config.limits).is_none());
        assert!(space.inflated(61_000).is_err());
        assert_eq!(passage.refused(&config.limits).unwrap().why, Refusal::Memory);
        assert_eq!(gauge.get(), 150_000, "no more than the limit");
        space.answered();
        assert_eq!(gauge.get(), 60_000);
        assert!(
            space.inflated(0).is_ok()
                && space.inflated(101_000).unwrap_err().message().contains("message_bytes")
        );
        assert_eq!(passage.refused(&config.limits).unwrap().why, Refusal::Memory, "the first limit counts");
        assert!(space.inflated(100_000).is_ok() && space.to_deflate(50_000).is_ok());
        assert!(space.to_deflate(51_000).is_err() && space.to_deflate(101_000).is_err());
        assert_eq!(gauge.get(), 150_000);
        drop(space);
        assert_eq!(gauge.get(), 0);
    }
}
