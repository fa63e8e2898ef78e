//! Clients behind balancers and proxies, and connections that are refused.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::lab::{Lab, PATIENCE};
use super::reload::reload;

/// A PROXY header, version 2.
fn header(source: SocketAddr) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21".to_vec();
    let (family, ips) = match source.ip() {
        IpAddr::V4(ip) => (0x11, [ip.octets(), [127, 0, 0, 1]].concat()),
        IpAddr::V6(ip) => (0x21, [ip.octets(), [0; 16]].concat()),
    };
    bytes.push(family);
    bytes.extend((ips.len() as u16 + 4).to_be_bytes());
    bytes.extend(ips);
    bytes.extend(source.port().to_be_bytes());
    bytes.extend([0, 80]);
    bytes
}

async fn socket_from(lab: &Lab, host: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((host, 0).into()).unwrap();
    socket.connect(lab.socket_address().parse().unwrap()).await.unwrap()
}

/// A client from an address, whose connections begin with some bytes.
async fn connect(lab: &Lab, host: [u8; 4], first: Vec<u8>) -> ProbeClient<Channel> {
    let address = lab.socket_address();
    let connector = tower::service_fn(move |_| {
        let (address, first) = (address.clone(), first.clone());
        async move {
            let socket = TcpSocket::new_v4()?;
            socket.bind((host, 0).into())?;
            let mut stream = socket.connect(address.parse().unwrap()).await?;
            stream.write_all(&first).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    let channel = Endpoint::try_from(lab.uri.clone()).unwrap().connect_with_connector_lazy(connector);
    ProbeClient::new(channel)
}

async fn caller(client: &mut ProbeClient<Channel>) -> Result<String, Status> {
    call(client, &[]).await
}

async fn call(client: &mut ProbeClient<Channel>, forwarded: &[&str]) -> Result<String, Status> {
    let mut request = Request::new(Ask::default());
    for value in forwarded {
        request.metadata_mut().append("x-forwarded-for", value.parse().unwrap());
    }
    let answer = tokio::time::timeout(PATIENCE, client.unary(request)).await.expect("it ends")?.into_inner();
    Ok(answer.headers.join("\n"))
}

const US: [u8; 4] = [127, 0, 0, 1];

#[tokio::test]
async fn a_balancer_says_where_a_connection_comes_from() {
    let config = "listeners.world.proxy_protocol = [\"127.0.0.1\"]\nlimits.connections_per_address = 1\nlisteners.world.policy = \"p\"\n\
                  [policies.p]\nrules = [{ action = \"allow\", addresses = [\"192.0.2.0/24\", \"2001:db8::/32\"] }]\n";
    let lab = Lab::start(config).await;
    let _attached = lab.attach("default").await;
    let mut client = connect(&lab, US, header("192.0.2.7:77".parse().unwrap())).await;
    let said = caller(&mut client).await.unwrap();
    assert!(said.contains("192.0.2.7:77"), "{said}");
    let mut other = connect(&lab, US, header("[2001:db8::1]:5".parse().unwrap())).await;
    assert!(caller(&mut other).await.unwrap().contains("[2001:db8::1]:5"));
    // Rules and limits go by that address.
    let mut stranger = connect(&lab, US, header("198.51.100.1:1".parse().unwrap())).await;
    assert_eq!(caller(&mut stranger).await.unwrap_err().code(), Code::Unauthenticated);
    let mut second = connect(&lab, US, header("192.0.2.7:78".parse().unwrap())).await;
    caller(&mut second).await.unwrap_err();
    assert_eq!(lab.refused("connections_per_address").await, 1.0);
    assert_eq!(lab.refused("proxy").await, 0.0);
}

#[tokio::test]
async fn connections_without_a_right_header_or_from_elsewhere_are_refused() {
    let lab =
        Lab::start("listeners.world.proxy_protocol = [\"127.0.0.1/32\"]\nlimits.handshake_ms = 300\n").await;
    let _attached = lab.attach("default").await;
    let good = header("192.0.2.7:77".parse().unwrap());
    let mut datagram = good.clone();
    datagram[13] = 0x12;
    let mut short = good.clone();
    short[15] = 3;
    let mut endless = good.clone();
    endless[14..16].copy_from_slice(&[255, 255]);
    let mut refused = 0.0;
    for (host, first) in [
        (US, Vec::new()),
        (US, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        (US, b"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n".to_vec()),
        (US, good[..20].to_vec()),
        (US, datagram),
        (US, short),
        (US, endless),
        // The right header of the wrong one.
        ([127, 0, 0, 2], good.clone()),
    ] {
        let mut stream = socket_from(&lab, host).await;
        drop(stream.write_all(&first).await);
        let mut rest = Vec::new();
        drop(tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it is closed"));
        assert!(rest.is_empty(), "{rest:?}");
        refused += 1.0;
        lab.until_figure("tollfree_gateway_refusals_total{reason=\"proxy\"}", |count| count == refused).await;
    }
    // A balancer that looks whether somebody is here is served as itself.
    let mut local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    assert!(caller(&mut connect(&lab, US, local.clone()).await).await.unwrap().contains("127.0.0.1:"));
    local[12] = 0x11;
    caller(&mut connect(&lab, US, local).await).await.unwrap_err();
    lab.until_figure("tollfree_gateway_connections", |count| count == 0.0).await;
}

#[tokio::test]
async fn a_trusted_proxy_says_where_each_call_comes_from() {
    let config = "listeners.world.forwarded_for = [\"127.0.0.1\", \"10.0.0.0/8\"]\nlisteners.world.policy = \"p\"\n\
                  [policies.p]\nquotas = [{ calls = 2, every_ms = 600000, by = [\"address\"] }]\n";
    let lab = Lab::start(config).await;
    let _attached = lab.attach("default").await;
    let mut client = connect(&lab, US, Vec::new()).await;
    let said = call(&mut client, &["6.6.6.6, 192.0.2.7, 10.1.1.1"]).await.unwrap();
    assert!(said.contains("192.0.2.7:0") && !said.contains("tollfree-"), "{said}");
    call(&mut client, &["192.0.2.7"]).await.unwrap();
    assert_eq!(call(&mut client, &["192.0.2.7"]).await.unwrap_err().code(), Code::ResourceExhausted);
    call(&mut client, &["192.0.2.8"]).await.unwrap();
    let said = call(&mut client, &[]).await.unwrap();
    assert!(said.contains("127.0.0.1:"), "{said}");
    let status = call(&mut client, &["192.0.2.9, unknown"]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert_eq!(lab.refused("forwarded").await, 1.0);
    // A stranger is believed nothing, and a backend does not see what it has said.
    let mut stranger = connect(&lab, [127, 0, 0, 2], Vec::new()).await;
    let said = call(&mut stranger, &["192.0.2.10"]).await.unwrap();
    assert!(said.contains("127.0.0.2:") && !said.contains("192.0.2.10"), "{said}");
    reload(&lab, "").await.unwrap();
    assert!(call(&mut stranger, &["192.0.2.10"]).await.unwrap().contains("x-forwarded-for: 192.0.2.10"));
}

/// The first frame is no SETTINGS: clients that have had those connect again at once.
#[tokio::test]
async fn a_refused_connection_stays_open_for_a_while_and_clients_come_seldom() {
    let lab = Lab::start("limits.connections = 1\n").await;
    let _first = TcpStream::connect(lab.socket_address()).await.unwrap();
    lab.until_figure("tollfree_gateway_connections", |count| count == 1.0).await;
    let began = Instant::now();
    let mut second = TcpStream::connect(lab.socket_address()).await.unwrap();
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, second.read_to_end(&mut said)).await.expect("it is closed").unwrap();
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert!(said[3] == 7 && String::from_utf8_lossy(&said).contains("limits.connections"), "{said:?}");
    // A client without any patience of its own.
    let mut client = connect(&lab, US, Vec::new()).await;
    let (before, began) = (lab.refused("connections").await, Instant::now());
    let mut words = String::new();
    while began.elapsed() < Duration::from_millis(2500) {
        words = format!("{:?}", caller(&mut client).await.unwrap_err());
    }
    let came = lab.refused("connections").await - before;
    assert!((1.0..=4.0).contains(&came), "{came} connections in 2.5 s");
    assert!(words.contains("limits.connections are open already"), "{words}");
    // So many at once are kept open, and the others are closed at once.
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(TcpStream::connect(lab.socket_address()).await.unwrap());
    }
    let began = Instant::now();
    let mut soon = 0;
    for stream in &mut crowd {
        let mut rest = Vec::new();
        if let Ok(ended) = tokio::time::timeout(Duration::from_millis(1), stream.read_to_end(&mut rest)).await
        {
            soon += usize::from(ended.is_ok() || began.elapsed() < Duration::from_millis(900));
        }
    }
    assert!(soon >= 20, "{soon} were closed at once");
}
