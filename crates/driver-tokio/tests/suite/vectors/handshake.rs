//! Handshake messages, and how a real server answers those that it must refuse.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::{Value, json};
use tollfree_driver_tokio::{Accepts, Address, Config, Listener, Purpose};
use tollfree_layout::handshake::{AttachHead, HTTP2_PREFACE, Hello, feature, kind, reason};
use tollfree_layout::limits::{
    AREA_LEN_MAX, GROUP_LEN_MAX, HELLO_LEN, METADATA_LEN_MAX, REGISTRATION_LEN_MAX, SERVICE_COUNT_MAX,
    TARGET_LEN_MAX,
};
use tollfree_region::Region;
use zerocopy::{FromBytes, IntoBytes};

use super::{hex, hold};

const TOKEN: u128 = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f;
const REGION_LEN: usize = 4096 + 32 * 1024;

/// A message as the reference sends it, but for clock and text.
fn message(of_kind: u32) -> Hello {
    let mut hello = Hello::new(of_kind);
    hello.region_len = (REGION_LEN as u32).into();
    hello.ring_len = (32 * 1024).into();
    hello.stream_window = (64 * 1024).into();
    hello.session_window = (80 * 1024 * 1024).into();
    hello.clock_ns = 123_456_789_012_345.into();
    hello.stream_count = if of_kind == kind::WELCOME { 1024 } else { 0 }.into();
    hello.area_len_max = (AREA_LEN_MAX as u32).into();
    hello.metadata_len_max = (METADATA_LEN_MAX as u32).into();
    hello.set_text("vector/1");
    hello
}

/// The same with a token, or the answer to one.
fn with_token(of_kind: u32, token: u128) -> Hello {
    let mut hello = message(of_kind);
    hello.features = feature::UPGRADE.into();
    hello.required = if of_kind == kind::HELLO { feature::UPGRADE } else { 0 }.into();
    hello.token = token.to_be_bytes();
    hello
}

/// The same with the ends of the connection by which the token came.
fn with_ends(client: SocketAddr, server: SocketAddr) -> Hello {
    let bytes = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let mut hello = with_token(kind::HELLO, TOKEN);
    (hello.tcp_client, hello.tcp_client_port) = (bytes(client), client.port().into());
    (hello.tcp_server, hello.tcp_server_port) = (bytes(server), server.port().into());
    hello
}

/// A first message at a gateway, with a registration behind it.
fn with_body(of_kind: u32, body: &[u8]) -> Vec<u8> {
    let mut hello = message(of_kind);
    hello.stream_count = if of_kind == kind::ATTACH { 1024 } else { 0 }.into();
    hello.body_len = (body.len() as u32).into();
    [hello.as_bytes(), body].concat()
}

/// A registration of a process that attaches.
fn registration(group: &[u8], service_count: u16, services: &[&[u8]]) -> Vec<u8> {
    let head = AttachHead {
        process: TOKEN.to_be_bytes(),
        backend_connection: 1.into(),
        group_len: (group.len() as u16).into(),
        service_count: service_count.into(),
    };
    let services = services.iter().flat_map(|name| [&[name.len() as u8], *name].concat());
    head.as_bytes().iter().copied().chain(group.iter().copied()).chain(services).collect()
}

/// What a gateway refuses: name, bytes, reason.
fn refused_by_gateways() -> Vec<(&'static str, Vec<u8>, u32)> {
    let attach = |body: &[u8]| with_body(kind::ATTACH, body);
    let service: &[u8] = b"shop.Orders";
    let mut endless = message(kind::ATTACH);
    endless.body_len = (REGISTRATION_LEN_MAX as u32 + 1).into();
    let whole = registration(b"orders", 1, &[service]);
    let cases = vec![
        ("a client of a server", with_body(kind::HELLO, b"")),
        ("a registration too long, of which nothing has come", endless.as_bytes().to_vec()),
        ("no registration", attach(b"")),
        ("a registration without its last byte", attach(&whole[..whole.len() - 1])),
        ("a byte behind the last name", attach(&[&whole[..], b"x"].concat())),
        ("a group without a name", attach(&registration(b"", 0, &[]))),
        ("a group's name too long", attach(&registration(&[b'g'; GROUP_LEN_MAX + 1], 0, &[]))),
        ("a group's name that is no text", attach(&registration(b"or\xffers", 0, &[]))),
        ("a service without a name", attach(&registration(b"orders", 1, &[b""]))),
        ("a service's name with a slash", attach(&registration(b"orders", 1, &[b"shop/Orders"]))),
        ("a service's name in two lines", attach(&registration(b"orders", 1, &[b"shop\nOrders"]))),
        (
            "services too many",
            attach(&registration(
                b"orders",
                SERVICE_COUNT_MAX as u16 + 1,
                &[&b"s"[..]; SERVICE_COUNT_MAX + 1],
            )),
        ),
        ("more services announced than there are", attach(&registration(b"orders", 2, &[service]))),
        ("no target", with_body(kind::VIA, b"")),
        ("a target of two words", with_body(kind::VIA, b"two words")),
        ("a target too long", with_body(kind::VIA, &[b't'; TARGET_LEN_MAX + 1])),
    ];
    cases.into_iter().map(|(name, bytes)| (name, bytes, reason::MALFORMED)).collect()
}

fn refusal() -> Hello {
    let mut hello = Hello::new(kind::REFUSAL);
    hello.reason = reason::USER.into();
    hello.set_text("user 7 is not allowed here");
    hello
}

fn vector(name: &str, hello: &Hello) -> Value {
    json!({
        "name": name,
        "kind": hello.kind.get(),
        "version_min": hello.version_min.get(),
        "version_max": hello.version_max.get(),
        "features": hello.features.get(),
        "required": hello.required.get(),
        "region_len": hello.region_len.get(),
        "ring_len": hello.ring_len.get(),
        "stream_window": hello.stream_window.get(),
        "session_window": hello.session_window.get(),
        "clock_ns": hello.clock_ns.get(),
        "stream_count": hello.stream_count.get(),
        "area_len_max": hello.area_len_max.get(),
        "metadata_len_max": hello.metadata_len_max.get(),
        "reason": hello.reason.get(),
        "text": hello.text(),
        "token": hex(&hello.token),
        "tcp_client": hex(&hello.tcp_client),
        "tcp_server": hex(&hello.tcp_server),
        "tcp_client_port": hello.tcp_client_port.get(),
        "tcp_server_port": hello.tcp_server_port.get(),
        "hex": hex(hello.as_bytes()),
    })
}

/// The same of a message with a registration behind it.
fn vector_with_body(name: &str, bytes: &[u8]) -> Value {
    let (hello, body) = Hello::read_from_prefix(bytes).expect("the bytes begin with a message");
    let mut vector = vector(name, &hello);
    vector["body_len"] = json!(hello.body_len.get());
    vector["body"] = json!(hex(body));
    vector
}

/// A HELLO that a server refuses: name, bytes, the descriptor's region if any, reason.
type Refused = (&'static str, Vec<u8>, Option<usize>, u32);

fn refused() -> Vec<Refused> {
    let with = |change: fn(&mut Hello)| {
        let mut hello = message(kind::HELLO);
        change(&mut hello);
        hello.as_bytes().to_vec()
    };
    let all = Some(REGION_LEN);
    vec![
        ("another magic", [&b"TOLLFREF"[..], &[0; HELLO_LEN - 8]].concat(), all, reason::MALFORMED),
        ("a client of HTTP/2", HTTP2_PREFACE.to_vec(), None, reason::MALFORMED),
        ("versions upside down", with(|hello| hello.version_min = 2.into()), all, reason::VERSION),
        (
            "only newer versions",
            with(|hello| (hello.version_min, hello.version_max) = (2.into(), 9.into())),
            all,
            reason::VERSION,
        ),
        (
            "only older versions",
            with(|hello| (hello.version_min, hello.version_max) = (0.into(), 0.into())),
            all,
            reason::VERSION,
        ),
        ("another kind", with(|hello| hello.kind = kind::WELCOME.into()), all, reason::MALFORMED),
        ("a process that attaches", with_body(kind::ATTACH, b""), all, reason::MALFORMED),
        (
            "a call by way of a gateway",
            with_body(kind::VIA, b"https://inventory:443"),
            all,
            reason::MALFORMED,
        ),
        (
            "a feature that nobody knows",
            with(|hello| hello.required = (1 << 63).into()),
            all,
            reason::FEATURE,
        ),
        (
            "a token, where none are given out",
            with_token(kind::HELLO, TOKEN).as_bytes().to_vec(),
            all,
            reason::TOKEN,
        ),
        ("no descriptor", with(|_| ()), None, reason::MALFORMED),
        ("a ring too short", with(|hello| hello.ring_len = 2048.into()), all, reason::REGION),
        ("a ring too long", with(|hello| hello.ring_len = 65536.into()), all, reason::REGION),
        ("a ring of no power of two", with(|hello| hello.ring_len = 12288.into()), all, reason::REGION),
        ("a ring beyond its region", with(|hello| hello.region_len = 32768.into()), all, reason::REGION),
        ("a region too long", with(|hello| hello.region_len = 69632.into()), Some(69632), reason::REGION),
        ("metadata too short", with(|hello| hello.metadata_len_max = 255.into()), all, reason::REGION),
        ("a stream window too small", with(|hello| hello.stream_window = 255.into()), all, reason::REGION),
        ("a session window too small", with(|hello| hello.session_window = 255.into()), all, reason::REGION),
        ("a region of another length", with(|_| ()), Some(REGION_LEN - 4096), reason::REGION),
    ]
}

/// One of two faults that a HELLO has: the number of a server's check that finds it, what makes it, and the reason.
type Fault = (u32, &'static str, fn(&mut Hello), u32);

/// The check that finds that no descriptor came.
const DESCRIPTOR: u32 = 9;

/// Each fault with each of those that come after it, where the two have different reasons: the first counts.
fn refused_for_the_first() -> Vec<(String, Vec<u8>, Option<usize>, u32)> {
    let faults: [Fault; 9] = [
        (
            3,
            "only newer versions",
            |hello| (hello.version_min, hello.version_max) = (2.into(), 9.into()),
            reason::VERSION,
        ),
        (4, "another kind", |hello| hello.kind = kind::WELCOME.into(), reason::MALFORMED),
        (5, "a feature that nobody knows", |hello| hello.required = (1 << 63).into(), reason::FEATURE),
        (
            7,
            "a token, where none are given out",
            |hello| {
                hello.features = feature::UPGRADE.into();
                hello.token = TOKEN.to_be_bytes();
            },
            reason::TOKEN,
        ),
        (DESCRIPTOR, "no descriptor", |_| (), reason::MALFORMED),
        (10, "a ring too short", |hello| hello.ring_len = 1.into(), reason::REGION),
        (11, "a ring beyond its region", |hello| hello.region_len = 4096.into(), reason::REGION),
        (12, "metadata too short", |hello| hello.metadata_len_max = 255.into(), reason::REGION),
        (13, "a stream window too small", |hello| hello.stream_window = 255.into(), reason::REGION),
    ];
    let mut pairs = Vec::new();
    for (idx, (check, name, change, expected)) in faults.iter().enumerate() {
        for (later, second, also, reason) in &faults[idx + 1..] {
            if expected == reason {
                continue;
            }
            let mut hello = message(kind::HELLO);
            change(&mut hello);
            also(&mut hello);
            let region_len = (![*check, *later].contains(&DESCRIPTOR)).then_some(REGION_LEN);
            pairs.push((format!("{name}, and {second}"), hello.as_bytes().to_vec(), region_len, *expected));
        }
    }
    pairs
}

fn send(socket: &UnixStream, bytes: &[u8], fd: Option<BorrowedFd<'_>>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(bytes.len()));
}

/// What a server says to these bytes.
fn answer(name: &str, bytes: &[u8], region_len: Option<usize>) -> Hello {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).expect("a short name");
    let socket = UnixStream::connect_addr(&address).expect("the server listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time that isn't 0");
    let region = region_len.map(|len| Region::create("vector", len).expect("a small region"));
    send(&socket, bytes, region.as_ref().map(|region| region.fd()));
    let mut answer = [0; HELLO_LEN];
    (&socket).read_exact(&mut answer).expect("a server answers every client");
    Hello::read_from_bytes(&answer).expect("the length is the type's own")
}

/// A server or gateway lets these in, and takes so many calls at once.
async fn check_welcome(name: String, bytes: Vec<u8>, stream_count: u32) {
    let got = tokio::task::spawn_blocking(move || answer(&name, &bytes, Some(REGION_LEN))).await.unwrap();
    assert_eq!(got.kind.get(), kind::WELCOME, "{}", got.text());
    assert_eq!((got.version_min.get(), got.version_max.get()), (1, 1));
    assert_eq!(got.stream_count.get(), stream_count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn handshake_messages_are_as_written_down() {
    let name = format!("tollfree-vectors-{}", std::process::id());
    let address: Address = format!("shm-abstract:{name}").parse().unwrap();
    let _listener = Listener::bind(&address, Config::default()).unwrap();
    let mut refusals = Vec::new();
    let single =
        refused().into_iter().map(|(what, bytes, len, reason)| (what.to_owned(), bytes, len, reason));
    for (what, bytes, region_len, expected) in single.chain(refused_for_the_first()) {
        let sent = (name.clone(), bytes.clone());
        let got = tokio::task::spawn_blocking(move || answer(&sent.0, &sent.1, region_len)).await.unwrap();
        assert_eq!(got.kind.get(), kind::REFUSAL, "{what}");
        assert_eq!(got.reason.get(), expected, "{what}: {}", got.text());
        refusals
            .push(json!({ "name": what, "region_len": region_len, "hex": hex(&bytes), "reason": expected }));
    }
    let fine = message(kind::HELLO).as_bytes().to_vec();
    check_welcome(name.clone(), fine, 1024).await;

    let name = format!("{name}-gateway");
    let address: Address = format!("shm-abstract:{name}").parse().unwrap();
    let mut door =
        Listener::bind(&address, Config { accepts: Accepts::Backends, ..Config::default() }).unwrap();
    let mut refusals_by_gateways = Vec::new();
    for (what, bytes, expected) in refused_by_gateways() {
        let sent = (name.clone(), bytes.clone());
        let got =
            tokio::task::spawn_blocking(move || answer(&sent.0, &sent.1, Some(REGION_LEN))).await.unwrap();
        assert_eq!(got.kind.get(), kind::REFUSAL, "{what}");
        assert_eq!(got.reason.get(), expected, "{what}: {}", got.text());
        refusals_by_gateways
            .push(json!({ "name": what, "region_len": REGION_LEN, "hex": hex(&bytes), "reason": expected }));
    }
    let attach =
        with_body(kind::ATTACH, &registration(b"orders", 2, &[b"shop.Orders", b"grpc.health.v1.Health"]));
    check_welcome(name.clone(), attach.clone(), 0).await;
    let attached = door.accept().await.unwrap();
    let Purpose::Attach(said) = attached.purpose() else { panic!("{:?}", attached.purpose()) };
    assert_eq!((&*said.group, said.backend_connection), ("orders", 1));
    assert_eq!(*said.services, ["shop.Orders", "grpc.health.v1.Health"]);
    let via = with_body(kind::VIA, b"https://inventory:443");
    check_welcome(name, via.clone(), 1024).await;
    let session = door.accept().await.unwrap();
    assert_eq!(*session.purpose(), Purpose::Via("https://inventory:443".into()));

    let messages = json!([
        vector("a client asks", &message(kind::HELLO)),
        vector("a server agrees", &message(kind::WELCOME)),
        vector("a server declines", &refusal()),
        vector("a client asks, with a token", &with_token(kind::HELLO, TOKEN)),
        vector(
            "a client asks, with a token and the ends of its connection",
            &with_ends("127.0.0.1:50000".parse().unwrap(), "127.0.0.1:443".parse().unwrap()),
        ),
        vector(
            "the same over IPv6",
            &with_ends("[2001:db8::7]:50000".parse().unwrap(), "[2001:db8::7]:443".parse().unwrap()),
        ),
        vector("a server agrees, and answers the token", &with_token(kind::WELCOME, !TOKEN)),
        vector_with_body("a process attaches to a gateway", &attach),
        vector_with_body("a client calls by way of a gateway", &via),
    ]);
    hold(
        "handshake.json",
        &json!({ "messages": messages, "refused": refusals, "refused_by_gateways": refusals_by_gateways }),
    );
}
