//! Offers that a client must not take: of sockets that lie elsewhere, or belong to somebody else than the server.

use std::convert::Infallible;
use std::fs::Permissions;
use std::future::{Ready, ready};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Request, Response};
use tollfree::{Channel, PeerPolicy, Server, Transport, Upgrade};
use tollfree_layout::handshake::{FEATURES, Hello, feature, kind};
use tollfree_testkit::{Process, Shim};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

use super::place::{Host, Place, Street, hello};
use super::upgrade::{Both, child, until_over, until_stays};

/// A token as good as any; nobody has given it out.
const TOKEN: &str = "000102030405060708090a0b0c0d0e0f";

/// Headers of an answer: name and value.
type Headers = Vec<(&'static str, String)>;

/// Offers what it is told to.
#[derive(Clone)]
struct Forger {
    offer: Arc<Mutex<Headers>>,
    /// Answers were asked about.
    confirm_count: Arc<AtomicUsize>,
}

impl NamedService for Forger {
    const NAME: &'static str = "tollfree.Upgrade";
}

impl Service<Request<Body>> for Forger {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut response = Status::new(Code::Ok, "").into_http::<Body>();
        if request.uri().path().ends_with("Confirm") {
            self.confirm_count.fetch_add(1, Ordering::SeqCst);
            return ready(Ok(Status::not_found("as the real one says").into_http()));
        }
        for (name, value) in &*self.offer.lock().unwrap() {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        ready(Ok(response))
    }
}

/// A server on TCP with false offers.
struct Forgery {
    street: Street,
    http: String,
    host: Host,
    forger: Forger,
    _place: Place,
}

impl Forgery {
    async fn open() -> Forgery {
        let (street, host) = (Street::new(), Host::new("forgery"));
        let forger = Forger { offer: Arc::default(), confirm_count: Arc::default() };
        let http = street.http();
        std::fs::create_dir(street.path("inside")).unwrap();
        let server = Server::builder().add_service(host.service()).add_service(forger.clone());
        let place = Place::with_many(&[&http], server).await;
        Forgery { street, http, host, forger, _place: place }
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.street.path("inside").join(name)
    }

    /// The offer stays on TCP, for a reason with these words; calls are served there, and where shared memory is required
    /// they fail for the same reason.
    async fn is_refused(&self, offer: Headers, words: &str) {
        *self.forger.offer.lock().unwrap() = offer;
        let builder = || Channel::builder(&*self.http).upgrade_directory(self.street.path("inside"));
        let channel = builder().connect().await.unwrap();
        until_stays(&channel, words).await;
        hello(&channel, "x").await.unwrap();
        assert!(self.host.seen().iter().all(|seen| !seen.by_session));
        let strict = builder().upgrade(Upgrade::Required).connect_lazy().unwrap();
        let status = hello(&strict, "strict").await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains(words), "{status}");
        assert_eq!(self.host.seen_count("strict"), 0);
    }
}

/// Which file it is, as servers say it.
fn file(path: &Path) -> String {
    let found = std::fs::symlink_metadata(path).unwrap();
    format!("{}:{}", found.dev(), found.ino())
}

/// An offer of a path that is to be taken for this file.
fn offer(path: impl AsRef<Path>, as_file: &Path) -> Headers {
    let offered = format!("shm://{}", path.as_ref().display());
    vec![("tollfree-offer", offered), ("tollfree-file", file(as_file)), ("tollfree-token", TOKEN.into())]
}

#[tokio::test]
async fn an_offer_elsewhere_is_not_taken() {
    let forgery = Forgery::open().await;
    let outside = forgery.street.path("out.sock");
    let uri = forgery.street.shm("out.sock");
    let victim = Host::new("victim");
    let _victim = Place::open(&uri, &victim).await;
    forgery.is_refused(offer(&outside, &outside), "does not lie in").await;
    let dotted = forgery.inside("../out.sock");
    forgery.is_refused(offer(dotted, &outside), "leads out of").await;
    symlink(&outside, forgery.inside("link.sock")).unwrap();
    forgery.is_refused(offer(forgery.inside("link.sock"), &outside), "over a symbolic link").await;
    symlink(forgery.street.path(""), forgery.inside("up")).unwrap();
    forgery.is_refused(offer(forgery.inside("up/out.sock"), &outside), "over a symbolic link").await;
    let beside = forgery.street.path("inside-out.sock");
    forgery.is_refused(offer(&beside, &outside), "does not lie in").await;
    assert!(victim.seen().is_empty());
}

#[tokio::test]
async fn an_offer_of_another_servers_socket_is_not_taken() {
    let forgery = Forgery::open().await;
    // One that knows tokens, but not this one; and one that knows none.
    let (knowing, ignorant) = (forgery.inside("knowing.sock"), forgery.inside("ignorant.sock"));
    let (http, victim) = (forgery.street.http(), Host::new("victim"));
    let server = || Server::builder().add_service(victim.service());
    let shm = |path: &Path| format!("shm://{}", path.display());
    let _knowing = Place::with_many(&[&shm(&knowing), &http], server()).await;
    let _ignorant = Place::with_many(&[&shm(&ignorant)], server()).await;
    forgery.is_refused(offer(&knowing, &knowing), "does not know the token").await;
    forgery.is_refused(offer(&ignorant, &ignorant), "has given out no tokens").await;
    assert!(victim.seen().is_empty());
    assert_eq!(forgery.forger.confirm_count.load(Ordering::SeqCst), 0);
    // Nor is one that has taken the place of the socket that was meant.
    forgery.is_refused(offer(&ignorant, &knowing), "another server has taken the place").await;
}

#[tokio::test]
async fn a_server_that_takes_any_token_is_found_out_over_tcp() {
    let forgery = Forgery::open().await;
    let (back, front) = (forgery.street.path("back.sock"), forgery.inside("front.sock"));
    let rogue = Host::new("rogue");
    let _rogue = Place::open(&format!("shm://{}", back.display()), &rogue).await;
    let _shim = Shim::start(&front, &back, |hello: &mut Hello| match hello.kind.get() {
        kind::HELLO => {
            hello.features = (hello.features.get() & !feature::UPGRADE).into();
            hello.required = 0.into();
        }
        kind::WELCOME => {
            hello.features = FEATURES.into();
            hello.token = [7; 16];
        }
        _ => {}
    })
    .unwrap();
    forgery.is_refused(offer(&front, &front), "another server listens there").await;
    assert!(forgery.forger.confirm_count.load(Ordering::SeqCst) >= 2);
    assert!(rogue.seen().is_empty());
}

#[tokio::test]
async fn a_server_that_does_not_answer_the_token_is_not_trusted() {
    let forgery = Forgery::open().await;
    let (back, front) = (forgery.street.path("back.sock"), forgery.inside("front.sock"));
    let rogue = Host::new("rogue");
    let _rogue = Place::open(&format!("shm://{}", back.display()), &rogue).await;
    // As a server before this feature would be that overlooked what is required.
    let _shim = Shim::start(&front, &back, |hello: &mut Hello| {
        hello.features = (hello.features.get() & !feature::UPGRADE).into();
        hello.required = 0.into();
    })
    .unwrap();
    forgery.is_refused(offer(&front, &front), "has not answered the token").await;
    assert!(rogue.seen().is_empty());
}

/// Passes on what its clients ask to another server, and what that answers, as its own.
#[derive(Clone)]
struct Relay {
    to: tonic::transport::Channel,
    confirm_count: Arc<AtomicUsize>,
}

impl NamedService for Relay {
    const NAME: &'static str = "tollfree.Upgrade";
}

impl Service<Request<Body>> for Relay {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_confirm = request.uri().path().ends_with("Confirm");
        self.confirm_count.fetch_add(usize::from(is_confirm), Ordering::SeqCst);
        let client = request.extensions().get::<TcpConnectInfo>().unwrap().clone();
        let (mut to, mut passed_on) = (self.to.clone(), Request::new(Body::empty()));
        *passed_on.method_mut() = http::Method::POST;
        *passed_on.uri_mut() = request.uri().path().parse().unwrap();
        *passed_on.headers_mut() = request.headers().clone();
        Box::pin(async move {
            let (mut head, body) = to.ready().await.unwrap().call(passed_on).await.unwrap().into_parts();
            // What a client of an earlier day compared.
            let seen = format!("{} {}", client.remote_addr().unwrap(), client.local_addr().unwrap());
            head.headers.insert("tollfree-seen", seen.parse().unwrap());
            Ok(Response::from_parts(head, body))
        })
    }
}

#[tokio::test]
async fn a_server_that_passes_on_anothers_offer_leads_nobody_there() {
    let victim = Both::open().await;
    let (http, liar) = (victim.street.http(), Host::new("liar"));
    let endpoint = tonic::transport::Endpoint::try_from(victim.http.clone()).unwrap();
    let relay = Relay { to: endpoint.connect().await.unwrap(), confirm_count: Arc::default() };
    let server = Server::builder().add_service(liar.service()).add_service(relay.clone());
    let _place = Place::with_many(&[&http], server).await;
    let builder = || Channel::builder(&*http).upgrade_directory(victim.street.path(""));
    let channel = builder().connect().await.unwrap();
    let stays = "something stands between the client and the server";
    until_stays(&channel, stays).await;
    for _ in 0..20 {
        assert_eq!(hello(&channel, "x").await.unwrap(), "liar", "calls go where they were sent");
    }
    let strict = builder().upgrade(Upgrade::Required).connect_lazy().unwrap();
    let status = hello(&strict, "strict").await.unwrap_err();
    assert!(status.code() == Code::Unavailable && status.message().contains(stays), "{status}");
    // The reason shows both connections: the client's to the liar, and the liar's to the victim.
    let [liars, victims] = [&http, &victim.http].map(|http| http.strip_prefix("http://").unwrap().to_owned());
    assert!(status.message().contains(&liars) && status.message().contains(&victims), "{status}");
    assert!(victim.host.seen().is_empty(), "{:?}", victim.host.seen());
    assert_eq!(relay.confirm_count.load(Ordering::SeqCst), 0, "nothing is asked after a refusal");
    // Who talks to the victim itself moves over.
    let own =
        Channel::builder(&*victim.http).upgrade_directory(victim.street.path("")).connect().await.unwrap();
    until_over(&own).await;
}

#[tokio::test]
async fn an_offer_of_nothing_or_nonsense_is_not_taken() {
    let forgery = Forgery::open().await;
    let stale = forgery.inside("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    forgery.is_refused(offer(&stale, &stale), "nobody listens").await;
    forgery.is_refused(offer(forgery.inside("none.sock"), &stale), "can't be looked up").await;
    let plain = forgery.inside("file");
    std::fs::write(&plain, "").unwrap();
    forgery.is_refused(offer(&plain, &plain), "is not a socket").await;
    forgery.is_refused(offer("", &stale), "can't be read").await;
    forgery.is_refused(vec![("tollfree-offer", "shm-abstract:x".into())], "can't be read").await;
    let good = offer(&stale, &stale);
    for (idx, (name, _)) in good.iter().enumerate() {
        for bad in
            ["", "nonsense", "shm://", "1:2:3", &"f".repeat(31), &format!("shm:///{}", "x".repeat(200))]
        {
            let mut offer = good.clone();
            offer[idx].1 = bad.into();
            let words = format!("has no {name}, or one that can't be read");
            forgery.is_refused(offer, &words).await;
        }
    }
}

#[tokio::test]
async fn a_token_is_of_use_once() {
    let both = Both::open().await;
    let endpoint = tonic::transport::Endpoint::try_from(both.http.clone()).unwrap();
    let mut stolen = endpoint.connect().await.unwrap();
    let ask = http::Request::post("/tollfree.Upgrade/Ask").body(Body::empty()).unwrap();
    let asked = stolen.ready().await.unwrap().call(ask).await.unwrap();
    let value = |name: &str| asked.headers()[name].to_str().unwrap().to_owned();
    let token = value("tollfree-token").parse().unwrap();
    let socket = both.street.path("s.sock");
    assert_eq!(value("tollfree-file"), file(&socket));
    let beneath = || {
        let directories = [both.street.path("")];
        tollfree_driver_tokio::OfferedSocket::find(&directories, &socket, file(&socket).parse().unwrap())
            .unwrap()
    };
    // Whoever came by it doesn't say by which connection.
    let ticket = tollfree_driver_tokio::Ticket { token, ends: None };
    let present = async || {
        let config = tollfree_driver_tokio::Config::default();
        tollfree_driver_tokio::Attachment::connect_with(&beneath(), &config, &ticket).await
    };
    let (_session, answer) = present().await.unwrap();
    let error = present().await.unwrap_err();
    assert!(error.to_string().contains("does not know the token"), "{error}");
    assert!(error.to_string().contains("s.sock") && !error.kind.is_transient(), "{error}");
    let mut confirm = async |answer: &str| {
        let confirm = http::Request::post("/tollfree.Upgrade/Confirm").header("tollfree-answer", answer);
        let confirmed =
            stolen.ready().await.unwrap().call(confirm.body(Body::empty()).unwrap()).await.unwrap();
        confirmed.headers().get("tollfree-token").map(|token| token.to_str().unwrap().to_owned())
    };
    for wrong in [TOKEN, "", "x", &token.to_string()] {
        assert_eq!(confirm(wrong).await, None, "{wrong}");
    }
    assert_eq!(confirm(&answer.to_string()).await, Some(token.to_string()));
    assert_eq!(confirm(&answer.to_string()).await, None, "a replay");
    // Others are not kept from moving over by it.
    let channel =
        Channel::builder(&*both.http).upgrade_directory(both.street.path("")).connect().await.unwrap();
    until_over(&channel).await;
}

#[tokio::test]
async fn an_offer_of_another_users_socket_is_taken_only_where_that_user_is_listed() {
    const STRANGER: u32 = 12_345;
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: only root can start a process of another user");
        return;
    }
    let street = Street::new();
    let open = |path: &Path| std::fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    let (program, directory) = (street.path("program"), street.path("theirs"));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::create_dir(&directory).unwrap();
    for path in [&street.path(""), &program, &directory] {
        open(path);
    }
    let (http, socket) = (street.http(), directory.join("s.sock"));
    let mut command = child(&program, "server", &socket, &http);
    let mut server = Process::of(command.uid(STRANGER).gid(STRANGER).current_dir("/").spawn().unwrap());
    server.wait_ready();
    let builder = || Channel::builder(&*http).upgrade_directory(&directory);
    let channel = builder().connect().await.unwrap();
    until_stays(&channel, "user 12345").await;
    hello(&channel, "x").await.unwrap();
    assert_eq!(channel.path().endpoints[0].transport, Transport::Http2);
    let channel = builder().peers(PeerPolicy::Users(vec![STRANGER])).connect().await.unwrap();
    until_over(&channel).await;
    assert_eq!(channel.path().endpoints[0].peer.unwrap().uid, STRANGER);
    hello(&channel, "x").await.unwrap();
}
