//! Descriptors whose questions and whose `close` wait for somebody who never answers.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// What the kernel asks of a file system (`linux/fuse.h`), as far as opening one file takes it.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const INIT: u32 = 26;
/// The root, and the file in it.
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// "No such operation".
const UNKNOWN: i32 = -38;
/// Requests are shorter than this, as nothing is written.
const REQUEST_LEN_MAX: usize = 1 << 16;

/// A file of a file system that this process runs itself, which never answers about it: a process that asks for its length, or closes
/// a descriptor of it, waits until this is dropped.
#[derive(Debug)]
pub struct SilentFile {
    /// Closed once the file system is gone.
    file: Option<File>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SilentFile {
    /// Mounts the file system, opens its file, and takes the mount away again.
    ///
    /// # Errors
    /// Where this process may not mount, or the kernel knows no FUSE.
    pub fn open() -> io::Result<SilentFile> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
        let place =
            std::env::temp_dir().join(format!("silent-{}-{}", std::process::id(), device.as_raw_fd()));
        std::fs::create_dir_all(&place)?;
        let settings = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let settings = std::ffi::CString::new(settings).map_err(io::Error::other)?;
        let mounted = mount("silent", &place, "fuse", MountFlags::NODEV | MountFlags::NOSUID, &*settings);
        if let Err(error) = mounted {
            let _ = std::fs::remove_dir(&place);
            return Err(error.into());
        }
        let stop = Arc::<AtomicBool>::default();
        let seen = stop.clone();
        let thread = std::thread::spawn(move || serve(device.into(), &seen));
        let file = File::open(place.join("file"));
        unmount(&place, UnmountFlags::DETACH)?;
        let _ = std::fs::remove_dir(&place);
        Ok(SilentFile { file: Some(file?), stop, thread: Some(thread) })
    }
}

impl AsFd for SilentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("open until dropped").as_fd()
    }
}

impl Drop for SilentFile {
    fn drop(&mut self) {
        // With its device closed the file system is gone, and each process that waits for it is told so.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.file.take();
    }
}

/// Answers what it takes to open the file, and nothing else.
fn serve(mut device: File, stop: &AtomicBool) {
    let mut request = vec![0; REQUEST_LEN_MAX];
    while !stop.load(Ordering::Relaxed) {
        let mut asked = [PollFd::new(&device, PollFlags::IN)];
        let _ = poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
        let Ok(len) = device.read(&mut request) else { continue };
        if len < 40 {
            continue;
        }
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        let (operation, id, node) = (word(4), long(8), long(16));
        let mut answer = Vec::new();
        let error = match (operation, node) {
            (INIT, _) => {
                // Version 7.31, the kernel's own read-ahead, no options, requests of the shortest kind.
                for part in [7, 31, word(48), 0, 0, 4096, 1] {
                    answer.extend_from_slice(&u32::to_le_bytes(part));
                }
                answer.resize(64, 0);
                0
            }
            (LOOKUP, ROOT) => {
                for part in [FILE, 1, 1 << 30, 0, 0] {
                    answer.extend_from_slice(&u64::to_le_bytes(part));
                }
                attributes(&mut answer, FILE, 0o100_644);
                0
            }
            (GETATTR, ROOT) => {
                answer.extend_from_slice(&[0; 16]);
                attributes(&mut answer, ROOT, 0o040_755);
                0
            }
            (OPEN, _) => {
                answer.resize(16, 0);
                0
            }
            (_, FILE) => continue,
            _ => UNKNOWN,
        };
        let mut reply = Vec::new();
        reply.extend_from_slice(&((16 + answer.len()) as u32).to_le_bytes());
        reply.extend_from_slice(&error.to_le_bytes());
        reply.extend_from_slice(&id.to_le_bytes());
        reply.extend_from_slice(&answer);
        let _ = device.write(&reply);
    }
}

/// A file's attributes: number, nothing in it, kind and permissions, one link, nobody's but root's.
fn attributes(answer: &mut Vec<u8>, node: u64, mode: u32) {
    for part in [node, 0, 0, 0, 0, 0] {
        answer.extend_from_slice(&u64::to_le_bytes(part));
    }
    for part in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        answer.extend_from_slice(&u32::to_le_bytes(part));
    }
}

/// A connection with more on its way than its other end takes: a process that closes its last descriptor waits until this is dropped.
#[derive(Debug)]
pub struct LingeringSocket {
    /// Dropped first, which ends all waiting.
    _other: TcpStream,
    socket: TcpStream,
}

impl LingeringSocket {
    /// Between two ends of this process.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn open() -> io::Result<LingeringSocket> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let mut socket = TcpStream::connect(listener.local_addr()?)?;
        let (other, _) = listener.accept()?;
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(3600)))?;
        socket.set_nonblocking(true)?;
        let began = Instant::now();
        // Until nothing more goes in, and after a moment still doesn't.
        let mut refused_count = 0;
        while refused_count < 20 && began.elapsed() < Duration::from_secs(30) {
            // Part of it going in is as good as all of it.
            let went_in = socket.write(&[0; 1 << 16]).is_ok_and(|len| len > 0);
            refused_count = if went_in { 0 } else { refused_count + 1 };
            if !went_in {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        socket.set_nonblocking(false)?;
        Ok(LingeringSocket { _other: other, socket })
    }
}

impl AsFd for LingeringSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
