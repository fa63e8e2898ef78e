//! The hostile peer as a program, for tests of implementations in other languages.
//!
//! ```text
//! tollfree-hostile list KIND             names what there is, a line each
//! tollfree-hostile KIND NAME SOCKET      does it once
//! tollfree-hostile random-greetings SEED SOCKET
//! tollfree-hostile random-records SEED SOCKET
//! tollfree-hostile rewriting SEED SOCKET
//! tollfree-hostile restless SEED SOCKET
//! ```
//!
//! A line of `list` has the name and what the victim makes of it, with a tab between. The kinds are
//!
//! - `greeting`, to a server's socket: the number of the reason in the refusal, or the place of a violation.
//! - `client`, to a server's socket: the places that the victim may name, see [`Lie`]. What its CLOSE says is printed.
//! - `welcome`, a server for one client: nothing. It says `ready` when it listens.
//! - `server`, the same: the places, as for `client`. The client has to call first.
//! - `flood`, to a server's socket: nothing. It goes on until its input ends, and prints how many rounds there were.
//!
//! Exit codes: 0, done; 1, the other side did not do what it must; 2, usage.
#![forbid(unsafe_code)]

use std::io::{self, Read};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollfree_layout::handshake::kind;
use tollfree_testkit::{
    Chance, Door, FLOODS, HostilePeer, Lie, Props, greetings, lies_of_clients, lies_of_servers,
    random_greeting, random_record, restless, rewrite, welcomes,
};

/// Greetings, and records, that `random-greetings` and `random-records` send.
const RANDOM_GREETINGS: u32 = 2000;
const RANDOM_RECORDS: u32 = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["list", kind] => list(kind),
        [kind, name, socket] => act(kind, name, Path::new(socket)),
        _ => None,
    };
    match outcome {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("tollfree-hostile: {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
        None => {
            eprintln!("tollfree-hostile: see the top of its source for what it can be asked");
            ExitCode::from(2)
        }
    }
}

fn list(kind: &str) -> Option<io::Result<()>> {
    let lies = |lies: Vec<Lie>| lies.iter().for_each(|lie| println!("{}\t{}", lie.name, lie.place));
    match kind {
        "greeting" => {
            greetings(&Props::new())
                .iter()
                .for_each(|greeting| println!("{}\t{}", greeting.name, greeting.reason));
        }
        "client" => lies(lies_of_clients()),
        "welcome" => welcomes().iter().for_each(|welcome| println!("{}\t", welcome.name)),
        "server" => lies(lies_of_servers()),
        "flood" => FLOODS.iter().for_each(|(name, _)| println!("{name}\t")),
        _ => return None,
    }
    Some(Ok(()))
}

fn act(kind: &str, name: &str, socket: &Path) -> Option<io::Result<()>> {
    let seed = || name.parse().ok();
    match kind {
        "greeting" => {
            let props = Props::new();
            let greeting = greetings(&props).into_iter().find(|greeting| greeting.name == name)?;
            Some(greet(&greeting.bytes, &greeting.fds, greeting.reason, socket))
        }
        "client" => {
            let lie = lies_of_clients().into_iter().find(|lie| lie.name == name)?;
            Some(HostilePeer::client(socket).and_then(|peer| tell(peer, &lie)))
        }
        "welcome" => {
            let welcome = welcomes().into_iter().find(|welcome| welcome.name == name)?;
            Some(accept(socket).map(welcome.act))
        }
        "server" => {
            let lie = lies_of_servers().into_iter().find(|lie| lie.name == name)?;
            Some(accept(socket).and_then(|door| door.welcome(|_| {})).and_then(|mut peer| {
                peer.read()?;
                tell(peer, &lie)
            }))
        }
        "flood" => {
            let (_, flood) = FLOODS.into_iter().find(|(known, _)| *known == name)?;
            Some(HostilePeer::client(socket).map(|peer| until_input_ends(peer, flood)))
        }
        "random-greetings" => Some(greet_at_random(seed()?, socket)),
        "random-records" => Some(send_at_random(seed()?, socket)),
        "restless" => Some(HostilePeer::client(socket).and_then(|mut peer| restless(&mut peer))),
        "rewriting" => {
            let seed = seed()?;
            let peer = HostilePeer::client(socket);
            Some(peer.map(|mut peer| println!("{} words", rewrite(&mut peer, seed))))
        }
        _ => None,
    }
}

/// Sends a first message, and wants a refusal of this reason.
fn greet(bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>], reason: u32, socket: &Path) -> io::Result<()> {
    let door = Door::knock(socket)?;
    door.send(bytes, fds)?;
    let Some((answer, fds)) = door.recv_hello()? else { return Err(io::Error::other("no answer")) };
    door.wait_for_hang_up()?;
    println!("{} {}", answer.reason.get(), answer.text());
    if answer.kind.get() != kind::REFUSAL || answer.reason.get() != reason || !fds.is_empty() {
        return Err(io::Error::other(format!("kind {}, {} descriptors", answer.kind.get(), fds.len())));
    }
    Ok(())
}

/// Does what ends the session, waits until it has ended, and prints what the other side says of it.
fn tell(mut peer: HostilePeer, lie: &Lie) -> io::Result<()> {
    (lie.act)(&mut peer);
    peer.ring();
    peer.door().wait_for_hang_up()?;
    println!("{}", peer.closing_words().unwrap_or_default());
    Ok(())
}

fn accept(socket: &Path) -> io::Result<Door> {
    let listener = UnixListener::bind(socket)?;
    println!("ready");
    let accepted = listener.accept();
    std::fs::remove_file(socket)?;
    Door::over(accepted?.0)
}

fn until_input_ends(mut peer: HostilePeer, flood: tollfree_testkit::Flood) {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Relaxed);
    });
    let mut rounds = 0;
    while !ended.load(Ordering::Relaxed) && flood(&mut peer, rounds) {
        rounds += 1;
    }
    println!("{rounds}");
}

fn greet_at_random(seed: u64, socket: &Path) -> io::Result<()> {
    let (mut chance, props) = (Chance::new(seed), Props::new());
    for nth in 0..RANDOM_GREETINGS {
        let (bytes, fds) = random_greeting(&mut chance, &props);
        let door = Door::knock(socket)?;
        door.send(&bytes, &fds)?;
        let answer = door.recv_hello()?.map(|(answer, _)| answer.kind.get());
        if !matches!(answer, Some(kind::WELCOME | kind::REFUSAL)) {
            return Err(io::Error::other(format!("greeting {nth} of seed {seed} got {answer:?}")));
        }
    }
    Ok(())
}

fn send_at_random(seed: u64, socket: &Path) -> io::Result<()> {
    let (mut chance, mut stream) = (Chance::new(seed), 0);
    let mut peer = HostilePeer::client(socket)?;
    for _ in 0..RANDOM_RECORDS {
        let record = random_record(&mut chance, &mut stream);
        if peer.publish(&record).is_err() || peer.door().is_closed() {
            break;
        }
        if chance.below(4) == 0 {
            while peer.try_read().is_some() {}
        }
    }
    // What was sent last may not have been read yet.
    let began = Instant::now();
    while !peer.door().is_closed() && began.elapsed() < Duration::from_millis(50) {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{}", peer.closing_words().unwrap_or_default());
    Ok(())
}
