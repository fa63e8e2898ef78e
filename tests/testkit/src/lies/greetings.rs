//! First messages of clients.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{FallocateFlags, MemfdFlags};
use tollfree_layout::handshake::{Hello, feature, kind, reason};
use tollfree_layout::limits;
use tollfree_region::Region;
use zerocopy::IntoBytes;

use crate::chance::Chance;
use crate::door::Door;
use crate::hollow::hollow;

const RING_LEN: usize = limits::RING_LEN_DEFAULT;

/// Descriptors that come along with greetings.
#[derive(Debug)]
pub struct Props {
    region: Region,
    other: Region,
    null: File,
    directory: File,
    file: File,
    pipe: std::io::PipeReader,
    _pipe_end: std::io::PipeWriter,
    pair: UnixStream,
    _pair_end: UnixStream,
    unsealed: OwnedFd,
    hollow: OwnedFd,
}

impl Props {
    /// Opens them all.
    ///
    /// # Panics
    /// Without memory or descriptors.
    pub fn new() -> Props {
        let (pipe, _pipe_end) = std::io::pipe().expect("descriptors are free");
        let (pair, _pair_end) = UnixStream::pair().expect("descriptors are free");
        let open = |path: &str| File::open(path).expect("the system has it");
        Props {
            region: Door::region(RING_LEN),
            other: Door::region(limits::RING_LEN_MIN),
            null: open("/dev/null"),
            directory: open("/"),
            file: open("/proc/self/exe"),
            pipe,
            _pipe_end,
            pair,
            _pair_end,
            unsealed: unsealed(RING_LEN + 4096),
            hollow: hollow(&[], RING_LEN + 4096),
        }
    }
}

impl Default for Props {
    fn default() -> Props {
        Props::new()
    }
}

/// Shared memory without seals. Made by the C library's means, as the region crate makes none.
fn unsealed(len: usize) -> OwnedFd {
    let fd = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC);
    let fd = fd.expect("there is memory");
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64).expect("there is memory");
    fd
}

/// What a client says first that a server refuses.
#[derive(Debug)]
pub struct Greeting<'a> {
    /// What it is.
    pub name: &'static str,
    /// What goes over the socket.
    pub bytes: Vec<u8>,
    /// The descriptors with the first byte of it.
    pub fds: Vec<BorrowedFd<'a>>,
    /// The reason in the refusal.
    pub reason: u32,
    /// What the reference's refusal contains.
    pub words: &'static str,
}

fn hello_with(edit: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let mut hello = Door::hello(kind::HELLO, RING_LEN);
    edit(&mut hello);
    hello.as_bytes().to_vec()
}

/// Greetings that a server refuses.
pub fn greetings(props: &Props) -> Vec<Greeting<'_>> {
    let mut all = edited(props);
    all.extend(with_descriptors(props));
    all
}

/// Those whose message is wrong.
fn edited(props: &Props) -> Vec<Greeting<'_>> {
    let fds = || vec![props.region.fd()];
    let edited = |name, reason, words, edit: fn(&mut Hello)| Greeting {
        name,
        bytes: hello_with(edit),
        fds: fds(),
        reason,
        words,
    };
    vec![
        Greeting {
            name: "wrong magic",
            bytes: vec![0; limits::HELLO_LEN],
            fds: fds(),
            reason: reason::MALFORMED,
            words: "does not speak Tollfree",
        },
        Greeting {
            name: "HTTP/2",
            bytes: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            fds: vec![],
            reason: reason::MALFORMED,
            words: "HTTP/2",
        },
        edited("a token that nobody gave", reason::TOKEN, "has given out no tokens", |h| {
            (h.features, h.token) = (feature::UPGRADE.into(), [7; 16]);
        }),
        edited("version N-1", reason::VERSION, "0 to 0", |h| {
            (h.version_min, h.version_max) = (0.into(), 0.into());
        }),
        edited("version N+1", reason::VERSION, "2 to 9", |h| {
            (h.version_min, h.version_max) = (2.into(), 9.into());
        }),
        edited("versions turned round", reason::VERSION, "2 to 1", |h| {
            (h.version_min, h.version_max) = (2.into(), 1.into());
        }),
        edited("feature", reason::FEATURE, "0x8000000000000000", |h| h.required = (1 << 63).into()),
        edited("kind 0", reason::MALFORMED, "another kind", |h| h.kind = 0.into()),
        edited("kind WELCOME", reason::MALFORMED, "another kind", |h| h.kind = kind::WELCOME.into()),
        edited("kind REFUSAL", reason::MALFORMED, "another kind", |h| h.kind = kind::REFUSAL.into()),
        edited("ring 0", reason::REGION, "a ring of 0", |h| h.ring_len = 0.into()),
        edited("ring short", reason::REGION, "a ring of 2048", |h| h.ring_len = 2048.into()),
        edited("ring odd", reason::REGION, "a ring of 12288", |h| h.ring_len = 12288.into()),
        edited("ring long", reason::REGION, "a ring of 65536", |h| h.ring_len = 65536.into()),
        edited("ring huge", reason::REGION, "a ring of 4294967295", |h| h.ring_len = u32::MAX.into()),
        edited("region 0", reason::REGION, "a region of 0", |h| h.region_len = 0.into()),
        edited("region shorter than its ring", reason::REGION, "a region of 32768", |h| {
            h.region_len = 32768.into();
        }),
        edited("region long", reason::REGION, "a region of 65537", |h| h.region_len = 65537.into()),
        edited("region longer than its fd", reason::REGION, "36864 bytes long where 40960", |h| {
            h.region_len = 40960.into();
        }),
        edited("metadata", reason::REGION, "metadata block of 255", |h| h.metadata_len_max = 255.into()),
        edited("stream window", reason::REGION, "a stream window of 0", |h| h.stream_window = 0.into()),
        edited("session window", reason::REGION, "a session window of 1", |h| h.session_window = 1.into()),
    ]
}

/// Those whose descriptors are wrong.
fn with_descriptors(props: &Props) -> Vec<Greeting<'_>> {
    let plain = |name, fds, reason, words| Greeting { name, bytes: hello_with(|_| {}), fds, reason, words };
    let fd = props.region.fd();
    vec![
        plain("no fd", vec![], reason::MALFORMED, "without the descriptor"),
        plain("two fds", vec![fd, props.other.fd()], reason::MALFORMED, "more than one descriptor"),
        plain("five fds", vec![fd; 5], reason::MALFORMED, "more than one descriptor"),
        plain("253 fds", vec![fd; 253], reason::MALFORMED, "more than one descriptor"),
        plain("shorter fd", vec![props.other.fd()], reason::REGION, "8192 bytes long where 36864"),
        plain("device", vec![props.null.as_fd()], reason::REGION, "directory or device"),
        plain("directory", vec![props.directory.as_fd()], reason::REGION, "directory or device"),
        plain("pipe", vec![props.pipe.as_fd()], reason::REGION, "a pipe"),
        plain("socket", vec![props.pair.as_fd()], reason::REGION, "a socket"),
        plain("file", vec![props.file.as_fd()], reason::REGION, "fd "),
        plain("unsealed", vec![props.unsealed.as_fd()], reason::REGION, "lacks the seals"),
        plain("hollow", vec![props.hollow.as_fd()], reason::REGION, "only 0 of its 36864 bytes"),
    ]
}

/// A greeting by chance: the usual message with a few bytes changed gets further than noise, and the magic is left alone mostly.
pub fn random_greeting<'a>(chance: &mut Chance, props: &'a Props) -> (Vec<u8>, Vec<BorrowedFd<'a>>) {
    let mut bytes = hello_with(|_| {});
    for _ in 0..chance.below(6) {
        let least = if chance.below(16) == 0 { 0 } else { 8 };
        let at = (least + chance.below(80 - least)) as usize;
        let any = chance.word() as u8;
        bytes[at] = chance.pick(&[0, 1, 2, 0x10, 0x7f, 0x80, 0xff, any]);
    }
    if chance.below(8) == 0 {
        let len = 8 + chance.below(limits::HELLO_LEN as u64 - 8) as usize;
        bytes = [&bytes[..8], &chance.bytes(len)].concat();
        bytes.resize(limits::HELLO_LEN, 0);
    }
    let count = chance.pick(&[0, 1, 1, 1, 1, 1, 2]);
    (bytes, vec![props.region.fd(); count])
}
