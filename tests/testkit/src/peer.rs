//! A peer after a good handshake, free to lie.

use std::io;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tollfree_layout::RingPos;
use tollfree_layout::control::{CONSUMED_OFF, LOAD_OFF, RING_OFF, WAITING_OFF, Waiting};
use tollfree_layout::frame::{FrameHead, control, events};
use tollfree_layout::handshake::Hello;
use tollfree_layout::limits::{LINE_LEN, RING_LEN_DEFAULT};
use tollfree_layout::record::{HEAD_EMPTY, HEAD_LEN, head_len, head_word, line_count};
use tollfree_region::{PeerRegion, ReadMemory, Region, WriteMemory};
use zerocopy::FromBytes;

use crate::chance::Chance;
use crate::door::Door;
use crate::frames::Frame;

/// Longest that the peer waits for room or a record.
const PATIENCE: Duration = Duration::from_secs(30);

/// One end of a session, written by hand: every byte of its region and socket is the test's to choose.
#[derive(Debug)]
pub struct HostilePeer {
    door: Door,
    own: Arc<Region>,
    theirs: PeerRegion,
    their_ring_len: usize,
    /// Lines published, and lines read.
    published: u64,
    read: u64,
    /// `published`, for the thread that rewrites what was just written.
    latest: Arc<AtomicU64>,
}

impl HostilePeer {
    pub(crate) fn new(door: Door, own: Region, fd: OwnedFd, theirs: &Hello) -> io::Result<HostilePeer> {
        let theirs_len = theirs.region_len.get() as usize;
        let region = PeerRegion::map(fd, theirs_len).map_err(io::Error::other)?;
        Ok(HostilePeer {
            door,
            own: Arc::new(own),
            theirs: region,
            their_ring_len: theirs.ring_len.get() as usize,
            published: 0,
            read: 0,
            latest: Arc::default(),
        })
    }

    /// Connects to a server and shakes hands as an honest client would.
    ///
    /// # Errors
    /// As [`Door::enter`].
    pub fn client(path: &Path) -> io::Result<HostilePeer> {
        Door::knock(path)?.enter(|_| {})
    }

    /// The socket.
    pub fn door(&mut self) -> &mut Door {
        &mut self.door
    }

    fn at(&self, pos: u64) -> usize {
        RING_OFF + (pos as usize * LINE_LEN) % RING_LEN_DEFAULT
    }

    /// Where the other side has read to, by its own word.
    pub fn consumed(&self) -> u64 {
        self.theirs.load_u64(CONSUMED_OFF, Ordering::Acquire)
    }

    /// Whether `len` more bytes fit the ring.
    pub fn has_room(&self, len: usize) -> bool {
        // Beyond what was published, where bytes that were flipped looked like one more record.
        let unread = self.published.saturating_sub(self.consumed());
        let free = (RING_LEN_DEFAULT / LINE_LEN) as u64 - unread;
        (line_count(len) as u64) < free
    }

    /// Publishes a record, honestly, once there is room; rings when the other side sleeps.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when no room comes, [`io::ErrorKind::BrokenPipe`] when the other side has hung up.
    pub fn publish(&mut self, record: &[u8]) -> io::Result<()> {
        self.publish_within(record, PATIENCE)
    }

    fn publish_within(&mut self, record: &[u8], patience: Duration) -> io::Result<()> {
        let began = Instant::now();
        while !self.has_room(record.len()) {
            if self.door.is_closed() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if began.elapsed() > patience {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
        self.write_record(record, record.len() as u32);
        self.ring_if_parked();
        Ok(())
    }

    /// Publishes a frame.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn send(&mut self, frame: &Frame) -> io::Result<()> {
        self.publish(&frame.record())
    }

    /// Publishes a frame, and waits for room for no longer than `patience`: a peer that rewrites its own ring may have
    /// taken back the head that the other side waits for.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn send_within(&mut self, frame: &Frame, patience: Duration) -> io::Result<()> {
        self.publish_within(&frame.record(), patience)
    }

    /// Writes a record that claims to have `claimed` bytes.
    pub fn write_record(&mut self, record: &[u8], claimed: u32) {
        let end = self.published + line_count(record.len()) as u64;
        self.own.store_u64(self.at(end), HEAD_EMPTY, Ordering::Relaxed);
        for (idx, byte_run) in record.chunks(LINE_LEN).enumerate() {
            let at = self.published as usize * LINE_LEN + HEAD_LEN + idx * LINE_LEN;
            self.copy_in(at, byte_run);
        }
        let word = head_word(RingPos(self.published), claimed);
        self.own.store_u64(self.at(self.published), word, Ordering::Release);
        self.published = end;
        self.latest.store(end, Ordering::Relaxed);
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let at = at % RING_LEN_DEFAULT;
        let (head, tail) = bytes.split_at(bytes.len().min(RING_LEN_DEFAULT - at));
        self.own.copy_in(RING_OFF + at, head);
        self.own.copy_in(RING_OFF, tail);
    }

    /// Puts any word where the next record's head belongs, and rings.
    pub fn forge_head(&mut self, word: u64) {
        self.own.store_u64(self.at(self.published), word, Ordering::Release);
        self.ring();
    }

    /// The head word that an honest record of `len` bytes would have next.
    pub fn next_head(&self, len: u32) -> u64 {
        head_word(RingPos(self.published), len)
    }

    /// Says to have read up to `pos` lines.
    pub fn forge_cursor(&mut self, pos: u64) {
        self.own.store_u64(CONSUMED_OFF, pos, Ordering::Release);
    }

    /// Says to have any number of calls under way.
    pub fn forge_load(&mut self, word: u32) {
        self.own.store_u32(LOAD_OFF, word, Ordering::Relaxed);
    }

    /// Where an honest cursor would stand.
    pub fn cursor(&self) -> u64 {
        self.read
    }

    /// Says to sleep (for room too), or not.
    pub fn say_waiting(&mut self, word: Waiting) {
        self.own.store_u32(WAITING_OFF, word.0, Ordering::Release);
    }

    /// Rings the doorbell whether or not anybody sleeps.
    pub fn ring(&mut self) {
        let _ = self.door.send(b"!", &[]);
    }

    fn ring_if_parked(&mut self) {
        // As the ring's own ringer: publish, fence, look.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sees_sleeper() {
            self.ring();
        }
    }

    /// Whether the other side says that it sleeps.
    pub fn sees_sleeper(&self) -> bool {
        Waiting(self.theirs.load_u32(WAITING_OFF, Ordering::Relaxed)).is_parked()
    }

    /// Sends a byte with descriptors.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn send_fds(&mut self, fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.door.send(b"a", fds)
    }

    /// The next record of the other side, if there is one now. It gets its room back.
    pub fn try_read(&mut self) -> Option<Vec<u8>> {
        let line = |pos: u64| RING_OFF + (pos as usize * LINE_LEN) % self.their_ring_len;
        let word = self.theirs.load_u64(line(self.read), Ordering::Acquire);
        let len = head_len(word, RingPos(self.read))? as usize;
        let mut record = vec![0; len];
        let at = (self.read as usize * LINE_LEN + HEAD_LEN) % self.their_ring_len;
        let (head, tail) = record.split_at_mut(len.min(self.their_ring_len - at));
        self.theirs.copy_out(RING_OFF + at, head);
        self.theirs.copy_out(RING_OFF, tail);
        self.read += line_count(len) as u64;
        self.forge_cursor(self.read);
        Some(record)
    }

    /// Waits for the next record.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when none comes, [`io::ErrorKind::BrokenPipe`] when the other side has hung up.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        let began = Instant::now();
        loop {
            if let Some(record) = self.try_read() {
                return Ok(record);
            }
            if self.door.is_closed() {
                return self.try_read().ok_or(io::ErrorKind::BrokenPipe.into());
            }
            if began.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
    }

    /// What the other side's CLOSE says, if one is among the records that were not read yet.
    pub fn closing_words(&mut self) -> Option<String> {
        std::iter::from_fn(|| self.try_read()).find_map(|record| {
            let (head, body) = FrameHead::read_from_prefix(&record).ok()?;
            let is_close = head.events == events::CONTROL && head.code.get() == control::CLOSE;
            is_close.then(|| String::from_utf8_lossy(body).into_owned())
        })
    }

    /// A thread that rewrites words of this side's ring, and puts them back, until it is dropped: around what was written
    /// last, as that is what is being read. With an even seed head words are spared, so that more of what is in the
    /// records is reached.
    pub fn flip(&self, seed: u64) -> Flipper {
        let (own, stop, latest) = (self.own.clone(), Arc::new(AtomicBool::new(false)), self.latest.clone());
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut chance = Chance::new(seed);
            let mut count = 0;
            while !seen.load(Ordering::Relaxed) {
                let line = latest.load(Ordering::Relaxed).wrapping_sub(chance.below(24)) as usize;
                let word_idx = chance.below(LINE_LEN as u64 / 8) as usize;
                if seed.is_multiple_of(2) && word_idx == 0 {
                    continue;
                }
                let at = RING_OFF + line.wrapping_mul(LINE_LEN) % RING_LEN_DEFAULT + word_idx * 8;
                let word = own.load_u64(at, Ordering::Relaxed);
                own.store_u64(at, word ^ (1 << chance.below(64)), Ordering::Relaxed);
                (0..chance.below(200)).for_each(|_| std::hint::spin_loop());
                own.store_u64(at, word, Ordering::Relaxed);
                count += 1;
                if count % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            count
        });
        Flipper { stop, thread: Some(thread) }
    }

    /// Closes one half of the socket or both; the memory stays.
    pub fn shutdown(&self, how: Shutdown) {
        self.door.shutdown(how);
    }

    /// The region's descriptor, to send where it does not belong.
    pub fn region_fd(&self) -> BorrowedFd<'_> {
        self.own.fd()
    }
}

/// Stops its thread when dropped.
#[derive(Debug)]
pub struct Flipper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Flipper {
    /// Stops, and says how many words were rewritten.
    pub fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for Flipper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
