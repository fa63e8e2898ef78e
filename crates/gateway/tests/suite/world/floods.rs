//! Peers that write HTTP/2, or messages, as no client does.

use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollfree_stubs::probe::Ask;
use tonic::Code;

use super::lab::{Attached, Lab, PATIENCE};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A connection that has begun as HTTP/2's do.
async fn connection(lab: &Lab) -> TcpStream {
    let mut stream = TcpStream::connect(lab.socket_address()).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    stream
}

/// The headers of a call, without Huffman's code.
fn head(path: &str) -> Vec<u8> {
    // POST and http are in the table of HPACK; so are the names of the others.
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(&[0x04_u8][..], path), (&[0x01], "localhost"), (&[0x0f, 0x10], "application/grpc")]
    {
        block.extend(name);
        block.push(value.len() as u8);
        block.extend(value.as_bytes());
    }
    block
}

/// Waits until the gateway closes a connection.
async fn closed(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    // A reset is an end too.
    drop(read.expect("the gateway closes the connection"));
}

async fn until_live(attached: &Attached, wanted: usize) {
    let begun = tokio::time::Instant::now();
    while attached.probe.live.load(Ordering::SeqCst) != wanted {
        assert!(begun.elapsed() < PATIENCE, "{wanted} handlers are wanted");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn headers_without_an_end_end_their_connection() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let mut flood = connection(&lab).await;
    flood.write_all(&frame(HEADERS, END_STREAM, 1, &head("/tollfree.probe.v1.Probe/Unary"))).await.unwrap();
    // A header that is new each time: a literal of a new name, 16 kB of value in all.
    let mut piece = vec![0x00, 1, b'x', 0x7f, 0x81, 0x7e];
    piece.resize(6 + 127 + 0x81 - 0x80 + (0x7e << 7), b'v');
    let next = frame(CONTINUATION, 0, 1, &piece);
    let mut sent = 0;
    let flooding = async {
        while flood.write_all(&next).await.is_ok() {
            sent += next.len();
            assert!(sent < 1 << 30, "nobody stops it");
        }
    };
    tokio::time::timeout(PATIENCE, flooding).await.expect("the connection ends");
    client.unary(Ask::default()).await.expect("other connections go on");
    lab.until_figure("tollfree_gateway_connections", |count| count == 1.0).await;
}

#[tokio::test]
async fn headers_that_never_go_on_end_their_connection() {
    let lab = Lab::start("limits.idle_ms = 200\nlimits.drain_ms = 200\n").await;
    let mut slow = connection(&lab).await;
    slow.write_all(&frame(HEADERS, 0, 1, &head("/tollfree.probe.v1.Probe/Unary"))).await.unwrap();
    closed(&mut slow).await;
    lab.until_figure("tollfree_gateway_connections", |count| count == 0.0).await;
}

#[tokio::test]
async fn a_half_closed_connection_ends_its_calls() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let mut half = connection(&lab).await;
    half.write_all(&frame(HEADERS, END_HEADERS, 1, &head("/tollfree.probe.v1.Probe/Up"))).await.unwrap();
    until_live(&attached, 1).await;
    half.shutdown().await.unwrap();
    until_live(&attached, 0).await;
    closed(&mut half).await;
    lab.until_figure("tollfree_gateway_connections", |count| count == 0.0).await;
}

/// A client that doesn't heed the limit: HTTP/2 refuses what goes beyond, and no handler hears of it.
#[tokio::test]
async fn streams_beyond_the_limit_are_refused() {
    const REFUSED_STREAM: u32 = 7;
    let lab = Lab::start("limits.streams = 3\n").await;
    let attached = lab.attach("default").await;
    let mut greedy = connection(&lab).await;
    let ids: Vec<u32> = (0..10).map(|idx| 2 * idx + 1).collect();
    for &id in &ids {
        let open = frame(HEADERS, END_HEADERS, id, &head("/tollfree.probe.v1.Probe/Up"));
        greedy.write_all(&open).await.unwrap();
    }
    let mut refused = Vec::new();
    while refused.len() < ids.len() - 3 {
        let mut header = [0; 9];
        let read = tokio::time::timeout(PATIENCE, greedy.read_exact(&mut header)).await;
        read.expect("the streams beyond the limit are refused").unwrap();
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; len as usize];
        greedy.read_exact(&mut payload).await.unwrap();
        if header[3] == RST_STREAM {
            assert_eq!(payload, REFUSED_STREAM.to_be_bytes());
            refused.push(u32::from_be_bytes(header[5..].try_into().unwrap()));
        }
    }
    assert_eq!(refused, ids[3..]);
    until_live(&attached, 3).await;
    assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 3);
    drop(greedy);
    until_live(&attached, 0).await;
}

/// Bytes that are no message of the method: the backend says so, and answers the next call.
#[tokio::test]
async fn a_message_that_is_none_ends_its_call_and_the_backend_connection_lives() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let address = lab.socket_address();
    let nonsense: [&[u8]; 5] = [
        // A length beyond the message, a group that doesn't end, a wire type that there isn't, and varints without an end.
        b"\x0a\xff\xff\xff\xff\x7f",
        b"\x0b\x0b\x0b\x0b",
        b"\x0f",
        &[0x80; 64],
        &[0xff; 5000],
    ];
    for bytes in nonsense {
        let stream = TcpStream::connect(&address).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post("http://localhost/tollfree.probe.v1.Probe/Unary");
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        let (answer, mut body) = sender.ready().await.unwrap().send_request(request, false).unwrap();
        let mut framed = vec![0];
        framed.extend((bytes.len() as u32).to_be_bytes());
        framed.extend(bytes);
        body.send_data(framed.into(), true).unwrap();
        let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer").unwrap();
        let code = answer.headers()["grpc-status"].to_str().unwrap().parse::<i32>().unwrap();
        assert!(matches!(Code::from_i32(code), Code::Internal | Code::InvalidArgument), "{code}");
        client.unary(Ask::default()).await.expect("the backend connection lives");
    }
}
