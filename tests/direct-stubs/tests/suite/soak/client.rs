//! A client of the soak: calls all servers, holds some of the replies, and checks them again and again.

use bytes::Bytes;
use tollfree::Channel;
use tollfree::pool::{AllocError, Pool};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_testkit::Role;
use tonic::Request;

use std::time::Duration;

use super::content::Stamp;
use super::server::{MESSAGE_LEN_MAX, SWAP};
use super::station::{Station, now_ms};

const HELD_COUNT: u64 = 6;
pub(crate) const LANE_COUNT: usize = 2;
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// A payload that goes by ref if anything does.
const LONG: usize = 64 << 10;

/// A payload: in memory of its own, in the pool, or one that somebody else has sent.
async fn make(station: &mut Station, pool: &Pool, held: &[Bytes]) -> Bytes {
    let kind = station.chance.below(4);
    if kind == 0 && !held.is_empty() {
        return held[station.chance.below(held.len() as u64) as usize].clone();
    }
    let (len, stamp) = (station.len(), station.stamp());
    if kind < 3 {
        match pool.buffer_async(len).await {
            Ok(mut buffer) => {
                stamp.write(buffer.resize_zeroed(len));
                return buffer.freeze().unwrap().into();
            }
            Err(AllocError::Exhausted { .. }) => {}
            Err(error) => panic!("no memory for {len} bytes: {error}"),
        }
    }
    let mut own = vec![0; len];
    stamp.write(&mut own);
    own.into()
}

/// Calls one server until it is over.
async fn call_again_and_again(mut station: Station, lane: u64, server: usize, channel: Channel, pool: Pool) {
    let mut client = FreightClient::new(channel)
        .max_decoding_message_size(MESSAGE_LEN_MAX)
        .max_encoding_message_size(MESSAGE_LEN_MAX);
    let (mut held, mut is_fine, mut probe) = (Vec::<Bytes>::new(), false, 1);
    while !station.is("over") {
        let (is_calm, is_asked) = (station.is("calm"), station.is(&format!("probe-{probe}")));
        let body = make(&mut station, &pool, &held).await;
        let sent = Stamp::read(&body, station.seed);
        let number = station.chance.below(3) as u32;
        let mut request = Request::new(Cargo { body, number, ..Cargo::default() });
        request.set_timeout(CALL_LIMIT);
        let began = now_ms();
        // Twice the deadline: this process may have been stopped, or the machine.
        match tokio::time::timeout(2 * CALL_LIMIT, client.unary(request)).await {
            Err(_) => panic!("a call to server {server} hangs beyond its deadline"),
            Ok(Err(status)) => {
                station.failed(server, began, &status);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok(Ok(reply)) => {
                let body = reply.into_inner().body;
                let got = Stamp::read(&body, station.seed);
                assert!(number == SWAP || got == sent, "sent {sent:?}, got {got:?}");
                if is_calm && !is_fine && body.len() >= LONG && pool.ref_of(&body).is_some() {
                    is_fine = true;
                    station.say(&format!("fine-{lane}"));
                }
                if is_asked {
                    station.say(&format!("went-{probe}-{lane}"));
                    probe += 1;
                }
                held.push(body);
            }
        }
        if let Some(at) = held.len().checked_sub(1).map(|last| station.chance.below(last as u64 + 1)) {
            Stamp::read(&held[at as usize], station.seed);
            if station.chance.below(HELD_COUNT) < held.len() as u64 {
                held.swap_remove(at as usize);
            }
        }
    }
    for body in held {
        Stamp::read(&body, station.seed);
    }
}

pub(crate) fn run(role: &Role, server_count: usize) {
    let mut station = Station::new(role);
    let pool = station.join();
    let runtime =
        tokio::uncounted::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut lanes = Vec::new();
        for server in 0..server_count {
            let address = format!("shm://{}/server-{server}.sock", station.directory.display());
            let builder = || Channel::builder(address.clone()).pool(pool.clone());
            let channel = loop {
                match builder().connect().await {
                    Ok(channel) => break channel,
                    // It isn't there yet, or is gone again. The driver limits the time.
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            for _ in 0..LANE_COUNT {
                let lane = lanes.len() as u64 + 1;
                let calls =
                    call_again_and_again(station.lane(lane), lane, server, channel.clone(), pool.clone());
                lanes.push(tokio::spawn(calls));
            }
        }
        for lane in lanes {
            lane.await.unwrap();
        }
    });
    drop(runtime);
    station.drain(&pool, || ());
}
