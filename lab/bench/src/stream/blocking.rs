//! Callers that block: streams at the same time are threads, each with a channel of its own, as threads of blocking clients should have.

use std::thread;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollfree::Channel;
use tollfree::blocking::Channel as BlockingChannel;

use super::client::{
    Carried, Measuring, Receiver, Trips, Window, counted, ended, failed, made, prove, received, sent_in,
};
use super::service::Maker;
use super::sides::directly;
use super::{BURST, Calls, StreamCase, StreamKind, Streamed};
use crate::direct::streams_blocking_client::StreamsBlockingClient;
use crate::direct::streams_client::StreamsClient;
use crate::proto::{StreamAsk, StreamItem};

pub(super) fn call(case: StreamCase, calls: &Calls) -> Result<Streamed, String> {
    let connect = |_| {
        let channel = Channel::builder(&calls.address).connect_blocking();
        channel.map_err(|error| format!("cannot connect: {error}"))
    };
    let channels = (0..case.streams).map(connect).collect::<Result<Vec<_>, String>>()?;
    let first = &channels[0];
    first.run(prove(directly(StreamsClient::new(first.get_ref().clone()))?, case.size))?;
    let window = Window::new(calls);
    thread::scope(|scope| {
        let streams = channels.iter().map(|channel| scope.spawn(move || stream(channel, case, window)));
        let threads: Vec<_> = streams.collect();
        let measuring = Measuring::begin(window, calls);
        let mut all = Carried::default();
        for thread in threads {
            all.add(&thread.join().map_err(|_| "a streaming thread panicked".to_owned())??);
        }
        let measuring = measuring.join().map_err(|_| "the thread that measures panicked".to_owned())?;
        Ok(measuring.end(all))
    })
}

fn stream(channel: &BlockingChannel, case: StreamCase, window: Window) -> Result<Carried, String> {
    let (mut client, size) = (StreamsBlockingClient::new(channel.clone()), case.size);
    match case.kind {
        StreamKind::Server => {
            let mut receiver = Receiver::new(size, window);
            let mut items = client.down(StreamAsk { size: size as u32 }).map_err(failed)?.into_inner();
            while !receiver.take(&received(items.message())?)? {}
            Ok(receiver.carried())
        }
        StreamKind::Client => {
            let (items, sent) = sent_in::<StreamItem>(size, window);
            let sum = client.up(items).map_err(failed)?.into_inner();
            counted(&sum, &sent, size)
        }
        StreamKind::PingPong => ping_pong(channel, size, window),
        StreamKind::Burst => bursts(&mut client, size, window),
    }
}

/// A blocking client takes all that it is to send when a stream begins, so one that sends by and by is an asynchronous one that is waited for.
fn ping_pong(channel: &BlockingChannel, size: usize, window: Window) -> Result<Carried, String> {
    let (mut maker, mut receiver) = (Maker::new(size), Receiver::new(size, window));
    let mut trips = Trips::new(window);
    let mut client = StreamsClient::new(channel.get_ref().clone());
    let (sender, items) = mpsc::channel::<StreamItem>(1);
    let mut back = channel.run(client.both(ReceiverStream::new(items))).map_err(failed)?.into_inner();
    loop {
        trips.begin();
        sender.try_send(made(&mut maker)).map_err(|_| "a stream ended while it was sent to".to_owned())?;
        receiver.take(&received(channel.run(back.message()))?)?;
        if trips.end(2) {
            drop(sender);
            return ended(channel.run(back.message())).map(|()| trips.carried());
        }
    }
}

fn bursts(
    client: &mut StreamsBlockingClient<Channel>,
    size: usize,
    window: Window,
) -> Result<Carried, String> {
    let mut trips = Trips::new(window);
    loop {
        let (mut maker, mut receiver) = (Maker::new(size), Receiver::new(size, window));
        trips.begin();
        let items = (0..BURST).map(move |_| made::<StreamItem>(&mut maker));
        let mut back = client.both(items).map_err(failed)?.into_inner();
        for _ in 0..BURST {
            receiver.take(&received(back.message())?)?;
        }
        let is_last = trips.end(2 * BURST);
        ended(back.message())?;
        if is_last {
            return Ok(trips.carried());
        }
    }
}
