//! Batches in which an object is none, or that come to who takes none: the call ends behind the objects before it, and nothing else
//! happens.

use std::future::poll_fn;

use bytes::Bytes;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::probe as structs;
use tollfree_driver_tokio::{Config, Ending, Listener, Outgoing};
use tollfree_stubs::probe as level1;
use tonic::{Code, Status};

use super::batches::{BOTH, UP, answer, numbered, object, types};
use super::hostile::{accept, attach, lies};
use super::hostile_streams::Reader;
use super::levels::{ask, by_level3};
use super::place::{InPlace, Place, in_time};
use super::raw::{Heard, batch, open, send};

/// Sound objects before the broken one.
const SOUND: usize = 5;

#[tokio::test]
async fn a_client_that_sends_broken_objects_in_batches_ends_its_own_calls() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        let attachment = attach(&place).await;
        for path in [UP, BOTH] {
            for (what, broken, word) in lies(&object(SOUND)) {
                let mut objects: Vec<Vec<u8>> = (0..2 * SOUND).map(object).collect();
                objects[SOUND] = broken;
                let stream = open(&attachment, path, 0).await;
                send(&stream, Some(batch(&objects)), Some(Ending::HalfClose)).await;
                let heard = Heard::all(None, &stream).await;
                let (code, text) = heard.code();
                assert!(code == Code::Internal && text.contains(word), "{path}, {what}: {code:?}: {text}");
                assert!(text.contains("flat message"), "{path}, {what}: {text}");
                let answered = if path == BOTH { SOUND } else { 0 };
                assert_eq!(heard.messages.len(), answered, "{path}, {what}: those before it are answered");
                assert!(heard.has_objects_only() || answered == 0, "{path}, {what}");
            }
        }
        assert!(attachment.is_open());
        by_level3(place.shm.clone()).await;
    })
    .await;
}

/// Says that it takes objects of a method, and answers each call with the next batch.
async fn lying_server(mut listener: Listener, batches: Vec<Vec<Vec<u8>>>) {
    let attachment = listener.accept().await.unwrap();
    let (mut batches, mut said) = (batches.into_iter(), false);
    while let Ok(call) = accept(&attachment).await {
        if let Some(method) = call.method.filter(|_| !std::mem::replace(&mut said, true)) {
            attachment.take_objects(method, types());
        }
        let Some(objects) = batches.next() else { return };
        let mut outgoing = Outgoing {
            headers: Some(Bytes::new()),
            message: Some(batch(&objects)),
            ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        };
        let _ = poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await;
    }
}

#[tokio::test]
async fn a_server_that_sends_broken_objects_in_batches_ends_the_calls_made_to_it() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("shm://{}", directory.path().join("s").display());
        let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
        let all = lies(&answer(SOUND));
        let sound: Vec<Vec<u8>> = (0..2 * SOUND).map(answer).collect();
        let with = |broken: Vec<u8>| {
            let mut objects = sound.clone();
            objects[SOUND] = broken;
            objects
        };
        let batches: Vec<_> = all.iter().map(|(_, broken, _)| with(broken.clone())).collect();
        let last = [sound.clone(), sound.clone(), sound.clone(), sound.clone()];
        let task = tokio::spawn(lying_server(listener, [batches, last.to_vec()].concat()));
        let channel = Channel::connect(&*uri).await.unwrap();
        let mut client = ProbeClient::new(channel.clone());
        for (what, _, word) in &all {
            let mut answers = client.down(ask(b"", &[])).await.unwrap().into_inner();
            for number in 0..SOUND {
                assert_eq!(
                    answers.message().await.unwrap().unwrap().view().body(),
                    numbered(number),
                    "{what}"
                );
            }
            let status = answers.message().await.unwrap_err();
            assert!(status.code() == Code::Internal && status.message().contains(word), "{what}: {status}");
        }
        let mut answers = client.down(ask(b"", &[])).await.unwrap().into_inner();
        for number in 0..2 * SOUND {
            assert_eq!(answers.message().await.unwrap().unwrap().view().body(), numbered(number));
        }
        assert!(answers.message().await.unwrap().is_none());
        // Of more answers than one, the first counts.
        let one = client.up(tokio_stream::empty()).await.unwrap().into_inner();
        assert_eq!(one.view().body(), numbered(0));
        // Clients of structs have asked for none.
        let told = |status: Status| {
            let is_told = status.message().contains("not said that it takes those");
            assert!(status.code() == Code::Internal && is_told, "{status}");
        };
        let mut second = structs::probe_client::ProbeClient::new(channel.clone());
        let answered = async { second.down(structs::Ask::default()).await?.into_inner().message().await };
        told(answered.await.unwrap_err());
        let mut first = level1::probe_client::ProbeClient::new(channel.clone());
        let answered = async { first.down(level1::Ask::default()).await?.into_inner().message().await };
        told(answered.await.unwrap_err());
        drop((client, answers, first, second, channel));
        task.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_batch_of_objects_in_a_stream_of_structs_is_internal() {
    let tonics = Server::builder().add_service(level1::probe_server::ProbeServer::new(Reader));
    let ours = Server::builder().add_service(structs::probe_server::ProbeServer::new(Reader));
    in_time(async {
        for server in [tonics, ours] {
            let place = Place::new(server).await;
            let attachment = attach(&place).await;
            for path in [UP, BOTH] {
                let stream = open(&attachment, path, 0).await;
                let objects: Vec<Vec<u8>> = (0..SOUND).map(object).collect();
                send(&stream, Some(batch(&objects)), Some(Ending::HalfClose)).await;
                let heard = Heard::all(None, &stream).await;
                assert!(heard.code().0 == Code::Internal && heard.messages.is_empty(), "{path}");
            }
            assert!(attachment.is_open());
        }
    })
    .await;
}
