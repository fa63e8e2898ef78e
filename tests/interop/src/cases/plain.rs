//! Cases that send messages and get messages.

use tokio_stream::StreamExt as _;
use tonic::Streaming;

use super::{
    Client, LARGE_RESPONSE_LEN, Outcome, REQUEST_LENS, RESPONSE_LENS, asking, by_hand, check_zeros, ensure,
    large, send, zeros,
};
use crate::testing::{Empty, StreamingInputCallRequest, StreamingOutputCallResponse};

pub(super) async fn empty_unary(client: Client) -> Outcome {
    client.stub().empty_call(Empty {}).await?;
    Ok(())
}

pub(super) async fn large_unary(client: Client) -> Outcome {
    let response = client.stub().unary_call(large()).await?.into_inner();
    check_zeros(response.payload.as_ref(), LARGE_RESPONSE_LEN)
}

pub(super) async fn client_streaming(client: Client) -> Outcome {
    let requests = REQUEST_LENS
        .map(|len| StreamingInputCallRequest { payload: zeros(len), ..StreamingInputCallRequest::default() });
    let response = client.stub().streaming_input_call(tokio_stream::iter(requests)).await?.into_inner();
    let sum = response.aggregated_payload_size;
    ensure!(sum == 74_922, "74922 bytes were sent, and the server counted {sum}");
    Ok(())
}

/// The stream has these responses and no more, and ends well.
async fn check_all(mut responses: Streaming<StreamingOutputCallResponse>, lens: &[i32]) -> Outcome {
    for &len in lens {
        let response = responses.next().await.transpose()?;
        ensure!(response.is_some(), "the stream ended where a response of {len} bytes should come");
        check_zeros(response.and_then(|response| response.payload).as_ref(), len as usize)?;
    }
    let more = responses.next().await.transpose()?;
    ensure!(more.is_none(), "more than {} responses came", lens.len());
    Ok(())
}

pub(super) async fn server_streaming(client: Client) -> Outcome {
    let mut request = asking(0, &RESPONSE_LENS);
    request.payload = None;
    let responses = client.stub().streaming_output_call(request).await?.into_inner();
    check_all(responses, &RESPONSE_LENS).await
}

pub(super) async fn ping_pong(client: Client) -> Outcome {
    let (sender, request) = by_hand();
    // The server may answer before it has seen a request, or not.
    send(&sender, asking(REQUEST_LENS[0], &RESPONSE_LENS[..1])).await?;
    let mut responses = client.stub().full_duplex_call(request).await?.into_inner();
    for (idx, len) in RESPONSE_LENS.into_iter().enumerate() {
        if idx > 0 {
            send(&sender, asking(REQUEST_LENS[idx], &[len])).await?;
        }
        let response = responses.next().await.transpose()?;
        check_zeros(response.and_then(|response| response.payload).as_ref(), len as usize)?;
    }
    drop(sender);
    check_all(responses, &[]).await
}

pub(super) async fn empty_stream(client: Client) -> Outcome {
    let responses = client.stub().full_duplex_call(tokio_stream::empty()).await?.into_inner();
    check_all(responses, &[]).await
}
