//! A client that has begun a call and polls nothing of it, for servers of other implementations to drain and close meanwhile.

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tollfree::Channel;
use tollfree_interop::testing::test_service_client::TestServiceClient;
use tollfree_interop::testing::{Empty, StreamingOutputCallRequest};

use crate::Error;

/// Begins a call with a stream of answers, and reads the first. After a line of the standard input it makes another call; after a second line it reads the
/// rest of the stream. It prints what it has done, a line each.
pub(crate) async fn run(address: &str) -> Result<(), Error> {
    let mut starter = BufReader::new(tokio::io::stdin()).lines();
    let mut client = TestServiceClient::new(Channel::builder(address).wait_for_ready(true).connect_lazy()?);
    let request = StreamingOutputCallRequest::default();
    let mut stream = client.streaming_output_call(request).await?.into_inner();
    let first = stream.message().await?;
    println!("{}", if first.is_some() { "begun" } else { "nothing came" });
    starter.next_line().await?;
    client.empty_call(Empty {}).await?;
    println!("called");
    starter.next_line().await?;
    let mut count = 0;
    while stream.message().await?.is_some() {
        count += 1;
    }
    println!("{count} more");
    Ok(())
}
