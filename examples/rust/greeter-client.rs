//! Calls the greeter: `cargo run --example greeter-server`, then this one.

use tollfree_stubs::greeter::HelloRequest;
use tollfree_stubs::greeter::greeter_client::GreeterClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let channel = tollfree::Channel::connect("shm:///tmp/greeter.sock").await?;
    println!("{}", channel.path());
    let mut client = GreeterClient::new(channel);
    let reply = client.hello(HelloRequest { name: "world".into() }).await?;
    println!("{}", reply.into_inner().text);
    Ok(())
}
