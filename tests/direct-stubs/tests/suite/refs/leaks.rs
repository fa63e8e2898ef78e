//! Calls that end otherwise than they should: nothing is kept for them.

use std::time::Duration;

use bytes::Bytes;
use tokio_stream::StreamExt;
use tollfree::pool::Pool;
use tonic::{Code, Request};

use super::freight::{direct, pattern, tonic_made};
use super::lab::{Lab, Served, in_time, server, until, until_all_is_free};

const LEN: usize = 100_000;

async fn serve(lab: &Lab, pool: &Pool) -> Served {
    let carrier = direct::FreightServer::new(direct::Carrier::new(Some(pool.clone())));
    lab.serve(server(Some(pool)).add_service(carrier)).await
}

fn cargo(act: direct::Act) -> direct::Cargo {
    direct::Cargo { body: pattern(1, LEN).into(), number: LEN as u32, act: act.into(), ..Default::default() }
}

fn tonics(act: tonic_made::Act) -> tonic_made::Cargo {
    tonic_made::Cargo { body: pattern(1, LEN).into(), number: 1000, act: act.into(), ..Default::default() }
}

#[tokio::test]
async fn calls_that_fail_time_out_or_are_dropped_leave_nothing() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served = serve(&lab, &there).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = direct::FreightClient::new(channel.clone());
        let mut tonic = tonic_made::FreightClient::new(channel.clone());
        for round in 0..5u64 {
            assert_eq!(client.unary(cargo(direct::Act::Fail)).await.unwrap_err().code(), Code::DataLoss);
            assert_eq!(tonic.unary(tonics(tonic_made::Act::Fail)).await.unwrap_err().code(), Code::DataLoss);
            let mut late = Request::new(cargo(direct::Act::Hang));
            late.set_timeout(Duration::from_millis(20));
            assert_eq!(client.unary(late).await.unwrap_err().code(), Code::DeadlineExceeded);
            // Dropped at once, and somewhere on its way.
            for step in 0..4 {
                let pause = Duration::from_micros(step * 100 + round * 37);
                let _ = tokio::time::timeout(pause, client.unary(cargo(direct::Act::Hang))).await;
                let _ = tokio::time::timeout(pause, tonic.unary(tonics(tonic_made::Act::Hang))).await;
                let _ = tokio::time::timeout(pause, client.unary(cargo(direct::Act::Make))).await;
            }
            // Streams that are given up after a few messages, with more under way.
            let mut down = tonic.down(tonics(tonic_made::Act::Echo)).await.unwrap().into_inner();
            for _ in 0..round {
                down.message().await.unwrap().unwrap();
            }
            drop(down);
            let endless = futures_util::stream::repeat(tonics(tonic_made::Act::Echo));
            let mut both = tonic.both(endless).await.unwrap().into_inner();
            assert!(both.next().await.unwrap().is_ok());
            drop(both);
        }
        assert!(channel.payloads().counts().sent_by_ref > 40);
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
        let echo = client.unary(cargo(direct::Act::Echo)).await.unwrap().into_inner();
        assert_eq!(echo.body.len(), LEN, "the session has lived through it");
    })
    .await;
}

#[tokio::test]
async fn calls_that_are_turned_away_or_made_again_leave_nothing() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let carrier = direct::FreightServer::new(direct::Carrier::new(Some(there.clone())));
        let limited = server(Some(&there)).concurrency_limit(1).add_service(carrier);
        let served = lab.serve(limited).await;
        let retries = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s",
            "maxBackoff": "0.002s", "backoffMultiplier": 1, "retryableStatusCodes": ["DATA_LOSS", "RESOURCE_EXHAUSTED"]}}]}"#;
        let channel = served.builder(Some(&here)).service_config(retries).connect().await.unwrap();
        let mut client = direct::FreightClient::new(channel.clone());
        assert_eq!(client.unary(cargo(direct::Act::Fail)).await.unwrap_err().code(), Code::DataLoss);
        assert_eq!(channel.payloads().counts().sent_by_ref, 4, "each attempt, by ref");
        let hanging = tokio::spawn({
            let mut client = client.clone();
            async move { client.unary(cargo(direct::Act::Hang)).await }
        });
        until("the call hangs", || channel.payloads().counts().sent_by_ref == 5).await;
        until("the server has taken it", || served.payloads.counts().received_by_ref == 5).await;
        assert_eq!(client.unary(cargo(direct::Act::Echo)).await.unwrap_err().code(), Code::ResourceExhausted);
        hanging.abort();
        let _ = hanging.await;
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
    })
    .await;
}

#[tokio::test]
async fn calls_that_an_interceptor_refuses_leave_nothing() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let carrier = direct::Carrier::new(Some(there.clone()));
        let refuse = |_: Request<()>| Err(tonic::Status::permission_denied("not today"));
        let refusing = direct::FreightServer::with_interceptor(carrier, refuse);
        let served = lab.serve(server(Some(&there)).add_service(refusing)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = direct::FreightClient::new(channel.clone());
        for _ in 0..3 {
            let refused = client.unary(cargo(direct::Act::Echo)).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
        }
        assert_eq!(channel.payloads().counts().sent_by_ref, 3);
        // While the session lives.
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
    })
    .await;
}

#[tokio::test]
async fn a_session_that_ends_under_its_calls_leaves_nothing() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served = serve(&lab, &there).await;
        for _ in 0..3 {
            let channel = served.connect(Some(&here)).await;
            let calls: Vec<_> = (0..4)
                .map(|_| {
                    let mut client = direct::FreightClient::new(channel.clone());
                    tokio::spawn(async move { client.unary(cargo(direct::Act::Hang)).await })
                })
                .collect();
            until("all calls hang", || channel.payloads().counts().sent_by_ref == 4).await;
            calls.iter().for_each(|call| call.abort());
            for call in calls {
                let _ = call.await;
            }
            drop(channel);
            until_all_is_free(&here).await;
        }
        // The server's end goes first, while replies are on their way.
        let channel = served.connect(Some(&here)).await;
        let mut kept = Vec::new();
        let mut client = direct::FreightClient::new(channel);
        for _ in 0..3 {
            kept.push(client.unary(cargo(direct::Act::Make)).await.unwrap().into_inner().body);
        }
        served.stop().await;
        assert!(client.unary(cargo(direct::Act::Make)).await.is_err());
        assert!(kept.iter().all(|body: &Bytes| body.iter().all(|byte| *byte == 5)));
        assert_eq!(there.usage().limbo_count, 3, "which are what the client holds");
        drop(kept);
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
    })
    .await;
}

#[tokio::test]
async fn a_call_moves_to_a_new_session_with_its_payload() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let uri = lab.uri();
        let path = uri.strip_prefix("shm://").unwrap().to_owned();
        let body: Bytes = here.copy_from_slice(&pattern(1, LEN)).unwrap().into();
        let channel = tollfree::Channel::builder(&*uri).pool(here.clone()).connect_lazy().unwrap();
        // The next server at the address has no pool, and the one after it has.
        for pool in [Some(&there), None, Some(&there)] {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let carrier = direct::FreightServer::new(direct::Carrier::default());
            let server = server(pool).add_service(carrier);
            let address = uri.clone();
            let task = tokio::spawn(async move {
                server.serve_with_shutdown(&address, async { drop(stopped.await) }).await.unwrap();
            });
            while !std::path::Path::new(&path).exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let sent = direct::Cargo { body: body.clone(), ..Default::default() };
            let echo = direct::FreightClient::new(channel.clone()).unary(sent).await.unwrap().into_inner();
            assert!(echo.body == body);
            assert_eq!(echo.body.as_ptr() == body.as_ptr(), pool.is_some());
            let sent = tonic_made::Cargo { body: body.clone(), ..Default::default() };
            let echo =
                tonic_made::FreightClient::new(channel.clone()).unary(sent).await.unwrap().into_inner();
            assert!(echo.body == body);
            drop(stop);
            task.await.unwrap();
        }
        drop(body);
        until_all_is_free(&here).await;
    })
    .await;
}
