//! TLS of Tollfree's server and channel: who is served, who is not, and what the errors say.

use std::time::Duration;

use tollfree_interop::testing::Empty;
use tollfree_interop::testing::test_service_client::TestServiceClient;
use tollfree_interop::{Certificates, Target, server};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity, ServerTlsConfig};
use tower_service::Service;

const SLOW: Duration = Duration::from_secs(10);

fn free(scheme: &str) -> String {
    let port = tollfree_testkit::free_address().port();
    format!("{scheme}://localhost:{port}")
}

fn config(certificates: &Certificates) -> ServerTlsConfig {
    ServerTlsConfig::new().identity(Identity::from_pem(&certificates.server, &certificates.server_key))
}

async fn connect(uri: &str, tls: ClientTlsConfig) -> Result<Channel, tonic::transport::Error> {
    Endpoint::try_from(uri.to_owned())?.tls_config(tls)?.connect().await
}

async fn calls(channel: Channel) -> Result<(), tonic::Status> {
    TestServiceClient::new(channel).empty_call(Empty {}).await.map(drop)
}

/// Serves until the test's end, and waits until somebody listens.
async fn serve(server: tollfree::Server, uris: &[&str]) {
    let served: Vec<String> = uris.iter().map(|uri| (*uri).to_owned()).collect();
    tokio::spawn(async move { server.serve_many(served.iter().map(String::as_str)).await.unwrap() });
    for uri in uris {
        let (_, host) = uri.split_once("://").unwrap();
        for _ in 0..2000 {
            if tokio::net::TcpStream::connect(host).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn one_server_serves_plain_and_tls() {
    let certificates = Certificates::generate().unwrap();
    let (plain, tls) = (free("http"), free("https"));
    serve(server().tls_config(config(&certificates)), &[&plain, &tls]).await;
    for uri in [plain, tls] {
        let target = Target { uri, ca: Some(certificates.ca.clone()), patience: SLOW, pool: None, via: None };
        let channel = target.connect().await.unwrap();
        TestServiceClient::new(channel).empty_call(Empty {}).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_does_not_talk_to_a_server_that_it_can_not_check() {
    let certificates = Certificates::generate().unwrap();
    let uri = free("https");
    serve(server().tls_config(config(&certificates)), &[&uri]).await;
    let stranger = Certificates::generate().unwrap();
    let trusting = |ca: &str| ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    connect(&uri, trusting(&stranger.ca)).await.expect_err("another authority");
    let named = trusting(&certificates.ca).domain_name("elsewhere");
    connect(&uri, named).await.expect_err("another name");
    calls(connect(&uri, trusting(&certificates.ca)).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_channel_of_tollfrees_checks_its_server_too() {
    let certificates = Certificates::generate().unwrap();
    let uri = free("https");
    let config = config(&certificates).client_ca_root(Certificate::from_pem(&certificates.ca));
    serve(server().tls_config(config), &[&uri]).await;
    let known = || Identity::from_pem(&certificates.client, &certificates.client_key);
    let trusting =
        |ca: &str| ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).identity(known());
    let connect = |tls| tollfree::Channel::builder(&*uri).tls_config(tls).connect();
    let channel = connect(trusting(&certificates.ca)).await.unwrap();
    TestServiceClient::new(channel).empty_call(Empty {}).await.unwrap();
    let stranger = Certificates::generate().unwrap();
    for tls in [trusting(&stranger.ca), trusting(&certificates.ca).domain_name("elsewhere")] {
        let error = connect(tls).await.unwrap_err();
        assert!(matches!(error, tollfree::ChannelError::Unreachable(_)), "{error:?}");
        assert!(error.to_string().contains(&uri), "{error}");
    }
    let error = tollfree::Channel::connect(&*uri).await.unwrap_err();
    assert!(matches!(error, tollfree::ChannelError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains("ChannelBuilder::tls_config"), "{error}");
}

#[tokio::test]
async fn clients_show_certificates_where_the_server_wants_them() {
    let certificates = Certificates::generate().unwrap();
    let uri = free("https");
    let config = config(&certificates).client_ca_root(Certificate::from_pem(&certificates.ca));
    serve(server().tls_config(config), &[&uri]).await;
    let trusting = || ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&certificates.ca));
    let known = Identity::from_pem(&certificates.client, &certificates.client_key);
    calls(connect(&uri, trusting().identity(known)).await.unwrap()).await.unwrap();
    // In TLS 1.3 a server refuses a client after the client has finished: at the latest the call fails.
    let stranger = Certificates::generate().unwrap();
    let unknown = Identity::from_pem(&stranger.client, &stranger.client_key);
    for tls in [trusting(), trusting().identity(unknown)] {
        if let Ok(channel) = connect(&uri, tls).await {
            calls(channel).await.expect_err("nobody vouches for this client");
        }
    }
}

#[tokio::test]
async fn a_server_without_an_identity_says_what_to_do() {
    let uri = free("https");
    let error = server().serve(&uri).await.unwrap_err().to_string();
    assert!(error.contains(&uri) && error.contains("Server::tls_config"), "{error}");
    let empty = ServerTlsConfig::new();
    let error = server().tls_config(empty).serve(&uri).await.unwrap_err().to_string();
    assert!(error.contains(&uri) && error.contains("ServerTlsConfig::identity"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_is_none_is_an_error_that_says_so() {
    let certificates = Certificates::generate().unwrap();
    let other = Certificates::generate().unwrap();
    let uri = free("https");
    for identity in [
        Identity::from_pem("nothing", "nothing"),
        Identity::from_pem(&certificates.server, &other.server_key),
    ] {
        let config = ServerTlsConfig::new().identity(identity);
        let error = server().tls_config(config).serve(&uri).await.unwrap_err();
        assert!(matches!(error, tollfree::ServeError::Tls { .. }), "{error}");
        assert!(error.to_string().contains(&uri), "{error}");
        assert!(!error.to_string().contains("transport error"), "it says more: {error}");
    }
}

/// A client on the same host may ask a server on TCP for a local socket; one that has checked a certificate is not sent
/// elsewhere.
#[tokio::test]
async fn a_local_socket_is_offered_over_plain_tcp_and_not_under_tls() {
    let certificates = Certificates::generate().unwrap();
    let (plain, tls) = (free("http"), free("https"));
    let directory = tempfile::tempdir().unwrap();
    let shm = format!("shm://{}", directory.path().join("s.sock").display());
    let server = server().tls_config(config(&certificates));
    let uris = [shm.clone(), plain.clone(), tls.clone()];
    tokio::spawn(async move { server.serve_many(uris.iter().map(String::as_str)).await.unwrap() });
    for (uri, offered) in [(plain, true), (tls, false)] {
        let target = Target { uri, ca: Some(certificates.ca.clone()), patience: SLOW, pool: None, via: None };
        let mut channel = target.connect().await.unwrap();
        TestServiceClient::new(channel.clone()).empty_call(Empty {}).await.unwrap();
        let ask = http::Request::post("/tollfree.Upgrade/Ask").body(tonic::body::Body::empty()).unwrap();
        std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
        let answer = channel.call(ask).await.unwrap();
        let headers = answer.headers();
        let said = headers.get("tollfree-offer").map(|offer| offer.to_str().unwrap());
        assert_eq!(said, offered.then_some(shm.as_str()), "{headers:?}");
        assert_eq!(headers.contains_key("tollfree-token"), offered);
    }
}
