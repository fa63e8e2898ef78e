//! The same hop by iceoryx2's publish-subscribe: both ends poll without a pause, but only while they have something to do.

#[cfg(feature = "iceoryx2")]
pub(super) use with::{receive, send};
#[cfg(not(feature = "iceoryx2"))]
pub(super) use without::{receive, send};

/// This build has none: the report says so, and nobody is asked.
#[cfg(not(feature = "iceoryx2"))]
mod without {
    use super::super::hop::HopPart;
    use crate::BenchError;
    use crate::peer::Starter;

    pub(crate) fn receive(_: &HopPart, _: &Starter) -> Result<(), BenchError> {
        Err(BenchError::Refused("iceoryx2 is not in this build".to_owned()))
    }

    pub(crate) fn send(part: &HopPart, starter: &Starter) -> Result<(), BenchError> {
        receive(part, starter)
    }
}

#[cfg(feature = "iceoryx2")]
mod with {
    use iceoryx2::port::publisher::Publisher;
    use iceoryx2::port::subscriber::Subscriber;
    use iceoryx2::prelude::*;
    use iceoryx2::sample::Sample;

    use super::super::hop::{HopPart, Hops, age_ns, fill, with_warm_up};
    use super::super::trouble;
    use crate::BenchError;
    use crate::peer::Starter;
    use crate::side::iceoryx2::node;

    type Out = Publisher<ipc::Service, [u8], ()>;
    type In = Subscriber<ipc::Service, [u8], ()>;

    /// One topic: payloads go by the first, and what says that one was read by the other.
    fn topic(node: &Node<ipc::Service>, name: &str, size: usize) -> Result<(Out, In), BenchError> {
        let name = ServiceName::new(name).map_err(trouble)?;
        let service = node.service_builder(&name).publish_subscribe::<[u8]>().open_or_create();
        let service = service.map_err(trouble)?;
        let publisher = service.publisher_builder().initial_max_slice_len(size).create().map_err(trouble)?;
        Ok((publisher, service.subscriber_builder().create().map_err(trouble)?))
    }

    fn next(topic: &In) -> Result<Sample<ipc::Service, [u8], ()>, BenchError> {
        loop {
            if let Some(sample) = topic.receive().map_err(trouble)? {
                return Ok(sample);
            }
            std::hint::spin_loop();
        }
    }

    pub(crate) fn receive(part: &HopPart, starter: &Starter) -> Result<(), BenchError> {
        let node = node(&part.dir).map_err(BenchError::Refused)?;
        let (_, payloads) = topic(&node, "tollfree/bench/hop", part.size)?;
        let (done, _) = topic(&node, "tollfree/bench/done", 1)?;
        starter.say(());
        loop {
            let count: Hops = starter.hear().map_err(BenchError::Refused)?;
            let mut ages = Vec::with_capacity(with_warm_up(count));
            for _ in 0..with_warm_up(count) {
                let sample = next(&payloads)?;
                ages.push(age_ns(sample.payload()).map_err(BenchError::Refused)?);
                drop(sample);
                done.loan_slice(1).map_err(trouble)?.send().map_err(trouble)?;
            }
            starter.say(ages);
        }
    }

    pub(crate) fn send(part: &HopPart, starter: &Starter) -> Result<(), BenchError> {
        let node = node(&part.dir).map_err(BenchError::Refused)?;
        let (payloads, _) = topic(&node, "tollfree/bench/hop", part.size)?;
        let (_, done) = topic(&node, "tollfree/bench/done", 1)?;
        starter.say(());
        loop {
            let count: Hops = starter.hear().map_err(BenchError::Refused)?;
            for _ in 0..with_warm_up(count) {
                let mut sample = payloads.loan_slice(part.size).map_err(trouble)?;
                fill(sample.payload_mut());
                sample.send().map_err(trouble)?;
                next(&done)?;
            }
            starter.say(());
        }
    }
}
