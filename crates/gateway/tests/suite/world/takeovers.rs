//! Takeovers that come to nothing: the running gateway goes on, and says why.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tollfree_gateway::{Config, Gateway, StartError};
use tollfree_stubs::probe::Ask;

use super::lab::{Lab, PATIENCE, backend_connections_of};

/// A process that asks for a gateway's place.
struct Asker(BufReader<UnixStream>);

impl Asker {
    /// Asks by a protocol; gives the answer's head.
    async fn ask(lab: &Lab, protocol: &str) -> (Asker, String) {
        let mut stream = UnixStream::connect(lab.file("backends.sock.control")).await.unwrap();
        let request = format!(
            "GET /takeover HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        // A read ends where a message with a socket does. tokio takes a short read for an empty socket, so each read is full.
        let mut asker = Asker(BufReader::with_capacity(1, stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(asker.0.read_line(&mut head).await.unwrap(), 0, "{head}");
        }
        (asker, head)
    }

    async fn say(&mut self, message: &str) {
        let said = self.0.write_all(format!("{message}\n").as_bytes()).await;
        said.unwrap_or_else(|error| panic!("{message}: {error}"));
    }

    /// What the gateway says until a message.
    async fn until(&mut self, message: &str) -> String {
        let mut said = String::new();
        while !said.contains(message) {
            let read = tokio::time::timeout(PATIENCE, self.0.read_line(&mut said)).await.unwrap();
            assert_ne!(read.unwrap(), 0, "{said}");
        }
        said
    }
}

/// How far the process comes before it dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    Asking,
    Begun,
    Ready,
    /// It has put its socket in the place of the gateway's.
    InPlace,
    Entered,
}

#[tokio::test]
async fn a_process_that_dies_in_the_middle_leaves_the_gateway_serving() {
    for death in [Death::Asking, Death::Begun, Death::Ready, Death::InPlace, Death::Entered] {
        let lab = Lab::start("").await;
        let attached = lab.attach("default").await;
        let mut client = lab.client().await;
        client.unary(Ask::default()).await.unwrap();
        let (mut asker, head) = Asker::ask(&lab, "tollfree-takeover/1").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let mut bound = None;
        if death != Death::Asking {
            asker.say("{\"begin\":{\"version\":\"test\"}}").await;
            let said = asker.until("offered").await;
            for key in ["listeners.world", "metrics.address", "control"] {
                assert!(said.contains(&format!("\"key\":\"{key}\"")), "{said}");
            }
        }
        if matches!(death, Death::Ready | Death::InPlace | Death::Entered) {
            asker.say("\"ready\"").await;
            asker.until("enter").await;
        }
        if matches!(death, Death::InPlace | Death::Entered) {
            bound = Some(UnixListener::bind(lab.file("other")).unwrap());
            std::fs::rename(lab.file("other"), lab.file("backends.sock")).unwrap();
        }
        if death == Death::Entered {
            // The backend is asked to attach anew, where nobody answers.
            asker.say("\"entered\"").await;
        }
        drop((asker, bound));
        // Whether it is found again is what a newcomer shows; the earlier backend has never stopped.
        client.unary(Ask::default()).await.unwrap();
        let next = tokio::time::timeout(PATIENCE, lab.attach("default")).await;
        let next = next.unwrap_or_else(|_| panic!("{death:?}: nobody attaches any more"));
        client.unary(Ask::default()).await.unwrap();
        attached.stop().await;
        client.unary(Ask::default()).await.unwrap();
        next.stop().await;
    }
}

/// Whoever holds the place of the one that asks, it is told, and the next may ask when it has gone.
#[tokio::test]
async fn one_process_at_a_time_asks_and_only_by_the_same_protocol() {
    let lab = Lab::start("").await;
    let (mut other, head) = Asker::ask(&lab, "tollfree-takeover/2").await;
    assert!(head.starts_with("HTTP/1.1 426") && head.contains("upgrade: tollfree-takeover/1"), "{head}");
    let mut words = String::new();
    other.0.read_to_string(&mut words).await.unwrap();
    assert!(words.contains("tollfree-takeover/2 was asked for: stop it"), "{words}");
    let (first, head) = Asker::ask(&lab, "tollfree-takeover/1").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let (_, head) = Asker::ask(&lab, "tollfree-takeover/1").await;
    assert!(head.starts_with("HTTP/1.1 409"), "{head}");
    // So a gateway is refused in these words.
    let config = || Config::from_toml(&format!("take_over = true\n{}", lab.sockets)).unwrap();
    let refused = Gateway::bind(config()).await.unwrap_err();
    assert!(matches!(&refused, StartError::TakeOver(_)), "{refused}");
    assert!(refused.to_string().contains("another process is taking the place"), "{refused}");
    drop(first);
    let began = tokio::time::Instant::now();
    while Asker::ask(&lab, "tollfree-takeover/1").await.1.starts_with("HTTP/1.1 409") {
        assert!(began.elapsed() < PATIENCE, "the turn is never given back");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// What the new one can't have is found before anything has changed.
#[tokio::test]
async fn a_gateway_that_can_t_start_leaves_the_running_one_alone() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let more = format!("[listeners.more]\naddress = \"{address}\"\n");
    let files = "[groups.g]\ndescriptors = \"/no/such/file\"\n";
    for (more, said) in [(more.as_str(), "listeners.more.address"), (files, "/no/such/file")] {
        let config = Config::from_toml(&format!("take_over = true\n{}{more}", lab.sockets)).unwrap();
        let error = Gateway::bind(config).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        lab.client().await.unary(Ask::default()).await.unwrap();
    }
    assert_eq!(lab.figure(&backend_connections_of("default")).await, 1.0);
    attached.stop().await;
    let abstract_socket = Config::from_toml("take_over = true\nbackends.socket = \"shm-abstract:x\"\n");
    assert!(abstract_socket.unwrap_err().to_string().contains("take_over"));
}
