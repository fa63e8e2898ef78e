//! Cases about many calls.

use futures_util::future::try_join_all;

use super::{Client, Failure, LARGE_RESPONSE_LEN, Outcome, check_zeros, ensure, large, stub, zeros};
use crate::channel::AnyChannel;
use crate::testing::SimpleRequest;

async fn one_large(channel: &AnyChannel) -> Outcome {
    let response = stub(channel).unary_call(large()).await?.into_inner();
    check_zeros(response.payload.as_ref(), LARGE_RESPONSE_LEN)
}

pub(super) async fn concurrent_large_unary(client: Client) -> Outcome {
    let calls = (0..client.load.parallel_count).map(|_| one_large(&client.channel));
    try_join_all(calls).await?;
    Ok(())
}

pub(super) async fn rpc_soak(client: Client) -> Outcome {
    for _ in 0..client.load.soak_count {
        one_large(&client.channel).await?;
    }
    Ok(())
}

pub(super) async fn channel_soak(client: Client) -> Outcome {
    let mut channel = client.channel;
    for _ in 0..client.load.soak_count {
        drop(channel);
        channel = client.target.connect().await?;
        one_large(&channel).await?;
    }
    Ok(())
}

pub(super) async fn pick_first_unary(client: Client) -> Outcome {
    let mut stub = client.stub();
    let mut first = String::new();
    for idx in 0..100 {
        let request = SimpleRequest {
            response_size: 1,
            payload: zeros(1),
            fill_server_id: true,
            ..SimpleRequest::default()
        };
        let id = stub.unary_call(request).await?.into_inner().server_id;
        if id.is_empty() {
            return Err(Failure::NotOffered("an id to fill in"));
        }
        if idx == 0 {
            first = id;
        } else {
            ensure!(id == first, "call {idx} was answered by {id}, the first by {first}");
        }
    }
    Ok(())
}
