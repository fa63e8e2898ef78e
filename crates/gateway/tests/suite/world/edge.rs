//! Policies from outside by raw HTTP/2: what no library of gRPC would send.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use prost::Message;
use tokio::net::TcpStream;
use tollfree_stubs::probe::Ask;

use super::issuer::{AUDIENCE, ISSUER, KeyAnswer, KeyServer, TokenSigner, key_set};
use super::lab::{Lab, PATIENCE};
use super::reload::reload;

const UNARY: &str = "tollfree.probe.v1.Probe/Unary";

/// What came of a request.
pub(crate) struct Came {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Option<HeaderMap>,
}

pub(crate) async fn ask<V: AsRef<[u8]>>(
    lab: &Lab,
    method: Method,
    path: &str,
    headers: &[(&str, V)],
    pieces: Vec<Vec<u8>>,
) -> Came {
    let stream = TcpStream::connect(lab.socket_address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut request = Request::builder().method(method).uri(format!("{}/{path}", lab.uri));
    for (name, value) in headers {
        request = request.header(*name, value.as_ref());
    }
    let (answer, mut sender) = client.send_request(request.body(()).unwrap(), pieces.is_empty()).unwrap();
    let last = pieces.len().saturating_sub(1);
    for (nth, piece) in pieces.into_iter().enumerate() {
        sender.send_data(Bytes::from(piece), nth == last).unwrap();
    }
    let all = async {
        let (parts, mut body) = answer.await.unwrap().into_parts();
        while let Some(data) = body.data().await {
            body.flow_control().release_capacity(data.unwrap().len()).unwrap();
        }
        let trailers = body.trailers().await.unwrap();
        Came { status: parts.status, headers: parts.headers, trailers }
    };
    let came = tokio::time::timeout(PATIENCE, all).await.expect("it ends");
    drop(client);
    connection.abort();
    came
}

/// A message in a frame of gRPC's.
pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
}

fn code(came: &Came) -> String {
    let of = |headers: &HeaderMap| {
        headers.get("grpc-status").map(|status| String::from_utf8_lossy(status.as_bytes()).into_owned())
    };
    of(&came.headers).or_else(|| of(came.trailers.as_ref()?)).unwrap_or_else(|| came.status.as_str().into())
}

async fn call(lab: &Lab, path: &str, more: &[(&str, Vec<u8>)]) -> Came {
    let mut headers = vec![("content-type", b"application/grpc".to_vec()), ("te", b"trailers".to_vec())];
    headers.extend(more.iter().cloned());
    ask(lab, Method::POST, path, &headers, vec![framed(&Ask::default())]).await
}

#[tokio::test]
async fn no_spelling_of_a_path_reaches_a_method_that_is_denied() {
    let policy = "listeners.world.policy = \"p\"\nlimits.attach_wait_ms = 1\n[policies.p]\ndefault = \"allow\"\n\
                  rules = [{ action = \"deny\", methods = [\"tollfree.probe.v1.Probe/Unary\"] }]\n";
    let lab = Lab::start(policy).await;
    let attached = lab.attach("default").await;
    for path in [
        "tollfree.probe.v1.Probe/Unary",
        "tollfree.probe.v1.Probe/Unary?x=1",
        "/tollfree.probe.v1.Probe/Unary",
        "tollfree.probe.v1.Probe//Unary",
        "tollfree.probe.v1.Probe/Unary/",
        "tollfree.probe.v1.Probe/./Unary",
        "tollfree.probe.v1.Probe/Down/../Unary",
        "tollfree.probe.v1.Probe/unary",
        "tollfree.probe.v1.Probe/%55nary",
        "%74ollfree.probe.v1.Probe/Unary",
        "tollfree.probe.v1.Probe%2FUnary",
        "TOLLFREE.probe.v1.Probe/Unary",
        "",
    ] {
        let came = call(&lab, path, &[]).await;
        assert_ne!(code(&came), "0", "{path}");
        assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 0, "{path}");
    }
    assert_eq!(code(&call(&lab, "tollfree.probe.v1.Probe/Down", &[]).await), "0");
}

#[tokio::test]
async fn authorization_of_odd_forms_is_read_as_it_is_meant_or_refused() {
    let signer = TokenSigner::new("a");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    std::fs::write(&file, key_set(&[&signer])).unwrap();
    let lab = Lab::start_in(
        directory,
        &format!(
            "limits.header_bytes = 131072\nlisteners.world.policy = \"p\"\n[jwt.main]\nissuer = \"{ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\njwks = \"{}\"\n\
             [policies.p]\njwt = [\"main\"]\nrules = [{{ action = \"allow\", identities = [\"any\"] }}]\n",
            file.display()
        ),
    )
    .await;
    let _attached = lab.attach("default").await;
    let good = signer.token("alice");
    let bearer = |text: &str| ("authorization", text.as_bytes().to_vec());
    for (headers, expected) in [
        (vec![bearer(&format!("Bearer {good}"))], "0"),
        (vec![bearer(&format!("bEARER   {good}  "))], "0"),
        // Another scheme beside it is the backend's.
        (vec![bearer("Basic YTpi"), bearer(&format!("Bearer {good}"))], "0"),
        (vec![bearer(&format!("Bearer {good}")), bearer(&format!("Bearer {good}"))], "16"),
        (vec![bearer(&format!("Bearer {good}, Bearer {good}"))], "16"),
        (vec![bearer(&format!("Bearer {good} {good}"))], "16"),
        (vec![bearer(&format!("Bearer\t{good}"))], "16"),
        (vec![bearer(&format!("Bearer{good}"))], "16"),
        (vec![bearer("Bearer ")], "16"),
        (vec![("authorization", b"Bearer \xff\xfe.\x80.\x81".to_vec())], "16"),
        (vec![bearer(&format!("Bearer {}", "a.".repeat(8000)))], "16"),
        (vec![bearer(&format!("Bearer {}", "a".repeat(60_000)))], "16"),
        (vec![("authorization-info", format!("Bearer {good}").into_bytes())], "16"),
        (vec![bearer(""), bearer(""), bearer("")], "16"),
    ] {
        let shown = String::from_utf8_lossy(&headers[0].1).chars().take(40).collect::<String>();
        assert_eq!(code(&call(&lab, UNARY, &headers).await), expected, "{shown}");
    }
}

/// A client may be gone while its token waits for keys, and leaves nothing behind: the lab looks.
#[tokio::test]
async fn calls_that_wait_for_keys_end_with_their_clients_and_delay_no_others() {
    let signer = TokenSigner::new("a");
    let server = KeyServer::start(KeyAnswer::Hang).await;
    let lab = Lab::start(&format!(
        "listeners.world.policy = \"p\"\n[jwt.main]\nissuer = \"{ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\njwks = \"{}\"\n\
         [policies.p]\njwt = [\"main\"]\nquotas = [{{ concurrent = 1, by = [\"address\"], identities = [\"any\"] }}]\n",
        server.uri
    ))
    .await;
    let _attached = lab.attach("default").await;
    let stream = TcpStream::connect(lab.socket_address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/{UNARY}", lab.uri))
            .header("content-type", "application/grpc")
            .header("authorization", format!("Bearer {}", signer.token("alice")));
        let (answer, mut sender) = client.send_request(request.body(()).unwrap(), false).unwrap();
        sender.send_data(Bytes::from(framed(&Ask::default())), true).unwrap();
        waiting.push((answer, sender));
    }
    let began = Instant::now();
    for _ in 0..20 {
        let came = call(&lab, UNARY, &[]).await;
        assert_eq!(code(&came), "0");
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    for (answer, mut sender) in waiting {
        sender.send_reset(h2::Reason::CANCEL);
        drop(answer);
    }
    drop(client);
    connection.abort();
    lab.until_figure("tollfree_gateway_connections", |count| count == 0.0).await;
}

#[tokio::test]
async fn long_lists_of_forwarders_and_headers_cost_little() {
    let lab = Lab::start(
        "limits.header_bytes = 131072\nlisteners.world.forwarded_for = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\nlisteners.world.policy = \"p\"\n\
         [policies.p]\ndefault = \"allow\"\nrules = [{ action = \"deny\", headers = { x-a = \"*a*a*a*a*a*b\" } }, { action = \"deny\", addresses = [\"6.6.6.6\"] }]\n",
    )
    .await;
    let _attached = lab.attach("default").await;
    let began = Instant::now();
    let all = format!("6.6.6.6{}", ", 10.0.0.1".repeat(8000)).into_bytes();
    assert_eq!(code(&call(&lab, UNARY, &[("x-forwarded-for", all)]).await), "16");
    // No pattern takes longer than its text, often.
    let came = call(&lab, UNARY, &[("x-a", b"a".repeat(10_000))]).await;
    assert_eq!(code(&came), "0");
    let many: Vec<_> = (0..200).map(|_| ("x-a", b"aaaa".to_vec())).collect();
    assert_eq!(code(&call(&lab, UNARY, &many).await), "0");
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_refusal_is_an_answer_of_grpc_and_its_connection_goes_on() {
    let lab = Lab::start(
        "listeners.world.policy = \"p\"\n[policies.p]\ndefault = \"deny\"\nheaders.answer.set = { x-edge = \"here\" }\n",
    )
    .await;
    let stream = TcpStream::connect(lab.socket_address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    for _ in 0..20 {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/{UNARY}", lab.uri))
            .header("content-type", "application/grpc");
        // Its request never ends.
        let (answer, _sender) = client.send_request(request.body(()).unwrap(), false).unwrap();
        let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(
            (&answer.headers()["grpc-status"], &answer.headers()["x-edge"]),
            (&"16".parse().unwrap(), &"here".parse().unwrap())
        );
    }
    assert_eq!(lab.refused("unauthenticated").await, 20.0);
    drop(client);
    connection.abort();
}

/// A backend may look at the value that a rule has not looked for.
#[tokio::test]
async fn a_second_value_of_a_header_does_not_open_what_the_first_one_opens() {
    let policy = |rule: &str| format!("listeners.world.policy = \"p\"\n[policies.p]\n{rule}\n");
    let lab =
        Lab::start(&policy("rules = [{ action = \"allow\", headers = { x-tenant = \"acme*\" } }]")).await;
    let _attached = lab.attach("default").await;
    let tenants =
        |all: &[&str]| all.iter().map(|tenant| ("x-tenant", tenant.as_bytes().to_vec())).collect::<Vec<_>>();
    for (all, expected) in [
        (&["acme"][..], "0"),
        (&["acme", "acme-2"], "0"),
        (&["acme", "evil"], "16"),
        (&["evil", "acme"], "16"),
        (&[], "16"),
    ] {
        assert_eq!(code(&call(&lab, UNARY, &tenants(all)).await), expected, "{all:?}");
    }
    let deny =
        policy("default = \"allow\"\nrules = [{ action = \"deny\", headers = { x-tenant = \"evil\" } }]");
    reload(&lab, &deny).await.unwrap();
    for (all, expected) in [(&["acme"][..], "0"), (&["acme", "evil"], "16"), (&[], "0")] {
        assert_eq!(code(&call(&lab, UNARY, &tenants(all)).await), expected, "{all:?}");
    }
}
