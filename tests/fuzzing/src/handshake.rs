//! A listener to which a client sends anything.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tollfree_driver_tokio::{Address, Config, Listener};
use tollfree_layout::handshake::Hello;
use tollfree_region::{ReadMemory, Region};
use zerocopy::IntoBytes;

struct Served {
    runtime: tokio::runtime::Runtime,
    listener: Listener,
    path: std::path::PathBuf,
    region: Region,
    /// Removed when the thread ends.
    _dir: tempfile::TempDir,
}

thread_local! {
    static SERVED: std::cell::RefCell<Served> = std::cell::RefCell::new(serve());
}

fn serve() -> Served {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("fuzz.sock");
    let address: Address = format!("shm://{}", path.display()).parse().expect("a path is an address");
    // It has given out no token, but might have.
    let config = Config { tokens: Some(Default::default()), ..Config::default() };
    let listener = runtime
        .block_on(async { Listener::bind(&address, config) })
        .expect("a fresh directory has room for a socket");
    let region = Region::create("fuzz", 4096 + 16_384).expect("a small region");
    Served { runtime, listener, path, region, _dir: dir }
}

/// Lays the input over a well-formed opening message (`xor`, so that zeroes change nothing) and sends it; its first
/// byte says how much of it goes out, and whether a region's descriptor goes with it. The listener answers or hangs up,
/// in any case soon, and serves the next client.
pub fn handshake(data: &[u8]) {
    let Some((how, data)) = data.split_first() else { return };
    SERVED.with_borrow_mut(|served| {
        let Served { runtime, listener, path, region, .. } = served;
        let mut hello = Hello::new(tollfree_layout::handshake::kind::HELLO);
        hello.region_len = (region.len() as u32).into();
        hello.ring_len = 16_384.into();
        hello.stream_window = (1 << 16).into();
        hello.session_window = (1 << 20).into();
        hello.metadata_len_max = 8192.into();
        let mut bytes = hello.as_bytes().to_vec();
        bytes.iter_mut().zip(data).for_each(|(byte, change)| *byte ^= change);
        bytes.truncate(bytes.len() - usize::from(how >> 2));
        runtime.block_on(async {
            let stream = UnixStream::connect(&*path).await.expect("the listener listens");
            send(&stream, &bytes, (how & 1 == 0).then_some(&*region)).await;
            let _ = stream.try_io(Interest::WRITABLE, || {
                Ok(rustix::net::shutdown(&stream, rustix::net::Shutdown::Write))
            });
            let answered = async {
                let mut answer = [0; 4096];
                loop {
                    stream.readable().await.expect("a socket can be waited for");
                    match stream.try_read(&mut answer) {
                        Ok(0) => return,
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        // An answer, or a hang-up before all was read.
                        Ok(_) | Err(_) => return,
                    }
                }
            };
            tokio::select! {
                () = answered => {}
                attachment = listener.accept() => drop(attachment.expect("the listener goes on")),
                () = tokio::time::sleep(Duration::from_secs(20)) => panic!("no answer, and no hang-up"),
            }
        });
    });
}

async fn send(stream: &UnixStream, bytes: &[u8], region: Option<&Region>) {
    stream.writable().await.expect("a socket can be waited for");
    let fds = region.map(|region| [region.fd()]);
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fds) = &fds {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    // Refused if the listener has hung up already.
    let _ = sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}
