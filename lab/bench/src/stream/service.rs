//! The services of prost's structs, and what all services and callers do with a message.

use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_util::stream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::direct::streams_server::Streams as DirectStreams;
use crate::latency::Latencies;
use crate::load::body_of;
use crate::proto::streams_server::Streams;
use crate::proto::{StreamAsk, StreamItem, StreamSum};

/// A gap is timed, and the clock asked, once in so many messages. Asking costs as much as a short message does; a prime goes round in
/// pieces of any number of messages. A long message costs enough for every other gap to be timed.
pub(super) const fn sampled(size: usize) -> u64 {
    if size < 16 << 10 { 31 } else { 2 }
}

/// A message that is one payload.
pub(super) trait Item: Send + Sized + 'static {
    /// A message with a copy of the payload.
    fn new(payload: &[u8]) -> Result<Self, Status>;

    /// The payload.
    fn payload(&self) -> &[u8];
}

impl Item for StreamItem {
    fn new(payload: &[u8]) -> Result<StreamItem, Status> {
        Ok(StreamItem { payload: payload.to_vec() })
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }
}

/// Makes the messages of a stream one after the other.
pub(super) struct Maker {
    payload: Vec<u8>,
    number: u64,
}

impl Maker {
    pub(super) fn new(size: usize) -> Maker {
        Maker { payload: body_of(size), number: 0 }
    }

    /// The next message. A payload has a byte at least.
    pub(super) fn next<I: Item>(&mut self) -> Result<I, Status> {
        self.payload[0] = self.number as u8;
        self.number += 1;
        I::new(&self.payload)
    }
}

/// Looks at each message that a stream brings, and counts those that come once both ends are warm.
pub(super) struct Taker {
    from: Instant,
    messages: u64,
    /// Those that don't count.
    cold: u64,
    bytes: u64,
    sampled: Instant,
    gaps: Latencies,
}

impl Taker {
    /// Counts from then on.
    pub(super) fn new(from: Instant) -> Taker {
        let gaps = Latencies::default();
        Taker { from, messages: 0, cold: 0, bytes: 0, sampled: from, gaps }
    }

    /// Takes a message, and says what time it is if a gap has been timed. An error, in words, if it is not the next one.
    pub(super) fn take(&mut self, item: &impl Item) -> Result<Option<Instant>, String> {
        let payload = item.payload();
        if payload.first() != Some(&(self.messages as u8)) {
            let first = payload.first();
            return Err(format!("message {} of a stream begins with {first:?}", self.messages));
        }
        let place = self.messages % sampled(payload.len());
        self.messages += 1;
        self.bytes += payload.len() as u64;
        Ok(if place < 2 { self.sample(place == 0) } else { None })
    }

    fn sample(&mut self, is_first: bool) -> Option<Instant> {
        let now = Instant::now();
        if is_first {
            self.sampled = now;
        }
        if self.sampled < self.from {
            self.cold = self.messages;
        }
        if is_first || self.sampled < self.from {
            return None;
        }
        self.gaps.record(now - self.sampled);
        Some(now)
    }

    /// Messages that count, and gaps between them.
    pub(super) fn counted(self) -> (u64, Latencies) {
        (self.messages - self.cold, self.gaps)
    }

    /// What a server answers, of all messages.
    fn answer(self) -> Result<StreamSum, Status> {
        let gaps = serde_json::to_string(&self.gaps).map_err(|error| Status::internal(error.to_string()))?;
        Ok(StreamSum { messages: self.messages, bytes: self.bytes, gaps })
    }
}

/// What a server's handlers send.
pub(super) type Items<I> = Pin<Box<dyn Stream<Item = Result<I, Status>> + Send>>;

/// Messages without end.
pub(super) fn down<I: Item>(size: u32) -> Result<Response<Items<I>>, Status> {
    if size == 0 {
        return Err(Status::invalid_argument("a message has a byte at least"));
    }
    let mut maker = Maker::new(size as usize);
    Ok(Response::new(Box::pin(stream::iter(std::iter::repeat_with(move || maker.next())))))
}

/// Gives each message back.
pub(super) fn both<I: Item>(
    items: impl Stream<Item = Result<I, Status>> + Send + 'static,
) -> Response<Items<I>> {
    let mut taker = Taker::new(Instant::now());
    let back = items.map(move |item| {
        let item = item?;
        taker.take(&item).map_err(Status::data_loss)?;
        Ok(item)
    });
    Response::new(Box::pin(back))
}

/// The service.
pub(super) struct Service {
    /// How long a stream runs before gaps between its messages count.
    pub(super) warm_up: Duration,
}

impl Service {
    /// Counts messages.
    pub(super) async fn count<I: Item>(
        &self,
        mut items: impl Stream<Item = Result<I, Status>> + Unpin,
    ) -> Result<StreamSum, Status> {
        let mut taker = Taker::new(Instant::now() + self.warm_up);
        while let Some(item) = items.next().await {
            taker.take(&item?).map_err(Status::data_loss)?;
        }
        taker.answer()
    }
}

/// Both kinds of stubs have the same methods and structs.
macro_rules! serve {
    ($($service:ident: $streaming:ident),+) => { $(
        #[tonic::async_trait]
        impl $service for Service {
            type DownStream = Items<StreamItem>;
            type BothStream = Items<StreamItem>;

            async fn down(&self, request: Request<StreamAsk>) -> Result<Response<Items<StreamItem>>, Status> {
                down(request.into_inner().size)
            }

            async fn up(&self, request: Request<$streaming::Streaming<StreamItem>>) -> Result<Response<StreamSum>, Status> {
                self.count(request.into_inner()).await.map(Response::new)
            }

            async fn both(
                &self,
                request: Request<$streaming::Streaming<StreamItem>>,
            ) -> Result<Response<Items<StreamItem>>, Status> {
                Ok(both(request.into_inner()))
            }
        }
    )+ };
}

serve!(Streams: tonic, DirectStreams: tollfree);

#[cfg(test)]
mod tests {
    use super::*;

    fn take(taker: &mut Taker, count: u64, size: usize) -> u64 {
        let mut maker = Maker::new(size);
        let take = |_| taker.take(&maker.next::<StreamItem>().unwrap()).unwrap().is_some();
        (0..count).map(take).filter(|is_timed| *is_timed).count() as u64
    }

    #[test]
    fn messages_count_once_both_ends_are_warm_and_some_gaps_are_timed() {
        let mut warm = Taker::new(Instant::now());
        assert_eq!(take(&mut warm, 100, 64), 4);
        let (messages, gaps) = warm.counted();
        assert_eq!((messages, gaps.count()), (100, 4));
        let mut long = Taker::new(Instant::now());
        assert_eq!(take(&mut long, 100, 20_000), 50);
        let mut cold = Taker::new(Instant::now() + Duration::from_secs(3600));
        assert_eq!(take(&mut cold, 100, 64), 0);
        let (messages, gaps) = cold.counted();
        assert!(messages < 31 && gaps.count() == 0, "{messages}");
    }

    #[test]
    fn a_message_that_is_missing_or_comes_twice_is_an_error() {
        let item = |number: u8| StreamItem { payload: vec![number, 7] };
        let mut taker = Taker::new(Instant::now());
        taker.take(&item(0)).unwrap();
        assert!(taker.take(&item(0)).unwrap_err().contains("message 1 of a stream begins with Some(0)"));
        assert!(taker.take(&item(2)).unwrap_err().contains("Some(2)"));
        assert!(taker.take(&StreamItem::default()).unwrap_err().contains("None"));
        taker.take(&item(1)).unwrap();
        let sum = taker.answer().unwrap();
        assert_eq!((sum.messages, sum.bytes), (2, 4));
    }
}
