//! Cases of compression, message by message. Whether a message was compressed is read off its flag on the wire.

use tonic::{Code, Request};

use super::{Client, Failure, LARGE_RESPONSE_LEN, Outcome, asking, check_zeros, ensure, large, zeros};
use crate::layers::Seen;
use crate::messages::Marks;
use crate::testing::{BoolValue, SimpleRequest, StreamingInputCallRequest};

const COMPRESSED_REQUEST: &str = "the feature CompressedRequest";
const COMPRESSED_RESPONSE: &str = "the feature CompressedResponse";

fn said(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

/// A request whose messages are compressed as marked.
fn marked<T>(message: T, marks: impl IntoIterator<Item = bool>) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Marks::of(marks));
    request
}

/// A server that has the feature refuses a message that is not compressed as it says.
fn check_probe<T>(probe: Result<T, tonic::Status>) -> Outcome {
    match probe {
        Err(status) if status.code() == Code::InvalidArgument => Ok(()),
        Err(status) => Err(Failure::Wrong(format!("the probe should end INVALID_ARGUMENT, not {status}"))),
        Ok(_) => Err(Failure::NotOffered(COMPRESSED_REQUEST)),
    }
}

pub(super) async fn client_compressed_unary(client: Client) -> Outcome {
    let mut stub = client.stub();
    let expecting = |value| SimpleRequest { expect_compressed: said(value), ..large() };
    check_probe(stub.unary_call(expecting(true)).await)?;
    for compressed in [true, false] {
        let response = stub.unary_call(marked(expecting(compressed), [compressed])).await?.into_inner();
        check_zeros(response.payload.as_ref(), LARGE_RESPONSE_LEN)?;
    }
    Ok(())
}

pub(super) async fn client_compressed_streaming(client: Client) -> Outcome {
    let mut stub = client.stub();
    let message =
        |len, value| StreamingInputCallRequest { payload: zeros(len), expect_compressed: said(value) };
    check_probe(stub.streaming_input_call(tokio_stream::iter([message(27_182, true)])).await)?;
    let messages = tokio_stream::iter([message(27_182, true), message(45_904, false)]);
    let response = stub.streaming_input_call(marked(messages, [true, false])).await?.into_inner();
    let sum = response.aggregated_payload_size;
    ensure!(sum == 73_086, "73086 bytes were sent, and the server counted {sum}");
    Ok(())
}

/// A message that was to be compressed, or was not to be.
fn check_mark(seen: &Seen, wanted: bool) -> Outcome {
    match (wanted, seen.marks.next()) {
        (true, false) => Err(Failure::NotOffered(COMPRESSED_RESPONSE)),
        (false, true) => Err(Failure::Wrong("a response is compressed that should not be".to_owned())),
        _ => Ok(()),
    }
}

fn seen<T>(response: &tonic::Response<T>) -> Result<Seen, Failure> {
    let seen = response.extensions().get::<Seen>().cloned();
    seen.ok_or_else(|| Failure::Wrong("the client's layer was not asked".to_owned()))
}

pub(super) async fn server_compressed_unary(client: Client) -> Outcome {
    let mut stub = client.stub();
    for compressed in [true, false] {
        let request = SimpleRequest { response_compressed: said(compressed), ..large() };
        let response = stub.unary_call(request).await?;
        check_mark(&seen(&response)?, compressed)?;
        check_zeros(response.into_inner().payload.as_ref(), LARGE_RESPONSE_LEN)?;
    }
    Ok(())
}

pub(super) async fn server_compressed_streaming(client: Client) -> Outcome {
    let mut request = asking(0, &[31_415, 92_653]);
    request.payload = None;
    request.response_parameters[0].compressed = said(true);
    request.response_parameters[1].compressed = said(false);
    let response = client.stub().streaming_output_call(request).await?;
    let seen = seen(&response)?;
    let mut responses = response.into_inner();
    for (len, compressed) in [(31_415, true), (92_653, false)] {
        let response = responses.message().await?;
        check_zeros(response.and_then(|response| response.payload).as_ref(), len)?;
        check_mark(&seen, compressed)?;
    }
    ensure!(responses.message().await?.is_none(), "more than two responses came");
    Ok(())
}
