//! Cases about how calls end.

use std::time::Duration;

use tonic::{Code, Status};

use super::{Client, Failure, Outcome, asking, by_hand, check_zeros, ensure, send, zeros};
use crate::testing::unimplemented_service_client::UnimplementedServiceClient;
use crate::testing::{
    EchoStatus, Empty, SimpleRequest, StreamingInputCallRequest, StreamingOutputCallRequest,
};

fn check<T>(outcome: Result<T, Status>, code: Code, message: Option<&str>) -> Outcome {
    let Err(status) = outcome else {
        return Err(Failure::Wrong(format!("the call should end {code:?}, and it succeeded")));
    };
    ensure!(status.code() == code, "the call should end {code:?}, and it ended {status}");
    if let Some(message) = message {
        ensure!(status.message() == message, "the message is {:?}, not {message:?}", status.message());
    }
    Ok(())
}

pub(super) async fn status_code_and_message(client: Client) -> Outcome {
    let message = "test status message";
    let echo = Some(EchoStatus { code: Code::Unknown as i32, message: message.to_owned() });
    let request = SimpleRequest { response_status: echo.clone(), ..SimpleRequest::default() };
    check(client.stub().unary_call(request).await, Code::Unknown, Some(message))?;

    let request = StreamingOutputCallRequest { response_status: echo, ..Default::default() };
    let outcome = match client.stub().full_duplex_call(tokio_stream::iter([request])).await {
        Ok(response) => response.into_inner().message().await,
        Err(status) => Err(status),
    };
    check(outcome, Code::Unknown, Some(message))
}

pub(super) async fn special_status_message(client: Client) -> Outcome {
    let message = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
    let echo = Some(EchoStatus { code: Code::Unknown as i32, message: message.to_owned() });
    let request = SimpleRequest { response_status: echo, ..SimpleRequest::default() };
    check(client.stub().unary_call(request).await, Code::Unknown, Some(message))
}

pub(super) async fn unimplemented_method(client: Client) -> Outcome {
    check(client.stub().unimplemented_call(Empty {}).await, Code::Unimplemented, None)
}

pub(super) async fn unimplemented_service(client: Client) -> Outcome {
    let mut stub = UnimplementedServiceClient::new(client.channel.clone());
    check(stub.unimplemented_call(Empty {}).await, Code::Unimplemented, None)
}

pub(super) async fn cancel_after_begin(client: Client) -> Outcome {
    let (sender, mut request) = by_hand::<StreamingInputCallRequest>();
    let cancel = request.cancellation_handle();
    let mut stub = client.stub();
    let call = tokio::spawn(async move { stub.streaming_input_call(request).await });
    // Time for the headers to go out. A call that is cancelled earlier still must end so.
    tokio::time::sleep(Duration::from_millis(20)).await;
    ensure!(!call.is_finished(), "the call ended by itself");
    cancel.cancel();
    let outcome = call.await.map_err(|error| Failure::Wrong(format!("the call's task: {error}")))?;
    check(outcome, Code::Cancelled, None)?;
    drop(sender);
    Ok(())
}

pub(super) async fn cancel_after_first_response(client: Client) -> Outcome {
    let (sender, mut request) = by_hand();
    let cancel = request.cancellation_handle();
    send(&sender, asking(27_182, &[31_415])).await?;
    let mut responses = client.stub().full_duplex_call(request).await?.into_inner();
    let first = responses.message().await?;
    check_zeros(first.and_then(|response| response.payload).as_ref(), 31_415)?;
    cancel.cancel();
    check(responses.message().await, Code::Cancelled, None)?;
    drop(sender);
    Ok(())
}

pub(super) async fn timeout_on_sleeping_server(client: Client) -> Outcome {
    let (sender, mut request) = by_hand();
    request.set_timeout(Duration::from_millis(1));
    // Asks for no response and does not half-close: the server has nothing to do but wait.
    send(&sender, StreamingOutputCallRequest { payload: zeros(27_182), ..Default::default() }).await?;
    let outcome = match client.stub().full_duplex_call(request).await {
        Ok(response) => response.into_inner().message().await,
        Err(status) => Err(status),
    };
    drop(sender);
    check(outcome, Code::DeadlineExceeded, None)
}
