//! Faults of the byte stream: connections that are cut, delayed or go silent, peers that say what no peer says, and certificates that
//! are of no use. Each ends that session, in time and in words, and no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tollfree_driver_tokio::*;
use tollfree_layout::RingPos;
use tollfree_layout::device::{HEAD_LEN, Head, PROTOCOL, kind};
use tollfree_layout::handshake::{AttachHead, Hello, PROCESS_ID_LEN, kind as hello_kind, reason};
use tollfree_layout::limits::{HELLO_LEN, LINE_LEN, RING_LEN_DEFAULT};
use tollfree_layout::record::head_word;
use zerocopy::{FromBytes, IntoBytes};

use super::lab::{Authority, Lab, Pair, in_time};

use crate::echo::{begin, call, check_calls, read_message, serve};

const LINE_COUNT: u64 = (RING_LEN_DEFAULT / LINE_LEN) as u64;

async fn ended(attachment: &Attachment) -> String {
    let ended = async {
        loop {
            if let Some(closed) = attachment.closed() {
                return closed.to_string();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(ended).await
}

/// An honest session goes on, whatever happens to others.
async fn others_go_on(lab: &mut Lab) {
    let pair = lab.pair().await;
    let backends = pair.backends.clone();
    let _echo = tokio::spawn(async move { serve(&backends).await });
    in_time(check_calls(&pair.gateway, 5)).await;
}

/// A peer that knows TLS and its own mind.
struct Rogue {
    stream: TlsStream<TcpStream>,
    welcome: Hello,
}

fn client_config(files: &Certificates, with_own: bool, protocol: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.ca).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = if with_own {
        let chain = vec![CertificateDer::from_pem_file(&files.certificate).unwrap()];
        builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&files.key).unwrap()).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

async fn tls(lab: &Lab, with_own: bool, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
    let config = client_config(&lab.backend_certificates(), with_own, protocol);
    let socket = TcpStream::connect(("127.0.0.1", lab.port())).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), socket).await
}

fn hello(of_kind: u32) -> Hello {
    let mut hello = Hello::new(of_kind);
    hello.features = 0.into();
    hello.ring_len = (RING_LEN_DEFAULT as u32).into();
    hello.region_len = (RING_LEN_DEFAULT as u32 + 4096).into();
    hello.stream_window = 65536.into();
    hello.session_window = (1 << 24).into();
    hello.stream_count = 64.into();
    hello.metadata_len_max = 8192.into();
    hello
}

fn body() -> Vec<u8> {
    let head = AttachHead {
        process: [5; PROCESS_ID_LEN],
        backend_connection: 0.into(),
        group_len: 5.into(),
        service_count: 0.into(),
    };
    [head.as_bytes(), b"group"].concat()
}

fn request() -> Vec<u8> {
    let mut hello = hello(hello_kind::ATTACH);
    hello.body_len = (body().len() as u32).into();
    [hello.as_bytes(), &body()].concat()
}

async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> Hello {
    let mut bytes = [0; HELLO_LEN];
    in_time(stream.read_exact(&mut bytes)).await.unwrap();
    Hello::read_from_bytes(&bytes).unwrap()
}

impl Rogue {
    /// With the gateway's end of its session.
    async fn attach(lab: &mut Lab) -> (Rogue, Attachment) {
        let mut stream = tls(lab, true, PROTOCOL).await.unwrap();
        stream.write_all(&request()).await.unwrap();
        let welcome = answer(&mut stream).await;
        assert_eq!(welcome.kind.get(), hello_kind::WELCOME, "{}", welcome.text());
        (Rogue { stream, welcome }, lab.accept().await)
    }

    async fn say(&mut self, message: &[u8]) {
        self.stream.write_all(message).await.unwrap();
        self.stream.flush().await.unwrap();
    }
}

fn message(of_kind: u8, at: u64, consumed: u64, lines: &[u8]) -> Vec<u8> {
    let head = Head {
        kind: of_kind,
        zero: 0,
        line_count: ((lines.len() / LINE_LEN) as u16).into(),
        load: 0.into(),
        consumed: consumed.into(),
        at: at.into(),
    };
    [head.as_bytes(), lines].concat()
}

/// A line that is a record of `len` zeros, at a position.
fn record(at: u64, len: u32) -> Vec<u8> {
    let mut line = vec![0; LINE_LEN];
    line[..8].copy_from_slice(&head_word(RingPos(at), len).to_le_bytes());
    line
}

/// Says `what` as the first word of a session, which has to end for the reason that is told.
async fn says(what: &[u8], expected: &str) {
    let mut lab = Lab::stream().await;
    let (mut rogue, gateway) = Rogue::attach(&mut lab).await;
    assert_eq!(rogue.welcome.area_len_max.get(), 0, "nothing is mapped over a stream");
    rogue.say(what).await;
    let why = ended(&gateway).await;
    assert!(why.contains(expected), "{why:?} without {expected:?}");
    // It is told why, and then nothing.
    let mut told = Vec::new();
    let _ = in_time(rogue.stream.read_to_end(&mut told)).await;
    others_go_on(&mut lab).await;
}

#[tokio::test]
async fn garbage_ends_the_session() {
    says(&[0xff; 64], "of no kind").await;
    says(&message(0, 0, 0, &[]), "of no kind").await;
    says(&message(kind::WRITE, 0, 0, &[]), "of no kind").await;
    says(&message(kind::COMPLETE, 0, 0, &record(0, 8)), "of no kind").await;
    let mut with_bits = message(kind::BEAT, 0, 0, &[]);
    with_bits[1] = 1;
    says(&with_bits, "bits that mean nothing").await;
    // What a ring has to find is found: a head word that is none, and a frame that is none.
    says(&message(kind::WRITE, 0, 0, &[0xee; LINE_LEN]), "ring").await;
    says(&message(kind::WRITE, 0, 0, &record(0, 8)), "frame").await;
}

#[tokio::test]
async fn what_was_never_asked_or_is_completed_twice_ends_the_session() {
    says(&message(kind::COMPLETE, 0, 1, &[]), "completion of what was not written").await;
    says(&message(kind::COMPLETE, 0, u64::MAX, &[]), "completion of what was not written").await;
    says(&message(kind::COMPLETE, 0, 0, &[]), "completes what was completed").await;
}

#[tokio::test]
async fn a_completion_that_goes_back_or_comes_twice_ends_the_session() {
    for (second, expected) in [(0, "of what was not written"), (1, "completes what was completed")] {
        let mut lab = Lab::stream().await;
        let (mut rogue, gateway) = Rogue::attach(&mut lab).await;
        let _call = begin(&gateway, Bytes::from_static(b"ask")).await.unwrap();
        // As many lines as the call took are passed; then the same is said again, or less.
        let mut head = [0; HEAD_LEN];
        in_time(rogue.stream.read_exact(&mut head)).await.unwrap();
        let line_count = Head::read_from_bytes(&head).unwrap().line_count.get().into();
        rogue.say(&message(kind::COMPLETE, 0, line_count, &[])).await;
        rogue.say(&message(kind::COMPLETE, 0, line_count * second, &[])).await;
        let why = ended(&gateway).await;
        assert!(why.contains(expected), "{why:?}");
        others_go_on(&mut lab).await;
    }
}

#[tokio::test]
async fn writes_beyond_the_grant_or_out_of_turn_end_the_session() {
    says(&message(kind::WRITE, 1, 0, &record(1, 8)), "out of their turn").await;
    says(&message(kind::WRITE, u64::MAX, 0, &record(0, 8)), "out of their turn").await;
    // The head alone is enough: what it announces is never waited for.
    for line_count in [LINE_COUNT, LINE_COUNT + 1, u64::from(u16::MAX)] {
        let mut head = message(kind::WRITE, 0, 0, &[]);
        head[2..4].copy_from_slice(&(line_count as u16).to_le_bytes());
        says(&head, "more lines than were granted").await;
    }
}

#[tokio::test]
async fn beats_without_end_are_a_violation_and_a_few_are_none() {
    let mut lab = Lab::stream().await;
    let (mut rogue, gateway) = Rogue::attach(&mut lab).await;
    rogue.say(&message(kind::BEAT, 0, 0, &[]).repeat(10)).await;
    rogue.say(&message(kind::BEAT, 0, 0, &[]).repeat(200)).await;
    let why = ended(&gateway).await;
    assert!(why.contains("more beats"), "{why}");
}

#[tokio::test]
async fn handshakes_that_make_no_sense_are_refused_in_words() {
    let mut lab = Lab::stream().await;
    let with = |edit: &dyn Fn(&mut Hello)| {
        let mut hello = hello(hello_kind::ATTACH);
        hello.body_len = (body().len() as u32).into();
        edit(&mut hello);
        [hello.as_bytes(), &body()].concat()
    };
    let wrong: [(Vec<u8>, u32, &str); 7] = [
        (with(&|it| it.kind = hello_kind::VIA.into()), reason::MALFORMED, "a target has"),
        (with(&|it| it.kind = hello_kind::HELLO.into()), reason::MALFORMED, "gateway"),
        (with(&|it| it.version_min = 9.into()), reason::VERSION, "version"),
        (with(&|it| it.required = (1 << 40).into()), reason::FEATURE, "features"),
        (with(&|it| it.ring_len = (1 << 30).into()), reason::REGION, "a ring of"),
        (with(&|it| it.body_len = u32::MAX.into()), reason::MALFORMED, "8 KiB"),
        (with(&|it| it.magic = *b"nonsense"), reason::MALFORMED, "does not speak"),
    ];
    for (bytes, of_reason, words) in wrong {
        let mut stream = tls(&lab, true, PROTOCOL).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let refusal = answer(&mut stream).await;
        assert_eq!(refusal.kind.get(), hello_kind::REFUSAL);
        assert!(refusal.text().contains(words), "{:?} without {words:?}", refusal.text());
        assert_eq!(refusal.reason.get(), of_reason, "{}", refusal.text());
    }
    others_go_on(&mut lab).await;
}

/// A backend that calls, and a gateway that answers.
#[tokio::test]
async fn calls_by_way_of_the_gateway_go_over_the_same_stream() {
    let mut lab = Lab::stream().await;
    let address = format!("device+tls://localhost:{}", lab.port()).parse().unwrap();
    let purpose = Purpose::Via("group:other".into());
    let files = lab.backend_certificates();
    let dialled = Attachment::connect_over(&address, &files, &lab.config, purpose.clone());
    let backends = Arc::new(in_time(dialled).await.unwrap());
    let gateway = Arc::new(lab.accept().await);
    assert_eq!((gateway.purpose(), backends.purpose()), (&purpose, &purpose));
    let serving = tokio::spawn({
        let gateway = gateway.clone();
        async move { serve(&gateway).await }
    });
    in_time(check_calls(&backends, 20)).await;
    let large = Bytes::from(vec![7; 200_000]);
    assert_eq!(in_time(call(&backends, large.clone())).await, Some(large));
    // Its end is that of what is under way.
    let under_way = begin(&backends, Bytes::from_static(b"ask")).await.unwrap();
    serving.abort();
    gateway.close("done");
    ended(&backends).await;
    let _ = in_time(read_message(&under_way)).await;
    others_go_on(&mut lab).await;
}

#[tokio::test]
async fn silence_at_any_step_of_a_handshake_has_an_end() {
    let config = Config { handshake_timeout: Duration::from_millis(300), ..Config::default() };
    let lab = Lab::stream_with(config).await;
    let mut silent = TcpStream::connect(("127.0.0.1", lab.port())).await.unwrap();
    let mut half = tls(&lab, true, PROTOCOL).await.unwrap();
    half.write_all(&request()[..HELLO_LEN - 1]).await.unwrap();
    let mut bytes = Vec::new();
    let _ = in_time(silent.read_to_end(&mut bytes)).await;
    // A refusal, or only the end: the deadline ends its telling too.
    let _ = in_time(half.read_to_end(&mut bytes)).await;
}

/// What a process is told that can't attach with these files.
async fn refused(lab: &Lab, files: &Certificates) -> ConnectError {
    in_time(lab.dial_with(lab.port(), files)).await.map(drop).expect_err("it is refused")
}

#[tokio::test]
async fn certificates_of_no_use_attach_nobody() {
    let mut lab = Lab::stream().await;
    let (good, authority) = (lab.backend_certificates(), lab.authority.take().unwrap());
    let others = Authority::new();
    let fifo = good.ca.with_file_name("odd.pem");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    let foreign = Certificates { ca: good.ca.clone(), ..others.sign("backends", false) };
    let cases = [
        (authority.sign("expired", true), "certificate"),
        (foreign, ""),
        (Certificates { ca: others.sign("x", false).ca, ..good.clone() }, "certificate"),
        (Certificates { certificate: "/nonexistent.pem".into(), ..good.clone() }, "nonexistent"),
        (Certificates { key: good.certificate.clone(), ..good.clone() }, "key"),
        // Nobody waits for one who writes.
        (Certificates { ca: fifo.clone(), ..good.clone() }, "odd.pem: is a fifo"),
        (Certificates { certificate: fifo.clone(), ..good.clone() }, "odd.pem: is a fifo"),
        (Certificates { key: fifo, ..good.clone() }, "odd.pem: is a fifo"),
    ];
    for (files, words) in cases {
        let error = refused(&lab, &files).await;
        let told = error.to_string().to_lowercase();
        assert!(!error.kind.is_transient() && told.contains(words), "{error}");
    }
    // Without one, TLS fails at the latest when the answer is read.
    if let Ok(mut stream) = tls(&lab, false, PROTOCOL).await {
        let _ = stream.write_all(&request()).await;
        in_time(stream.read_exact(&mut [0; HELLO_LEN])).await.expect_err("no certificate");
    }
    tls(&lab, true, b"h2").await.map(drop).expect_err("another protocol");
    lab.authority = Some(authority);
    others_go_on(&mut lab).await;
}

#[tokio::test]
async fn one_subject_has_its_share_of_sessions() {
    let quotas = Quotas { sessions_per_user: Some(2), ..Quotas::default() };
    let mut lab = Lab::stream_with(Config { quotas, ..Config::default() }).await;
    let first = lab.pair().await;
    let _second = lab.pair().await;
    let error = in_time(lab.dial()).await.map(drop).expect_err("a third");
    assert!(error.kind.is_transient() && error.to_string().contains("subject"), "{error}");
    let Pair { gateway, backends } = first;
    drop(backends);
    ended(&gateway).await;
    drop(gateway);
    others_go_on(&mut lab).await;
}

/// A way between the two that does what it is told.
struct Path {
    port: u16,
    /// Bytes that pass in both directions before it is cut.
    left: Arc<AtomicU64>,
    /// Nothing passes any more, and nobody is told.
    is_held: Arc<std::sync::atomic::AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    left: Arc<AtomicU64>,
    is_held: Arc<std::sync::atomic::AtomicBool>,
    delay: Duration,
) {
    let mut buffer = vec![0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(delay).await;
        if is_held.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let before = left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(len as u64)));
        let allowed = before.unwrap().min(len as u64) as usize;
        if to.write_all(&buffer[..allowed]).await.is_err() || allowed < len {
            return;
        }
    }
}

impl Path {
    async fn to(lab: &Lab, left: u64, delay: Duration) -> Path {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), lab.port());
        let left = Arc::new(AtomicU64::new(left));
        let is_held = Arc::<std::sync::atomic::AtomicBool>::default();
        let (budget, held) = (left.clone(), is_held.clone());
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                let (budget, held) = (budget.clone(), held.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = pass(near_in, far_out, budget.clone(), held.clone(), delay) => {}
                        () = pass(far_in, near_out, budget, held, delay) => {}
                    }
                });
            }
        });
        Path { port, left, is_held, task }
    }
}

#[tokio::test]
async fn a_stream_cut_anywhere_resets_the_session_and_the_next_is_whole() {
    let mut lab = Lab::stream().await;
    let files = lab.backend_certificates();
    // Within TLS's handshake, the session's, and calls: wherever a message may end, and between.
    for cut in (0..40).map(|step| step * 173).chain([9_000, 12_000, 20_000, 40_000]) {
        let path = Path::to(&lab, cut, Duration::ZERO).await;
        // Where the last word of a handshake was cut off, only the gateway has a session.
        let backends = match in_time(lab.dial_as(path.port, &files, cut as u32 + 1)).await {
            Ok(backends) => backends,
            Err(error) => {
                assert!(error.kind.is_transient(), "cut after {cut} bytes: {error}");
                continue;
            }
        };
        let serving = tokio::spawn(async move { serve(&backends).await });
        let gateway = lab.accept_of(cut as u32 + 1).await;
        let mut answered = 0;
        while let Some(echoed) = in_time(call(&gateway, Bytes::from(vec![answered as u8; 700]))).await {
            assert_eq!(echoed, vec![answered as u8; 700], "what is answered is right");
            answered += 1;
        }
        ended(&gateway).await;
        in_time(serving).await.unwrap();
    }
    let last = in_time(lab.dial_as(lab.port(), &files, 0)).await.unwrap();
    let serving = tokio::spawn(async move { serve(&last).await });
    let gateway = lab.accept_of(0).await;
    in_time(check_calls(&gateway, 5)).await;
    drop(gateway);
    in_time(serving).await.unwrap();
}

#[tokio::test]
async fn a_slow_stream_is_only_slow() {
    let mut lab = Lab::stream().await;
    let path = Path::to(&lab, u64::MAX, Duration::from_millis(3)).await;
    let backends = in_time(lab.dial_with(path.port, &lab.backend_certificates())).await.unwrap();
    let serving = tokio::spawn(async move { serve(&backends).await });
    let gateway = lab.accept().await;
    in_time(check_calls(&gateway, 20)).await;
    let large = Bytes::from(vec![7; 200_000]);
    assert_eq!(in_time(call(&gateway, large.clone())).await, Some(large));
    gateway.close("done");
    in_time(serving).await.unwrap();
    assert!(path.left.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn a_stream_that_is_half_open_is_given_up_by_both_sides() {
    let silence = Duration::from_millis(800);
    let mut lab = Lab::stream_with(Config { silence, ..Config::default() }).await;
    lab.config.silence = silence;
    let path = Path::to(&lab, u64::MAX, Duration::ZERO).await;
    let backends = Arc::new(in_time(lab.dial_with(path.port, &lab.backend_certificates())).await.unwrap());
    let gateway = lab.accept().await;
    // Beats alone keep it for as long as it takes.
    tokio::time::sleep(3 * silence).await;
    assert!(backends.closed().is_none() && gateway.closed().is_none());
    let under_way = begin(&gateway, Bytes::from_static(b"ask")).await.unwrap();
    path.is_held.store(true, Ordering::Relaxed);
    let (one, other) = tokio::join!(ended(&gateway), ended(&backends));
    for why in [one, other] {
        assert!(why.contains("hung up"), "{why}");
    }
    assert_eq!(in_time(read_message(&under_way)).await, None);
    others_go_on(&mut lab).await;
}

#[tokio::test]
async fn a_peer_that_reads_nothing_costs_a_ring_and_no_more() {
    let config = Config { silence: Duration::from_secs(2), ..Config::default() };
    let mut lab = Lab::stream_with(config).await;
    let (rogue, gateway) = Rogue::attach(&mut lab).await;
    let gateway = Arc::new(gateway);
    let mut streams = Vec::new();
    for _ in 0..60 {
        let (gateway, message) = (gateway.clone(), Bytes::from(vec![1; 60_000]));
        streams.push(tokio::spawn(async move { begin(&gateway, message).await.map(drop) }));
    }
    // It is silent, so it goes; what waits for it ends.
    ended(&gateway).await;
    for stream in streams {
        let _ = in_time(stream).await.unwrap();
    }
    let backlog = gateway.backlog();
    assert!(backlog.is_none(), "{backlog:?}");
    drop(rogue);
    others_go_on(&mut lab).await;
}
